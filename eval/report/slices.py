"""Scores of the methods for slices of a data set: their means, and their paired differences."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...core.trace import Method
from ..statistics import Interval, Paired, compare_scores, mean
from ..task import PAIRS, Example
from .figures import GroupFigures

SIZES = (1, 2, 4, 5, 10, 20, 50, 100)
"""Numbers of pictures at which groups of sets end."""
_NUMBERS = re.compile(r"(\d+)(-\d+| or more)?")


class Slices(NamedTuple):
    """Figures of some of the examples."""

    scores: dict[Method, NDArray[np.float64]]
    """One score an example, NaN where there is none."""
    clusters: NDArray[np.int64]

    def breakdown(self, examples: Sequence[Example], pair: str | None) -> dict[str, tuple[GroupFigures, ...]]:
        """Figures by key and value, with the difference of a pair: numbers in their order, other values the most
        frequent first."""
        keys: dict[str, dict[str, list[int]]] = {}
        counts = {len(example.images) for example in examples}
        # COVR's own groups tell each number up to five.
        sized = len(counts) > 1 and (max(counts) > 5 or not any("images" in example.groups for example in examples))
        for place, example in enumerate(examples):
            size = {"pictures": _size_group(len(example.images))} if sized else {}
            for key, value in {**example.groups, **size}.items():
                keys.setdefault(key, {}).setdefault(value, []).append(place)
        by_name: dict[str, tuple[GroupFigures, ...]] = {}
        for key, values in keys.items():
            numbers = {value: int(number[1]) for value in values if (number := _NUMBERS.fullmatch(value))}
            counted = len(numbers) == len(values)
            ordered = sorted(values.items(), key=lambda one: numbers[one[0]] if counted else -len(one[1]))
            groups = (self._group(value, places, pair) for value, places in ordered)
            by_name[key] = tuple(group for group in groups if group.n)
        return by_name

    def _group(self, value: str, places: Sequence[int], pair: str | None) -> GroupFigures:
        group_scores = {method: scores[places] for method, scores in self.scores.items()}
        n = int((~np.isnan(list(group_scores.values()))).any(axis=0).sum())
        means = {method: known_mean(scores, self.clusters[places]) for method, scores in group_scores.items()}
        accuracy = {method: accuracy_mean for method, accuracy_mean in means.items() if accuracy_mean is not None}
        paired = next((self.paired(first, two, places) for first, two in PAIRS if f"{first}-{two}" == pair), None)
        return GroupFigures(value, n, accuracy, paired)

    def paired(self, first: Method, two: Method, places: Sequence[int]) -> Paired | None:
        """One method against another where both have a score; None where they never do."""
        if not {first, two} <= self.scores.keys():
            return None
        ours, theirs = (self.scores[method][places] for method in (first, two))
        both = ~(np.isnan(ours) | np.isnan(theirs))
        if not both.any():
            return None
        return compare_scores(ours[both], theirs[both], clusters=self.clusters[places][both])


def _size_group(pictures: int) -> str:
    """Returns the group of a set: 1, 2, 3-4, 5, 6-10, ..."""
    low = 1
    for high in SIZES:
        if pictures <= high:
            return f"{low}-{high}" if low < high else f"{high}"
        low = high + 1
    return f"{low} or more"


def known_mean(scores: Sequence[float] | NDArray[np.float64], clusters: NDArray[np.int64]) -> Interval | None:
    """Returns the mean without NaNs, None where nothing is left."""
    values = np.asarray(scores, dtype=np.float64)
    known = ~np.isnan(values)
    return mean(values[known], clusters=clusters[known]) if known.any() else None
