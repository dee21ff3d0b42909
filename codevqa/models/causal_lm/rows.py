"""What the ways of decoding a language model have in common: tokenised requests, their ends, kept prompt prefixes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from .text_stream import TextStream

CONTEXT = 4
"""Prompt tokens decoded along with a completion: some tokenizers drop a leading space at the start of a text."""

Kept = TypeVar("Kept")


@dataclass
class LMStats:
    """What a language model of this process has done so far."""

    requests: int = 0
    generate_calls: int = 0
    """Batches decoded by ``model.generate``."""
    steps: int = 0
    """Forward passes of a loop of our own that made tokens."""
    prefills: int = 0
    """Forward passes over prompts, or prefixes of prompts, outside ``model.generate``."""
    prefix_hits: int = 0
    """Batches that found their prefix computed; in packed passes prompts that found some of theirs."""
    prefix_misses: int = 0
    """Batches that had to compute their prefix first; in packed passes prompts of which nothing was known."""
    prefilled_tokens: int = 0
    """Prompt tokens run through the model, padding not counted."""
    reused_tokens: int = 0
    """Prompt tokens that were taken from a kept prefix, or one of the same batch, instead."""
    guessed_tokens: int = 0
    """Tokens that the model was given to confirm."""
    confirmed_tokens: int = 0
    """Tokens of those that it did confirm: each saved a step."""


@dataclass(frozen=True)
class Row:
    """One request, tokenised."""

    index: int
    tokens: list[int]
    prefix: int
    """How many of ``tokens`` are a prefix worth keeping; 0 for none."""
    max_tokens: int
    """Tokens to make at most: the request's limit, or the room left in the context."""
    stop: tuple[str, ...]
    stream: TextStream | None = None
    """Who is told the text as it is written."""


class PrefixStore(Generic[Kept]):
    """Keys and values of prompt prefixes: least recently used first out, bounded by bytes."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.size = 0
        self._kept: OrderedDict[tuple[int, ...], tuple[Kept, int]] = OrderedDict()

    def get(self, key: tuple[int, ...]) -> Kept | None:
        """Returns what is kept for a prefix, which then is the most recently used."""
        if key not in self._kept:
            return None
        self._kept.move_to_end(key)
        return self._kept[key][0]

    def put(self, key: tuple[int, ...], past: Kept, size: int) -> None:
        """Keeps ``past``, of ``size`` bytes, unless it alone is over the limit."""
        if size > self.limit:
            return
        self.size += size - self._kept.pop(key, (None, 0))[1]
        self._kept[key] = (past, size)
        while self.size > self.limit:
            _, (_, dropped) = self._kept.popitem(last=False)
            self.size -= dropped

    def clear(self) -> None:
        """Forgets all."""
        self._kept.clear()
        self.size = 0


def common(left: Sequence[int], right: Sequence[int]) -> int:
    """Returns how many first tokens are the same."""
    for place, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return place
    return min(len(left), len(right))


def stop_window(stops: Collection[str]) -> int:
    """Returns how many last tokens a stop string can lie in: every token stands for at least one byte of text."""
    return max((len(stop.encode()) for stop in stops), default=0) + 2 * CONTEXT


def end_of(
    row: Row,
    tokens: Sequence[int],
    fresh: int,
    ends: Collection[int],
    decode: Callable[[Sequence[int]], str],
    text: Callable[[Sequence[int], Sequence[int]], str],
) -> int | None:
    """Returns how many of the tokens made for a row count, or None while it goes on.

    Args:
        row: the request.
        tokens: all tokens made so far.
        fresh: how many last ones have not been looked at before.
        ends: end tokens.
        decode: the text of some tokens.
        text: the text that tokens add after those of a prompt.
    """
    seen = len(tokens) - fresh
    last = next((n for n in range(seen + 1, len(tokens) + 1) if n >= row.max_tokens or tokens[n - 1] in ends), None)
    if row.stop:
        upto = len(tokens) if last is None else last
        recent = decode([*row.tokens[-CONTEXT:], *tokens[max(0, seen - stop_window(row.stop)) : upto]])
        if any(stop in recent for stop in row.stop):
            # That was a quick look, and it shows some of the prompt: the text itself decides.
            for n in range(seen + 1, upto + 1):
                made = text(row.tokens, tokens[:n])
                if any(stop in made for stop in row.stop):
                    return n
    return last
