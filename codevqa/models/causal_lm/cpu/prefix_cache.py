"""Keys and values of prompts computed before, by their beginnings: a tree whose branches are runs of tokens.

As the radix attention of SGLang (Zheng et al., 2024): a prompt is computed only past its longest known beginning.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import torch

from ..tokenised_request import common_prefix_length

__all__ = ["KeyValueBlock", "PrefixCache"]

KeyValueBlock: TypeAlias = "tuple[torch.Tensor, torch.Tensor]"
"""Keys and values of all layers for a run of tokens, shape (layers, heads, tokens, width)."""


@dataclass(eq=False)
class _Branch:
    tokens: list[int]
    block: KeyValueBlock
    parent: _Branch | None
    children: dict[int, _Branch] = field(default_factory=dict)
    """By their first token."""

    @property
    def size(self) -> int:
        return self.block[0].nbytes + self.block[1].nbytes


class PrefixCache:
    """Computed beginnings of prompts: least recently used first out, bounded by bytes.

    Args:
        limit: bytes kept at most; 0 keeps nothing.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.size = 0
        self._roots: dict[int, _Branch] = {}
        # A branch is always used before those it grows from: the least recently used has nothing above it.
        self._kept: OrderedDict[_Branch, None] = OrderedDict()

    def find(self, tokens: Sequence[int]) -> tuple[int, list[KeyValueBlock]]:
        """Returns how many first tokens are known, and their keys and values run by run."""
        path, known = self._path(tokens)
        blocks = [branch.block for branch, _ in path]
        if path:
            branch, used = path[-1]
            if used < len(branch.tokens):
                blocks[-1] = (branch.block[0][:, :, :used], branch.block[1][:, :, :used])
        return known, blocks

    def add(self, tokens: Sequence[int], compute: Callable[[int], KeyValueBlock]) -> None:
        """Keeps the keys and values of a prompt.

        Args:
            tokens: the prompt.
            compute: returns those of all tokens from a given one on, in memory of their own.
        """
        path, known = self._path(tokens)
        if known == len(tokens):
            return
        parent: _Branch | None = None
        if path:
            parent, used = path[-1]
            if used < len(parent.tokens):
                parent = self._split(parent, used)
        branch = _Branch(list(tokens[known:]), compute(known), parent)
        if branch.size > self.limit:
            return
        (self._roots if parent is None else parent.children)[branch.tokens[0]] = branch
        self.size += branch.size
        self._touch(branch)
        while self.size > self.limit:
            self._forget()

    def clear(self) -> None:
        """Forgets all."""
        self._roots.clear()
        self._kept.clear()
        self.size = 0

    def _path(self, tokens: Sequence[int]) -> tuple[list[tuple[_Branch, int]], int]:
        """Returns the branches that a prompt follows, with how many tokens of each, and how many that are in all."""
        path: list[tuple[_Branch, int]] = []
        known, children = 0, self._roots
        while known < len(tokens) and (branch := children.get(tokens[known])) is not None:
            used = common_prefix_length(branch.tokens, tokens[known : known + len(branch.tokens)])
            path.append((branch, used))
            known, children = known + used, branch.children
            if used < len(branch.tokens):
                break
        if path:
            self._touch(path[-1][0])
        return path, known

    def _touch(self, branch: _Branch | None) -> None:
        while branch is not None:
            self._kept[branch] = None
            self._kept.move_to_end(branch)
            branch = branch.parent

    def _split(self, branch: _Branch, at: int) -> _Branch:
        """Cuts a branch in two; returns the first part, from which the other grows."""
        (key, value), first = branch.block, branch.tokens[0]
        # Copies: parts of one piece of memory could not be forgotten one by one.
        head = _Branch(branch.tokens[:at], (key[:, :, :at].clone(), value[:, :, :at].clone()), branch.parent)
        (self._roots if branch.parent is None else branch.parent.children)[first] = head
        branch.tokens, branch.parent = branch.tokens[at:], head
        branch.block = (key[:, :, at:].clone(), value[:, :, at:].clone())
        head.children[branch.tokens[0]] = branch
        self._touch(branch)
        return head

    def _forget(self) -> None:
        branch, _ = self._kept.popitem(last=False)
        del (self._roots if branch.parent is None else branch.parent.children)[branch.tokens[0]]
        self.size -= branch.size
