"""The pass over prompts, or over beginnings that prompts have in common."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

import torch
from torch.nn import functional

Pair: TypeAlias = "tuple[torch.Tensor, torch.Tensor]"
"""Keys and values of one layer."""
Past: TypeAlias = "list[Pair]"
"""Keys and values of each layer, shape (1, heads, tokens, width)."""


class SlotMemory(Protocol):
    """Memory in slots, one a text, that a prefill writes to."""

    def write(self, layer: int, slots: torch.Tensor, pair: Pair) -> None:
        """Puts the keys and values of texts, from their start, into slots."""
        ...


class Prefill:
    """The pass over parts of prompts that all follow the same prefix; rows are padded on the right.

    Attention is causal, so what pads a row changes nothing before it, and no mask is needed. The keys and values of
    prefix and part go to ``slots`` of ``memory``, or stay in :attr:`past`. No logits are asked for.

    Args:
        ids: tokens of the parts, (rows, tokens).
        prefix: keys and values of what stands before them; None where nothing does.
        memory: where keys and values go; None keeps them.
        slots: the slot of each row, (rows,).
    """

    def __init__(
        self,
        ids: torch.Tensor,
        prefix: Past | None,
        memory: SlotMemory | None = None,
        slots: torch.Tensor | None = None,
    ) -> None:
        self.prefix, self.memory, self.slots = prefix, memory, slots
        self.past: Past = []
        self._shape = ids.shape
        head = prefix[0][0].shape[2] if prefix is not None else 0
        self.ids = ids.flatten()
        self.positions = torch.arange(head, head + ids.shape[1], device=ids.device).repeat(len(ids))
        self._pair: Pair = (self.ids, self.ids)
        self._mask: torch.Tensor | None = None

    def update(self, key: torch.Tensor, value: torch.Tensor, layer: int) -> None:
        """Keeps the keys and values of prefix and part together."""
        key, value = self._rows(key), self._rows(value)
        if self.prefix is not None:
            before_key, before_value = self.prefix[layer]
            key = torch.cat([before_key.expand(len(key), -1, -1, -1), key], 2)
            value = torch.cat([before_value.expand(len(value), -1, -1, -1), value], 2)
        self._pair = (key, value)
        if self.memory is not None and self.slots is not None:
            self.memory.write(layer, self.slots, self._pair)
        else:
            self.past.append(self._pair)

    def narrow(self) -> torch.Tensor:
        """Asks for no logits."""
        return self.ids[:0]

    def attend(self, query: torch.Tensor, scale: float) -> torch.Tensor:
        """Causal attention of the last positions."""
        asked, (key, value) = self._rows(query), self._pair
        grouped = asked.shape[1] != key.shape[1]
        if grouped and not (asked.is_cuda and asked.dtype in (torch.float16, torch.bfloat16)):
            # Only flash attention reads one head for many without a copy of it.
            key, value = (part.repeat_interleave(asked.shape[1] // key.shape[1], 1) for part in (key, value))
            grouped = False
        whole = asked.shape[2] == key.shape[2]
        read = functional.scaled_dot_product_attention(
            asked,
            key,
            value,
            attn_mask=None if whole else self._lower_right(asked, key.shape[2]),
            is_causal=whole,
            scale=scale,
            enable_gqa=grouped,
        )
        return read.transpose(1, 2).reshape(len(query), -1)

    def _lower_right(self, asked: torch.Tensor, keys: int) -> Any:
        """Returns the mask of queries that are the last of so many positions."""
        queries = asked.shape[2]
        if asked.is_cuda:
            from torch.nn.attention.bias import causal_lower_right

            return causal_lower_right(queries, keys)
        if self._mask is None:
            self._mask = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)
        return self._mask

    def _rows(self, states: torch.Tensor) -> torch.Tensor:
        """From (tokens, heads, width) to (rows, heads, tokens a row, width)."""
        return states.view(*self._shape, *states.shape[1:]).transpose(1, 2)
