"""A whole answer as the templates need it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from markupsafe import Markup

from .. import __version__
from ..core.answer import Answer
from ..core.errors import ErrorRecord
from ..core.images import Picture
from ..core.trace import ImageRef, Program
from .comparison import comparisons
from .comparison_view import ComparisonView, comparison_view
from .evidence_view import EvidenceView, evidence_view
from .picture_view import PictureView, named_words, picture_view
from .view import CallView, LineView, call_view, line_views, stands_for
from .words import agreement, call_words, images_in, seconds, value_words

__all__ = ["PageView", "elsewhere", "page_view", "script_json"]

PICTURE_SIDE = 640
"""Longest side of a picture of the question on a page, in pixels."""
OPEN_CALLS = 24
"""A page with more calls shows them folded."""

BASELINE = "PnP-VQA, the method's baseline"


@dataclass(frozen=True)
class Attempt:
    """A program that failed before the last one was written, or the last one itself."""

    lines: tuple[LineView, ...]
    error: str
    elsewhere: str
    """The message, where no line of the program shows it."""
    prompt: str
    completion: str


@dataclass(frozen=True)
class Span:
    """A part of the time line, in percent of the whole."""

    index: int
    """The call; 0 for everything else."""
    width: float
    label: str
    time: str
    wide: bool
    """Whether its number fits in."""


@dataclass(frozen=True)
class PageView:
    """Everything on the page."""

    question: str
    answer: str
    outcome: Literal["answered", "declined", "fallback", "failed"]
    warnings: tuple[str, ...]
    error: str
    method: str
    method_title: str
    beside: tuple[str, str]
    """The answer without a program, and whether it agrees; empty where it was not asked for."""
    pictures: tuple[PictureView, ...]
    lines: tuple[LineView, ...]
    message: str
    names: tuple[tuple[str, str], ...]
    """What the program calls the pictures."""
    compared: tuple[ComparisonView, ...]
    value: str
    """What the program left in ``answer``; empty where there was none."""
    calls: tuple[CallView, ...]
    folded: bool
    baseline: tuple[EvidenceView, ...]
    facts: tuple[tuple[str, str], ...]
    tokens: bool
    """Whether they were counted."""
    spans: tuple[Span, ...]
    models: tuple[tuple[str, str], ...]
    examples: tuple[str, ...]
    prompt: str
    completion: str
    attempts: tuple[Attempt, ...]
    printed: str
    version: str
    answer_json: Markup


def page_view(answer: Answer, pictures: Sequence[Picture], baseline: Answer | None = None) -> PageView:
    """Returns what a page shows of an answer, and of the baseline's beside it."""
    program, trace = answer.program, answer.trace
    compared = comparisons(program.source, trace.calls, answer.error) if program else ()
    lines = line_views(program.source, trace.calls, answer.error, pictures, compared) if program else ()
    count = max([len(pictures), *_numbers(answer)])
    return PageView(
        question=answer.question,
        answer=answer.text,
        outcome=_outcome(answer),
        warnings=tuple(warning.message for warning in answer.warnings),
        error=_error(answer.error),
        method=_method(answer),
        method_title=BASELINE if answer.fallback or (answer.program is None and not answer.declined) else "",
        beside=(baseline.text, agreement(answer, baseline)) if baseline and answer.text else ("", ""),
        pictures=tuple(picture_view(ImageRef(index), pictures, PICTURE_SIDE) for index in range(1, count + 1)),
        lines=lines,
        message=elsewhere(lines, answer.error),
        names=stands_for(trace.calls, pictures),
        compared=tuple(comparison_view(one, pictures) for one in compared),
        value=value_words(answer.value) if program and answer.error is None else "",
        calls=tuple(call_view(call, pictures) for call in trace.calls),
        folded=len(trace.calls) > OPEN_CALLS,
        baseline=tuple(evidence_view(one, pictures) for one in trace.baseline),
        facts=tuple(_facts(answer)),
        tokens=answer.tokens > 0,
        spans=_spans(answer, pictures),
        models=tuple(answer.models.items()),
        examples=program.examples if program else (),
        prompt=program.prompt if program else "",
        completion=program.completion if program else "",
        attempts=tuple(_attempt(one, why) for one, why in _earlier(answer)),
        printed=trace.printed,
        version=__version__,
        answer_json=script_json(answer.to_dict()),
    )


