"""Questions about where things of one picture are: beside one another, or in a half of the picture."""

from __future__ import annotations

import random

from .questions import YES, Item, Phrase, ask_exist, item, pair, phrase, unique, wanted
from .world import CANVAS, Scene, Thing

_SIDES = {
    "left": ("to the left of", "x1 < x2"),
    "right": ("to the right of", "x1 > x2"),
    "above": ("above", "y1 > y2"),
    "below": ("below", "y1 < y2"),
}
_OTHERS = {
    "left": ("to the left of", "left of", "on the left side of"),
    "right": ("to the right of", "right of", "on the right side of"),
    "above": ("above", "higher than", "over"),
    "below": ("below", "lower than", "under"),
}


def _positions(first: Phrase, second: Phrase) -> str:
    return f'x1, y1 = get_pos(img, "{first.name}")\nx2, y2 = get_pos(img, "{second.name}")\n'


def _holds(side: str, first: Thing, second: Thing) -> bool:
    return {
        "left": first.x < second.x,
        "right": first.x > second.x,
        "above": first.y < second.y,
        "below": first.y > second.y,
    }[side]


def _far(side: str, first: Thing, second: Thing) -> bool:
    """Boxes may hold things nearly level with one another: those are not asked about."""
    across, down = abs(first.x - second.x), abs(first.y - second.y)
    return (across if side in ("left", "right") else down) >= 9


def _apart(rng: random.Random, scene: Scene, side: str) -> tuple[Phrase, Thing, Phrase, Thing] | None:
    """Picks two things, each described alone, one of which is clearly on that side of the other, or opposite."""
    both = pair(rng, scene)
    return None if both is None or not _far(side, both[1], both[3]) else both


def relation(rng: random.Random, scene: Scene) -> Item | None:
    """Is the red star to the left of the blue circle?"""
    side = rng.choice(tuple(_SIDES))

    def propose() -> tuple[tuple[Phrase, Thing, Phrase, Thing], bool] | None:
        both = _apart(rng, scene, side)
        return None if both is None else (both, _holds(side, both[1], both[3]))

    both = wanted(rng, propose)
    if both is None:
        return None
    first, one, second, two = both
    templates = (
        "is the {p} {s} the {q}?",
        "is the {p} located {s} the {q}?",
        "does the {p} lie {s} the {q}?",
        "the {p} is {s} the {q}.",
        "does the {p} appear {s} the {q}?",
        "can the {p} be found {s} the {q}?",
        "is the {p} positioned {s} the {q}?",
        "is it true that the {p} is {s} the {q}?",
        "~is the {p} placed {s} the {q}?",
    )
    program = _positions(first, second) + YES.format(test=_SIDES[side][1])
    words = rng.choice(_OTHERS[side])
    truth = _holds(side, one, two)
    return item(rng, "relation", templates, truth, program, p=first.name, q=second.name, s=words)


def two_relations(rng: random.Random, scene: Scene) -> Item | None:
    """Is the red star to the left of the blue circle and above the green tree?"""
    sides = [rng.choice(("left", "right")), rng.choice(("above", "below"))]
    rng.shuffle(sides)

    def propose() -> tuple[tuple[Phrase, Phrase, Phrase], bool] | None:
        found = [unique(rng, scene) for _ in range(3)]
        known = [one for one in found if one is not None]
        if len(known) < 3 or len({id(thing) for _, thing in known}) < 3:
            return None
        (what, thing), *marks = known
        if not all(_far(side, thing, other) for side, (_, other) in zip(sides, marks, strict=True)):
            return None
        truth = all(_holds(side, thing, other) for side, (_, other) in zip(sides, marks, strict=True))
        return (what, marks[0][0], marks[1][0]), truth

    made = wanted(rng, propose)
    if made is None:
        return None
    what, first, second = made
    templates = (
        "is the {p} {s} the {q} and {t} the {r}?",
        "the {p} is {s} the {q} and {t} the {r}.",
        "does the {p} lie {s} the {q} and {t} the {r}?",
        "is the {p} both {s} the {q} and {t} the {r}?",
        "~is the {p} located {s} the {q} and {t} the {r}?",
    )
    tests = [_SIDES[side][1].replace("2", str(place)) for place, side in enumerate(sides, 2)]
    program = _positions(what, first) + f'x3, y3 = get_pos(img, "{second.name}")\n'
    program += YES.format(test=" and ".join(tests))
    things = [one.find(scene)[0] for one in (what, first, second)]
    truth = all(_holds(side, things[0], other) for side, other in zip(sides, things[1:], strict=True))
    words = [rng.choice(_OTHERS[side]) for side in sides]
    names = {"p": what.name, "q": first.name, "r": second.name}
    return item(rng, "two_relations", templates, truth, program, form="image", s=words[0], t=words[1], **names)


