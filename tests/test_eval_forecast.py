"""How long a run will still take is told right soon, however its answers come."""

from __future__ import annotations

import heapq

import pytest

from codevqa.eval.run.session import Status


@pytest.mark.parametrize(
    ("total", "window", "load", "took"),
    [
        pytest.param(60, 64, 10.0, 2.0, id="all at once, as small runs are"),
        pytest.param(400, 16, 0.0, 2.0, id="a steady run"),
        pytest.param(1000, 32, 20.0, 2.0, id="models that load slowly"),
        pytest.param(50, 1, 0.0, 1.0, id="one after another"),
    ],
)
def test_a_tenth_tells_the_rest(total: int, window: int, load: float, took: float) -> None:
    status, told = Status(total=total), list[tuple[float, float]]()
    ends: list[tuple[float, int]] = []
    for number in range(min(window, total)):
        heapq.heappush(ends, (load + took * (0.9 + number % 7 / 20), number))
    while ends:
        now, _ = heapq.heappop(ends)
        status.examples, status.seconds, status.under_way = status.examples + 1, now, len(ends)
        if status.examples == 1:
            status.first = now, status.work
        if status.examples >= total / 10 and now > status.first[0] and status.left is not None:
            told.append((now, status.left))
        if (following := window + status.examples - 1) < total:
            heapq.heappush(ends, (now + took * (0.9 + following % 7 / 20), following))
    whole = told[-1][0]
    assert told[-1][1] == 0
    assert all(abs(at + left - whole) <= 0.2 * whole for at, left in told), (told[0], whole)
