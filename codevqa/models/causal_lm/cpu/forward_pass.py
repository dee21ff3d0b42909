"""One forward pass over parts of many texts laid end to end, and the memory their keys and values are in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional

from .prefix_cache import KeyValueBlock


class KeyValues:
    """Keys and values of several texts, one slot each.

    Args:
        shape: layers, heads, and width of a key or value.
        count: how many slots.
        length: tokens a slot holds.
    """

    def __init__(self, shape: tuple[int, int, int], count: int, length: int) -> None:
        layers, heads, width = shape
        self.count, self.length = count, length
        self.keys = torch.empty(layers, count, heads, length, width)
        self.values = torch.empty(layers, count, heads, length, width)

    def fill(self, slot: int, blocks: Sequence[KeyValueBlock]) -> None:
        """Puts runs of keys and values into a slot, one after another from its start."""
        at = 0
        for key, value in blocks:
            end = at + key.shape[2]
            self.keys[:, slot, :, at:end] = key
            self.values[:, slot, :, at:end] = value
            at = end

    def copy(self, slot: int, start: int, end: int) -> KeyValueBlock:
        """Returns a copy of what is in some places of a slot."""
        return self.keys[:, slot, :, start:end].clone(), self.values[:, slot, :, start:end].clone()


@dataclass(frozen=True)
class Part:
    """Tokens of one text in a pass."""

    slot: int
    start: int
    """Position of the first one; everything before it is in the slot."""
    tokens: list[int]

    @property
    def end(self) -> int:
        """Position after the last one."""
        return self.start + len(self.tokens)


class Pack:
    """A pass over parts of texts laid end to end as one row; each attends to its own text only.

    Args:
        memory: keys and values.
        parts: what is computed.
        wanted: of how many last tokens of each part the logits are asked for.
    """

    def __init__(self, memory: KeyValues, parts: Sequence[Part], wanted: Sequence[int]) -> None:
        self.memory, self.parts, self._wanted = memory, parts, wanted
        self.ids = torch.tensor([token for part in parts for token in part.tokens])
        self.positions = torch.tensor([at for part in parts for at in range(part.start, part.end)])
        self._slots = torch.tensor([part.slot for part in parts for _ in part.tokens])
        self._layer = 0
        self._asked = [len(part.tokens) for part in parts]
        self._masks: list[torch.Tensor | None] = []

    def narrow(self) -> torch.Tensor:
        """Attends from now on for the wanted tokens only; returns where in the row they are."""
        self._asked, self._masks = list(self._wanted), []
        at = 0
        places: list[int] = []
        for part, count in zip(self.parts, self._wanted, strict=True):
            at += len(part.tokens)
            places += range(at - count, at)
        return torch.tensor(places, dtype=torch.long)

    def update(self, key: torch.Tensor, value: torch.Tensor, layer: int) -> None:
        """Puts new keys and values of a layer, (tokens, heads, width), into their slots."""
        self._layer, places = layer, self.positions
        self.memory.keys[layer][self._slots, :, places] = key
        self.memory.values[layer][self._slots, :, places] = value

    def attend(self, query: torch.Tensor, scale: float) -> torch.Tensor:
        """Causal attention of each part to its slot: heads that read the same keys are queries of one head."""
        keys, values = self.memory.keys[self._layer], self.memory.values[self._layer]
        heads, width = keys.shape[1], query.shape[2]
        many = query.shape[1] // heads
        if not self._masks:
            pairs = zip(self.parts, self._asked, strict=True)
            self._masks = [self._mask(part, count, many, query.dtype) for part, count in pairs]
        read, at = [], 0
        row = query.transpose(0, 1)[None]
        for part, count, mask in zip(self.parts, self._asked, self._masks, strict=True):
            if not count:
                continue
            slot = part.slot
            asked = row[:, :, at : at + count]
            if many > 1:
                asked = asked.reshape(1, heads, many * count, width)
            found = functional.scaled_dot_product_attention(
                asked,
                keys[slot : slot + 1, :, : part.end],
                values[slot : slot + 1, :, : part.end],
                attn_mask=mask,
                scale=scale,
            )
            read.append(found.reshape(heads * many, count, width).transpose(0, 1))
            at += count
        # Token by token, as it is read next.
        return torch.cat(read).flatten(1)

    def _mask(self, part: Part, count: int, many: int, dtype: torch.dtype) -> torch.Tensor | None:
        """Returns what the last ``count`` tokens of a part must not see."""
        if count <= 1:
            return None
        hidden = torch.full((count, part.end), float("-inf"), dtype=dtype)
        return hidden.triu_(part.end - count + 1).repeat(many, 1)
