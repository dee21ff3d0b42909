"""Two answers: what changed from the first to the second.

Everything an answer carries counts but its times, which no two runs share, and rounding in the last digits.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ..core.answer import Answer
from ..core.errors import ErrorRecord
from ..core.trace import Program
from .call_differences import CallChange, call_changes, evidence_changes, same
from .reading import Told
from .words import seconds, value_words

MOST = 2000
"""Characters of a value that are told."""

__all__ = ["Change", "TraceDifference", "compare", "describe"]


@dataclass(frozen=True)
class Change:
    """One thing that is not the same in both; values are written as in a program."""

    what: str
    first: str
    second: str


@dataclass(frozen=True)
class TraceDifference:
    """What changed between two answers; empty parts did not."""

    question: Change | None
    pictures: tuple[Change, ...]
    models: tuple[Change, ...]
    program: tuple[str, ...]
    """A unified diff, line by line."""
    written: tuple[Change, ...]
    """How the program came about: method, examples, prompt, attempts."""
    calls: tuple[CallChange, ...]
    reordered: bool
    """Whether the calls that are in both run in another order."""
    baseline: tuple[str, ...]
    """What changed in the evidence of the baseline."""
    printed: tuple[str, ...]
    """A unified diff."""
    answer: tuple[Change, ...]
    """The answer, the value behind it, whether it is a fallback, warnings, and the error."""
    tokens: Change | None
    seconds: tuple[float, float]
    """Times of both; they do not count."""

    @property
    def equal(self) -> bool:
        """Whether nothing but times changed."""
        parts = asdict(self)
        del parts["seconds"]
        return not any(parts.values())

    def to_dict(self) -> dict[str, Any]:
        """Returns plain JSON-ready data."""
        return {"equal": self.equal, **asdict(self)}


def compare(one: Told, other: Told) -> TraceDifference:
    """Compares two answers; the second is told as a change of the first."""
    first, second = one.answer, other.answer
    calls, reordered = call_changes(first.trace.calls, second.trace.calls)
    question = _changed("question", first.question, second.question)
    tokens = _changed("tokens", first.tokens, second.tokens)
    return TraceDifference(
        question=next(question, None),
        pictures=tuple(_pictures(one, other)),
        models=tuple(_models(first.models, second.models)),
        program=_diff(_source(first), _source(second)),
        written=tuple(_written(first, second)),
        calls=calls,
        reordered=reordered,
        baseline=tuple(evidence_changes(first.trace.baseline, second.trace.baseline)),
        printed=_diff(first.trace.printed, second.trace.printed),
        answer=tuple(_answers(first, second)),
        tokens=next(tokens, None),
        seconds=(first.seconds, second.seconds),
    )


def _changed(what: str, first: object, second: object) -> Iterator[Change]:
    if not same(first, second):
        yield Change(what, value_words(first, MOST), value_words(second, MOST))


def _pictures(one: Told, other: Told) -> Iterator[Change]:
    if one.pictures is None or other.pictures is None:
        return  # plain JSON does not tell them
    if len(one.pictures) != len(other.pictures):
        yield Change("number of pictures", str(len(one.pictures)), str(len(other.pictures)))
    for place, (first, second) in enumerate(zip(one.pictures, other.pictures, strict=False), 1):
        if first[0] != second[0]:
            names = [f"{name or 'unnamed'} ({key[:12]})" for key, name in (first, second)]
            yield Change(f"image {place}", *names)


def _models(first: Mapping[str, str], second: Mapping[str, str]) -> Iterator[Change]:
    for role in dict.fromkeys([*first, *second]):
        if first.get(role) != second.get(role):
            yield Change(role, first.get(role, "none"), second.get(role, "none"))


def _written(first: Answer, second: Answer) -> Iterator[Change]:
    yield from _changed("method", first.method, second.method)
    one, other = first.program, second.program
    if one and other:
        yield from _changed("form", one.form, other.form)
        yield from _changed("examples", list(one.examples), list(other.examples))
        if one.prompt != other.prompt and one.examples == other.examples and first.question == second.question:
            yield Change("prompt for the program", f"{len(one.prompt):,} letters", f"{len(other.prompt):,} letters")
        if one.completion != other.completion and one.source == other.source:
            yield Change("completion around the program", value_words(one.completion), value_words(other.completion))
    tried = [[_attempt(*attempt) for attempt in answer.trace.attempts] for answer in (first, second)]
    if tried[0] != tried[1]:
        yield Change("attempts that failed", *("; ".join(error for _, error in one) or "none" for one in tried))


def _attempt(program: Program, why: ErrorRecord) -> tuple[str, str]:
    return program.source, f"{why.type}: {why.message}"


def _answers(first: Answer, second: Answer) -> Iterator[Change]:
    yield from _changed("answer", first.text, second.text)
    if first.text == second.text:
        yield from _changed("value behind the answer", first.value, second.value)
    yield from _changed("fallback", first.fallback, second.fallback)
    yield from _changed("warnings", *([one.message for one in answer.warnings] for answer in (first, second)))
    if first.error != second.error:
        yield Change("error", *(f"{one.type}: {one.message}" if one else "none" for one in (first.error, second.error)))


def _source(answer: Answer) -> str:
    return answer.program.source if answer.program else ""


def _diff(first: str, second: str) -> tuple[str, ...]:
    found = difflib.unified_diff(first.splitlines(), second.splitlines(), "A", "B", lineterm="")
    return tuple(found)


# -- in words --------------------------------------------------------------------------------------------------------


def describe(found: TraceDifference) -> Iterator[str]:
    """Yields lines that say what changed, for a terminal."""
    for line in _lines(found):
        # Control characters would be obeyed by a terminal.
        yield "".join(letter if letter.isprintable() else " " for letter in line)


def _lines(found: TraceDifference) -> Iterator[str]:
    first, second = found.seconds
    if found.equal:
        yield "no difference but in time"
    if found.question:
        yield _line(found.question)
    for title, changes in (("pictures", found.pictures), ("models", found.models), ("written", found.written)):
        yield from _block(title, map(_line, changes))
    yield from _block("program", found.program)
    calls = [line for change in found.calls for line in _call(change)]
    if found.reordered:
        calls.append("the calls that are in both run in another order")
    yield from _block("calls", calls)
    yield from _block("baseline", found.baseline)
    yield from _block("printed", found.printed)
    yield from map(_line, found.answer)
    if found.tokens:
        yield _line(found.tokens)
    yield f"time: {seconds(first)} -> {seconds(second)}"


def _block(title: str, lines: Any) -> Iterator[str]:
    for place, line in enumerate(lines):
        if not place:
            yield f"{title}:"
        yield f"  {line}"


def _line(change: Change) -> str:
    return f"{change.what}: {change.first} -> {change.second}"


def _call(change: CallChange) -> Iterator[str]:
    if change.kind != "changed":
        yield f"{change.kind}: {change.call} = {change.first if change.second is None else change.second}"
    elif change.first != change.second:
        yield f"{change.call}: {change.first} -> {change.second}"
    else:
        yield f"{change.call}: {change.first} in both, found otherwise:"
    yield from (f"  {line}" for line in change.evidence)
