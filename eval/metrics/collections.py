"""Questions about collections: exact match, by how much counts are wrong, and which pictures were selected."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from statistics import fmean
from typing import ClassVar

from ..statistics import mean_of
from ..task import Example
from .base import ExactMatch, Figure, Readings
from .statements import number_text


def _members(text: str) -> str:
    return ", ".join(sorted(map(number_text, text.split(", "))))


COLLECTION_VARIANTS: Readings = {"": ("exact match (lists in any order, number words as digits)", _members, _members)}


class CollectionMetric(ExactMatch):
    """Exact match, with the absolute error of counts, and the F1 of pictures."""

    reasons: ClassVar = {
        "count_error": "needs questions whose answer is a number",
        "picture_f1": "needs gold pictures, and answers that name or count pictures",
    }

    def corpus(self, answered: Iterable[tuple[Example, str]]) -> dict[str, Figure]:
        """Returns the mean absolute error of counts."""
        errors = [error for example, said in answered if (error := count_error(example, said)) is not None]
        return {"count_error": fmean(errors) if errors else None}

    def selected(self, found: Iterable[tuple[Example, Sequence[int]]]) -> dict[str, Figure]:
        """Returns the mean F1 of the pictures that answers name or count."""
        scores = [(f1(example.record["pictures"], numbers), example.cluster) for example, numbers in found]
        return {"picture_f1": mean_of(scores)}


def count_error(example: Example, prediction: str) -> float | None:
    """Returns how far a prediction is from a count; one that is no number says 0. None where no count is asked."""
    if not example.gold or not example.gold[0].isdigit():
        return None
    said = number_text(prediction)
    return float(abs(int(example.gold[0]) - (int(said) if said.isdecimal() else 0)))


def f1(gold: Collection[int], picked: Collection[int]) -> float:
    """Returns the harmonic mean of precision and recall; 1 where nothing counts and nothing was picked."""
    both = len({*gold} & {*picked})
    return 2 * both / (len(gold) + len(picked)) if gold or picked else 1.0
