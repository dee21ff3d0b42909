"""Questions about one picture."""

from __future__ import annotations

import random
from typing import Any

from .questions import (
    ImageFamily,
    Item,
    Phrase,
    ask_color,
    ask_count,
    ask_exist,
    colors_of,
    item,
    kinds_of,
    number,
    pair,
    phrase,
    unique,
    wanted,
)
from .world import CANVAS, SIZES, Scene, Thing

YES = 'answer = "yes" if {test} else "no"'


def _ask(question: str) -> str:
    return f'answer = query(img, "{question}")'


def _positions(first: Phrase, second: Phrase) -> str:
    return f'x1, y1 = get_pos(img, "{first.name}")\nx2, y2 = get_pos(img, "{second.name}")\n'


def exist(rng: random.Random, scene: Scene) -> Item | None:
    """Is there a red star?"""

    def propose() -> tuple[Phrase, bool]:
        what = phrase(rng, scene)
        return what, what.count(scene) > 0

    what = wanted(rng, propose)
    if what is None:
        return None
    templates = (
        "is there {a}?",
        "is there {a} in the picture?",
        "are there any {ps}?",
        "does the picture show {a}?",
        "does the image contain {a}?",
        "can you see {a}?",
        "there is {a}.",
        "does it show {a}?",
        "is there any {p} in the image?",
        "does this picture have {a}?",
        "the picture shows {a}.",
        "are there {ps} here?",
        "~do you see any {ps} in the picture?",
        "~is {a} visible?",
    )
    program = _ask(ask_exist(what))
    return item(rng, "exist", templates, what.count(scene) > 0, program, a=what.one, p=what.name, ps=what.many)


def color(rng: random.Random, scene: Scene) -> Item | None:
    """What color is the star?"""
    found = unique(rng, scene, need_color=False)
    if found is None:
        return None
    templates = (
        "what color is the {p}?",
        "what is the color of the {p}?",
        "which color is the {p}?",
        "what color does the {p} have?",
        "the {p} is what color?",
        "tell me the color of the {p}.",
        "what's the color of the {p}?",
        "in which color is the {p} drawn?",
        "what is the {p}'s color?",
        "~which color does the {p} have?",
    )
    return item(rng, "color", templates, found[1].color, _ask(ask_color(found[0])), p=found[0].name)


def kind(rng: random.Random, scene: Scene) -> Item | None:
    """What is the red object?"""
    for _ in range(8):
        thing = rng.choice(scene.things)
        what = Phrase(None, thing.color, rng.choice((None, None, None, thing.size)))
        if what.count(scene) == 1:
            templates = (
                "what is the {p}?",
                "what shape is the {p}?",
                "what kind of object is {d}?",
                "which object is {d}?",
                "what is {d}?",
                "name the {p}.",
                "which thing is {d}?",
                "what object is {d} in the picture?",
                "~what is the thing that is {d}?",
            )
            described = " and ".join(part for part in (what.size, what.color) if part)
            return item(rng, "kind", templates, thing.kind, _ask(f"What is the {what.name}?"), p=what.name, d=described)
    return None


def size(rng: random.Random, scene: Scene) -> Item | None:
    """What size is the star?"""
    found = unique(rng, scene)
    if found is None or found[0].size is not None:
        return None
    templates = (
        "what size is the {p}?",
        "how big is the {p}?",
        "how large is the {p}?",
        "which size is the {p}?",
        "what size does the {p} have?",
        "is the {p} small, medium or large?",
        "~what is the size of the {p}?",
    )
    program = _ask(f"What size is the {found[0].name}?")
    return item(rng, "size", templates, found[1].size, program, p=found[0].name)


