"""Random numbers of many seeds: NumPy's own generator for each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


def seeded_numbers(seeds: Sequence[int], count: int) -> npt.NDArray[np.float64]:
    """Returns ``count`` numbers in [0, 1) of each seed modulo 2**64, (seeds, count)."""
    drawn = [np.random.Generator(np.random.PCG64(seed % 2**64)).random(count) for seed in seeds]
    return np.array(drawn, np.float64).reshape(len(seeds), count)
