"""What our own decoding loops have in common: whether they fit a model, and what they do when memory is short."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .generate import plain_cache
from .phases import UnsupportedError, slot_attention
from .rows import LMStats, Row

Ends = Callable[[Row, Sequence[int], int], "int | None"]
"""How many tokens of a row count, given those made so far and how many of them are new; None while it goes on."""

_PROBE = 24
"""Tokens of the text on which the loop is compared with the model's own forward pass."""


class OwnLoop:
    """Greedy decoding of models whose every layer is plain causal attention over the whole text.

    Args:
        model: a causal language model of transformers.
        max_batch: texts decoded together at most.
        stats: counts what is done.
    """

    def __init__(self, model: Any, *, max_batch: int, stats: LMStats) -> None:
        self.model, self.max_batch, self.stats = model, max_batch, stats
        self.device: torch.device = model.device
        self._shapes: list[tuple[int, int, int]] = []
        self._dtype: torch.dtype = model.dtype

    def supported(self) -> bool:
        """Tries the loop on a short text: does it give the logits of the model's own forward pass?"""
        if plain_cache(self.model) is None or self.model.base_model is self.model:
            return False
        config = self.model.config.get_text_config()
        length = min(_PROBE, getattr(config, "max_position_embeddings", None) or _PROBE)
        ids = torch.arange(1, length + 1, device=self.device)[None] * 7919 % config.vocab_size
        try:
            with torch.inference_mode():
                expected = self.model(input_ids=ids, use_cache=False).logits[:, -1].float()
                with slot_attention(self.model):
                    seen = self._probe(ids)
        except torch.OutOfMemoryError:
            raise
        except (UnsupportedError, RuntimeError, TypeError, ValueError, AttributeError, KeyError, IndexError):
            return False
        # Half precision rounds; another kind of attention is off by as much as the logits themselves.
        bound = (1e-3 if self._dtype is torch.float32 else 0.25) * float(expected.std())
        # Not a number is not within bounds either.
        return float((seen - expected).square().mean().sqrt()) <= bound

    def run(self, rows: Sequence[Row], ends: Ends) -> dict[int, list[int]]:
        """Returns the tokens made for each row, by its index.

        What does not fit into memory is begun again with half as many texts at once; those that were done stay done.

        Raises:
            torch.OutOfMemoryError: not even one row fits.
        """
        done: dict[int, list[int]] = {}
        while True:
            rest = [row for row in rows if row.index not in done]
            if not rest:
                return done
            try:
                with slot_attention(self.model):
                    self._run(rest, ends, done)
            except torch.OutOfMemoryError:
                used = self._used(len(rest))
                self.release()
                if used == 1:
                    raise
                self.max_batch = used // 2

    def release(self) -> None:
        """Gives back what is kept between calls."""
        raise NotImplementedError

    def _probe(self, ids: torch.Tensor) -> torch.Tensor:
        """Runs a text, shape (1, tokens), through the loop; returns the logits after it, shape (1, vocabulary)."""
        raise NotImplementedError

    def _run(self, rows: Sequence[Row], ends: Ends, done: dict[int, list[int]]) -> None:
        """Decodes rows; puts the tokens of each into ``done`` as soon as it has ended."""
        raise NotImplementedError

    def _used(self, rows: int) -> int:
        """Returns how many texts were decoded together when memory ran out."""
        raise NotImplementedError
