from __future__ import annotations

import math
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest

from codevqa.eval import statistics
from codevqa.eval.statistics import bootstrap, compare, mcnemar, mean, proportion


def test_wilson_interval_against_published_values() -> None:
    # Newcombe (1998), table I: 81 of 263 and 15 of 148, 1 of 29 and 0 of 20.
    for right, n, low, high in [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ]:
        interval = proportion([True] * right + [False] * (n - right))
        assert (interval.low, interval.high) == pytest.approx((low, high), abs=5e-5)


def test_mcnemar_exact_by_hand() -> None:
    first, second = [True] * 8 + [False] * 2 + [True] * 90, [False] * 8 + [True] * 2 + [True] * 90
    paired = compare(first, second)
    assert (paired.better, paired.worse) == (8, 2)
    assert paired.p_value == pytest.approx(2 * (1 + 10 + 45) / 1024)
    assert paired.difference.value == pytest.approx(0.06)
    assert paired.difference.low < 0.06 < paired.difference.high


def test_no_change_is_no_evidence() -> None:
    paired = compare([True, False], [True, False])
    assert paired.p_value == 1 and paired.difference.low == paired.difference.high == 0


def test_clusters_widen_the_interval() -> None:
    first, second = ([True] * 10 + [False] * 10) * 10, [False] * 200
    alone = compare(first, second)
    grouped = compare(first, second, clusters=[place // 10 for place in range(200)])
    assert grouped.difference.high - grouped.difference.low > 2 * (alone.difference.high - alone.difference.low)


def test_lists_must_pair() -> None:
    with pytest.raises(ValueError, match="differ in length"):
        compare([True], [True, False])
    with pytest.raises(ValueError, match="nothing"):
        proportion([])
    with pytest.raises(ValueError, match="nothing"):
        compare([], [])
    with pytest.raises(ValueError, match="differ in length"):
        compare([True, False], [True, False], clusters=["a"])


def test_bootstrap_interval_against_the_normal_one() -> None:
    # One in ten gained of 400: standard error 0.015, so 0.1 +- 0.0294 at 95 %.
    paired = compare([True] * 40 + [False] * 360, [False] * 400)
    assert paired.difference.low == pytest.approx(0.1 - 0.0294, abs=0.003)
    assert paired.difference.high == pytest.approx(0.1 + 0.0294, abs=0.003)
    assert paired.difference.n == 400


def test_clusters_of_unequal_size_weigh_by_their_size() -> None:
    paired = compare([True] * 9 + [False], [False] * 10, clusters=["big"] * 9 + ["small"])
    assert paired.difference.value == pytest.approx(0.9)
    assert (paired.difference.low, paired.difference.high) == (0.0, 1.0)  # none can gain more than all


def test_seed_and_rounds() -> None:
    first, second = [True] * 40 + [False] * 60, [False] * 100
    assert compare(first, second, rounds=50) == compare(first, second, rounds=50)
    assert compare(first, second, rounds=50, seed=1) != compare(first, second, rounds=50)
    once = compare(first, second, rounds=1).difference
    assert once.low == once.high


def test_as_text() -> None:
    assert str(proportion([True, False])) == "0.500 [0.095, 0.905] n=2"
    assert "better 1, worse 0, McNemar p=1" in str(compare([True], [False]))


def test_scores_between_nought_and_one_have_no_mcnemar() -> None:
    paired = compare([0.3, 0.9, 1.0, 0.0], [0.6, 0.3, 1.0, 0.0])
    assert (paired.better, paired.worse, paired.p_value) == (1, 1, None)
    assert paired.difference.value == pytest.approx(0.3 / 4)
    assert "McNemar" not in str(paired)
    assert compare([1.0, 0.0], [0.0, 0.0]).p_value == 1


def test_lists_and_arrays_are_alike() -> None:
    rng = np.random.default_rng(0)
    first, second, clusters = rng.random(300) < 0.6, rng.random(300) < 0.4, rng.integers(0, 40, 300)
    listed = compare(first.tolist(), second.tolist(), clusters=clusters.tolist(), rounds=500)
    arrays = compare(first, second, clusters=clusters, rounds=500)
    assert (listed.better, listed.worse, listed.p_value) == (arrays.better, arrays.worse, arrays.p_value)
    assert listed.difference.low == pytest.approx(arrays.difference.low, abs=0.01)


def test_drawing_kinds_is_drawing_clusters() -> None:
    rng = np.random.default_rng(3)
    values = np.round(rng.random(400), 1)
    clusters = np.repeat(np.arange(60), np.r_[np.full(40, 2), np.full(20, 16)])
    sums, sizes = np.bincount(clusters, weights=values), np.bincount(clusters)
    picks = rng.integers(0, 60, (20_000, 60))  # clusters drawn one by one
    low, high = np.percentile(sums[picks].sum(1) / sizes[picks].sum(1), [2.5, 97.5])
    assert bootstrap(values, clusters=clusters) == pytest.approx((low, high), abs=0.003)


def test_mean_with_its_bootstrap_interval() -> None:
    interval = mean([0.0, 1.0] * 200)
    assert (interval.value, interval.n) == (0.5, 400)
    assert (interval.low, interval.high) == pytest.approx((0.451, 0.549), abs=0.004)
    wide = mean([0.0, 1.0] * 200, clusters=["a", "b"] * 200)
    assert (wide.low, wide.high) == (0.0, 1.0)
    with pytest.raises(ValueError, match="nothing"):
        mean([])
    with pytest.raises(ValueError, match="differ in length"):
        mean([0.5], clusters=["a", "b"])


def test_mcnemar_of_many_changes() -> None:
    # 300 against 240 of 540: by the binomial distribution, and where the power of two is beyond a float.
    exact = 2 * sum(Fraction(math.comb(540, k), 2**540) for k in range(241))
    assert mcnemar(300, 240) == pytest.approx(float(exact), rel=1e-9)
    assert mcnemar(240, 300) == mcnemar(300, 240)
    assert mcnemar(0, 0) == mcnemar(5, 5) == 1
    normal = math.erfc((20_000 - 1) / math.sqrt(1_980_000) / math.sqrt(2))  # with continuity correction
    assert mcnemar(1_000_000, 980_000) == pytest.approx(normal, rel=0.01)


def test_a_million_questions_in_bounded_memory() -> None:
    rng = np.random.default_rng(1)
    first, second = rng.random(1_000_000) < 0.5, rng.random(1_000_000) < 0.49
    tracemalloc.start()
    paired = compare(first, second, clusters=np.arange(1_000_000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200e6
    half = 1.96 * math.sqrt(0.5 / 1_000_000)
    assert paired.difference.high - paired.difference.low == pytest.approx(2 * half, rel=0.05)


def test_many_kinds_of_cluster_take_fewer_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(2).random(400)
    full = bootstrap(values)
    monkeypatch.setattr(statistics, "CELLS", 1_000)  # drawn two or three rounds at a time
    assert bootstrap(values) == pytest.approx(full, abs=0.003)
    monkeypatch.setattr(statistics, "MANY_KINDS", 100)
    monkeypatch.setattr(statistics, "FEW_ROUNDS", 1)
    low, high = bootstrap(values)
    assert low == high
