"""The statistics every reported number carries: intervals, and paired comparison on the same questions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["Interval", "Paired", "compare", "proportion"]


@dataclass(frozen=True)
class Interval:
    """An estimate with its 95 % interval."""

    value: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}] n={self.n}"


def proportion(right: Sequence[bool]) -> Interval:
    """Returns the share of True with Wilson's score interval, which holds near 0 and 1 as well.

    Raises:
        ValueError: there is nothing to count.
    """
    n = len(right)
    if n == 0:
        raise ValueError("a proportion of nothing")
    z, share = 1.959964, sum(right) / n
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return Interval(share, max(0.0, centre - half), min(1.0, centre + half), n)


@dataclass(frozen=True)
class Paired:
    """Two methods on the same questions."""

    difference: Interval
    """Accuracy of the first minus accuracy of the second, with a percentile bootstrap interval."""
    better: int
    """Questions only the first got right."""
    worse: int
    """Questions only the second got right."""
    p_value: float
    """McNemar's exact test, two-sided."""

    def __str__(self) -> str:
        return f"{self.difference} (better {self.better}, worse {self.worse}, McNemar p={self.p_value:.2g})"


def compare(
    first: Sequence[bool],
    second: Sequence[bool],
    *,
    clusters: Sequence[object] | None = None,
    rounds: int = 10_000,
    seed: int = 0,
) -> Paired:
    """Compares two methods question by question.

    Args:
        first: whether the first method was right, one a question.
        second: the same for the second method, in the same order.
        clusters: what belongs together when resampling, such as the image of each question; None takes each question
            by itself.
        rounds: bootstrap resamples.
        seed: seed of the bootstrap.

    Raises:
        ValueError: the lengths differ, or there is nothing to compare.
    """
    if len(first) != len(second) or (clusters is not None and len(clusters) != len(first)):
        raise ValueError(f"paired lists differ in length: {len(first)} and {len(second)}")
    if not first:
        raise ValueError("a comparison of nothing")
    gains = np.asarray(first, dtype=float) - np.asarray(second, dtype=float)
    _, labels = np.unique([str(c) for c in (clusters or range(len(first)))], return_inverse=True)
    sums, sizes = np.bincount(labels, weights=gains), np.bincount(labels)
    draws = np.random.default_rng(seed).multinomial(len(sums), np.full(len(sums), 1 / len(sums)), size=rounds)
    means = (draws @ sums) / (draws @ sizes)
    low, high = np.percentile(means, [2.5, 97.5])
    better, worse = int((gains > 0).sum()), int((gains < 0).sum())
    changed = better + worse
    tail = sum(math.comb(changed, k) for k in range(min(better, worse) + 1)) / 2**changed
    interval = Interval(float(gains.mean()), float(low), float(high), len(gains))
    return Paired(interval, better, worse, min(1.0, 2 * tail))
