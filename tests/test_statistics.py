from __future__ import annotations

import pytest

from codevqa.eval.statistics import compare, proportion


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
