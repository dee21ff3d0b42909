"""Computes prompts into slots: the tokens of many texts side by side, whatever their lengths and prefixes.

A text is cut where a pass is full, and goes on in the next one. With kernels the passes have few sizes, and a GPU
replays recordings of them: a pass has hundreds of launches, and prompts of a small model would wait for those.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from ...gpu_compiler import power
from ..network import Heads, LlamaNetwork
from .slots import Slots, to_device

_LEAST = 256
"""Tokens of the smallest pass that is recorded."""


@dataclass(frozen=True)
class PrefillPart:
    """Tokens of a text that follow what its slot holds."""

    slot: int
    place: int
    """Where the first token stands in the slot."""
    tokens: Sequence[int]


def fill_slots(model: LlamaNetwork, memory: Slots, parts: Sequence[PrefillPart], most: int, pad: int) -> None:
    """Computes keys and values of parts into their slots.

    Args:
        model: the network.
        memory: the slots.
        parts: at most one a slot.
        most: tokens that are computed together.
        pad: any token; fills up a pass that is recorded.
    """
    for cut in _cuts(parts, most):
        size = sum(len(part.tokens) for part in cut)
        if memory.kernels is None:
            model(Prefill(memory, _columns(cut, size, memory, pad), parts=cut))
            continue
        tiles = _tiles(cut, memory.kernels.TILE)
        if not memory.recordable:
            model(Prefill(memory, _columns(cut, size, memory, pad), to_device(tiles, memory.device)))
            continue
        size = min(max(power(size), _LEAST), max(most, _LEAST))
        room = -(-size // memory.kernels.TILE) + memory.count
        tiles += [(0, 0, 0, 0)] * (room - len(tiles))
        columns, table = memory.plan(size, room)
        columns.copy_(_columns(cut, size, memory, pad), non_blocking=True)
        table.copy_(to_device(tiles, memory.device), non_blocking=True)
        memory.record_pass((size,), functools.partial(_prepare, model, memory, columns, table))()


def _prepare(model: LlamaNetwork, memory: Slots, columns: torch.Tensor, tiles: torch.Tensor) -> Any:
    return functools.partial(model, Prefill(memory, columns, tiles))


class Prefill:
    """The pass over parts of prompts. No logits are asked for.

    Args:
        memory: where keys and values go, and what comes before each part is.
        columns: token, slot and place of each token, (3, tokens).
        tiles: of its tokens, for kernels.
        parts: whose tokens they are, for PyTorch's operators.
    """

    def __init__(
        self, memory: Slots, columns: torch.Tensor, tiles: torch.Tensor | None = None, parts: Sequence[PrefillPart] = ()
    ) -> None:
        self.ids: torch.Tensor
        self.ids, self.slots, self.positions = columns
        self._memory, self._tiles, self._parts = memory, tiles, parts
        self._layer = 0

    def keep(self, heads: Heads, layer: int) -> torch.Tensor:
        """Turns queries and keys, and puts keys and values into their places."""
        self._layer = layer
        keys, values = self._memory.pairs[layer]
        return heads.turn_and_keep(keys, values, self.slots, self.positions)

    def update(self, key: torch.Tensor, value: torch.Tensor, layer: int) -> None:
        """Puts keys and values into their places."""
        self._layer = layer
        for kept, new in zip(self._memory.pairs[layer], (key, value), strict=True):
            kept[self.slots, :, self.positions] = new

    def narrow(self) -> torch.Tensor:
        """Asks for no logits."""
        return self.ids[:0]

    def attend(self, query: torch.Tensor, scale: float) -> torch.Tensor:
        """Causal attention within each text."""
        keys, values = self._memory.pairs[self._layer]
        if self._tiles is not None:
            brought: torch.Tensor = self._memory.kernels.attend_tiles(query, keys, values, self._tiles, scale)
            return brought
        read, first = [], 0
        for part in self._parts:
            stop = part.place + len(part.tokens)
            key, value = (kept[part.slot, :, :stop] for kept in (keys, values))
            read.append(_attend_causal(query[first : first + len(part.tokens)].transpose(0, 1), key, value, scale))
            first += len(part.tokens)
        return torch.cat(read)


def _attend_causal(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float) -> torch.Tensor:
    """Attends from the last tokens of a text, (heads, tokens, width), to all; returns (tokens, heads * width)."""
    group = len(query) // len(key)
    shared = group > 1 and query.is_cuda and query.dtype in (torch.float16, torch.bfloat16)
    if group > 1 and not shared:
        # Only flash attention reads one head for many without a copy of it.
        key, value = (part.repeat_interleave(group, 0) for part in (key, value))
    whole = query.shape[1] == key.shape[1]
    read = functional.scaled_dot_product_attention(
        query[None],
        key[None],
        value[None],
        attn_mask=None if whole else _lower_right()(query.shape[1], key.shape[1]),
        is_causal=whole,
        scale=scale,
        enable_gqa=shared,
    )
    rows: torch.Tensor = read[0].transpose(0, 1)
    return rows.reshape(query.shape[1], -1)


def _cuts(parts: Sequence[PrefillPart], most: int) -> Iterator[list[PrefillPart]]:
    """Yields parts for passes of at most so many tokens each."""
    cut: list[PrefillPart] = []
    room = most
    for part in parts:
        first = 0
        while first < len(part.tokens):
            piece = part.tokens[first : first + room]
            cut.append(PrefillPart(part.slot, part.place + first, piece))
            first, room = first + len(piece), room - len(piece)
            if not room:
                yield cut
                cut, room = [], most
    if cut:
        yield cut


def _columns(parts: Sequence[PrefillPart], size: int, memory: Slots, pad: int) -> torch.Tensor:
    """Returns token, slot and place of each token, filled up to a size, (3, size)."""
    ids: list[int] = []
    slots: list[int] = []
    places: list[int] = []
    for part in parts:
        ids += part.tokens
        slots += [part.slot] * len(part.tokens)
        places += range(part.place, part.place + len(part.tokens))
    more = size - len(ids)
    # No text reaches the last place of a slot.
    return to_device([ids + [pad] * more, slots + [0] * more, places + [memory.length - 1] * more], memory.device)


def _tiles(parts: Sequence[PrefillPart], width: int) -> list[tuple[int, int, int, int]]:
    """Returns row, number, slot and place of up to so many tokens each."""
    tiles, row = [], 0
    for part in parts:
        for first in range(0, len(part.tokens), width):
            count = min(width, len(part.tokens) - first)
            tiles.append((row + first, count, part.slot, part.place + first))
        row += len(part.tokens)
    return tiles


@functools.cache
def _lower_right() -> Any:
    """Returns what makes the bias of causal attention of the last positions. Its module brings the compiler."""
    from torch.nn.attention.bias import causal_lower_right

    return causal_lower_right
