"""What the templates need, made from answers, calls and evidence: plain frozen data, pictures already inline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from markupsafe import Markup

from ..core.errors import ErrorRecord
from ..core.events import CallBegan
from ..core.images import Picture
from ..core.trace import Call, ImageRef, Plain
from .code import code_lines
from .evidence_view import EvidenceView, evidence_view
from .picture_view import PictureView, picture_view
from .words import call_words, images_in, outcome, seconds, value_words

__all__ = ["CallView", "LineView", "call_view", "line_views", "running_view"]

State = Literal["running", "computed", "remembered", "failed"]

MOST_VALUES = 4
"""Values shown at one line of a program; further ones are counted."""
THUMB = 160
"""Longest side of a small picture, in pixels."""
MOST_THUMBS = 8


@dataclass(frozen=True)
class CallView:
    """One call's card."""

    index: int
    name: str
    text: str
    state: State
    line: int | None
    value: str = ""
    seconds: str = ""
    error: str = ""
    evidence: tuple[EvidenceView, ...] = ()
    thumbs: tuple[PictureView, ...] = ()
    """Pictures it is about, where no evidence shows them."""


@dataclass(frozen=True)
class Chip:
    """One value beside a line."""

    text: str
    full: str
    index: int
    failed: bool


@dataclass(frozen=True)
class LineView:
    """One line of a program."""

    number: int
    code: Markup
    chips: tuple[Chip, ...] = ()
    more: str = ""
    """What became of the calls that are not shown."""
    failing: bool = False
    message: str = ""


def call_view(call: Call, pictures: Sequence[Picture]) -> CallView:
    """Returns one finished call's card."""
    state: State = "failed" if call.error else "remembered" if call.remembered else "computed"
    return CallView(
        index=call.index,
        name=call.name,
        text=call_words(call.name, call.arguments),
        state=state,
        line=call.line,
        value="" if call.error else value_words(call.value),
        seconds=seconds(call.seconds),
        error=f"{call.error.type}: {call.error.message}" if call.error else "",
        evidence=tuple(evidence_view(one, pictures) for one in call.evidence),
        thumbs=() if call.evidence else _thumbs((call.arguments, call.value), pictures),
    )


def running_view(began: CallBegan, pictures: Sequence[Picture]) -> CallView:
    """Returns the card of a call that has not ended."""
    text = call_words(began.name, began.arguments)
    return CallView(began.index, began.name, text, "running", began.line, thumbs=_thumbs((began.arguments,), pictures))


def _thumbs(values: tuple[Plain, ...], pictures: Sequence[Picture]) -> tuple[PictureView, ...]:
    wanted = list(dict.fromkeys(index for value in values for index in images_in(value)))
    return tuple(picture_view(ImageRef(index), pictures, THUMB) for index in wanted[:MOST_THUMBS])


def line_views(source: str, calls: Sequence[Call], error: ErrorRecord | None) -> tuple[LineView, ...]:
    """Returns a program line by line, each with what its calls gave."""
    at: dict[int, list[Call]] = {}
    for call in calls:
        if call.line is not None:
            at.setdefault(call.line, []).append(call)
    lines = []
    for number, code in enumerate(code_lines(source), 1):
        here = at.get(number, [])
        chips = tuple(
            Chip(
                outcome(call, 48),
                f"call {call.index}: {call_words(call.name, call.arguments)} → {outcome(call)}",
                call.index,
                call.error is not None,
            )
            for call in here[:MOST_VALUES]
        )
        failing = error is not None and error.line == number
        lines.append(LineView(number, code, chips, _more(here), failing, error.message if error and failing else ""))
    return tuple(lines)


def _more(calls: Sequence[Call]) -> str:
    rest = calls[MOST_VALUES:]
    if not rest:
        return ""
    failed = sum(call.error is not None for call in rest)
    return f"and {len(rest)} more" + (f", {failed} of them failed" if failed else "")
