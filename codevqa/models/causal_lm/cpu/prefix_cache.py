"""Keys and values of prompts computed before, by their beginnings: a tree whose branches are runs of tokens.

As the radix attention of SGLang (Zheng et al., 2024): a prompt is computed only past its longest known beginning.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import torch

from ..work import common_prefix_length

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
