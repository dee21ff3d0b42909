"""Patches are drawn as NumPy draws without replacement."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from codevqa.models.base import Map
from codevqa.primitives.patches import Patches


def choice(relevance: Map, count: int, seed: int) -> tuple[int, ...]:
    """The definition."""
    weights: npt.NDArray[np.float64] = relevance.astype(np.float64).ravel()
    if not np.isfinite(weights.sum()) or weights.sum() <= 0:
        weights = np.ones_like(weights)
    weights = weights / weights.sum() + 1e-12
    drawn = np.random.default_rng(seed).choice(weights.size, count, replace=False, p=weights / weights.sum())
    return tuple(sorted(drawn.tolist()))


@pytest.mark.parametrize("sharpness", [1, 6, 60])
def test_patches_are_those_that_numpy_draws(sharpness: float) -> None:
    maps: list[Map] = list((np.random.default_rng(3).random((30, 12, 12)) ** sharpness).astype(np.float32))
    maps[4][:], maps[5][:], maps[6][0, 0] = 0, np.nan, np.inf
    for seed, one in enumerate(maps, 2**40):
        chances = Patches(one, 20)
        assert [chances.draw(seed), chances.draw(seed + 1)] == [choice(one, 20, seed), choice(one, 20, seed + 1)]


def test_a_small_picture_gives_all_its_patches() -> None:
    assert Patches(np.ones((3, 3), np.float32), 10).draw(0) == tuple(range(9))
