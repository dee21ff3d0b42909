"""In which order prompts are computed, and which beginnings they have in common are computed once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..tokenised_request import TokenisedRequest, common_prefix_length


@dataclass(eq=False)
class PrefixNode:
    """A beginning that prompts have in common."""

    parent: PrefixNode | None
    tokens: list[int]
    """The beginning itself; empty at the root."""
    requests: list[TokenisedRequest] = field(default_factory=list)
    """Prompts with no longer beginning in common with others that would be worth it, shortest first."""
    children: list[PrefixNode] = field(default_factory=list)
    past: Any = None
    """Its keys and values, once computed."""
    marked: bool = False
    """Whether the requests say that others will share it."""

    def walk(self) -> Iterator[PrefixNode]:
        """Yields this node and those below, each before its children."""
        yield self
        for child in self.children:
            yield from child.walk()


def plan_prefixes(requests: Sequence[TokenisedRequest], least_saving: int) -> list[PrefixNode]:
    """Returns trees of common beginnings that hold every request once.

    Marked prefixes come first: they are kept from call to call. Below them, a beginning is split off where computing it
    once saves at least ``least_saving`` tokens over computing it for each prompt: a pass of its own costs something,
    too.
    """
    # In the order of the requests: which prefix is forgotten first must not depend on its text.
    roots: dict[tuple[int, ...], list[TokenisedRequest]] = {
        tuple(request.tokens[: request.prefix]): [] for request in requests
    }
    for request in sorted(requests, key=lambda request: request.tokens):
        roots[tuple(request.tokens[: request.prefix])].append(request)
    nodes = []
    for prefix, members in roots.items():
        node = PrefixNode(None, list(prefix), marked=bool(prefix))
        node.requests = sorted(
            _split(node, members, len(prefix), least_saving), key=lambda request: len(request.tokens)
        )
        nodes.append(node)
    return nodes


def _split(
    node: PrefixNode, requests: Sequence[TokenisedRequest], look: int, least_saving: int
) -> list[TokenisedRequest]:
    """Hangs beginnings longer than the node's below it; returns the requests that have none.

    ``requests`` are sorted by their tokens, of which the first ``look`` are the same.
    """
    # One token has to be left to go on from.
    left = [request for request in requests if len(request.tokens) <= look + 1]
    runs: dict[int, list[TokenisedRequest]] = {}
    for request in requests:
        if len(request.tokens) > look + 1:
            runs.setdefault(request.tokens[look], []).append(request)
    for run in runs.values():
        if len(run) == 1:
            left += run
            continue
        # Sorted, so what the first and the last have in common all have.
        reach = min(
            common_prefix_length(run[0].tokens, run[-1].tokens), min(len(request.tokens) for request in run) - 1
        )
        if (len(run) - 1) * (reach - len(node.tokens)) < least_saving:
            left += _split(node, run, reach, least_saving)
            continue
        child = PrefixNode(node, run[0].tokens[:reach])
        node.children.append(child)
        child.requests = sorted(_split(child, run, reach, least_saving), key=lambda request: len(request.tokens))
    return left