def exist_relation(rng: random.Random, scene: Scene) -> Item | None:
    """Is there a red star to the left of the blue circle?"""
    side = rng.choice(tuple(_SIDES))

    def propose() -> tuple[tuple[Phrase, Phrase], bool] | None:
        found = unique(rng, scene)
        what = phrase(rng, scene, generic=0.0)
        matches = what.find(scene)
        if found is None or len(matches) > 1 or found[1] in matches or what.holds(found[1]):
            return None
        if matches and not _far(side, matches[0], found[1]):
            return None
        if not matches and rng.random() < 0.5:
            return None
        return (what, found[0]), bool(matches) and _holds(side, matches[0], found[1])

    made = wanted(rng, propose)
    if made is None:
        return None
    what, mark = made
    matches = what.find(scene)
    truth = bool(matches) and _holds(side, matches[0], mark.find(scene)[0])
    templates = (
        "is there {a} {s} the {q}?",
        "can you see {a} {s} the {q}?",
        "there is {a} {s} the {q}.",
        "does the picture show {a} {s} the {q}?",
        "is {a} {s} the {q}?",
        "~do you see {a} {s} the {q}?",
    )
    program = (
        f'found = query(img, "{ask_exist(what)}")\n'
        + _positions(what, mark)
        + YES.format(test=f'found == "yes" and {_SIDES[side][1]}')
    )
    return item(rng, "exist_relation", templates, truth, program, a=what.one, q=mark.name, s=rng.choice(_OTHERS[side]))


def which_side(rng: random.Random, scene: Scene) -> Item | None:
    """Is the red star to the left or to the right of the blue circle?"""
    both = pair(rng, scene)
    across = rng.random() < 0.5
    if both is None or not _far("left" if across else "above", both[1], both[3]):
        return None
    first, one, second, two = both
    templates: tuple[str, ...]
    if across:
        templates = (
            "is the {p} to the left or to the right of the {q}?",
            "is the {p} left or right of the {q}?",
            "is the {p} to the right or to the left of the {q}?",
            "on which side of the {q} is the {p}, left or right?",
            "where is the {p}, left or right of the {q}?",
            "is the {p} on the left or on the right of the {q}?",
            "on what side of the {q} does the {p} lie, left or right?",
            "relative to the {q}, is the {p} left or right?",
            "~which side of the {q} is the {p} on, left or right?",
        )
        last = 'answer = "left" if x1 < x2 else "right"'
        answer = "left" if one.x < two.x else "right"
    else:
        templates = (
            "is the {p} above or below the {q}?",
            "is the {p} below or above the {q}?",
            "is the {p} located above or below the {q}?",
            "where is the {p}, above or below the {q}?",
            "relative to the {q}, is the {p} above or below?",
            "~does the {p} lie above or below the {q}?",
        )
        last = 'answer = "above" if y1 > y2 else "below"'
        answer = "above" if one.y < two.y else "below"
    name = "which_side"
    return item(rng, name, templates, answer, _positions(first, second) + last, p=first.name, q=second.name)


def which_thing(rng: random.Random, scene: Scene) -> Item | None:
    """Which is further to the left, the red star or the blue circle?"""
    side = rng.choice(tuple(_SIDES))
    both = _apart(rng, scene, side)
    if both is None:
        return None
    first, one, second, two = both
    words = {
        "left": ("further to the left", "more to the left"),
        "right": ("further to the right", "more to the right"),
        "above": ("higher", "higher up"),
        "below": ("lower", "lower down"),
    }[side]
    templates = (
        "which is {s}, the {p} or the {q}?",
        "what is {s}, the {p} or the {q}?",
        "is the {p} or the {q} {s}?",
        "what lies {s}, the {p} or the {q}?",
        "which of the two is {s}, the {p} or the {q}?",
        "which thing is {s}, the {p} or the {q}?",
        "~which one is {s}, the {p} or the {q}?",
    )
    test = _SIDES[side][1]
    program = _positions(first, second) + f'answer = "{first.name}" if {test} else "{second.name}"'
    answer = first.name if _holds(side, one, two) else second.name
    return item(rng, "which_thing", templates, answer, program, p=first.name, q=second.name, s=rng.choice(words))


def half(rng: random.Random, scene: Scene) -> Item | None:
    """Is the star on the left or the right side of the picture?"""
    found = unique(rng, scene)
    if found is None:
        return None
    what, thing = found
    across = rng.random() < 0.5
    offset = (thing.x if across else thing.y) - CANVAS / 2
    if abs(offset) < 9:
        return None
    low, high = ("left", "right") if across else ("top", "bottom")
    answer = low if offset < 0 else high
    middle = "(LEFT + RIGHT) / 2" if across else "(BOTTOM + TOP) / 2"
    place = f'x, y = get_pos(img, "{what.name}")\n'
    if rng.random() < 0.5:
        shown = rng.choice((low, high))
        test = {"left": "x < ", "right": "x > ", "top": "y > ", "bottom": "y < "}[shown] + middle
        templates: tuple[str, ...] = (
            "is the {p} on the {s} side of the picture?",
            "is the {p} in the {s} half of the picture?",
            "is the {p} in the {s} part of the image?",
            "the {p} is in the {s} half of the picture.",
            "is the {p} at the {s} of the picture?",
            "~does the {p} lie in the {s} half of the image?",
        )
        return item(rng, "half", templates, answer == shown, place + YES.format(test=test), p=what.name, s=shown)
    test = f"x < {middle}" if across else f"y > {middle}"
    templates = (
        "is the {p} on the {s} or the {t} side of the picture?",
        "on which side of the picture is the {p}, {s} or {t}?",
        "is the {p} in the {s} or the {t} half of the image?",
        "in which half of the image does the {p} lie, {s} or {t}?",
        "which side of the picture is the {p} on, {s} or {t}?",
        "where in the picture is the {p}, {s} or {t}?",
        "~which half of the picture is the {p} in, {s} or {t}?",
    )
    program = place + f'answer = "{low}" if {test} else "{high}"'
    return item(rng, "half_choice", templates, answer, program, p=what.name, s=low, t=high)
