"""The statistics every reported number carries: intervals, and paired comparison on the same questions.

Questions about one picture, or one statement over several, go right and wrong together. Where clusters are fewer than
questions, the variance is that of leaving one cluster out at a time (the jackknife), in Student's t with as many
degrees of freedom as the sizes of the clusters leave (Kish's effective number less one): near the nominal 95 % down to
five clusters of five questions, where a bootstrap's percentiles cover 86 % (``benchmarks/coverage.py``). Shares
take it into Wilson's interval as an effective number of questions (Franco and others, 2019), so that 0 and 1 have a
width. Where errors are rare, too few clusters have any to show how much they come in bunches: a few more that are as
much alike as in NLVR are assumed.

Everything takes plain lists or numpy arrays, is vectorised, and draws nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, stdtr, stdtrit

FEW_CLUSTERS = 40
"""With fewer a report says so: the variance itself is then known badly, and the interval leans on Student's t."""
ASSUMED, ALIKE = 5.0, 0.3
"""Clusters that are assumed to be seen beside those with errors where all others are right, and how much alike right
and wrong are within them."""
SIDE = 0.975
"""Quantile of a two-sided 95 %."""

Numbers: TypeAlias = Sequence[float] | NDArray[Any]
Clusters: TypeAlias = Sequence[object] | NDArray[Any]


@dataclass(frozen=True)
class Interval:
    """An estimate with its 95 % interval."""

    value: float
    low: float
    high: float
    n: int
    """Questions."""
    clusters: int
    """Of questions that go together; as many as questions where each stands by itself."""

    @property
    def few(self) -> bool:
        """Whether it leans on so few clusters that a reader should be told."""
        return self.clusters < min(self.n, FEW_CLUSTERS)

    def __str__(self) -> str:
        few = f" in {self.clusters} clusters" if self.few else ""
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}] n={self.n}{few}"


def wilson(right: int, n: int) -> Interval:
    """Returns the share ``right / n`` with Wilson's score interval (1927): each question of some stands by itself."""
    return Interval(right / n, *_score_interval(right / n, n, 1.959964), n, n)


def _score_interval(share: float, n: float, z: float) -> tuple[float, float]:
    if math.isinf(z):
        return 0.0, 1.0
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return max(0.0, centre - half), min(1.0, centre + half)


@dataclass(frozen=True)
class _Spread:
    """A mean over clusters with the variance that it has from one draw of clusters to another."""

    value: float
    error: float
    """Standard error; 0 where all clusters are alike."""
    n: int
    clusters: int
    units: float
    """Kish's effective number of clusters: as many of one size would say as much."""
    rare: int
    """Clusters with an error, or with a right answer where those are fewer."""

    def t(self, quantile: float) -> float:
        """Quantile of Student's t; without end where one cluster is all there is."""
        return float(stdtrit(self.units - 1, quantile)) if self.clusters > 1 else math.inf

    @classmethod
    def of(cls, values: NDArray[np.float64], clusters: Clusters | None) -> _Spread:
        sums: NDArray[Any] = values
        sizes: NDArray[Any] = np.ones(len(values))
        if clusters is not None:
            if len(clusters) != len(values):
                raise ValueError(f"values and clusters differ in length: {len(values)} and {len(clusters)}")
            labels = clusters if isinstance(clusters, np.ndarray) else [str(cluster) for cluster in clusters]
            _, places = np.unique(labels, return_inverse=True)
            sums, sizes = np.bincount(places, values), np.bincount(places, sizes)
        count, n, value = len(sums), sizes.sum(), sums.sum() / sizes.sum()
        error = 0.0
        if count > 1:
            without = (sums.sum() - sums) / (n - sizes)
            error = math.sqrt((count - 1) / count * float(((without - value) ** 2).sum()))
        # Rounding leaves of no variance at all some 1e-17.
        units, rare = float(n**2 / (sizes**2).sum()), min(int((sums < sizes).sum()), int((sums > 0).sum()))
        return cls(float(value), error if error > 1e-12 else 0.0, int(n), count, units, rare)

    @property
    def effective_n(self) -> float:
        """For how many questions that stand alone the questions of a share count."""
        if not self.error:
            return self.units
        count = self.value * (1 - self.value) / self.error**2
        if self.clusters == self.n:
            return count
        assumed = ASSUMED * (2 * self.value - 1) ** 8  # next to nothing where right and wrong are both common
        alike = 1 + ALIKE * (self.n / self.units - 1)
        lost = (self.rare * self.n / count + assumed * alike) / (self.rare + assumed)
        return min(count, self.n / lost)


