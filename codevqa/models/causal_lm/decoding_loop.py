"""What our own decoding loops have in common: which models they are for, and what they do when memory is short."""

from __future__ import annotations

import logging
from typing import Any

import torch

from .generate import needs_solitude, plain_cache
from .phases import replace_attention
from .stats import LMStats
from .work import Work

_log = logging.getLogger(__name__)

COMPARED = (
    *("gemma", "gpt2", "gpt_neox", "granite", "llama", "mistral", "olmo2"),
    *("phi", "phi3", "qwen2", "qwen3", "smollm3", "stablelm", "starcoder2"),
)
"""Types of models whose texts tests compare with those of ``model.generate``, in both loops."""


class DecodingLoop:
    """Greedy decoding of models whose every layer is plain causal attention over the whole text.

    Args:
        model: a causal language model of transformers.
        max_batch: texts decoded together at most.
        stats: counts what is done.
    """

    def __init__(self, model: Any, *, max_batch: int, stats: LMStats) -> None:
        self.model, self.max_batch, self.stats = model, max_batch, stats
        self.device: torch.device = model.device
        self._dtype: torch.dtype = model.dtype

    def supported(self) -> bool:
        """Says whether the loop is for this model; logs why not."""
        reason = self._misfit()
        if reason is not None:
            _log.warning("%s is decoded by generate, not by our own loop: %s.", type(self.model).__name__, reason)
        return reason is None

    def _misfit(self) -> str | None:
        """Returns why the loop is not for this model; None where it is."""
        kind = self.model.config.model_type
        if kind not in COMPARED:
            return f"it was not compared with models of the type {kind}"
        if plain_cache(self.model) is None:
            return "not every layer attends over the whole text"
        return "its positions depend on the length of a text" if needs_solitude(self.model) else None

    def _shape(self) -> tuple[int, int, int]:
        """Returns layers, heads and width of the keys, which are those of the values."""
        config = self.model.config.get_text_config()
        heads: int = config.num_attention_heads
        width: int = getattr(config, "head_dim", None) or config.hidden_size // heads
        return config.num_hidden_layers, getattr(config, "num_key_value_heads", None) or heads, width

    def run(self, work: Work) -> None:
        """Decodes all requests, and those that join them.

        What does not fit into memory is begun again with half as many texts at once; those that were done stay done.

        Raises:
            torch.OutOfMemoryError: not even one request fits.
        """
        while begun := len(work.open):
            try:
                with replace_attention(self.model):
                    self._run(work)
            except torch.OutOfMemoryError:
                used = self._decoded_together(begun)
                self.release()
                if used == 1:
                    raise
                self.max_batch = used // 2

    def release(self) -> None:
        """Gives back what is kept between calls."""
        raise NotImplementedError

    def _run(self, work: Work) -> None:
        """Decodes what is open, each request until it has ended; may return before all have."""
        raise NotImplementedError

    def _decoded_together(self, requests: int) -> int:
        """Returns how many texts were decoded together when memory ran out."""
        raise NotImplementedError
