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
