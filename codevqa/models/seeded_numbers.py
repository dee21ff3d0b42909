"""Random numbers of many seeds at once: NumPy's own, without making a generator for each.

``Generator(PCG64(seed)).random(count)`` takes some ten microseconds a seed, nearly all of it for setting up. For many
seeds the same arithmetic runs over all of them together: NumPy's SeedSequence (O'Neill's ``seed_seq_fe``) spreads a
seed over 256 bits, which start PCG64 XSL-RR (O'Neill, "PCG: A Family of Simple Fast Space-Efficient Statistically Good
Algorithms", 2014); each step's upper 53 bits make a double.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Words: TypeAlias = "npt.NDArray[np.uint64]"
Wide: TypeAlias = "tuple[Words, Words]"
"""Numbers of 128 bits: the upper 64, the lower 64."""

_FEW = 64
"""Fewer seeds are faster one by one."""
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_MULTIPLIER = (np.uint64(2549297995355413924), np.uint64(4865540595714422341))


def seeded_numbers(seeds: Sequence[int], count: int) -> npt.NDArray[np.float64]:
    """Returns ``count`` numbers in [0, 1) of each seed modulo 2**64, (seeds, count)."""
    if len(seeds) < _FEW:
        drawn = [np.random.Generator(np.random.PCG64(seed % 2**64)).random(count) for seed in seeds]
        return np.array(drawn, np.float64).reshape(len(seeds), count)
    spread = _spread(np.array([seed % 2**64 for seed in seeds], np.uint64))
    # The stream's number is odd; the state starts at zero and takes a step before and after the seed is added.
    stream: Wide = (spread[2] << np.uint64(1) | spread[3] >> np.uint64(63), spread[3] << np.uint64(1) | np.uint64(1))
    state: Wide = _step(_add(stream, (spread[0], spread[1])), stream)
    numbers = np.empty((len(seeds), count))
    for place in range(count):
        state = _step(state, stream)
        turn = state[0] >> np.uint64(58)
        mixed = state[0] ^ state[1]
        turned = mixed >> turn | mixed << (np.uint64(64) - turn & np.uint64(63))
        numbers[:, place] = (turned >> np.uint64(11)) * 2.0**-53
    return numbers


def _spread(seeds: Words) -> list[Words]:
    """Four words of 64 bits for each seed, as ``SeedSequence(seed).generate_state(4, uint64)``."""
    hashing = _Hash(0x43B0D7E5, 0x931E8875)
    pool = [hashing(words) for words in (seeds & _LOW, seeds >> _HALF, np.zeros_like(seeds), np.zeros_like(seeds))]
    for source in range(4):
        for target in range(4):
            if source != target:
                hashed = hashing(pool[source])
                mixed = np.uint64(0xCA01F9DD) * pool[target] - np.uint64(0x4973F715) * hashed & _LOW
                pool[target] = mixed ^ mixed >> np.uint64(16)
    hashing = _Hash(0x8B51F9DD, 0x58F38DED)
    halves = [hashing(pool[place % 4]) for place in range(8)]
    return [low | high << _HALF for low, high in zip(halves[::2], halves[1::2], strict=True)]


class _Hash:
    """SeedSequence's hash of 32-bit words, whose constant changes with every call."""

    def __init__(self, constant: int, factor: int) -> None:
        self._constant = constant
        self._factor = factor

    def __call__(self, words: Words) -> Words:
        words = words ^ np.uint64(self._constant)
        self._constant = self._constant * self._factor & 0xFFFFFFFF
        words = words * np.uint64(self._constant) & _LOW
        return words ^ words >> np.uint64(16)


def _step(state: Wide, stream: Wide) -> Wide:
    """PCG64's step: times the multiplier, plus the stream's number, modulo 2**128."""
    high = _high(state[1], _MULTIPLIER[1]) + state[0] * _MULTIPLIER[1] + state[1] * _MULTIPLIER[0]
    return _add((high, state[1] * _MULTIPLIER[1]), stream)


def _add(one: Wide, other: Wide) -> Wide:
    low = one[1] + other[1]
    return one[0] + other[0] + (low < one[1]), low


def _high(words: Words, factor: np.uint64) -> Words:
    """The upper 64 bits of the product."""
    low, high, factor_low, factor_high = words & _LOW, words >> _HALF, factor & _LOW, factor >> _HALF
    first = high * factor_low + (low * factor_low >> _HALF)
    second = low * factor_high + (first & _LOW)
    upper: Words = high * factor_high + (first >> _HALF) + (second >> _HALF)
    return upper
