import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from codevqa.eval.statistics import compare, holm, mean, wilson


@pytest.mark.parametrize(
    ("right", "n", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_interval_against_published_values(right: int, n: int, low: float, high: float) -> None:
    """Newcombe (1998), table I."""
    interval = wilson(right, n)
    assert (interval.low, interval.high) == pytest.approx((low, high), abs=5e-5)
    alone = mean([True] * right + [False] * (n - right), clusters=range(n))
    assert alone == interval  # clusters of one question are questions


def test_mcnemar_exact_by_hand() -> None:
    first, second = [True] * 8 + [False] * 2 + [True] * 90, [False] * 8 + [True] * 2 + [True] * 90
    for clusters in (None, range(100)):
        paired = compare(first, second, clusters=clusters)
        assert (paired.better, paired.worse, paired.test) == (8, 2, "McNemar")
        assert paired.p_value == pytest.approx(2 * (1 + 10 + 45) / 1024)
        assert paired.difference.value == pytest.approx(0.06) and paired.difference.low < 0.06 < paired.difference.high


def test_no_change_is_no_evidence_of_none() -> None:
    paired = compare([True, False] * 50, [True, False] * 50)
    assert paired.p_value == 1
    assert paired.difference.low == pytest.approx(-0.0379, abs=1e-3)  # as Wilson's interval goes for 0 of 100
    grouped = compare([True, False] * 50, [True, False] * 50, clusters=[place // 10 for place in range(100)])
    assert grouped.p_value == 1 and grouped.difference.low < -0.25  # ten clusters alike say little of an eleventh


def test_clusters_of_unequal_size_weigh_by_their_size() -> None:
    paired = compare([True] * 9 + [False], [False] * 10, clusters=["big"] * 9 + ["small"])
    assert paired.difference.value == pytest.approx(0.9)
    assert (paired.difference.low, paired.difference.high) == (-1.0, 1.0)  # two clusters, and they differ
    sizes = [60, *[4] * 20]
    first = [place % 3 > 0 for size in sizes for place in range(size)]
    labels = [str(at) for at, size in enumerate(sizes) for _ in range(size)]
    tested = compare(first, [place % 2 > 0 for place in range(len(first))], clusters=labels)
    # One large cluster leaves few degrees of freedom, however many small there are.
    units = 140**2 / (60**2 + 20 * 4**2)
    assert tested.p_value == pytest.approx(2 * stats.t.sf(tested.difference.value / tested.error, units - 1))


def test_scores_between_nought_and_one_have_no_mcnemar() -> None:
    paired = compare([0.3, 0.9, 1.0, 0.0], [0.6, 0.3, 1.0, 0.0])
    assert (paired.better, paired.worse, paired.test) == (1, 1, "t")
    assert paired.difference.value == pytest.approx(0.3 / 4)


def test_the_jackknife_against_the_t_test_of_cluster_means() -> None:
    # Clusters of one size: the variance is that of their means, and the test the ordinary one.
    rng = np.random.default_rng(3)
    gains = rng.integers(-1, 2, (30, 4)).astype(float)
    paired = compare(np.maximum(gains, 0).ravel(), np.maximum(-gains, 0).ravel(), clusters=np.repeat(np.arange(30), 4))
    expected = stats.ttest_1samp(gains.mean(1), 0)
    low, high = expected.confidence_interval()
    assert paired.test == "t" and paired.p_value == pytest.approx(expected.pvalue)
    assert (paired.difference.low, paired.difference.high) == pytest.approx((low, high))


def test_rare_errors_are_taken_to_come_in_bunches() -> None:
    """Two errors of 300, each in a cluster of its own, do not show how much errors go together."""
    right = [place not in (0, 8) for place in range(300)]
    alone, together = mean(right), mean(right, clusters=[place // 4 for place in range(300)])
    assert together.low < alone.low - 0.005


@pytest.mark.parametrize("right", [True, False])
def test_a_share_of_all_or_none_has_a_width_by_its_clusters(right: bool) -> None:
    interval = mean([right] * 200, clusters=[place // 20 for place in range(200)])
    assert interval.value == right
    # As sure as ten questions are, in t of nine degrees of freedom.
    assert interval.high - interval.low == pytest.approx(2.2622**2 / (10 + 2.2622**2), abs=1e-4)


def test_few_clusters_say_little() -> None:
    interval, paired = mean([True, True, False], clusters="aaa"), compare([1, 1, 0], [0, 1, 0], clusters="aaa")
    assert (interval.low, interval.high, paired.p_value) == (0.0, 1.0, 1.0)
    # Clusters that all gain alike are coins that all fell alike.
    paired = compare([True] * 12, [True, False, False] * 4, clusters=[place // 3 for place in range(12)])
    assert paired.p_value == 2 / 2**4 and paired.difference.low < 0.2


def test_holm_by_hand() -> None:
    # Holm (1979): the smallest times 4, the next times 3, ...; never less than the one before, never more than 1.
    assert holm([0.01, 0.04, 0.03, 0.5]) == pytest.approx([0.04, 0.09, 0.09, 0.5])
    assert holm([0.6, 0.7]) == [1.0, 1.0] and holm([]) == []


sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
coverage = import_module("benchmarks.coverage")


@pytest.mark.slow
@pytest.mark.parametrize("structure", coverage.structures(), ids=lambda one: one.name)
def test_an_interval_holds_the_truth_and_a_true_null_stands(structure: Any) -> None:
    found = coverage.covered(structure)
    usual = structure.right[0] < 0.9
    assert (0.93 if usual else 0.9) <= found.difference <= 0.97
    assert found.rejected <= 0.07
    # A handful of clusters, or of errors, says so little of a share that more than is promised is held.
    assert 0.93 <= found.share <= (0.97 if usual and structure.clusters.max() >= 9 else 0.995)