def count(rng: random.Random, scene: Scene) -> Item | None:
    """How many red stars are there?"""
    what = Phrase() if rng.random() < 0.1 else phrase(rng, scene, size=0.03)
    value = what.count(scene)
    # Zero and one would be most of the answers.
    if value < 2 and rng.random() < (0.8 if value == 0 else 0.5):
        return None
    templates = (
        "how many {ps} are there?",
        "how many {ps} are in the picture?",
        "what is the number of {ps}?",
        "how many {ps} does the picture show?",
        "how many {ps} can you see?",
        "count the {ps}.",
        "how many {ps}?",
        "how many {ps} does the image contain?",
        "what number of {ps} is shown?",
        "how many {ps} are shown?",
        "~how many {ps} do you see?",
    )
    return item(rng, "count", templates, str(value), _ask(ask_count(what)), ps=what.many)


def verify(rng: random.Random, scene: Scene) -> Item | None:
    """Is the star red?"""
    found = unique(rng, scene, need_color=False)
    if found is None:
        return None
    what, thing = found
    truth = rng.random() < 0.5
    others = [option for option in colors_of(scene) if option != thing.color]
    shown = thing.color if truth else rng.choice(others)
    templates = (
        "is the {p} {c}?",
        "is the color of the {p} {c}?",
        "the {p} is {c}.",
        "is that {p} {c}?",
        "is {c} the color of the {p}?",
        "is the {p} in the picture {c}?",
        "~does the {p} have the color {c}?",
    )
    program = f'color = query(img, "{ask_color(what)}")\n' + YES.format(test=f'color == "{shown}"')
    return item(rng, "verify", templates, truth, program, p=what.name, c=shown)


def choose_color(rng: random.Random, scene: Scene) -> Item | None:
    """Is the star red or blue?"""
    found = unique(rng, scene, need_color=False)
    if found is None:
        return None
    options = [found[1].color, rng.choice([one for one in colors_of(scene) if one != found[1].color])]
    rng.shuffle(options)
    templates = (
        "is the {p} {c} or {d}?",
        "which color is the {p}, {c} or {d}?",
        "what color is the {p}, {c} or {d}?",
        "is the color of the {p} {c} or {d}?",
        "does the {p} look {c} or {d}?",
        "~what is the {p}, {c} or {d}?",
    )
    c, d = options
    return item(rng, "choose_color", templates, found[1].color, _ask(ask_color(found[0])), p=found[0].name, c=c, d=d)


def choose_kind(rng: random.Random, scene: Scene) -> Item | None:
    """Is the red object a star or a circle?"""
    thing = rng.choice(scene.things)
    what = Phrase(None, thing.color)
    if what.count(scene) != 1:
        return None
    options = [thing.kind, rng.choice([one for one in kinds_of(scene) if one != thing.kind])]
    rng.shuffle(options)
    first, second = (Phrase(one) for one in options)
    templates = (
        "is the {p} {a} or {b}?",
        "what is the {p}, {a} or {b}?",
        "which is the {p}, {a} or {b}?",
        "the {p}, is it {a} or {b}?",
        "~is that {p} {a} or {b}?",
    )
    program = f'first = query(img, "{ask_exist(Phrase(first.kind, thing.color))}")\n'
    program += f'answer = "{first.head}" if first == "yes" else "{second.head}"'
    return item(rng, "choose_kind", templates, thing.kind, program, p=what.name, a=first.one, b=second.one)


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


def relation(rng: random.Random, scene: Scene) -> Item | None:
    """Is the red star to the left of the blue circle?"""
    side = rng.choice(tuple(_SIDES))

    def propose() -> tuple[tuple[Phrase, Thing, Phrase, Thing], bool] | None:
        both = pair(rng, scene)
        if both is None or not _far(side, both[1], both[3]):
            return None
        return both, _holds(side, both[1], both[3])

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
    both = pair(rng, scene)
    if both is None or not _far(side, both[1], both[3]):
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


def _two(rng: random.Random, scene: Scene) -> tuple[Phrase, Phrase] | None:
    first, second = phrase(rng, scene, size=0.03, generic=0.03), phrase(rng, scene, size=0.03, generic=0.03)
    return None if first.overlaps(second) else (first, second)


