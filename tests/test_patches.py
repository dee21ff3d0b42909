"""Patches are drawn as NumPy draws without replacement, one by one and many at once."""

from __future__ import annotations

import asyncio

import numpy as np
import numpy.typing as npt
import pytest

from codevqa.models.base import Map
from codevqa.patches import Drawing, Patches, draw_all, draw_patches


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

    monkeypatch.setattr("codevqa.patches.draw_all", noted)
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
