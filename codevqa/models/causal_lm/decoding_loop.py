"""What our own decoding loops have in common: whether they fit a model, and what they do when memory is short."""

from __future__ import annotations

import logging
from typing import Any

import torch

from ..library_errors import first_line
from .generate import plain_cache
from .int8_linear import is_quantised
from .phases import Past, UnsupportedError, replace_attention
from .stats import LMStats
from .work import Work

_log = logging.getLogger(__name__)

_PROBE = 24
"""Tokens of the text on which the loop is compared with the model's own forward pass."""
_MISFITS = (UnsupportedError, RuntimeError, TypeError, AttributeError)
"""What layers raise that count on more than they are given: a mask, parts of a cache, texts of one length."""


class DecodingLoop:
    """Greedy decoding of models whose every layer is plain causal attention over the whole text.

    Args:
        model: a causal language model of transformers.
        max_batch: texts decoded together at most.
        stats: counts what is done.
    """

    holds = False
    """Whether requests may be held to grammars."""

    def __init__(self, model: Any, *, max_batch: int, stats: LMStats) -> None:
        self.model, self.max_batch, self.stats = model, max_batch, stats
        self.device: torch.device = model.device
        self._shapes: list[tuple[int, int, int]] = []
        self._dtype: torch.dtype = model.dtype

    def supported(self) -> bool:
        """Tries the loop on a short text: does it give the logits of the model's own forward pass? Logs why not."""
        reason = self._misfit()
        if reason is not None:
            _log.warning("%s is decoded by generate, not by our own loop: %s.", type(self.model).__name__, reason)
        return reason is None

    def _misfit(self) -> str | None:
        """Returns why the loop is not for this model; None where it is."""
        if plain_cache(self.model) is None:
            return "not every layer attends over the whole text"
        if self.model.base_model is self.model:
            return "its layers cannot be run without its head"
        config = self.model.config.get_text_config()
        length = min(_PROBE, getattr(config, "max_position_embeddings", None) or _PROBE)
        ids = torch.arange(1, length + 1, device=self.device)[None] * 7919 % config.vocab_size
        try:
            with torch.inference_mode():
                expected = self.model(input_ids=ids, use_cache=False).logits[:, -1].float()
                with replace_attention(self.model):
                    seen = self._probe(ids)
        except torch.OutOfMemoryError:
            raise
        except _MISFITS as error:
            return f"{type(error).__name__}: {first_line(error)}"
        # Half precision and eight bits round; another kind of attention is off by as much as the logits themselves.
        exact = self._dtype is torch.float32 and not is_quantised(self.model)
        bound = (1e-3 if exact else 0.25) * float(expected.std())
        difference = float((seen - expected).square().mean().sqrt())
        # Not a number is not within bounds either.
        return None if difference <= bound else f"logits differ by {difference:.2g}, rounding by {bound:.2g} at most"

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

    def _note_shapes(self, past: Past) -> None:
        """Takes over the shapes and the dtype of keys and values."""
        if not past:
            raise UnsupportedError("no keys and values to keep")
        self._shapes = [(key.shape[1], key.shape[3], value.shape[3]) for key, value in past]
        self._dtype = past[0][0].dtype

    def _probe(self, ids: torch.Tensor) -> torch.Tensor:
        """Runs a text, shape (1, tokens), through the loop; returns the logits after it, shape (1, vocabulary).

        Raises:
            UnsupportedError: the model's layers need more than the loop gives them.
        """
        raise NotImplementedError

    def _run(self, work: Work) -> None:
        """Decodes what is open, each request until it has ended; may return before all have."""
        raise NotImplementedError

    def _decoded_together(self, requests: int) -> int:
        """Returns how many texts were decoded together when memory ran out."""
        raise NotImplementedError
