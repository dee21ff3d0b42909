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

from ..models.base import Map
from ..models.seeded_numbers import seeded_numbers

__all__ = ["Drawing", "Patches", "draw_all", "draw_patches"]

_MANY = 32
"""Fewer subsets are faster one by one."""
_AT_ONCE = 64
"""Subsets whose weights fit in a processor's cache."""

Floats: TypeAlias = "npt.NDArray[np.float64]"
Places: TypeAlias = "npt.NDArray[np.int64]"
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
    # Twice as many numbers as patches are enough for nearly every subset.
    numbers = seeded_numbers([seed for _, seed in wanted], 2 * wanted[0][0].count)
    found: list[Subset] = []
    for first in range(0, len(wanted), _AT_ONCE):
        found += _drawn(wanted[first : first + _AT_ONCE], numbers[first : first + _AT_ONCE])
    return found


def _drawn(wanted: Sequence[tuple[Patches, int]], numbers: Floats) -> list[Subset]:
    """Draws subsets of one size, each from numbers of its own: the first round of all, the second of all, and on."""
    count, size = wanted[0][0].count, wanted[0][0].relevance.size
    maps = {chances: place for place, chances in enumerate(dict.fromkeys(chances for chances, _ in wanted))}
    whose = np.array([maps[chances] for chances, _ in wanted])
    bounds, held = np.stack([chances.bounds for chances in maps]), whose
    weights: Floats | None = None
    missing, spent, rows = np.full(len(wanted), count), np.zeros(len(wanted), np.int64), np.arange(len(wanted))
    found: list[Places] = []
    while True:
        need = missing[rows]
        each = np.repeat(np.arange(len(rows)), need)
        place = spent[rows][each] + np.arange(len(each)) - np.repeat(np.cumsum(need) - need, need)
        drawn = search(bounds, held[each], numbers[rows[each], place])
        spent[rows] += need
        drawn += rows[each] * size
        drawn.sort()
        found.append(drawn[np.diff(drawn, prepend=-1) > 0])
        missing -= np.bincount(found[-1] // size, minlength=len(wanted))
        for row in np.flatnonzero((missing > 0) & (spent + missing > numbers.shape[1])).tolist():  # rare
            found.insert(0, row * size + np.array(wanted[row][0].draw(wanted[row][1])))
            missing[row] = 0
        rows = np.flatnonzero(missing)
        if not len(rows):
            places = np.sort(np.concatenate(found))
            places = places[np.diff(places, prepend=-1) > 0].reshape(-1, count) % size
            return list(map(tuple, places.tolist()))
        # Places drawn already are dropped, and what is missing is drawn from the rest.
        weights = np.stack([chances.weights for chances in maps])[whose] if weights is None else weights
        weights.reshape(-1)[found[-1]] = 0
        bounds, held = np.cumsum(weights[rows], axis=1), np.arange(len(rows))
        bounds /= bounds[:, -1:]


def search(bounds: Floats, rows: Places, numbers: Floats) -> Places:
    """Returns ``bounds[row].searchsorted(number, side="right")`` for each number and its row; bounds end with 1."""
    size = bounds.shape[1]
    # All rows are searched as one, each lifted by its number. That rounds: what it may have moved is searched again.
    lifted = (bounds + np.arange(len(bounds))[:, None]).reshape(-1)
    found = lifted.searchsorted(numbers + rows, side="right")
    places: Places = found - rows * size
    flat = bounds.reshape(-1)
    right = (places >= 0) & (places < size) & (flat.take(found, mode="clip") > numbers)
    right &= (places == 0) | (flat.take(found - 1, mode="clip") <= numbers)
    for one in np.flatnonzero(~right).tolist():
        places[one] = bounds[rows[one]].searchsorted(numbers[one], side="right")
    return places


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
