"""Slots of questions that are colors, kinds or sizes."""

from __future__ import annotations

import json
from types import SimpleNamespace

from .phrases import Phrase, with_article
from .slots import Maker, QuestionSlots, Word, colors_of, kinds_of
from .world import SIZES, pluralize

_SIZE_WORDS = {"small": ("small", "little", "tiny"), "medium": ("medium",), "large": ("large", "big")}
_EXTREME_WORDS = {"small": (("smallest", "smaller"),), "large": (("largest", "larger"), ("biggest", "bigger"))}


def _own_or_other(part: str, of: str = "a", share: float = 0.5) -> Maker:
    """The color or the kind of what a slot describes, a share of the times, or another one.

    Of ``a``, after ``c``, it is the second of two options.
    """

    def make(q: QuestionSlots) -> Word:
        options = colors_of(q.scene) if part == "color" else kinds_of(q.scene)
        true, first = getattr(getattr(q, of).the(q.scene), part), getattr(q, "c", None) if of == "a" else None
        right = first != true if first else q.rng.random() < share
        return Word(true if right else q.rng.choice([option for option in options if option != true]))

    return make


def _own_size(q: QuestionSlots) -> SimpleNamespace:
    """The size of what ``a`` describes, or another, and a word for it."""
    size = q.a.the(q.scene).size if q.rng.random() < 0.5 else q.rng.choice(SIZES)
    return SimpleNamespace(size=size, word=q.rng.choice(_SIZE_WORDS[size]))


def _extreme_size(q: QuestionSlots) -> SimpleNamespace | None:
    """Small or large, where only one thing has this size, and the words for it."""
    size = q.rng.choice(("small", "large"))
    if len(q.scene.things) == 1 or Phrase(size=size).count(q.scene) != 1:
        return None
    most, more = q.rng.choice(_EXTREME_WORDS[size])
    return SimpleNamespace(size=size, most=most, more=more)


def _shuffle_kinds(q: QuestionSlots) -> SimpleNamespace:
    """The phrases ``a`` and ``b`` in either order."""
    first, second = q.rng.sample((q.a.kind, q.b.kind), 2)
    return SimpleNamespace(first=Word(first), second=Word(second))


def _color_of_some(q: QuestionSlots) -> str:
    """The color of a thing that ``a`` describes."""
    return q.rng.choice([str(thing.color) for scene in q.scenes for thing in q.a.find(scene)])


def _color_of_either(q: QuestionSlots) -> str | None:
    """The color of ``a`` or of ``b``, which the other has not."""
    first, second = (str(what.the(q.scene).color) for what in (q.a, q.b))
    return q.rng.choice((first, second)) if first != second else None


def _sign(q: QuestionSlots) -> SimpleNamespace:
    """A word that compares sizes, and what a program compares."""
    sign = q.rng.choice("><")
    return SimpleNamespace(sign=sign, word=q.rng.choice(("bigger", "larger") if sign == ">" else ("smaller",)))


def _sign_of_sizes(q: QuestionSlots) -> SimpleNamespace:
    """The word for how ``a`` compares with ``b`` in size."""
    larger = SIZES.index(q.a.size) > SIZES.index(q.b.size)
    word = q.rng.choice(("bigger", "larger"))
    word, other = (word, "smaller") if larger else ("smaller", word)
    return SimpleNamespace(word=word, other=other, place=-1 if larger else 0, other_place=0 if larger else -1)


def _sign_of_pictures(q: QuestionSlots) -> SimpleNamespace | None:
    """As ``_sign``, where ``a`` differs in size between the two pictures."""
    first, second = (q.a.the(scene).size for scene in q.scenes)
    return _sign(q) if first != second else None


_CLASSES = {"animal": ("cat", "duck", "fish"), "vehicle": ("boat", "car", "plane", "rocket")}


def _class(q: QuestionSlots) -> SimpleNamespace:
    """A word for several kinds, and lists of these as a program has them."""
    shown = [name for name, kinds in _CLASSES.items() if any(thing.kind in kinds for thing in q.scene.things)]
    name = q.rng.choice(shown if shown and q.rng.random() < 0.7 else list(_CLASSES))
    kinds = _CLASSES[name]
    single, lists = with_article(name), (json.dumps(kinds), json.dumps([pluralize(kind) for kind in kinds]))
    return SimpleNamespace(name=name, one=single, many=pluralize(name), kinds=lists[0], plurals=lists[1])


def _bigger(q: QuestionSlots) -> SimpleNamespace | None:
    """As ``_sign``; only for things that differ in size."""
    return _sign(q) if q.a.the(q.scene).size != q.b.the(q.scene).size else None


WORD_MAKERS: dict[str, Maker] = {
    "described": lambda q: " and ".join(part for part in (q.a.size, q.a.color) if part),
    "own color": _own_or_other("color"),
    "own kind": _own_or_other("kind"),
    "color": lambda q: q.rng.choice(colors_of(q.scene)),
    "color of some": _color_of_some,
    "color of either": _color_of_either,
    "bigger": _bigger,
    "sign": _sign,
    "sign of sizes": _sign_of_sizes,
    "sign of pictures": _sign_of_pictures,
    "class": _class,
    "own color of b": _own_or_other("color", "b", 0.6),
    "own size": _own_size,
    "extreme size": _extreme_size,
    "shuffled": _shuffle_kinds,
    "and": lambda q: "but" if q.y.name == "lacks" and q.rng.random() < 0.7 else "and",
}
"""Makers by the names that the table of questions gives them."""
