"""What fills the slots of a question. A maker draws one slot; it sees those drawn before it.

A maker returns None where nothing fits the scene.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, TypeAlias

from . import truth
from .phrases import GENERIC, Phrase, with_article
from .places import SIDES, Side
from .world import BOX_COLORS, BOX_KINDS, CANVAS, COLORS, KINDS, SIZES, Scene

NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
CLEAR = 9
"""Pixels by which things must be apart, or off the middle, before a question asks on which side they are."""


class Slots(SimpleNamespace):
    """The slots of one question by name."""

    rng: random.Random
    scenes: Sequence[Scene]
    scene: Scene
    """The one of the scenes for which the slots are drawn."""


Maker: TypeAlias = Callable[[Slots], Any]


class Word(str):
    """A noun or an adjective."""

    @property
    def one(self) -> str:
        """Such as "a star"."""
        return with_article(self)


def number(rng: random.Random, value: int) -> str:
    """Returns a small number as a word or as digits."""
    return NUMBERS[value] if value < len(NUMBERS) and rng.random() < 0.65 else str(value)


def colors_of(scene: Scene) -> tuple[str, ...]:
    """The colors that may be asked for in a scene of this style."""
    return BOX_COLORS if scene.style == "box" else COLORS


def kinds_of(scene: Scene) -> tuple[str, ...]:
    """The kinds that may be asked for in a scene of this style."""
    return BOX_KINDS if scene.style == "box" else KINDS


# Things


def nearly(q: Slots, size: float, generic: float) -> Phrase:
    """Describes a thing of the scene, or nearly: with even chance one word of the description is exchanged.

    Args:
        q: The slots drawn so far.
        size: Chance that the description tells the size.
        generic: Chance that it names no kind.
    """
    rng, scene = q.rng, q.scene
    thing = rng.choice(scene.things)
    kind: str | None = thing.kind
    color: str | None = thing.color if rng.random() < 0.75 else None
    noun = "block" if scene.tower and rng.random() < 0.7 else ""
    extent = thing.size if not noun and rng.random() < size else None
    if rng.random() < generic:
        kind, noun, color = None, rng.choice(GENERIC), thing.color
    if rng.random() < 0.5:
        if extent is not None and rng.random() < 0.5:
            extent = rng.choice(SIZES)
        elif color is not None and (kind is None or noun == "block" or rng.random() < 0.6):
            color = rng.choice(colors_of(scene))
        elif kind is not None and noun != "block":
            here = tuple(sorted({thing.kind for thing in scene.things}))
            kind = rng.choice(here if len(here) > 1 and rng.random() < 0.5 else kinds_of(scene))
    return Phrase(kind, color, extent, noun)


def _apart(q: Slots, what: Phrase) -> Phrase | None:
    """The phrase, unless a thing could fit it and another phrase of the question."""
    others = (one for one in vars(q).values() if isinstance(one, Phrase))
    return None if any(what.overlaps(other) for other in others) else what


def _near(size: float, generic: float, every: float = 0.0) -> Maker:
    return lambda q: _apart(q, Phrase() if q.rng.random() < every else nearly(q, size, generic))


def _the(color: bool, size: bool) -> Maker:
    """Describes one thing of the scene alone; the description may name color and size."""

    def make(q: Slots) -> Phrase | None:
        for thing in q.rng.sample(q.scene.things, len(q.scene.things)):
            options = [Phrase(thing.kind)]
            if color:
                options.insert(q.rng.random() < 0.35, Phrase(thing.kind, thing.color))
            if size:
                options.append(Phrase(thing.kind, thing.color, thing.size))
            for option in options:
                if option.count(q.scene) == 1 and _apart(q, option):
                    return option
        return None

    return make


def _look(size: float) -> Maker:
    def make(q: Slots) -> Phrase | None:
        thing = q.rng.choice(q.scene.things)
        what = Phrase(None, thing.color, thing.size if q.rng.random() < size else None)
        return what if what.count(q.scene) == 1 else None

    return make


def _mark(q: Slots) -> Phrase | None:
    """Something that no other scene of the set shows."""
    thing = q.rng.choice(q.scene.things)
    what = Phrase(thing.kind, thing.color if q.rng.random() < 0.8 else None)
    return what if len(q.scenes) > 1 and [one for one in q.scenes if what.count(one)] == [q.scene] else None


def _shared(q: Slots) -> Phrase | None:
    """A kind of which every scene of the set shows one thing."""
    what = _kind_here(q)
    return what if all(what.count(scene) == 1 for scene in q.scenes) else None


def _at_wall(q: Slots) -> Phrase:
    """What may touch a wall."""
    near = [thing for thing in q.scene.things if thing.walls]
    if not near or q.rng.random() < 0.4:
        return nearly(q, 0.0, 0.12)
    thing = q.rng.choice(near)
    return Phrase(thing.kind, thing.color if q.rng.random() < 0.8 else None)


def _sole(q: Slots) -> Phrase | None:
    """A kind of which only one thing is in the whole set."""
    what = _kind_here(q)
    return what if sum(map(what.count, q.scenes)) == 1 and len(q.scenes) > 1 else None


def _kind_here(q: Slots) -> Phrase:
    """A kind that the scene shows."""
    return Phrase(q.rng.choice(q.scene.things).kind)


def _kind_of_two(q: Slots) -> Phrase | None:
    """A kind of which two things are in the whole set."""
    what = _kind_here(q)
    return what if sum(map(what.count, q.scenes)) == 2 else None


def _colored(q: Slots) -> Phrase | None:
    """A kind with a color, both of the scene or nearly."""
    what = nearly(q, 0.0, 0.0)
    return what if what.kind and what.color and not what.noun else None


def _color_alone(q: Slots) -> Phrase | None:
    """A color that some thing of the scene has."""
    return _apart(q, Phrase(None, q.rng.choice(q.scene.things).color, noun="block" if q.scene.tower else "object"))


# Colors and kinds


def _own(part: str) -> Maker:
    """The color or the kind of what ``a`` describes, or another one; after ``c`` the second of two options."""

    def make(q: Slots) -> Word:
        options = colors_of(q.scene) if part == "color" else kinds_of(q.scene)
        true, first = getattr(q.a.the(q.scene), part), getattr(q, "c", None)
        right = first != true if first else q.rng.random() < 0.5
        return Word(true if right else q.rng.choice([one for one in options if one != true]))

    return make


def _color_of_some(q: Slots) -> str:
    """The color of a thing that ``a`` describes."""
    return q.rng.choice([str(thing.color) for scene in q.scenes for thing in q.a.find(scene)])


def _color_of_either(q: Slots) -> str | None:
    """The color of ``a`` or of ``b``, which the other has not."""
    first, second = (str(what.the(q.scene).color) for what in (q.a, q.b))
    return q.rng.choice((first, second)) if first != second else None


def _bigger(q: Slots) -> SimpleNamespace | None:
    """A word that compares sizes, and what a program compares; only for things that differ in size."""
    if q.a.the(q.scene).size == q.b.the(q.scene).size:
        return None
    sign = q.rng.choice("><")
    return SimpleNamespace(sign=sign, word=q.rng.choice(("bigger", "larger") if sign == ">" else ("smaller",)))


# Places


def _side(both: bool) -> Maker:
    """On which side ``a`` may lie from ``b``, or from the middle: clearly there, or clearly opposite."""

    def make(q: Slots) -> Side | None:
        chosen = q.rng.choice([one for one in SIDES if one.other or not both])
        here = [getattr(thing, chosen.axis) for thing in q.a.find(q.scene)]
        there = [getattr(thing, chosen.axis) for thing in q.b.find(q.scene)] if hasattr(q, "b") else [CANVAS / 2]
        if len(here) > 1 or (not here and q.rng.random() < 0.5):
            return None
        return chosen if all(abs(one - two) >= CLEAR for one in here for two in there) else None

    return make


def _lonely_side(q: Slots) -> Side | None:
    """A side of ``b`` on which a single thing lies, clearly, and all others clearly opposite."""
    side, at = q.rng.choice(SIDES), q.b.the(q.scene)
    others = [thing for thing in q.scene.things if thing is not at]
    far = all(abs(getattr(thing, side.axis) - getattr(at, side.axis)) >= CLEAR for thing in others)
    return side if far and sum(side.lies(thing, at) for thing in others) == 1 else None


def _corner(q: Slots) -> SimpleNamespace | None:
    """A corner that ``a`` may lie in: it lies clearly in one, but only the program finds out in which."""
    thing = q.a.the(q.scene)
    down, across = q.rng.choice(SIDES[2:]), q.rng.choice(SIDES[:2])
    clear = min(abs(thing.x - CANVAS / 2), abs(thing.y - CANVAS / 2)) >= CLEAR
    name = f"{q.rng.choice((down.half, 'upper' if down.half == 'top' else 'lower'))} {across.half}"
    return SimpleNamespace(name=name, test=f"{across.middle} and {down.middle}") if clear else None


def _wall(q: Slots) -> SimpleNamespace:
    """A wall of a box: as programs ask for it, as it is said, and as what touches it not."""
    name = q.rng.choice(("wall", "wall", "wall", "wall", "bottom", "top", "left wall", "right wall"))
    if name != "wall":
        return SimpleNamespace(name=name, said=f"the {name}", free=f"the {name}")
    said = q.rng.choice(("the wall", "the wall", "the edge"))
    return SimpleNamespace(name=name, said=said, free=q.rng.choice(("the wall", "any wall", "any edge")))


# Amounts

WORDS = {">=": "at least", "==": "exactly", ">": "more than", "<": "fewer than", "<=": "at most"}
RARE = {">=": "no fewer than", "==": "only", ">": "over", "<": "less than", "<=": "no more than"}


def amount(q: Slots, question: str, *, plain: bool, total: bool) -> SimpleNamespace | None:
    """Draws an amount near the true answer of a question that counts: its words, and what a program compares with.

    Args:
        q: The slots; ``a`` is what is counted.
        question: An elementary question with slots.
        plain: Say amounts of two or more, in the usual words.
        total: Count in all scenes.
    """
    asked = question.format(**vars(q))
    found = sum(int(truth.query(scene, asked)) for scene in (q.scenes if total else [q.scene]))
    if found == 0 and q.rng.random() < 0.7:
        return None
    sign = q.rng.choice((">=", ">=", "==", "==", ">", "<" if plain or q.rng.random() < 0.2 else "<="))
    lowest = 2 if plain or sign == "<" else 1
    value = max(lowest, min(10 if total else 6, found + q.rng.choice((-1, 0, 0, 1))))
    words = WORDS[sign]
    if not plain and q.rng.random() < (0.3 if sign == "==" else 0.12):
        words = RARE[sign]
    elif not plain and sign == "==" and value > 1 and q.rng.random() < 0.3:
        words = ""
    said = f"{words} {number(q.rng, value)} {q.a.name if value == 1 else q.a.many}".strip()
    be = "is" if value == 1 else "are"
    return SimpleNamespace(sign=sign, value=value, said=said, test=f"{sign} {value}", be=be)


MAKERS: dict[str, Maker] = {
    "thing": _near(0.06, 0.12),
    "any thing": _near(0.03, 0.12, every=0.12),
    "named thing": _near(0.03, 0.03),
    "alone": _the(True, True),
    "alone by kind": _the(False, False),
    "alone unsized": _the(True, False),
    "alone by color": _look(0.0),
    "alone by look": _look(0.25),
    "mark": _mark,
    "shared": _shared,
    "at wall": _at_wall,
    "block": lambda q: Phrase("square", q.rng.choice(q.scene.things).color, noun="block"),
    "blocks": lambda q: Phrase("square", noun="block"),
    "look": lambda q: Phrase((thing := q.rng.choice(q.scene.things)).kind, q.rng.choice((thing.color, None))),
    "color alone": _color_alone,
    "every": lambda q: Phrase(noun="block" if q.scene.tower else "object", kind="square" if q.scene.tower else None),
    "colored kind": lambda q: Phrase(q.c, q.a.color),
    "described": lambda q: " and ".join(part for part in (q.a.size, q.a.color) if part),
    "own color": _own("color"),
    "own kind": _own("kind"),
    "color": lambda q: q.rng.choice(colors_of(q.scene)),
    "side": _side(both=False),
    "either side": _side(both=True),
    "either words": lambda q: q.rng.choice(q.s.either),
    "side words": lambda q: q.rng.choice(q.s.words),
    "more words": lambda q: q.rng.choice(q.s.more),
    "sole": _sole,
    "kind here": _kind_here,
    "kind of two": _kind_of_two,
    "colored thing": _colored,
    "color of some": _color_of_some,
    "color of either": _color_of_either,
    "bigger": _bigger,
    "and": lambda q: "but" if q.y.name == "lacks" and q.rng.random() < 0.7 else "and",
    "lonely side": _lonely_side,
    "corner": _corner,
    "wall": _wall,
}
"""Makers by the names that the table of questions gives them."""
