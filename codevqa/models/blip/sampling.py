"""What captions begin with and how long they are, and drawing tokens among the likeliest by numbers of their own.

A caption's numbers come from its seed alone, one for each step, so that it does not depend on its batch. The token is
found by inverting the cumulative distribution in the order of the vocabulary: exact sampling, for which a change of
rounding in the logits matters only when the number falls within that rounding of a boundary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

_GREEDY = -1.0
_TIES = 78
"""Candidates beyond the top k that are looked at because they may tie with the last of them."""


@dataclass(frozen=True)
class CaptionRules:
    """What captions begin with, how long they are and how they are drawn."""

    prompt: tuple[int, ...]
    end: int
    """Token that ends a caption."""
    pad: int
    """Token that follows the end."""
    min_length: int
    """Fewest tokens of a caption, the prompt's included."""
    max_length: int
    """Most tokens, the prompt's included."""
    top_k: int
    temperature: float

    @property
    def steps(self) -> int:
        """Tokens drawn for a caption at most."""
        return self.max_length - len(self.prompt)

    @property
    def first_end(self) -> int:
        """The first step, from 0, that may draw the end."""
        return max(0, self.min_length - len(self.prompt))


def numbers_of(seeds: Sequence[int | None], steps: int) -> torch.Tensor:
    """Returns the numbers in [0, 1) of each row, float64, (rows, steps); -1 in rows without a seed: they are greedy."""
    numbers = np.full((len(seeds), steps), _GREEDY)
    for row, seed in enumerate(seeds):
        if seed is not None:
            numbers[row] = np.random.Generator(np.random.PCG64(seed % 2**64)).random(steps)
    return torch.from_numpy(numbers)


def draw(logits: torch.Tensor, numbers: torch.Tensor, top_k: int, temperature: float) -> torch.Tensor:
    """Draws a token a row from the softmax over its ``top_k`` likeliest; ties with the last of them all stay.

    A large vocabulary is searched once, for so many candidates and 78 more; the rest happens among those. Should still
    more tie with the last, the CPU looks at all; a GPU, which cannot tell without waiting, leaves those beyond out.

    Args:
        logits: (rows, vocabulary).
        numbers: in [0, 1), float64, (rows, 1); below 0 takes the likeliest token, the first of several.
        top_k: tokens drawn among.
        temperature: divides the logits.

    Returns:
        Tokens, (rows,).
    """
    vocabulary = logits.shape[-1]
    top_k = min(top_k, vocabulary)
    if vocabulary <= top_k + _TIES:
        return _inverted(logits, logits.topk(top_k).values[:, -1:], numbers, temperature)
    found = logits.topk(top_k + _TIES)
    least = found.values[:, top_k - 1, None]
    if not logits.is_cuda and bool((found.values[:, -1:] >= least).any()):
        return _inverted(logits, least, numbers, temperature)
    candidates, order = found.indices.sort()
    place = _inverted(found.values.gather(-1, order), least, numbers, temperature)
    return candidates.gather(-1, place[:, None])[:, 0]


def _inverted(logits: torch.Tensor, least: torch.Tensor, numbers: torch.Tensor, temperature: float) -> torch.Tensor:
    """The place in each row that its number falls into, among logits of at least ``least``."""
    shares = (logits.double() / temperature).masked_fill_(logits < least, -torch.inf).softmax(-1)
    below = shares.cumsum(-1)
    # The first token whose cumulative share exceeds the number: it has a share, as the number before did not.
    drawn = (below > numbers * below[:, -1:]).int().argmax(-1)
    return torch.where(numbers[:, 0] < 0, logits.argmax(-1), drawn)