def _both_asked(first: Phrase, second: Phrase, test: str) -> str:
    return f'first = query(img, "{ask_exist(first)}")\nsecond = query(img, "{ask_exist(second)}")\n' + YES.format(
        test=test
    )


def both_exist(rng: random.Random, scene: Scene) -> Item | None:
    """Is there a red star and a blue circle?"""

    def propose() -> tuple[tuple[Phrase, Phrase], bool] | None:
        found = _two(rng, scene)
        return None if found is None else (found, all(one.count(scene) > 0 for one in found))

    made = wanted(rng, propose)
    if made is None:
        return None
    first, second = made
    templates = (
        "is there {a} and {b}?",
        "are there both {ps} and {qs}?",
        "does the picture show {a} and {b}?",
        "are there {ps} and {qs} in the picture?",
        "does the image contain both {a} and {b}?",
        "there is {a} and {b}.",
        "do you see {a} and {b}?",
        "does the picture have both {ps} and {qs}?",
        "is there {a} as well as {b}?",
        "~can you see both {a} and {b}?",
    )
    truth = first.count(scene) > 0 and second.count(scene) > 0
    program = _both_asked(first, second, 'first == "yes" and second == "yes"')
    slots: dict[str, Any] = {"a": first.one, "b": second.one, "ps": first.many, "qs": second.many}
    return item(rng, "and", templates, truth, program, **slots)


def either_exists(rng: random.Random, scene: Scene) -> Item | None:
    """Is there a red star or a blue circle?"""

    def propose() -> tuple[tuple[Phrase, Phrase], bool] | None:
        found = _two(rng, scene)
        return None if found is None else (found, any(one.count(scene) > 0 for one in found))

    made = wanted(rng, propose)
    if made is None:
        return None
    first, second = made
    templates = (
        "is there {a} or {b}?",
        "are there any {ps} or {qs}?",
        "is there either {a} or {b} in the picture?",
        "does the picture contain {a} or {b}?",
        "are there {ps} or {qs}?",
        "there is {a} or {b}.",
        "do you see {a} or {b}?",
        "does the picture have any {ps} or {qs}?",
        "is there {a} or is there {b}?",
        "~can you see {a} or {b}?",
    )
    truth = first.count(scene) > 0 or second.count(scene) > 0
    program = _both_asked(first, second, 'first == "yes" or second == "yes"')
    slots: dict[str, Any] = {"a": first.one, "b": second.one, "ps": first.many, "qs": second.many}
    return item(rng, "or", templates, truth, program, **slots)


def one_not_other(rng: random.Random, scene: Scene) -> Item | None:
    """Is there a red star but no blue circle?"""

    def propose() -> tuple[tuple[Phrase, Phrase], bool] | None:
        found = _two(rng, scene)
        return None if found is None else (found, found[0].count(scene) > 0 and found[1].count(scene) == 0)

    made = wanted(rng, propose)
    if made is None:
        return None
    first, second = made
    templates = (
        "is there {a} but no {q}?",
        "is there {a} and no {q}?",
        "is there {a} without {b}?",
        "there is {a} but no {q}.",
        "~does the picture show {a} but no {q}?",
    )
    truth = first.count(scene) > 0 and second.count(scene) == 0
    program = _both_asked(first, second, 'first == "yes" and second == "no"')
    return item(rng, "but_not", templates, truth, program, a=first.one, b=second.one, q=second.name)


