"""True sentences about a scene of the small world: what follows the captioner's prompt "a picture of ".

Every caption is true of the whole scene, also when it only speaks of some of its things: "two red stars" means that
there are two in the picture. A tower's squares are called blocks, as the people who described such pictures call them.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Sequence

from .world import CANVAS, Scene, Thing, plural

NUMBERS: tuple[str, ...] = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight")
"""Numbers as words, by value."""

RELATIONS: dict[str, tuple[int, int]] = {
    "to the left of": (-1, 0),
    "to the right of": (1, 0),
    "above": (0, -1),
    "below": (0, 1),
}
"""Each relation and the direction (across, down) in which the first thing lies from the second."""

MARGIN = 8.0
"""Centres this many pixels apart or more are said to be left, right, above or below of each other."""


def related(first: Thing, relation: str, second: Thing) -> bool:
    """Whether the first thing clearly lies in a relation of ``RELATIONS`` to the second."""
    across, down = RELATIONS[relation]
    return (first.x - second.x) * across + (first.y - second.y) * down >= MARGIN


def article(noun: str) -> str:
    """The noun phrase with "a" or "an" before it."""
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def place(thing: Thing) -> str:
    """Where in the picture a thing lies: "at the top left", "on the right", "in the middle"; empty in between."""
    low, high = 0.38 * CANVAS, 0.62 * CANVAS
    across = "left" if thing.x < low else "right" if thing.x > high else ""
    down = "top" if thing.y < low else "bottom" if thing.y > high else ""
    if across and down:
        return f"at the {down} {across}"
    if across:
        return f"on the {across}"
    if down:
        return f"at the {down}"
    return "in the middle"


def captions(scene: Scene, rng: random.Random, n: int, focus: Collection[int] | None = None) -> list[str]:
    """Draws n true captions.

    Args:
        scene: What is described.
        rng: Where the chance comes from.
        n: How many captions; the same one may come twice.
        focus: Places in ``scene.things`` of what to speak of first; None or nothing for all. A caption may now and
            then set another thing in relation to one of these, and a number counts the whole scene.
    """
    places = sorted(focus) if focus else range(len(scene.things))
    chosen = [scene.things[index] for index in places]
    forms = _forms(scene, chosen)
    weights = [weight for weight, _ in forms]
    found: list[str] = []
    while len(found) < n:
        text = rng.choices(forms, weights)[0][1](scene, chosen, rng)
        if text:
            found.append(text)
    return found


def relation_caption(scene: Scene, rng: random.Random, focus: Collection[int] | None = None) -> str:
    """Draws one true sentence on where two things lie, one of them in focus; empty when no two can be told apart."""
    places = sorted(focus) if focus else range(len(scene.things))
    return _relation(scene, [scene.things[index] for index in places], rng)


Form = Callable[[Scene, Sequence[Thing], random.Random], str]
"""Writes one caption, or nothing where it does not apply."""


def _forms(scene: Scene, chosen: Sequence[Thing]) -> list[tuple[float, Form]]:
    everything = len(chosen) == len(scene.things)
    forms: list[tuple[float, Form]] = [(4.0, _group)]
    if len({(thing.color, thing.kind) for thing in chosen}) > 1:
        forms.append((4.0, _listing))
    if scene.tower:
        forms.append((8.0, _tower))
    else:
        forms.append((1.0, _placed))
        if len(scene.things) > 1:
            forms.append((2.5, _relation))
    if any(count > 1 for count in Counter(thing.kind for thing in chosen).values()):
        forms.append((2.0, _kinds))
    if any(count > 1 for count in Counter(thing.color for thing in chosen).values()):
        forms.append((1.0, _colors))
    if everything and len(scene.things) > 1:
        forms.append((1.5, _total))
    if scene.style == "box" and not scene.tower and any(thing.walls for thing in chosen):
        forms.append((2.5, _touching))
    return forms


def _noun(scene: Scene, thing: Thing, rng: random.Random) -> str:
    return "block" if scene.tower and rng.random() < 0.8 else thing.kind


def _counted(count: int, words: str, noun: str) -> str:
    """ "a red star", "two red stars"."""
    if count == 1:
        return article(f"{words} {noun}".strip())
    return f"{NUMBERS[count]} {words} {plural(noun)}".replace("  ", " ")


def _same(scene: Scene, thing: Thing) -> list[Thing]:
    return [other for other in scene.things if (other.color, other.kind) == (thing.color, thing.kind)]


def _described(scene: Scene, thing: Thing, rng: random.Random, sized: float) -> str:
    """A thing together with all that look like it."""
    same = _same(scene, thing)
    words = thing.color
    if not scene.tower and rng.random() < sized and len({other.size for other in same}) == 1:
        words = f"{thing.size} {thing.color}"
    text = _counted(len(same), words, _noun(scene, thing, rng))
    if len(same) == 1 and rng.random() < 0.1:
        text = "one" + text[text.index(" ") :]
    return text


def _group(scene: Scene, chosen: Sequence[Thing], rng: random.Random) -> str:
    return _described(scene, rng.choice(chosen), rng, 0.35)


def _listing(scene: Scene, chosen: Sequence[Thing], rng: random.Random) -> str:
    looks = sorted({(thing.color, thing.kind) for thing in chosen})
    picked = rng.sample(looks, min(len(looks), rng.choice((2, 2, 3))))
    firsts = [next(thing for thing in chosen if (thing.color, thing.kind) == look) for look in picked]
    firsts.sort(key=lambda thing: thing.x)
    sized = rng.choice((0.0, 0.0, 1.0))
    parts = [_described(scene, thing, rng, sized) for thing in firsts]
    return ", ".join(parts[:-1]) + " and " + parts[-1]


def _relation(scene: Scene, chosen: Sequence[Thing], rng: random.Random) -> str:
    single = [thing for thing in scene.things if len(_same(scene, thing)) == 1]
    known = [thing for thing in chosen if thing in single]
    if not known or len(single) < 2:
        return ""
    one = rng.choice(known)
    # What lies out of focus is spoken of seldom, near things more often than far ones.
    near = single if rng.random() < 0.15 else known
    others = sorted((thing for thing in near if thing is not one), key=lambda thing: _distance(one, thing))
    if not others:
        return ""
    other = others[min(rng.randrange(len(others)), rng.randrange(len(others)))]
    first, second = rng.sample((one, other), 2)
    held = [relation for relation in RELATIONS if related(first, relation, second)]
    if not held:
        return ""
    return f"{article(f'{first.color} {first.kind}')} {rng.choice(held)} {article(f'{second.color} {second.kind}')}"


def _distance(one: Thing, other: Thing) -> float:
    return (one.x - other.x) ** 2 + (one.y - other.y) ** 2


def _placed(scene: Scene, chosen: Sequence[Thing], rng: random.Random) -> str:
    thing = rng.choice(chosen)
    if len(_same(scene, thing)) > 1:
        return ""
    return f"{article(f'{thing.color} {thing.kind}')} {place(thing)}"


def _kinds(scene: Scene, chosen: Sequence[Thing], rng: random.Random) -> str:
    thing = rng.choice(chosen)
    count = sum(other.kind == thing.kind for other in scene.things)
    return _counted(count, "", _noun(scene, thing, rng)) if count > 1 else ""


def _colors(scene: Scene, chosen: Sequence[Thing], rng: random.Random) -> str:
    thing = rng.choice(chosen)
    count = sum(other.color == thing.color for other in scene.things)
    return _counted(count, thing.color, "object") if count > 1 else ""


def _total(scene: Scene, chosen: Sequence[Thing], rng: random.Random) -> str:
    colors = {thing.color for thing in scene.things}
    if len(colors) == 1 and rng.random() < 0.4:
        return f"only {chosen[0].color} objects"
    return f"{NUMBERS[len(scene.things)]} objects"


def _touching(scene: Scene, chosen: Sequence[Thing], rng: random.Random) -> str:
    thing = rng.choice([thing for thing in chosen if thing.walls])
    wall = rng.choice(sorted(thing.walls))
    if rng.random() < 0.5:
        count = sum(bool(other.walls) for other in _same(scene, thing))
        return f"{_counted(count, thing.color, thing.kind)} touching the wall"
    count = sum(wall in other.walls for other in _same(scene, thing))
    shown = f"{wall} wall" if wall in ("left", "right") else wall
    return f"{_counted(count, thing.color, thing.kind)} touching the {shown}"


def _tower(scene: Scene, chosen: Sequence[Thing], rng: random.Random) -> str:
    blocks = scene.tower
    number = NUMBERS[len(blocks)]
    plain = f"a tower {rng.choice(('of', 'of', 'with'))} {number} block{'s' * (len(blocks) > 1)}"
    form = rng.randrange(6)
    if form == 1:
        return f"{plain} with a {blocks[-1].color} block on top"
    if form == 2:
        return f"{plain} with a {blocks[0].color} block at the base"
    if form == 3 and len(blocks) > 1:
        level = rng.randrange(len(blocks) - 1)
        word = rng.choice(("above", "over", "on top of"))
        return f"a {blocks[level + 1].color} block {word} a {blocks[level].color} block"
    if form == 4 and len(blocks) > 2:
        level = rng.randrange(1, len(blocks) - 1)
        return f"a {blocks[level].color} block in the middle of a tower" if len(blocks) == 3 else plain
    if form == 5 and len({block.color for block in blocks}) == 1:
        return f"a tower of {number} {blocks[0].color} block{'s' * (len(blocks) > 1)}"
    return plain
