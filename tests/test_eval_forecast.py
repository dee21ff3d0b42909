"""How long a run will still take is told right soon, however its answers come."""

from __future__ import annotations

import heapq

import pytest

from codevqa.eval.run.session import Forecast, Status


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
    status, forecast, begun, told = Status(total=total), Forecast(), dict[int, float](), list[tuple[float, float]]()
    ends: list[tuple[float, int]] = []
    for number in range(min(window, total)):
        begun[number] = 0.0
        heapq.heappush(ends, (load + took * (0.9 + number % 7 / 20), number))
    while ends:
        now, number = heapq.heappop(ends)
        ages = [now - start for one, start in begun.items() if one != number]
        status.examples, status.seconds = status.examples + 1, now
        status.under_way, status.recent = forecast.finished(now, now - begun.pop(number), ages)
        if status.examples >= total / 10 and status.left is not None:
            told.append((now, status.left))
        if (following := window + status.examples - 1) < total:
            begun[following] = now
            heapq.heappush(ends, (now + took * (0.9 + following % 7 / 20), following))
    whole = told[-1][0]
    assert told[-1][1] == 0
    assert all(abs(at + left - whole) <= 0.2 * whole for at, left in told), (told[0], whole)