def same_color(rng: random.Random, scene: Scene) -> Item | None:
    """Are the star and the circle the same color?"""

    def propose() -> tuple[tuple[Phrase, Thing, Phrase, Thing], bool] | None:
        first, second = unique(rng, scene, need_color=False), unique(rng, scene, need_color=False)
        if first is None or second is None or first[1] is second[1]:
            return None
        return (*first, *second), first[1].color == second[1].color

    made = wanted(rng, propose)
    if made is None:
        return None
    first, one, second, two = made
    differ = rng.random() < 0.35
    templates: tuple[str, ...] = (
        (
            "are the {p} and the {q} different colors?",
            "are the {p} and the {q} of different color?",
            "is the color of the {p} different from the color of the {q}?",
            "do the {p} and the {q} have different colors?",
            "is the {p} a different color than the {q}?",
            "~do the {p} and the {q} differ in color?",
        )
        if differ
        else (
            "are the {p} and the {q} the same color?",
            "do the {p} and the {q} have the same color?",
            "is the {p} the same color as the {q}?",
            "the {p} and the {q} have the same color.",
            "are the {p} and the {q} of the same color?",
            "is the color of the {p} the same as the color of the {q}?",
            "do the {p} and the {q} share a color?",
            "~does the {p} have the same color as the {q}?",
        )
    )
    program = f'first = query(img, "{ask_color(first)}")\nsecond = query(img, "{ask_color(second)}")\n'
    program += YES.format(test="first != second" if differ else "first == second")
    truth = (one.color == two.color) != differ
    name = "different_color" if differ else "same_color"
    return item(rng, name, templates, truth, program, p=first.name, q=second.name)


def compare(rng: random.Random, scene: Scene) -> Item | None:
    """Are there more stars than circles?"""
    sign = rng.choice((">", ">", "<", "=="))

    def check(first: Phrase, second: Phrase) -> bool:
        a, b = first.count(scene), second.count(scene)
        return {">": a > b, "<": a < b, "==": a == b}[sign]

    def propose() -> tuple[tuple[Phrase, Phrase], bool] | None:
        found = _two(rng, scene)
        if found is None or found[0].count(scene) + found[1].count(scene) == 0:
            return None
        return found, check(*found)

    made = wanted(rng, propose)
    if made is None:
        return None
    first, second = made
    templates = {
        ">": (
            "are there more {ps} than {qs}?",
            "does the picture show more {ps} than {qs}?",
            "there are more {ps} than {qs}.",
            "do you see more {ps} than {qs}?",
            "is the number of {ps} greater than the number of {qs}?",
            "does the image contain more {ps} than {qs}?",
            "~can you see more {ps} than {qs}?",
        ),
        "<": (
            "are there fewer {ps} than {qs}?",
            "does the picture show fewer {ps} than {qs}?",
            "are there less {ps} than {qs}?",
        ),
        "==": (
            "are there as many {ps} as {qs}?",
            "is the number of {ps} equal to the number of {qs}?",
            "are there equally many {ps} and {qs}?",
            "does the picture show as many {ps} as {qs}?",
            "~is the number of {ps} the same as the number of {qs}?",
        ),
    }[sign]
    program = f'first = int(query(img, "{ask_count(first)}"))\nsecond = int(query(img, "{ask_count(second)}"))\n'
    program += YES.format(test=f"first {sign} second")
    return item(rng, "compare", templates, check(first, second), program, ps=first.many, qs=second.many)


def threshold(rng: random.Random, scene: Scene) -> Item | None:
    """Are there at least two stars?"""
    sign = rng.choice((">=", ">=", "==", ">", "<"))

    def check(what: Phrase, limit: int) -> bool:
        value = what.count(scene)
        return {">=": value >= limit, "==": value == limit, ">": value > limit, "<": value < limit}[sign]

    def propose() -> tuple[tuple[Phrase, int], bool] | None:
        what = Phrase() if rng.random() < 0.15 else phrase(rng, scene, size=0.03)
        limit = max(1, min(6, what.count(scene) + rng.randint(-1, 1)))
        limit = max(2, limit) if sign == "<" or rng.random() < 0.9 else limit
        return None if what.count(scene) == 0 else ((what, limit), check(what, limit))

    made = wanted(rng, propose)
    if made is None:
        return None
    what, limit = made
    words = {">=": "at least", "==": "exactly", ">": "more than", "<": "fewer than"}[sign]
    templates = (
        "are there {s} {n} {ps}?",
        "does the picture show {s} {n} {ps}?",
        "there are {s} {n} {ps}.",
        "do you see {s} {n} {ps}?",
        "does the image contain {s} {n} {ps}?",
        "is it true that there are {s} {n} {ps}?",
        "~can you see {s} {n} {ps}?",
    )
    program = f'count = int(query(img, "{ask_count(what)}"))\n' + YES.format(test=f"count {sign} {limit}")
    shown = what.name if limit == 1 else what.many
    text = number(rng, limit)
    return item(rng, "threshold", templates, check(what, limit), program, s=words, n=text, ps=shown)