def mean(scores: Numbers, *, clusters: Clusters | None = None) -> Interval:
    """Returns the mean of scores from 0 to 1, such as the share of right answers.

    The interval is Wilson's; clusters, and scores between 0 and 1, change for how many questions they count. Where
    all clusters are alike, at 0 and 1 above all, each counts once.

    Args:
        scores: one a question.
        clusters: what goes together, such as the picture of each question; None takes each question by itself.

    Raises:
        ValueError: the lengths differ, or there is nothing to average.
    """
    values = np.asarray(scores, dtype=np.float64)
    if not len(values):
        raise ValueError("a mean of nothing")
    spread = _Spread.of(values, clusters)
    if spread.clusters == spread.n and _is_binary(values):
        return wilson(int(values.sum()), spread.n)
    low, high = _score_interval(min(1.0, max(0.0, spread.value)), spread.effective_n, spread.t(SIDE))
    return Interval(spread.value, low, high, spread.n, spread.clusters)


def mean_of(scores: Iterable[tuple[float, object]]) -> Interval | None:
    """Returns :func:`mean` of scores that each come with their cluster; None of nothing."""
    values = list(scores)
    return mean([score for score, _ in values], clusters=[cluster for _, cluster in values]) if values else None


def _is_binary(values: NDArray[np.float64]) -> bool:
    return bool(np.isin(values, (0.0, 1.0)).all())


@dataclass(frozen=True)
class Paired:
    """Two methods on the same questions."""

    difference: Interval
    """Accuracy of the first minus accuracy of the second."""
    better: int
    """Questions only the first got right, or on which it scored more."""
    worse: int
    """Questions only the second got right, or on which it scored more."""
    p_value: float
    """Two-sided."""
    test: str
    """``McNemar`` (exact) where each question stands by itself and scores are 0 and 1, else ``t`` over clusters."""
    error: float
    """Standard error of the difference; 0 where all clusters gain alike."""

    def __str__(self) -> str:
        test = f"{self.test} p={self.p_value:.2g}"
        return f"{self.difference} (better {self.better}, worse {self.worse}, {test})"


def compare_scores(first: Numbers, second: Numbers, *, clusters: Clusters | None = None) -> Paired:
    """Compares two methods question by question.

    Args:
        first: whether the first method was right, one a question, or its score from 0 to 1.
        second: the same for the second method, in the same order.
        clusters: what goes together, such as the picture of each question; None takes each question by itself.

    Raises:
        ValueError: the lengths differ, or there is nothing to compare.
    """
    if len(first) != len(second):
        raise ValueError(f"paired lists differ in length: {len(first)} and {len(second)}")
    if not len(first):
        raise ValueError("a comparison of nothing")
    ours, theirs = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    gains = ours - theirs
    spread = _Spread.of(gains, clusters)
    better, worse = int((gains > 0).sum()), int((gains < 0).sum())
    alone = spread.clusters == spread.n and _is_binary(ours) and _is_binary(theirs)
    p_value = mcnemar(better, worse) if alone else _p_value(spread)
    # Where all clusters gain alike, another might not: as far as Wilson's interval goes from a share of all of them.
    half = spread.t(SIDE) * spread.error if spread.error else _score_interval(0.0, spread.units, spread.t(SIDE))[1]
    low, high = max(-1.0, spread.value - half), min(1.0, spread.value + half)
    interval = Interval(spread.value, low, high, spread.n, spread.clusters)
    return Paired(interval, better, worse, p_value, "McNemar" if alone else "t", spread.error)


def _p_value(spread: _Spread) -> float:
    if spread.error:
        return float(2 * stdtr(spread.units - 1, -abs(spread.value) / spread.error))
    return 1.0 if not spread.value else 2.0 ** (1 - spread.clusters)  # all alike: a coin thrown for each cluster


def mcnemar(better: int, worse: int) -> float:
    """Returns the two-sided p-value of McNemar's exact test: a fair coin thrown once for each question that changed."""
    return min(1.0, 2 * float(bdtr(min(better, worse), better + worse, 0.5)))


def holm(p_values: Sequence[float]) -> list[float]:
    """Returns p-values as they are when so many tests are made at once (Holm, 1979)."""
    adjusted, highest = [0.0] * len(p_values), 0.0
    for left, place in zip(range(len(p_values), 0, -1), np.argsort(p_values), strict=True):
        highest = max(highest, min(1.0, left * p_values[place]))
        adjusted[place] = highest
    return adjusted


def risk(sure: Numbers, wrong: Numbers) -> NDArray[np.float64]:
    """Returns the mean error of the surest 1, 2, ... answers: the curve of risk over coverage.

    Answers as sure as one another share their mean error, so that their order does not matter.
    """
    _, group, sizes = np.unique(-np.asarray(sure, dtype=np.float64), return_inverse=True, return_counts=True)
    means = np.bincount(group, weights=np.asarray(wrong, dtype=np.float64)) / sizes
    return np.asarray(np.cumsum(np.repeat(means, sizes)) / np.arange(1, len(group) + 1))
