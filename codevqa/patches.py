"""Which patches of a picture a caption sees: drawn without replacement, in proportion to relevance.

Subsets are what ``numpy.random.default_rng(seed).choice(size, count, replace=False, p=weights)`` draws, number for
number. That call takes several times as long as drawing needs; where many questions draw at the same time, all of
them are drawn together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from .models.base import Map
from .models.seeded_numbers import seeded_numbers

__all__ = ["Drawing", "Patches", "draw_all", "draw_patches"]

_MANY = 64
"""Fewer subsets are faster one by one."""
_AT_ONCE = 64
"""Subsets whose weights fit in a processor's cache."""

Floats: TypeAlias = "npt.NDArray[np.float64]"
Subset: TypeAlias = "tuple[int, ...]"


def draw_patches(relevance: Map, count: int, seed: int) -> Subset:
    """Draws ``count`` patches without replacement, in proportion to relevance; returns their sorted indices.

    A map with fewer relevant patches than wanted gives all of those and fills up evenly from the rest.
    """
    return Patches(relevance, count).draw(seed)


class Patches:
    """The patches of one picture, to be drawn as :func:`draw_patches` says, many times over."""

    def __init__(self, relevance: Map, count: int) -> None:
        self.relevance = relevance
        self.count = min(count, relevance.size)
        self._weights: Floats | None = None
        self._bounds: Floats | None = None

    @property
    def weights(self) -> Floats:
        """Chance of each patch."""
        if self._weights is None:
            _prepare([self])
        assert self._weights is not None
        return self._weights

    @property
    def bounds(self) -> Floats:
        """Chance of each patch and all before it."""
        if self._bounds is None:
            _prepare([self])
        assert self._bounds is not None
        return self._bounds

    def draw(self, seed: int) -> tuple[int, ...]:
        """Returns the sorted indices of one subset.

        This is what ``default_rng(seed).choice(size, count, replace=False, p=weights)`` draws, number for number, with
        what depends on the weights alone computed once for all subsets: places are drawn by their weight, those drawn
        already are dropped, and the next round draws what is missing from the rest.
        """
        random = np.random.default_rng(seed).random
        bounds, weights = self.bounds, self.weights
        found = dict.fromkeys(bounds.searchsorted(random(self.count), side="right").tolist())
        while len(found) < self.count:
            places = random(self.count - len(found))
            weights = weights.copy() if weights is self.weights else weights
            weights[list(found)] = 0
            found |= dict.fromkeys(_bounds(weights).searchsorted(places, side="right").tolist())
        return tuple(sorted(found))


def _prepare(several: Sequence[Patches]) -> None:
    """Computes the chances of maps of one size."""
    if not several:
        return
    weights = np.stack([chances.relevance.ravel() for chances in several], dtype=np.float64)
    total = weights.sum(axis=1)
    useless = ~np.isfinite(total) | (total <= 0)
    if useless.any():
        weights[useless] = 1
        total = weights.sum(axis=1)
    # The floor is far below any real relevance: it only decides where relevance is exactly zero.
    weights /= total[:, None]
    weights += 1e-12
    weights /= weights.sum(axis=1)[:, None]
    bounds = np.cumsum(weights, axis=1)
    bounds /= bounds[:, -1:]
    for chances, own, summed in zip(several, weights, bounds, strict=True):
        chances._weights, chances._bounds = own, summed


def draw_all(wanted: Sequence[tuple[Patches, int]]) -> list[Subset]:
    """Returns what :meth:`Patches.draw` draws for each pair of patches and seed."""
    if len(wanted) < _MANY or len({(chances.count, chances.relevance.size) for chances, _ in wanted}) > 1:
        return [chances.draw(seed) for chances, seed in wanted]
    _prepare([chances for chances in dict.fromkeys(chances for chances, _ in wanted) if chances._weights is None])
    count = wanted[0][0].count
    # Twice as many numbers as patches are enough for nearly every subset.
    numbers = seeded_numbers([seed for _, seed in wanted], 2 * count)
    places = np.empty((len(wanted), count), np.int64)
    first = 0
    while first < len(wanted):  # subsets of one picture stand side by side
        chances, last = wanted[first][0], first + 1
        while last < len(wanted) and wanted[last][0] is chances:
            last += 1
        places[first:last] = chances.bounds.searchsorted(numbers[first:last, :count], side="right")
        first = last
    places.sort(axis=1)
    missing = (places[:, 1:] == places[:, :-1]).sum(axis=1)
    found: list[Subset] = [tuple(row) for row in places.tolist()]
    again = np.flatnonzero(missing).tolist()
    for begin in range(0, len(again), _AT_ONCE):
        rows = again[begin : begin + _AT_ONCE]
        # Places drawn already are dropped, and what is missing is drawn from the rest.
        weights = np.stack([wanted[row][0].weights for row in rows])
        np.put_along_axis(weights, places[rows], 0, axis=1)
        bounds = np.cumsum(weights, axis=1, out=weights)
        bounds /= bounds[:, -1:]
        for row, rest in zip(rows, bounds, strict=True):
            more = rest.searchsorted(numbers[row, count : count + int(missing[row])], side="right").tolist()
            subset = {*found[row], *more}
            # A third round is rare.
            found[row] = tuple(sorted(subset)) if len(subset) == count else wanted[row][0].draw(wanted[row][1])
    return found


class Drawing:
    """Draws for many questions at once: for all that ask in the same turn of the event loop."""

    def __init__(self) -> None:
        self._asked: list[tuple[Patches, Sequence[int], asyncio.Future[list[Subset]]]] = []

    async def __call__(self, chances: Patches, seeds: Sequence[int]) -> list[Subset]:
        """Returns a subset of patches for each seed."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[Subset]] = loop.create_future()
        if not self._asked:
            loop.call_soon(self._draw)
        self._asked.append((chances, seeds, future))
        return await future

    def _draw(self) -> None:
        asked, self._asked = self._asked, []
        drawn = iter(draw_all([(chances, seed) for chances, seeds, _ in asked for seed in seeds]))
        for _, seeds, future in asked:
            subsets = [next(drawn) for _ in seeds]
            if not future.done():  # cancelled meanwhile
                future.set_result(subsets)


def _bounds(weights: Floats) -> Floats:
    bounds = np.cumsum(weights)
    bounds /= bounds[-1]
    return bounds