def total(rng: random.Random, scene: Scene) -> Item | None:
    """How many stars and circles are there in total?"""
    found = _two(rng, scene)
    if found is None:
        return None
    first, second = found
    value = first.count(scene) + second.count(scene)
    if first.count(scene) == 0 or (second.count(scene) == 0 and rng.random() < 0.7):
        return None
    templates = (
        "how many {ps} and {qs} are there in total?",
        "how many {ps} and {qs} are there altogether?",
        "what is the total number of {ps} and {qs}?",
        "how many {ps} and {qs} are there?",
        "how many {ps} and {qs} does the picture show together?",
        "what is the sum of {ps} and {qs}?",
        "~counting {ps} and {qs} together, how many are there?",
    )
    program = f'first = int(query(img, "{ask_count(first)}"))\nsecond = int(query(img, "{ask_count(second)}"))\n'
    program += "answer = str(first + second)"
    return item(rng, "total", templates, str(value), program, ps=first.many, qs=second.many)


def bigger(rng: random.Random, scene: Scene) -> Item | None:
    """Are the star and the circle the same size?"""

    def propose() -> tuple[tuple[Phrase, Thing, Phrase, Thing], bool] | None:
        both = pair(rng, scene)
        if both is None or both[0].size or both[2].size:
            return None
        return both, both[1].size == both[3].size

    made = wanted(rng, propose)
    if made is None:
        return None
    first, one, second, two = made
    templates = ("are the {p} and the {q} the same size?", "do the {p} and the {q} have the same size?")
    program = f'first = query(img, "What size is the {first.name}?")\n'
    program += f'second = query(img, "What size is the {second.name}?")\n' + YES.format(test="first == second")
    return item(rng, "same_size", templates, one.size == two.size, program, p=first.name, q=second.name)


def verify_size(rng: random.Random, scene: Scene) -> Item | None:
    """Is the red star large?"""
    found = unique(rng, scene)
    if found is None or found[0].size:
        return None
    truth = rng.random() < 0.5
    shown = found[1].size if truth else rng.choice([one for one in SIZES if one != found[1].size])
    templates = ("is the {p} {c}?", "is the size of the {p} {c}?")
    program = f'size = query(img, "What size is the {found[0].name}?")\n' + YES.format(test=f'size == "{shown}"')
    return item(rng, "verify_size", templates, truth, program, p=found[0].name, c=shown)


FAMILIES: dict[str, tuple[float, ImageFamily]] = {
    "exist": (2.0, exist),
    "color": (1.2, color),
    "kind": (1.0, kind),
    "size": (0.5, size),
    "count": (2.0, count),
    "verify": (0.7, verify),
    "choose_color": (0.5, choose_color),
    "choose_kind": (0.5, choose_kind),
    "relation": (2.0, relation),
    "exist_relation": (0.8, exist_relation),
    "which_side": (1.2, which_side),
    "which_thing": (1.0, which_thing),
    "half": (1.0, half),
    "and": (1.2, both_exist),
    "or": (1.2, either_exists),
    "but_not": (0.5, one_not_other),
    "same_color": (1.0, same_color),
    "compare": (1.0, compare),
    "threshold": (1.0, threshold),
    "total": (0.6, total),
    "same_size": (0.3, bigger),
    "verify_size": (0.3, verify_size),
}
"""Weight and maker of each family."""
