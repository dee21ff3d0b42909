"""Patches are drawn as NumPy draws without replacement, one by one and many at once."""

from __future__ import annotations

import asyncio

import numpy as np
import numpy.typing as npt
import pytest

from codevqa.models.base import Map
from codevqa.primitives.patches import Drawing, Patches, draw_all, draw_patches, search


def choice(relevance: Map, count: int, seed: int) -> tuple[int, ...]:
    """The definition."""
    weights: npt.NDArray[np.float64] = relevance.astype(np.float64).ravel()
    if not np.isfinite(weights.sum()) or weights.sum() <= 0:
        weights = np.ones_like(weights)
    weights = weights / weights.sum() + 1e-12
    drawn = np.random.default_rng(seed).choice(weights.size, count, replace=False, p=weights / weights.sum())
    return tuple(sorted(drawn.tolist()))


def maps(sharpness: float, count: int = 30) -> list[Map]:
    noise = np.random.default_rng(3).random((count, 12, 12))
    found: list[Map] = list((noise**sharpness).astype(np.float32))
    found[4][:], found[5][:], found[6][0, 0] = 0, np.nan, np.inf
    return found


@pytest.mark.parametrize("sharpness", [1, 6, 60])
def test_many_at_once_are_what_numpy_draws(sharpness: float) -> None:
    wanted = [(Patches(one, 20), 7 * place + 2**40) for place, one in enumerate(maps(sharpness)) for _ in range(2)]
    wanted += [(chances, seed + 1) for chances, seed in wanted]
    expected = [choice(chances.relevance, 20, seed) for chances, seed in wanted]
    assert draw_all(wanted) == expected
    assert [chances.draw(seed) for chances, seed in wanted] == expected
    assert [draw_patches(chances.relevance, 20, seed) for chances, seed in wanted[:9]] == expected[:9]


def test_maps_of_several_sizes_draw_too() -> None:
    wanted = [(Patches(np.ones((side, side), np.float32), 10), side) for side in (3, 4, 5) for _ in range(40)]
    drawn = draw_all(wanted)
    assert drawn == [chances.draw(seed) for chances, seed in wanted]
    assert {len(one) for one in drawn} == {9, 10}


def test_questions_of_one_turn_draw_together(monkeypatch: pytest.MonkeyPatch) -> None:
    together: list[int] = []

    def noted(wanted: list[tuple[Patches, int]]) -> list[tuple[int, ...]]:
        together.append(len(wanted))
        return draw_all(wanted)

    monkeypatch.setattr("codevqa.primitives.patches.draw_all", noted)
    drawing = Drawing()

    async def run() -> None:
        asked = [drawing(Patches(one, 5), range(place, place + 3)) for place, one in enumerate(maps(2, 8))]
        tasks = [asyncio.ensure_future(one) for one in asked]
        await asyncio.sleep(0)
        tasks[2].cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        for place, one in enumerate(maps(2, 8)):
            if place != 2:
                assert found[place] == [choice(one, 5, seed) for seed in range(place, place + 3)]
        assert await drawing(Patches(maps(2)[0], 5), [1]) == [choice(maps(2)[0], 5, 1)]

    asyncio.run(run())
    assert together == [24, 1]


def test_rows_that_run_out_of_numbers_begin_again_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    alone: list[int] = []

    def noted(chances: Patches, seed: int) -> tuple[int, ...]:
        alone.append(seed)
        return choice(chances.relevance, chances.count, seed)

    one = np.full((12, 12), 1e-9, np.float32)
    one[3, :10] = 1  # ten places have nearly all the weight, and twenty are wanted
    even = np.ones((12, 12), np.float32)
    wanted = [(Patches(one if seed % 3 else even, 20), seed) for seed in range(70)]
    monkeypatch.setattr(Patches, "draw", noted)
    assert draw_all(wanted) == [choice(chances.relevance, 20, seed) for chances, seed in wanted]
    assert alone and all(seed % 3 for seed in alone)


def test_rows_are_searched_as_one_by_one_where_a_number_is_a_bound_or_beside_it() -> None:
    random = np.random.default_rng(5)
    bounds = np.cumsum(random.random((70, 50)) ** 30, axis=1)
    bounds[:, 20:23] = bounds[:, 20:21]
    bounds /= bounds[:, -1:]
    rows = np.repeat(np.arange(70), 3 * 49 + 1)
    near = [np.nextafter(bounds[:, :-1], 0), bounds[:, :-1], np.nextafter(bounds[:, :-1], 1), np.zeros((70, 1))]
    numbers = np.minimum(np.concatenate(near, axis=1), np.nextafter(1, 0)).reshape(-1)
    expected = [bounds[row].searchsorted(number, side="right") for row, number in zip(rows, numbers, strict=True)]
    assert search(bounds, rows, numbers).tolist() == expected
