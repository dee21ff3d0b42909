"""One forward pass over parts of many texts laid end to end, and the memory their keys and values are in.

Keys and values of prompts computed before are kept by their beginnings: a tree whose branches are runs of tokens, as
the radix attention of SGLang (Zheng et al., 2024). A prompt is computed only past its longest known beginning.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import torch
from torch.nn import functional

from ..work import common_prefix_length


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
class PackedText:
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

    def __init__(self, memory: KeyValues, parts: Sequence[PackedText], wanted: Sequence[int]) -> None:
        self.memory, self.parts, self._wanted = memory, parts, wanted
        self._ends = [part.end for part in parts]
        self.ids = torch.tensor([token for part in parts for token in part.tokens])
        self.positions = torch.tensor(
            [at for part, end in zip(parts, self._ends, strict=True) for at in range(part.start, end)]
        )
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
            pairs = zip(self._ends, self._asked, strict=True)
            self._masks = [_causal_mask(end, count, many, query.dtype) for end, count in pairs]
        read, at = [], 0
        row = query.transpose(0, 1)[None]
        for part, end, count, mask in zip(self.parts, self._ends, self._asked, self._masks, strict=True):
            if not count:
                continue
            slot = part.slot
            asked = row[:, :, at : at + count]
            if many > 1:
                asked = asked.reshape(1, heads, many * count, width)
            output = functional.scaled_dot_product_attention(
                asked,
                keys[slot : slot + 1, :, :end],
                values[slot : slot + 1, :, :end],
                attn_mask=mask,
                scale=scale,
            )
            read.append(output.reshape(heads * many, count, width).transpose(0, 1))
            at += count
        # Token by token, as it is read next.
        return torch.cat(read).flatten(1)


def _causal_mask(length: int, count: int, many: int, dtype: torch.dtype) -> torch.Tensor | None:
    """Returns what the last ``count`` tokens of a text must not see."""
    if count <= 1:
        return None
    hidden = torch.full((count, length), float("-inf"), dtype=dtype)
    return hidden.triu_(length - count + 1).repeat(many, 1)


KeyValueBlock: TypeAlias = "tuple[torch.Tensor, torch.Tensor]"
"""Keys and values of all layers for a run of tokens, shape (layers, heads, tokens, width)."""


@dataclass(eq=False)
class _Branch:
    tokens: list[int]
    block: KeyValueBlock
    home: _Children
    """Where it is kept, and as what."""
    key: tuple[int, int]
    parent: _Branch | None
    children: _Children = field(default_factory=dict)
    """By how many of this one's tokens they follow, and their own first token."""

    @property
    def size(self) -> int:
        return self.block[0].nbytes + self.block[1].nbytes


_Children: TypeAlias = "dict[tuple[int, int], _Branch]"


class PrefixCache:
    """Computed beginnings of prompts: least recently used first out, bounded by bytes.

    Args:
        limit: bytes kept at most; 0 keeps nothing.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.size = 0
        self._roots: _Children = {}
        # A branch is always used before those it grows from: the least recently used has nothing above it.
        self._kept: OrderedDict[_Branch, None] = OrderedDict()

    def find(self, tokens: Sequence[int]) -> tuple[int, list[KeyValueBlock]]:
        """Returns how many first tokens are known, and their keys and values run by run."""
        path, known = self._path(tokens)
        return known, [(branch.block[0][:, :, :used], branch.block[1][:, :, :used]) for branch, used in path]

    def add(self, tokens: Sequence[int], compute: Callable[[int], KeyValueBlock]) -> None:
        """Keeps the keys and values of a prompt.

        Args:
            tokens: the prompt.
            compute: returns those of all tokens from a given one on, in memory of their own.
        """
        path, known = self._path(tokens)
        if known == len(tokens):
            return
        parent, used = path[-1] if path else (None, 0)
        home = self._roots if parent is None else parent.children
        branch = _Branch(list(tokens[known:]), compute(known), home, (used, tokens[known]), parent)
        if branch.size > self.limit:
            return
        home[branch.key] = branch
        self.size += branch.size
        self._touch(branch)
        while self.size > self.limit:
            forgotten, _ = self._kept.popitem(last=False)
            del forgotten.home[forgotten.key]
            self.size -= forgotten.size

    def _path(self, tokens: Sequence[int]) -> tuple[list[tuple[_Branch, int]], int]:
        """Returns the branches that a prompt follows, with how many tokens of each, and how many that are in all."""
        path: list[tuple[_Branch, int]] = []
        known, used, children = 0, 0, self._roots
        while known < len(tokens) and (branch := children.get((used, tokens[known]))) is not None:
            used = common_prefix_length(branch.tokens, tokens[known : known + len(branch.tokens)])
            path.append((branch, used))
            known, children = known + used, branch.children
        if path:
            self._touch(path[-1][0])
        return path, known

    def _touch(self, branch: _Branch | None) -> None:
        while branch is not None:
            self._kept[branch] = None
            self._kept.move_to_end(branch)
            branch = branch.parent
