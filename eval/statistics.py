"""The statistics every reported number carries: intervals, and paired comparison on the same questions.

Everything takes plain lists or numpy arrays, is vectorised, and holds at a million questions in bounded memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["ROUNDS", "Interval", "Paired", "bootstrap", "compare", "mcnemar", "mean", "proportion", "wilson"]

ROUNDS = 10_000
"""Bootstrap resamples."""
FEW_ROUNDS = 1_000
"""Resamples at most where clusters differ in more than :data:`MANY_KINDS` ways."""
MANY_KINDS = 20_000
CELLS = 4_000_000
"""Numbers drawn at a time: 32 MB."""

Numbers: TypeAlias = Sequence[float] | NDArray[Any]


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
    return wilson(sum(right), len(right))


def wilson(right: int, n: int) -> Interval:
    """Returns the share ``right / n`` with Wilson's score interval (1927).

    Raises:
        ValueError: there is nothing to count.
    """
    if n == 0:
        raise ValueError("a proportion of nothing")
    z, share = 1.959964, right / n
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return Interval(share, max(0.0, centre - half), min(1.0, centre + half), n)


def mean(
    scores: Numbers, *, clusters: Sequence[object] | NDArray[Any] | None = None, rounds: int = ROUNDS, seed: int = 0
) -> Interval:
    """Returns the mean of scores of any kind with a percentile bootstrap interval.

    Args:
        scores: one a question.
        clusters: what belongs together when resampling; None takes each question by itself.
        rounds: bootstrap resamples.
        seed: seed of the bootstrap.

    Raises:
        ValueError: the lengths differ, or there is nothing to average.
    """
    values = np.asarray(scores, dtype=np.float64)
    if not len(values):
        raise ValueError("a mean of nothing")
    low, high = bootstrap(values, clusters=clusters, rounds=rounds, seed=seed)
    return Interval(float(values.mean()), low, high, len(values))


@dataclass(frozen=True)
class Paired:
    """Two methods on the same questions."""

    difference: Interval
    """Accuracy of the first minus accuracy of the second, with a percentile bootstrap interval."""
    better: int
    """Questions only the first got right, or on which it scored more."""
    worse: int
    """Questions only the second got right, or on which it scored more."""
    p_value: float | None
    """McNemar's exact test, two-sided; None where a score is neither 0 nor 1, for which the test is not made."""

    def __str__(self) -> str:
        test = "" if self.p_value is None else f", McNemar p={self.p_value:.2g}"
        return f"{self.difference} (better {self.better}, worse {self.worse}{test})"


def compare(
    first: Numbers,
    second: Numbers,
    *,
    clusters: Sequence[object] | NDArray[Any] | None = None,
    rounds: int = ROUNDS,
    seed: int = 0,
) -> Paired:
    """Compares two methods question by question.

    Args:
        first: whether the first method was right, one a question, or its score from 0 to 1.
        second: the same for the second method, in the same order.
        clusters: what belongs together when resampling, such as the image of each question; None takes each question
            by itself.
        rounds: bootstrap resamples.
        seed: seed of the bootstrap.

    Raises:
        ValueError: the lengths differ, or there is nothing to compare.
    """
    if len(first) != len(second):
        raise ValueError(f"paired lists differ in length: {len(first)} and {len(second)}")
    if not len(first):
        raise ValueError("a comparison of nothing")
    ours, theirs = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    gains = ours - theirs
    low, high = bootstrap(gains, clusters=clusters, rounds=rounds, seed=seed)
    better, worse = int((gains > 0).sum()), int((gains < 0).sum())
    counted = bool(np.isin(ours, (0.0, 1.0)).all() and np.isin(theirs, (0.0, 1.0)).all())
    interval = Interval(float(gains.mean()), low, high, len(gains))
    return Paired(interval, better, worse, mcnemar(better, worse) if counted else None)


def bootstrap(
    values: NDArray[Any],
    *,
    clusters: Sequence[object] | NDArray[Any] | None = None,
    rounds: int = ROUNDS,
    seed: int = 0,
) -> tuple[float, float]:
    """Returns the 2.5th and 97.5th percentile of the mean when whole clusters are drawn anew with replacement.

    Clusters with the same sum and size are alike to the mean, so how often each *kind* is drawn is what is sampled:
    the same distribution as drawing clusters one by one, at the cost of the number of kinds, not of clusters. A million
    questions scored 0 or 1 are three kinds of difference. Beyond 20,000 kinds, 1,000 rounds at most are drawn.

    Args:
        values: one a question.
        clusters: cluster of each value; None takes each value by itself.
        rounds: bootstrap resamples.
        seed: seed of the draws.

    Raises:
        ValueError: the lengths differ.
    """
    if clusters is None:
        sums: NDArray[Any] = np.asarray(values, dtype=np.float64)
        sizes: NDArray[Any] = np.ones(len(values))
    else:
        if len(clusters) != len(values):
            raise ValueError(f"values and clusters differ in length: {len(values)} and {len(clusters)}")
        _, labels = np.unique(
            clusters if isinstance(clusters, np.ndarray) else [str(one) for one in clusters], return_inverse=True
        )
        sums, sizes = np.bincount(labels, weights=values), np.bincount(labels)
    # Rounding makes sums alike that differ only by the order in which they were added.
    kinds, counts = np.unique(np.round(sums, 6) + 1j * sizes, return_counts=True)
    draws = max(1, CELLS // len(kinds))
    rounds = min(rounds, FEW_ROUNDS) if len(kinds) > MANY_KINDS else rounds
    generator, found = np.random.default_rng(seed), []
    for start in range(0, rounds, draws):
        drawn = generator.multinomial(len(sums), counts / len(sums), size=min(draws, rounds - start))
        found.append((drawn @ kinds.real) / (drawn @ kinds.imag))
    low, high = np.percentile(np.concatenate(found), [2.5, 97.5])
    return float(low), float(high)


def mcnemar(better: int, worse: int) -> float:
    """Returns the two-sided p-value of McNemar's exact test: a fair coin thrown once for each question that changed."""
    changed, fewer = better + worse, min(better, worse)
    if not changed:
        return 1.0
    steps = np.arange(1, fewer + 1, dtype=np.float64)
    ways = np.concatenate(([0.0], np.cumsum(np.log((changed - steps + 1) / steps))))  # log of "changed choose k"
    tail = float(np.exp(ways - changed * math.log(2)).sum())
    return min(1.0, 2 * tail)
