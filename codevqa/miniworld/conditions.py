"""What may be true of one picture of a set: how it is said, how a program tests it, whether it holds.

Questions and statements about sets join a condition with a quantifier: "at least two boxes" and "with a black circle".
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from .questions import Phrase, ask_count, ask_exist, colors_of, kinds_of, number, phrase
from .world import Scene, Thing


@dataclass(frozen=True)
class Condition:
    """A condition on one picture."""

    after_with: str
    """As said after "a picture with"."""
    after_has: str
    """As said after "the picture has"; "contains" and "shows" go as well."""
    test: str
    """A Python expression over ``img``."""
    truth: Callable[[Scene], bool]
    setup: str = ""
    """A line of the program that goes before the test, over ``img``; may be empty."""


Maker: TypeAlias = "Callable[[random.Random, Scene], Condition | None]"

WORDS = {">=": "at least", "==": "exactly", ">": "more than", "<": "fewer than", "<=": "at most"}
_RARE_WORDS = {">=": "no fewer than", ">": "over", "<": "less than", "<=": "no more than"}
COMPARE: dict[str, Callable[[int, int], bool]] = {
    ">=": lambda value, limit: value >= limit,
    "==": lambda value, limit: value == limit,
    ">": lambda value, limit: value > limit,
    "<": lambda value, limit: value < limit,
    "<=": lambda value, limit: value <= limit,
}


def exact(rng: random.Random, limit: int) -> str:
    """A word for "exactly"; a bare number above one also means exactly that many."""
    return rng.choice(("exactly", "exactly", "only", "") if limit > 1 else ("exactly", "only"))


def bounded(rng: random.Random, sign: str, limit: int) -> str:
    """Words for a sign, now and then unusual ones."""
    if sign == "==":
        return exact(rng, limit)
    return _RARE_WORDS[sign] if rng.random() < 0.12 else WORDS[sign]


def contains(rng: random.Random, scene: Scene) -> Condition:
    """With a red star."""
    what = phrase(rng, scene, size=0.05)
    test = f'query(img, "{ask_exist(what)}") == "yes"'
    return Condition(what.one, what.one, test, lambda one: what.count(one) > 0)


def lacks(rng: random.Random, scene: Scene) -> Condition:
    """With no red star."""
    what = phrase(rng, scene, size=0.03)
    said = f"no {what.many}" if rng.random() < 0.7 else f"no {what.name}"
    return Condition(said, said, f'query(img, "{ask_exist(what)}") == "no"', lambda one: what.count(one) == 0)


def amount(rng: random.Random, scene: Scene) -> Condition:
    """With exactly two red stars."""
    what = phrase(rng, scene, size=0.0, generic=0.15)
    if rng.random() < 0.25:
        what = Phrase(noun=rng.choice(("object", "object", "item")))
    sign = rng.choice((">=", ">=", "==", "==", "==", ">"))
    if scene.style == "box" and rng.random() < 0.15:
        sign = rng.choice(("<=", "<"))
    limit = max(2 if sign == "<" else 1, min(6, what.count(scene) + rng.choice((-1, 0, 0, 0, 1))))
    shown = what.name if limit == 1 else what.many
    words = bounded(rng, sign, limit)
    said = f"{words} {number(rng, limit)} {shown}".strip()
    test = f'int(query(img, "{ask_count(what)}")) {sign} {limit}'
    return Condition(said, said, test, lambda one: COMPARE[sign](what.count(one), limit))


def both(rng: random.Random, scene: Scene) -> Condition | None:
    """With a red star and a blue circle."""
    first, second = phrase(rng, scene, size=0.0, generic=0.03), phrase(rng, scene, size=0.0, generic=0.03)
    if first.overlaps(second):
        return None
    positive = rng.random() < 0.7
    said = f"{first.one} and {second.one}" if positive else f"{first.one} but no {second.name}"
    test = 'first == "yes" and second == ' + ('"yes"' if positive else '"no"')
    setup = f'first = query(img, "{ask_exist(first)}")\nsecond = query(img, "{ask_exist(second)}")'
    return Condition(said, said, test, lambda one: first.count(one) > 0 and (second.count(one) > 0) == positive, setup)


def amounts(rng: random.Random, scene: Scene) -> Condition | None:
    """With a red star and two blue circles."""
    first, second = phrase(rng, scene, size=0.0, generic=0.1), phrase(rng, scene, size=0.0, generic=0.1)
    if first.overlaps(second):
        return None
    least = rng.random() < 0.5
    limits = [max(1, min(5, one.count(scene) + rng.choice((-1, 0, 0, 0, 1)))) for one in (first, second)]
    limits[0] = 1 if least else limits[0]
    shown = [one.name if limit == 1 else one.many for one, limit in zip((first, second), limits, strict=True)]
    start = first.one if least else f"{exact(rng, limits[0])} {number(rng, limits[0])} {shown[0]}".strip()
    said = f"{start} and {number(rng, limits[1])} {shown[1]}"
    setup = f'first = int(query(img, "{ask_count(first)}"))\nsecond = int(query(img, "{ask_count(second)}"))'
    sign = ">=" if least else "=="
    test = f"first {sign} {limits[0]} and second == {limits[1]}"

    def truth(one: Scene) -> bool:
        return COMPARE[sign](first.count(one), limits[0]) and second.count(one) == limits[1]

    return Condition(said, said, test, truth, setup)


def free_phrase(rng: random.Random, what: Phrase, wall: str, *, many: bool) -> tuple[str, str]:
    """How things that touch no wall are said, and how a program counts them in ``img``."""
    shown = rng.choice(("the wall", "any wall", "the edge", "any edge", "a side")) if wall == "wall" else f"the {wall}"
    said = f"{what.many if many else what.name} {rng.choice(('not touching', 'not touching', 'away from'))} {shown}"
    asked = f'int(query(img, "{ask_count(what)}")) - int(query(img, "How many {what.many} touch the {wall}?"))'
    return said, asked


def free(rng: random.Random, scene: Scene) -> Condition | None:
    """With two blue squares not touching the wall."""
    if scene.tower:
        return None
    what, wall = touching_phrase(rng, scene)
    value = sum(not touches(thing, wall) for thing in what.find(scene))
    sign = rng.choice((">=", "==", "=="))
    limit = 1 if sign == ">=" and rng.random() < 0.6 else max(1, min(5, value + rng.choice((-1, 0, 0, 1))))
    said, asked = free_phrase(rng, what, wall, many=limit > 1)
    if sign == ">=" and limit == 1:
        said = f"{what.one}{said.removeprefix(what.name)}"
    else:
        words = exact(rng, limit) if sign == "==" else WORDS[sign]
        said = f"{words} {number(rng, limit)} {said}".strip()
    return Condition(
        said,
        said,
        f"{asked} {sign} {limit}",
        lambda one: COMPARE[sign](sum(not touches(thing, wall) for thing in what.find(one)), limit),
    )


def more_of(rng: random.Random, scene: Scene) -> Condition | None:
    """With more red stars than blue circles."""
    first, second = phrase(rng, scene, size=0.0, generic=0.1), phrase(rng, scene, size=0.0, generic=0.1)
    if first.count(scene) + second.count(scene) == 0 or first.overlaps(second):
        return None
    said = f"more {first.many} than {second.many}"
    setup = f'first = int(query(img, "{ask_count(first)}"))\nsecond = int(query(img, "{ask_count(second)}"))'
    return Condition(said, said, "first > second", lambda one: first.count(one) > second.count(one), setup)


def only_color(rng: random.Random, scene: Scene) -> Condition:
    """With only black objects."""
    color = rng.choice(colors_of(scene))
    nouns = rng.choice(("objects", "objects", "items")) if not scene.tower else "blocks"
    said = f"only {color} {nouns}"
    test = f'query(img, "Are all the {nouns} {color}?") == "yes"'
    return Condition(said, said, test, lambda one: all(thing.color == color for thing in one.things))


def touches(thing: Thing, wall: str) -> bool:
    """Tells whether a thing touches "wall" (any side), "top", "bottom", "left wall" or "right wall"."""
    return bool(thing.walls) if wall == "wall" else wall.split()[0] in thing.walls


WALLS = ("wall", "wall", "wall", "wall", "bottom", "top", "left wall", "right wall")


def touching_phrase(rng: random.Random, scene: Scene) -> tuple[Phrase, str]:
    """A phrase and the wall its things may touch."""
    what = phrase(rng, scene, size=0.0, generic=0.12)
    near = [thing for thing in scene.things if thing.walls]
    if near and rng.random() < 0.6:
        thing = rng.choice(near)
        what = Phrase(thing.kind, thing.color) if rng.random() < 0.8 else Phrase(thing.kind)
    return what, rng.choice(WALLS)


def touching(rng: random.Random, scene: Scene) -> Condition | None:
    """With a blue square touching the wall."""
    if scene.tower:
        return None
    what, wall = touching_phrase(rng, scene)
    shown = rng.choice(("wall", "wall", "edge", "side")) if wall == "wall" else wall
    said = f"{what.one} {rng.choice(('touching', 'touching', 'that touches'))} the {shown}"
    test = f'query(img, "Is there {what.one} touching the {wall}?") == "yes"'
    return Condition(said, said, test, lambda one: any(touches(thing, wall) for thing in what.find(one)))


def touching_amount(rng: random.Random, scene: Scene) -> Condition | None:
    """With exactly two blue squares touching the wall."""
    if scene.tower:
        return None
    what, wall = touching_phrase(rng, scene)
    value = sum(touches(thing, wall) for thing in what.find(scene))
    sign = rng.choice((">=", "==", "=="))
    limit = max(1, min(6, value + rng.choice((-1, 0, 0, 1))))
    words = exact(rng, limit) if sign == "==" else WORDS[sign]
    shown = rng.choice(("wall", "wall", "edge")) if wall == "wall" else wall
    things = what.name if limit == 1 else what.many
    said = f"{words} {number(rng, limit)} {things} touching the {shown}".strip()
    test = f'int(query(img, "How many {what.many} touch the {wall}?")) {sign} {limit}'
    return Condition(
        said, said, test, lambda one: COMPARE[sign](sum(touches(thing, wall) for thing in what.find(one)), limit)
    )


def height(rng: random.Random, scene: Scene) -> Condition | None:
    """(A tower) with exactly three blocks."""
    if not scene.tower:
        return None
    sign = rng.choice((">=", "==", "==", "==", ">", "<=", "<"))
    limit = max(
        2 if sign == "<" else 1, min(3 if sign in (">", "<=") else 4, len(scene.tower) + rng.choice((-1, 0, 0, 1)))
    )
    words = bounded(rng, sign, limit)
    said = f"{words} {number(rng, limit)} block{'s' * (limit > 1)}".strip()
    test = f'int(query(img, "How many blocks are in the tower?")) {sign} {limit}'
    return Condition(said, said, test, lambda one: COMPARE[sign](len(one.tower), limit))


TOPS = ("at the top", "on top", "at the top", "as its top", "as the top")
BASES = ("at the base", "at the bottom", "as its base", "as the base", "on the bottom")


def end_color(rng: random.Random, scene: Scene) -> Condition | None:
    """(A tower) with a black block at the top."""
    if not scene.tower:
        return None
    top = rng.random() < 0.5
    color = (scene.tower[-1] if top else scene.tower[0]).color
    if rng.random() < 0.4:
        color = rng.choice(colors_of(scene))
    said = f"a {color} block {rng.choice(TOPS if top else BASES)}"
    end = "top" if top else "base"
    if rng.random() < 0.15:
        said = f"a {color} {end}"
    test = f'query(img, "What color is the block at the {end} of the tower?") == "{color}"'
    return Condition(said, said, test, lambda one: bool(one.tower) and one.tower[-1 if top else 0].color == color)


def height_and_end(rng: random.Random, scene: Scene) -> Condition | None:
    """(A tower) with three blocks and a black block at the top."""
    first, second = height(rng, scene), end_color(rng, scene)
    if first is None or second is None:
        return None
    said = f"{first.after_with} and {second.after_with}"
    tall, ends = first.truth, second.truth
    return Condition(said, said, f"{first.test} and {second.test}", lambda one: tall(one) and ends(one))


def stacked(rng: random.Random, scene: Scene) -> Condition | None:
    """(A tower) with a black block above a blue block."""
    if len(scene.tower) < 2:
        return None
    level = rng.randrange(len(scene.tower) - 1)
    upper, lower = scene.tower[level + 1].color, scene.tower[level].color
    if rng.random() < 0.4:
        upper = rng.choice(colors_of(scene))
    said = f"a {upper} block {rng.choice(('above', 'over', 'on', 'on top of', 'directly above'))} a {lower} block"
    if rng.random() < 0.3:
        said = f"a {lower} block {rng.choice(('below', 'under', 'beneath', 'directly below'))} a {upper} block"
    test = f'query(img, "Is there a {upper} block above a {lower} block?") == "yes"'

    def truth(one: Scene) -> bool:
        pairs = zip(one.tower, one.tower[1:], strict=False)
        return any(under.color == lower and over.color == upper for under, over in pairs)

    return Condition(said, said, test, truth)


def tower_amount(rng: random.Random, scene: Scene) -> Condition | None:
    """(A tower) with two black blocks."""
    if not scene.tower:
        return None
    color = rng.choice(scene.tower).color
    what = Phrase("square", color, noun="block")
    limit = max(1, min(4, what.count(scene) + rng.choice((-1, 0, 0, 1))))
    sign = rng.choice((">=", "==", "==", "<="))
    words = bounded(rng, sign, limit)
    said = f"{words} {number(rng, limit)} {what.name if limit == 1 else what.many}".strip()
    test = f'int(query(img, "{ask_count(what)}")) {sign} {limit}'
    return Condition(said, said, test, lambda one: COMPARE[sign](what.count(one), limit))


def only_two(rng: random.Random, scene: Scene) -> Condition | None:
    """With only black and blue objects: some of each and nothing else."""
    if scene.tower or rng.random() < 0.6:
        noun = "block" if scene.tower else rng.choice(("object", "item", "object"))
        looks = [Phrase(None, color, noun=noun) for color in colors_of(scene)]
        if noun == "block":
            looks = [replace(look, kind="square") for look in looks]
        every = Phrase("square" if noun == "block" else None, noun=noun)
    else:
        looks = [Phrase(kind) for kind in kinds_of(scene)]
        every = Phrase()
    here = [look for look in looks if look.count(scene)]
    pool = here if len(here) > 1 and rng.random() < 0.7 else looks
    one, two = rng.sample(pool, 2)
    joined_words = f"{one.color} and {two.many}" if one.color else f"{one.many} and {two.many}"
    said = rng.choice((f"only {joined_words}", f"only {joined_words}", f"nothing but {joined_words}"))
    setup = f'first = int(query(img, "{ask_count(one)}"))\nsecond = int(query(img, "{ask_count(two)}"))'
    test = f'min(first, second) >= 1 and first + second == int(query(img, "{ask_count(every)}"))'

    def truth(other: Scene) -> bool:
        first, second = one.count(other), two.count(other)
        return min(first, second) >= 1 and first + second == len(other.things)

    return Condition(said, said, test, truth, setup)


def only_look(rng: random.Random, scene: Scene) -> Condition | None:
    """With only black circles."""
    if scene.tower:
        return None
    thing = rng.choice(scene.things)
    what = Phrase(thing.kind, thing.color if rng.random() < 0.5 else None)
    said = f"{rng.choice(('only', 'only', 'nothing but'))} {what.many}"
    setup = f'first = int(query(img, "{ask_count(what)}"))\nsecond = int(query(img, "{ask_count(Phrase())}"))'
    return Condition(said, said, "first == second", lambda one: what.count(one) == len(one.things), setup)


def one_color(rng: random.Random, scene: Scene) -> Condition:
    """With all objects of the same color."""
    nouns = "blocks" if scene.tower else rng.choice(("objects", "objects", "items"))
    said = rng.choice(
        (f"{nouns} of only one color", f"all {nouns} of the same color", f"all {nouns} in the same color")
    )
    asked = ", ".join(f'query(img, "Are all the {nouns} {color}?")' for color in colors_of(scene))
    return Condition(said, said, f'"yes" in [{asked}]', lambda one: len({thing.color for thing in one.things}) == 1)


def joined(rng: random.Random, scene: Scene) -> Condition | None:
    """With a black circle touching the wall and two blue squares: two simple conditions."""
    first: Maker
    second: Maker
    if scene.tower:
        first, second = rng.sample((end_color, end_color, stacked, stacked, tower_amount, height), 2)
    else:
        first = rng.choice((touching, touching, touching_amount))
        second = rng.choice((contains, lacks, amount, touching, touching, touching_amount))
    one, two = first(rng, scene), second(rng, scene)
    if one is None or two is None or one.test.split(" == ")[0] == two.test.split(" == ")[0]:
        return None
    said = f"{one.after_with} {rng.choice(('and', 'and', 'and with' if scene.tower else 'and'))} {two.after_with}"
    here, there = one.truth, two.truth
    return Condition(said, said, f"{one.test} and {two.test}", lambda other: here(other) and there(other))


PLAIN: Sequence[tuple[float, Maker]] = ((3.0, contains), (0.5, lacks), (2.0, amount), (1.5, both), (0.7, more_of))
BOX: Sequence[tuple[float, Maker]] = (
    *PLAIN,
    (0.7, only_color),
    (2.0, touching),
    (1.0, touching_amount),
    (1.2, free),
    (1.2, amounts),
)
TOWER: Sequence[tuple[float, Maker]] = (
    (2.0, height),
    (2.0, end_color),
    (1.0, height_and_end),
    (1.0, stacked),
    (1.5, tower_amount),
    (0.7, only_color),
    (1.0, amounts),
)


JOINED: Sequence[tuple[float, Maker]] = ((1.0, joined),)
ONLY: Sequence[tuple[float, Maker]] = ((2.0, only_two), (0.7, only_look), (0.6, one_color))


def sample_condition(rng: random.Random, pool: Sequence[tuple[float, Maker]], scene: Scene) -> Condition | None:
    """Makes one condition of a pool for a scene of a set."""
    return rng.choices([maker for _, maker in pool], [weight for weight, _ in pool])[0](rng, scene)


__all__ = [
    "BOX",
    "JOINED",
    "ONLY",
    "PLAIN",
    "TOWER",
    "Condition",
    "bounded",
    "exact",
    "free_phrase",
    "sample_condition",
]
