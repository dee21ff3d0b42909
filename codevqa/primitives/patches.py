"""Which patches of a picture a caption sees: drawn without replacement, in proportion to relevance."""

from __future__ import annotations

import numpy as np

from ..models.base import Map


def draw_patches(relevance: Map, count: int, seed: int) -> tuple[int, ...]:
    """Draws ``count`` patches without replacement, in proportion to relevance; returns their sorted indices.

    A map with fewer relevant patches than wanted gives all of those and fills up evenly from the rest.
    """
    weights = relevance.ravel().astype(np.float64)
    total = weights.sum()
    if not np.isfinite(total) or total <= 0:
        weights, total = np.ones_like(weights), weights.size
    # The floor is far below any real relevance: it only decides where relevance is exactly zero.
    weights = weights / total + 1e-12
    size, chances = min(count, weights.size), weights / weights.sum()
    return tuple(sorted(np.random.default_rng(seed).choice(weights.size, size, replace=False, p=chances).tolist()))
