"""Which patches of a picture a caption sees: drawn without replacement, in proportion to relevance."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..models.protocols import Map


class Patches:
    """The patches of one picture, to be drawn many times over.

    A map with fewer relevant patches than wanted gives all of those and fills up evenly from the rest.
    """

    def __init__(self, relevance: Map, count: int) -> None:
        self._count = min(count, relevance.size)
        weights = relevance.ravel().astype(np.float64)
        total = weights.sum()
        if not np.isfinite(total) or total <= 0:
            weights, total = np.ones_like(weights), weights.size
        # The floor is far below any real relevance: it only decides where relevance is exactly zero.
        weights = weights / total + 1e-12
        self._chances = weights / weights.sum()
        self._bounds = _bounds(self._chances)

    def draw(self, seed: int) -> tuple[int, ...]:
        """Returns the sorted indices of one subset.

        It is the subset that ``default_rng(seed).choice(size, count, replace=False, p=chances)`` draws, which takes
        three times as long: half of what a question costs Python. Indices are drawn by their chance, repeated ones are
        dropped, and the next round draws what is missing from the rest.
        """
        random = np.random.default_rng(seed).random
        chances, bounds = self._chances, self._bounds
        drawn: dict[int, None] = {}
        while len(drawn) < self._count:
            if drawn:
                chances = chances.copy()
                chances[list(drawn)] = 0
                bounds = _bounds(chances)
            drawn |= dict.fromkeys(bounds.searchsorted(random(self._count - len(drawn)), side="right").tolist())
        return tuple(sorted(drawn))


def _bounds(chances: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Returns the chance of each patch and all before it."""
    bounds = chances.cumsum()
    bounds /= bounds[-1]
    return bounds
