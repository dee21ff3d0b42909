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
from .world import BOX_COLORS, BOX_KINDS, COLORS, KINDS, SIZES, Scene

NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
CLEAR = 9
"""Pixels by which things must be apart, or off the middle, before a question asks on which side they are."""


class QuestionSlots(SimpleNamespace):
    """The slots of one question by name."""

    rng: random.Random
    scenes: Sequence[Scene]
    scene: Scene
    """The one of the scenes for which the slots are drawn."""


Maker: TypeAlias = Callable[[QuestionSlots], Any]


class Word(str):
    """A noun or an adjective."""

    @property
    def one(self) -> str:
        """Such as "a star"."""
        return with_article(self)


def expand_options(wording: str) -> list[str]:
    """A wording for each of the options in brackets."""
    before, bracket, rest = wording.partition("[")
    if not bracket:
        return [wording]
    options, _, after = rest.partition("]")
    return [variant for option in options.split("|") for variant in expand_options(before + option + after)]


def word_or_digits(rng: random.Random, value: int) -> str:
    """Returns a small number as a word or as digits."""
    return NUMBERS[value] if value < len(NUMBERS) and rng.random() < 0.65 else str(value)


def colors_of(scene: Scene) -> tuple[str, ...]:
    """The colors that may be asked for in a scene of this style."""
    return BOX_COLORS if scene.style == "box" else COLORS


def kinds_of(scene: Scene) -> tuple[str, ...]:
    """The kinds that may be asked for in a scene of this style."""
    return BOX_KINDS if scene.style == "box" else KINDS


def nearly(q: QuestionSlots, size: float, generic: float) -> Phrase:
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
        if not scene.tower and rng.random() < 0.15:
            color, extent = None, thing.size
    if rng.random() < 0.5:
        if extent is not None and (color is kind is None or rng.random() < 0.5):
            extent = rng.choice(SIZES)
        elif color is not None and (kind is None or noun == "block" or rng.random() < 0.6):
            color = rng.choice(colors_of(scene))
        elif kind is not None and noun != "block":
            here = tuple(sorted({thing.kind for thing in scene.things}))
            kind = rng.choice(here if len(here) > 1 and rng.random() < 0.5 else kinds_of(scene))
    return Phrase(kind, color, extent, noun)


def reject_overlap(q: QuestionSlots, what: Phrase) -> Phrase | None:
    """The phrase, unless a thing could fit it and another phrase of the question."""
    others = (value for value in vars(q).values() if isinstance(value, Phrase))
    return None if any(what.overlaps(other) for other in others) else what


# Amounts

WORDS = {">=": "at least", "==": "exactly", ">": "more than", "<": "fewer than", "<=": "at most"}
RARE = {">=": "no fewer than", "==": "only", ">": "over", "<": "less than", "<=": "no more than"}


def draw_amount(q: QuestionSlots, question: str, *, plain: bool, total: bool) -> SimpleNamespace | None:
    """Draws an amount near the true answer of a question that counts: its words, and what a program compares with.

    Args:
        q: The slots; ``a`` is what is counted.
        question: An elementary question with slots.
        plain: Say amounts of two or more, in the usual words.
        total: Count in all scenes.
    """
    asked = question.format(**vars(q))
    actual = sum(int(truth.query_truth(scene, asked)) for scene in (q.scenes if total else [q.scene]))
    if actual == 0 and q.rng.random() < 0.7:
        return None
    sign = q.rng.choice((">=", ">=", "==", "==", ">", "<" if plain or q.rng.random() < 0.2 else "<="))
    lowest = 2 if plain or sign == "<" else 1
    value = max(lowest, min(10 if total else 6, actual + q.rng.choice((-1, 0, 0, 1))))
    words = WORDS[sign]
    if not plain and q.rng.random() < (0.3 if sign == "==" else 0.12):
        words = RARE[sign]
    elif not plain and sign == "==" and value > 1 and q.rng.random() < 0.3:
        words = ""
    phrase = f"{words} {word_or_digits(q.rng, value)} {q.a.name if value == 1 else q.a.many}".strip()
    be = "is" if value == 1 else "are"
    return SimpleNamespace(sign=sign, value=value, said=phrase, test=f"{sign} {value}", be=be)
