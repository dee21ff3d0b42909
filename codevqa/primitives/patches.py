"""Which patches of a picture a caption sees: drawn without replacement, in proportion to relevance."""

from __future__ import annotations

import numpy as np

from ..models.base import Map


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

    def draw(self, seed: int) -> tuple[int, ...]:
        """Returns the sorted indices of one subset."""
        random = np.random.default_rng(seed)
        return tuple(sorted(random.choice(self._chances.size, self._count, replace=False, p=self._chances).tolist()))
