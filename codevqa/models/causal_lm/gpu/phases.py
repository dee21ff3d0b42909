"""How slots run a model of transformers: a cache and an attention function of ours at each layer.

A model asks two things of its surroundings at each layer: a cache to put the new keys and values into, and an attention
function. Both are given here, so that its own forward pass runs over texts of different lengths without a mask for the
prompts and without copies.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any, Protocol, TypeAlias

import torch
from torch.nn import functional
from transformers.cache_utils import Cache
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from ....core.errors import InternalError

__all__ = ["Pair", "Past", "Phase", "Prefill", "SlotMemory", "attend_in", "replace_attention"]

NAME = "codevqa_slots"
"""What transformers knows the attention function by."""

Pair: TypeAlias = "tuple[torch.Tensor, torch.Tensor]"
"""Keys and values of one layer."""
Past: TypeAlias = "list[Pair]"
"""Keys and values of each layer, shape (1, heads, tokens, width)."""

_current = threading.local()
_CHANGES = ("softcap", "s_aux", "position_bias", "sliding_window")
"""Arguments with which a layer asks for another attention than softmax over the whole text."""


class Phase(Cache):  # type: ignore[misc, unused-ignore]
    """One kind of forward pass, in the place of a cache: takes keys and values, and attends."""

    def __init__(self) -> None:
        super().__init__(layers=[])

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Returns 0: positions are always given."""
        return 0

    def attend(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float | None) -> torch.Tensor:
        """Returns what each query reads, shape (rows, heads, queries, width)."""
        raise NotImplementedError


class SlotMemory(Protocol):
    """Memory in slots, one a text, that a prefill writes to."""

    def write(self, layer: int, slots: torch.Tensor, pair: Pair) -> None:
        """Puts the keys and values of texts, from their start, into slots."""
        ...


class Prefill(Phase):
    """The pass over parts of prompts that all follow the same prefix; rows are padded on the right.

    Attention is causal, so what pads a row changes nothing before it, and no mask is needed. The keys and values of
    prefix and part go to ``slots`` of ``memory``, or stay in :attr:`past`.
    """

    def __init__(
        self, prefix: Past | None, memory: SlotMemory | None = None, slots: torch.Tensor | None = None
    ) -> None:
        super().__init__()
        self.prefix, self.memory, self.slots = prefix, memory, slots
        self.past: Past = []
        self._mask: torch.Tensor | None = None

    def update(self, key_states: Any, value_states: Any, layer_idx: int, *_: object, **__: object) -> Pair:
        """Returns the keys and values of prefix and part together, shape (rows, heads, tokens, width)."""
        key, value = key_states, value_states
        if self.prefix is not None:
            before_key, before_value = self.prefix[layer_idx]
            key = torch.cat([before_key.expand(len(key), -1, -1, -1), key], 2)
            value = torch.cat([before_value.expand(len(value), -1, -1, -1), value], 2)
        if self.memory is not None and self.slots is not None:
            self.memory.write(layer_idx, self.slots, (key, value))
        else:
            self.past.append((key, value))
        return key, value

    def attend(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float | None) -> torch.Tensor:
        """Causal attention of the last positions."""
        grouped = query.shape[1] != key.shape[1]
        if grouped and not (query.is_cuda and query.dtype in (torch.float16, torch.bfloat16)):
            # Only flash attention reads one head for many without a copy of it.
            key, value = (part.repeat_interleave(query.shape[1] // key.shape[1], 1) for part in (key, value))
            grouped = False
        queries, keys = query.shape[2], key.shape[2]
        if queries == keys:
            return functional.scaled_dot_product_attention(
                query, key, value, is_causal=True, scale=scale, enable_gqa=grouped
            )
        mask: Any
        if query.is_cuda:
            from torch.nn.attention.bias import causal_lower_right

            mask = causal_lower_right(queries, keys)
        else:
            if self._mask is None:
                every = torch.ones(queries, keys, dtype=torch.bool, device=query.device)
                self._mask = every.tril(keys - queries)
            mask = self._mask
        return functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, scale=scale, enable_gqa=grouped
        )


def _attend(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: Any = None,
    scaling: float | None = None,
    **given: Any,
) -> tuple[torch.Tensor, None]:
    phase: Phase | None = getattr(_current, "phase", None)
    if phase is None or attention_mask is not None or any(given.get(name) is not None for name in _CHANGES):
        raise InternalError(
            f"{type(module).__name__} needs more than causal attention.", hint="Decode with loop=False."
        )
    return phase.attend(query, key, value, scaling).transpose(1, 2).contiguous(), None


ALL_ATTENTION_FUNCTIONS.register(NAME, _attend)


@contextlib.contextmanager
def attend_in(phase: Phase) -> Iterator[None]:
    """Attention functions of this thread belong to ``phase``."""
    _current.phase = phase
    try:
        yield
    finally:
        _current.phase = None


@contextlib.contextmanager
def replace_attention(model: Any) -> Iterator[None]:
    """The model's layers attend through this module; afterwards as before."""
    configs = {id(part.config): part.config for part in model.modules() if hasattr(part, "config")}
    before = [(config, config._attn_implementation) for config in configs.values()]
    try:
        for config in configs.values():
            config._attn_implementation = NAME
        yield
    finally:
        for config, name in before:
            config._attn_implementation = name