def _outcome(answer: Answer) -> Literal["answered", "declined", "fallback", "failed"]:
    if answer.fallback:
        return "fallback"
    if answer.error and not answer.text:
        return "failed"
    return "declined" if answer.declined else "answered"


def _method(answer: Answer) -> str:
    if answer.declined:
        return "No model was asked."
    if answer.program is None or answer.fallback:
        return "Found without a program: captions of the pictures were read."
    # Nobody prompts for a program that a user wrote.
    found = f"Found by a program written {'for the question' if answer.program.prompt else 'by hand'}."
    return f"{found} It set no answer, so its last value was taken." if answer.program.mended else found


def script_json(data: Any) -> Markup:
    """Returns data as JSON that can stand inside a ``<script>`` element: nothing in it can end the element.

    Text that is no valid Unicode is kept too, as escapes.
    """
    text = json.dumps(data, ensure_ascii=True, allow_nan=False)
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return Markup(text)


def _numbers(answer: Answer) -> list[int]:
    """The number of every picture that evidence is about: they are named also where they are not at hand."""
    evidence = [one for call in answer.trace.calls for one in call.evidence] + list(answer.trace.baseline)
    return [ref.index for one in evidence for ref in one.images]


def _facts(answer: Answer) -> list[tuple[str, str]]:
    calls = answer.trace.calls
    facts = [("time", seconds(answer.seconds))]
    if answer.program is not None:
        remembered = sum(call.remembered for call in calls)
        ahead = sum(call.ahead and not call.remembered and not call.error for call in calls)
        said = ((f"{remembered:,} from memory", remembered), (f"{ahead:,} begun ahead", ahead))
        facts.append(("calls", ", ".join([f"{len(calls):,}", *(words for words, count in said if count)])))
    if answer.tokens:
        facts.append(("tokens", f"{answer.tokens:,}"))
    return facts


def _spans(answer: Answer, pictures: Sequence[Picture]) -> tuple[Span, ...]:
    calls = answer.trace.calls
    if not calls:
        return ()  # one part is no division
    in_calls = sum(call.seconds for call in calls)
    whole = max(answer.seconds, in_calls)
    if whole <= 0:
        return ()
    rest = whole - in_calls
    spans = [Span(0, round(100 * rest / whole, 3), _else(answer), seconds(rest), True)] if rest > 0 else []
    for call in calls:
        width = round(100 * call.seconds / whole, 3)
        label = call_words(call.name, call.arguments, 60)
        if any(images_in(call.value)):
            label += f" → {named_words(call.value, pictures, 60)}"
        spans.append(Span(call.index, width, label, seconds(call.seconds), width >= 4))
    return tuple(spans)


def _else(answer: Answer) -> str:
    """What an answer spends its time on beside calls."""
    parts = ["the pictures"]
    if answer.program is not None:
        parts += ["writing the program"] if answer.program.prompt else []
        parts += ["checking it" if answer.program.prompt else "checking the program"]
    parts += ["reading captions"] if answer.trace.baseline else []
    return f"everything else: {', '.join(parts)}"


def _earlier(answer: Answer) -> list[tuple[Program, ErrorRecord]]:
    """Attempts but the one that is the answer's own program, which is shown in full."""
    attempts = list(answer.trace.attempts)
    if attempts and attempts[-1] == (answer.program, answer.error):
        attempts.pop()
    return attempts


def _attempt(program: Program, why: ErrorRecord) -> Attempt:
    lines = line_views(program.source, (), why)
    return Attempt(lines, _error(why), elsewhere(lines, why), program.prompt, program.completion)


def _error(error: ErrorRecord | None) -> str:
    return f"{error.type}: {error.message}" if error else ""


def elsewhere(lines: Sequence[LineView], error: ErrorRecord | None) -> str:
    """What is wrong, where no line shows it."""
    return error.message if error and not any(line.failing for line in lines) else ""
