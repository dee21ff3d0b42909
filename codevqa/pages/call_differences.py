"""What changed between the calls of two answers, and between the evidence behind them.

Calls are matched by name and arguments, and equal ones in the order they began.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ..core.trace import Call, Evidence, Plain
from .heat import relevance_grid
from .words import call_words, number, value_words

__all__ = ["CallChange", "call_changes", "evidence_changes", "same"]

ROUNDING = 1e-4
"""Numbers that differ by less than this share count as equal: another machine adds in another order."""

_WHOLE = 10_000_000
"""Characters of a call that are compared: all of them."""


@dataclass(frozen=True)
class CallChange:
    """A call that is not the same in both."""

    call: str
    """As it reads in a program."""
    kind: Literal["changed", "only in A", "only in B"]
    first: str | None
    """What it gave in A; None where it is not there."""
    second: str | None
    evidence: tuple[str, ...] = ()
    """What changed behind it, where it is in both."""


def same(first: Plain, second: Plain) -> bool:
    """Says whether two values are equal but for rounding."""
    if isinstance(first, float | int) and isinstance(second, float | int):
        if isinstance(first, bool) or isinstance(second, bool):
            return first is second
        return first == second or (math.isnan(first) and math.isnan(second)) or _near(first, second)
    if isinstance(first, list | tuple) and type(first) is type(second):
        return len(first) == len(second) and all(map(same, first, second))
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return first.keys() == second.keys() and all(same(first[key], second[key]) for key in first)
    return type(first) is type(second) and bool(first == second)


def call_changes(first: Sequence[Call], second: Sequence[Call]) -> tuple[tuple[CallChange, ...], bool]:
    """Compares two lists of calls.

    Returns:
        The calls that changed, in the order of the first list, then those that only the second has; and whether those
        in both run in another order.
    """
    waiting: dict[str, list[int]] = {}
    for place, call in enumerate(second):
        waiting.setdefault(_key(call), []).append(place)
    changes, places = [], []
    for call in first:
        found = waiting.get(_key(call))
        if not found:
            changes.append(CallChange(_said(call), "only in A", _gave(call), None))
            continue
        places.append(found.pop(0))
        other = second[places[-1]]
        behind = tuple(evidence_changes(call.evidence, other.evidence))
        if behind or not _agree(call, other):
            changes.append(CallChange(_said(call), "changed", _gave(call), _gave(other), behind))
    for place in sorted(place for left in waiting.values() for place in left):
        changes.append(CallChange(_said(second[place]), "only in B", None, _gave(second[place])))
    return tuple(changes), places != sorted(places)


def evidence_changes(first: Sequence[Evidence], second: Sequence[Evidence]) -> Iterator[str]:
    """Yields one line for each thing that changed in the evidence of one call."""
    if len(first) != len(second):
        yield f"pieces of evidence: {len(first)} -> {len(second)}"
        return
    for one, other in zip(first, second, strict=True):
        yield from _changes(one, other)


def _changes(one: Evidence, other: Evidence) -> Iterator[str]:
    if one.kind != other.kind:
        yield f"kind of evidence: {one.kind} -> {other.kind}"
    if one.text != other.text:
        yield f"asked: {value_words(one.text)} -> {value_words(other.text)}"
    if one.images != other.images:
        yield f"pictures: {value_words(list(one.images))} -> {value_words(list(other.images))}"
        return  # what follows goes by picture
    for place, ref in enumerate(one.images):
        yield from _caption_changes(f"captions of {ref}", _at(one.captions, place), _at(other.captions, place))
        yield from _map_change(f"heat map of {ref}", _at(one.relevance, place), _at(other.relevance, place))
        if _at(one.patches, place) != _at(other.patches, place):
            yield f"sampled patches of {ref} differ"
    if not same(one.position, other.position):
        yield f"position: {value_words(one.position)} -> {value_words(other.position)}"
    if not same(one.scores, other.scores):
        yield f"scores: {_scores(one)} -> {_scores(other)}"
    if one.prompt != other.prompt and one.captions == other.captions and one.text == other.text:
        yield "the prompt that the reading language model saw differs"
    if one.completion != other.completion:
        yield f"the reading language model wrote: {value_words(one.completion)} -> {value_words(other.completion)}"


def _caption_changes(what: str, one: Sequence[str], other: Sequence[str]) -> Iterator[str]:
    if one == other:
        return
    gone = [caption for caption in one if caption not in other]
    new = [caption for caption in other if caption not in one]
    yield from (f"{what}: only in A: {value_words(caption)}" for caption in gone)
    yield from (f"{what}: only in B: {value_words(caption)}" for caption in new)
    if not gone and not new:
        yield f"{what}: the same ones, in another order or number"


def _map_change(what: str, one: Sequence[Sequence[float]], other: Sequence[Sequence[float]]) -> Iterator[str]:
    if one == other:
        return
    first, second = relevance_grid(one), relevance_grid(other)
    if first is None or second is None:
        if (first is None) != (second is None):
            yield f"{what}: only in {'B' if first is None else 'A'}"
        return
    if first.shape != second.shape:
        yield f"{what}: grid of {'x'.join(map(str, first.shape))} -> {'x'.join(map(str, second.shape))}"
        return
    most = float(abs(first - second).max())
    if most > ROUNDING:
        yield f"{what} differs by up to {100 * most:.2g} % of its peak"


def _agree(call: Call, other: Call) -> bool:
    if call.error or other.error:
        return call.error == other.error
    return same(call.value, other.value)


def _gave(call: Call) -> str:
    return f"failed: {call.error.type}: {call.error.message}" if call.error else value_words(call.value)


def _said(call: Call) -> str:
    return call_words(call.name, call.arguments)


def _key(call: Call) -> str:
    names = ", ".join(call.arguments)
    return f"{call_words(call.name, call.arguments, _WHOLE)} {names}"


def _scores(evidence: Evidence) -> str:
    return f"[{', '.join(map(number, evidence.scores))}]"


def _at(items: Sequence[Sequence[Plain]], place: int) -> Sequence[Plain]:
    return items[place] if place < len(items) else ()


def _near(first: float, second: float) -> bool:
    return math.isclose(first, second, rel_tol=ROUNDING, abs_tol=1e-9)
