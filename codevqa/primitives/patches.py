"""Which patches of a picture a caption sees: drawn without replacement, in proportion to relevance."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ..models.base import Map

Floats: TypeAlias = "npt.NDArray[np.float64]"


class Patches:
    """The patches of one picture, to be drawn many times over.

    A map with fewer relevant patches than wanted gives all of those and fills up evenly from the rest.
    """

    def __init__(self, relevance: Map, count: int) -> None:
        self.relevance = relevance
        self.count = min(count, relevance.size)
        weights = relevance.ravel().astype(np.float64)
        total = weights.sum()
        if not np.isfinite(total) or total <= 0:
            weights, total = np.ones_like(weights), weights.size
        # The floor is far below any real relevance: it only decides where relevance is exactly zero.
        weights = weights / total + 1e-12
        self.weights: Floats = weights / weights.sum()
        """Chance of each patch."""
        self._bounds = _bounds(self.weights)

    def draw(self, seed: int) -> tuple[int, ...]:
        """Returns the sorted indices of one subset.

        This is what ``default_rng(seed).choice(size, count, replace=False, p=weights)`` draws, number for number, in a
        third of the time: what depends on the weights alone is computed once for all subsets. Places are drawn by their
        weight, those drawn already are dropped, and the next round draws what is missing from the rest.
        """
        random = np.random.default_rng(seed).random
        found = dict.fromkeys(self._bounds.searchsorted(random(self.count), side="right").tolist())
        weights = self.weights
        while len(found) < self.count:
            places = random(self.count - len(found))
            weights = weights.copy() if weights is self.weights else weights
            weights[list(found)] = 0
            found |= dict.fromkeys(_bounds(weights).searchsorted(places, side="right").tolist())
        return tuple(sorted(found))


def _bounds(weights: Floats) -> Floats:
    bounds = np.cumsum(weights)
    bounds /= bounds[-1]
    return bounds
