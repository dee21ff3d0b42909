"""In which order prompts are computed, and which beginnings they have in common are computed once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..rows import Row, common


@dataclass(eq=False)
class Node:
    """A beginning that prompts have in common."""

    parent: Node | None
    tokens: list[int]
    """The beginning itself; empty at the root."""
    rows: list[Row] = field(default_factory=list)
    """Prompts with no longer beginning in common with others that would be worth it, shortest first."""
    children: list[Node] = field(default_factory=list)
    past: Any = None
    """Its keys and values, once computed."""
    marked: bool = False
    """Whether the requests say that others will share it."""

    def walk(self) -> Iterator[Node]:
        """Yields this node and those below, each before its children."""
        yield self
        for child in self.children:
            yield from child.walk()


def plan(rows: Sequence[Row], worth: int) -> list[Node]:
    """Returns trees of common beginnings that hold every row once.

    Marked prefixes come first: they are kept from call to call. Below them, a beginning is split off where computing it
    once saves at least ``worth`` tokens over computing it for each prompt; a pass of its own costs something, too.
    """
    # In the order of the requests: which prefix is forgotten first must not depend on its text.
    roots: dict[tuple[int, ...], list[Row]] = {tuple(row.tokens[: row.prefix]): [] for row in rows}
    for row in sorted(rows, key=lambda row: row.tokens):
        roots[tuple(row.tokens[: row.prefix])].append(row)
    nodes = []
    for prefix, members in roots.items():
        node = Node(None, list(prefix), marked=bool(prefix))
        node.rows = sorted(_split(node, members, len(prefix), worth), key=lambda row: len(row.tokens))
        nodes.append(node)
    return nodes


def _split(node: Node, rows: Sequence[Row], look: int, worth: int) -> list[Row]:
    """Hangs beginnings longer than the node's below it; returns the rows that have none.

    ``rows`` are sorted by their tokens, of which the first ``look`` are the same.
    """
    # One token has to be left to go on from.
    left = [row for row in rows if len(row.tokens) <= look + 1]
    runs: dict[int, list[Row]] = {}
    for row in rows:
        if len(row.tokens) > look + 1:
            runs.setdefault(row.tokens[look], []).append(row)
    for run in runs.values():
        if len(run) == 1:
            left += run
            continue
        # Sorted, so what the first and the last have in common all have.
        reach = min(common(run[0].tokens, run[-1].tokens), min(len(row.tokens) for row in run) - 1)
        if (len(run) - 1) * (reach - len(node.tokens)) < worth:
            left += _split(node, run, reach, worth)
            continue
        child = Node(node, run[0].tokens[:reach])
        node.children.append(child)
        child.rows = sorted(_split(child, run, reach, worth), key=lambda row: len(row.tokens))
    return left
