"""Decodes batches with ``model.generate``, which knows the quirks of every architecture.

What is added here: an end for each request (its own token limit and stop strings), and the reuse of the attention keys
and values of prompt prefixes that many requests begin with.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Sequence
from typing import Any

import torch
from cachetools import LRUCache

from ..library_errors import quiet
from .work import FindEnd, LMStats, TokenisedRequest, Work

_STEADY = ("default", "linear", "llama3", "proportional", "yarn")
"""Kinds of rotary embedding that turn a position by the same angles in every text."""
_ALONE = ("mpt", "rwkv")
"""Types of models that do not pass over padding."""


class MarkedPrefixes(LRUCache[tuple[int, ...], Any]):
    """Keys and values of prefixes by their tokens: least recently used first out, bounded by bytes.

    Args:
        maxsize: bytes kept at most; 0 keeps nothing.
        getsizeof: how many bytes the keys and values of a prefix take.
    """

    def keep(self, tokens: tuple[int, ...], past: Any) -> None:
        """Keeps the keys and values of a prefix, unless they alone are over the limit."""
        with contextlib.suppress(ValueError):
            self[tokens] = past


class PerRequestStopping:
    """Stopping criterion of transformers with an end of its own for each request."""

    def __init__(self, requests: Sequence[TokenisedRequest], find_end: FindEnd) -> None:
        self._requests, self._find_end = requests, find_end
        self.ended = [False] * len(requests)
        """Which of them have."""
        self.generated: list[list[int]] = [[] for _ in requests]
        """Tokens made for each request, up to its end."""

    def __call__(self, input_ids: torch.Tensor, scores: object, **_: object) -> torch.Tensor:
        """Takes the newest token of each request; says of each whether it has ended."""
        for i, token in enumerate(input_ids[:, -1].tolist()):
            if not self.ended[i]:
                self.generated[i].append(token)
                self.ended[i] = self._find_end(self._requests[i], self.generated[i], 1) is not None
        return torch.tensor(self.ended, device=input_ids.device)


class GenerateDecoder:
    """Runs groups of requests through ``model.generate``, a batch at a time, left-padded after the common prefix.

    Models whose layers do not all attend over the whole text (sliding windows, linear attention) get the same results
    without reuse of prefixes; where positions depend on the length of a text or on padding, each request is
    computed alone.
    """

    joins = False

    def __init__(
        self,
        model: Any,
        *,
        pad: int,
        ends: Sequence[int],
        max_batch: int,
        prefix_bytes: int,
        stats: LMStats,
        context: int | None,
    ) -> None:
        from transformers import GenerationConfig

        # generate() fills what a call leaves open from here: a checkpoint's sampling settings must not seep in.
        model.generation_config = GenerationConfig(do_sample=False, eos_token_id=list(ends) or None, pad_token_id=pad)
        alone = needs_solitude(model)
        self.model, self.pad, self.stats, self.context = model, pad, stats, context
        self.max_batch = 1 if alone else max_batch
        self.reuse = not alone
        self.prefixes = MarkedPrefixes(prefix_bytes, _bytes)

    def run(self, work: Work) -> None:
        """Decodes all requests. A batch that does not fit into memory is halved.

        Raises:
            torch.OutOfMemoryError: not even one request fits.
        """
        groups: dict[tuple[int, ...], list[TokenisedRequest]] = {}
        for request in sorted(work.open.values(), key=lambda request: len(request.tokens)):
            groups.setdefault(tuple(request.tokens[: request.prefix]), []).append(request)
        for prefix, members in groups.items():
            start = 0
            while start < len(members):
                batch = self._batch(members[start : start + self.max_batch])
                try:
                    outputs = self._decode(batch, prefix, work.find_end)
                except torch.OutOfMemoryError:
                    if len(batch) == 1:
                        raise
                    self.max_batch = max(1, len(batch) // 2)
                    continue
                for request, tokens in zip(batch, outputs, strict=True):
                    work.end(request, tokens)
                start += len(batch)

    def _batch(self, members: Sequence[TokenisedRequest]) -> Sequence[TokenisedRequest]:
        """Returns the first members that fit the context together: each goes on until the last has ended."""
        most = 0
        for count, request in enumerate(members):
            most = max(most, request.max_tokens)
            if count and self.context is not None and len(request.tokens) + most > self.context:
                return members[:count]
        return members

    def _decode(self, batch: Sequence[TokenisedRequest], prefix: tuple[int, ...], find_end: FindEnd) -> list[list[int]]:
        past = self._prefix(prefix) if prefix else None
        head = len(prefix) if past is not None else 0
        if past is not None:
            # generate() grows the cache it is given.
            past = copy.deepcopy(past)
            past.batch_repeat_interleave(len(batch))
        rests = [request.tokens[head:] for request in batch]
        longest = max(map(len, rests))
        # Left padding, after the prefix: positions follow from the mask, so padding moves no token.
        pads = [longest - len(rest) for rest in rests]
        ids = [[*prefix[:head], *[self.pad] * n, *rest] for n, rest in zip(pads, rests, strict=True)]
        mask = [[1] * head + [0] * n + [1] * len(rest) for n, rest in zip(pads, rests, strict=True)]
        ends = PerRequestStopping(batch, find_end)
        with quiet():
            self.model.generate(
                input_ids=torch.tensor(ids, device=self.model.device),
                attention_mask=torch.tensor(mask, device=self.model.device),
                past_key_values=past,
                stopping_criteria=[ends],
                max_new_tokens=max(request.max_tokens for request in batch),
            )
        self.stats.generate_calls += 1
        self.stats.prefilled_tokens += sum(map(len, rests))
        self.stats.reused_tokens += head * len(batch)
        return ends.generated

    def _prefix(self, prefix: tuple[int, ...]) -> Any | None:
        """Returns the keys and values of a prefix, computed unless kept; None where they cannot be reused."""
        past = self.prefixes.get(prefix)
        if past is not None or not self.reuse:
            return past
        past = plain_cache(self.model)
        if past is None:
            self.reuse = False
            return None
        ids = torch.tensor([prefix], device=self.model.device)
        self.model(input_ids=ids, attention_mask=torch.ones_like(ids), past_key_values=past, use_cache=True)
        if past.get_seq_length() != len(prefix):
            self.reuse = False
            return None
        self.stats.prefilled_tokens += len(prefix)
        self.prefixes.keep(prefix, past)
        return past


def plain_cache(model: Any) -> Any | None:
    """Returns an empty cache of keys and values, or None unless every layer attends over the whole text.

    Elsewhere padding after a prefix would take places in a window, or enter a state.
    """
    from transformers.cache_utils import DynamicCache, DynamicLayer

    past = DynamicCache(config=model.config)
    return None if any(type(layer) is not DynamicLayer for layer in past.layers) else past


def needs_solitude(model: Any) -> bool:
    """Whether a text comes out right only if it is computed alone and as a whole.

    So it is where positions are turned by other angles in a longer text.
    """
    config = model.config.get_text_config()
    rope = getattr(config, "rope_parameters", None) or {}
    # Some models have one for each kind of layer.
    each = [rope] if "rope_type" in rope else [layer for layer in rope.values() if isinstance(layer, dict)]
    return model.config.model_type in _ALONE or any(layer.get("rope_type", "default") not in _STEADY for layer in each)


def _bytes(past: Any) -> int:
    return sum(layer.keys.nbytes + layer.values.nbytes for layer in past.layers)
