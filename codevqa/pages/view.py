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
from .comparison import Comparison
from .evidence_view import EvidenceView, evidence_view
from .picture_view import PictureView, named_words, picture_view
from .words import MOST, call_words, images_in, seconds

__all__ = ["CallView", "LineView", "call_view", "line_views", "running_view", "stands_for"]

State = Literal["running", "computed", "remembered", "failed"]

SHORT = 48
"""Characters of a value at a line; pictures with their names may have more."""
MOST_VALUES = 4
"""Values shown at one line of a program; further ones are counted."""
HANGING, MOST_INDENT = 4, 16
"""Columns that the rest of a long line is set in by, and how far in a line counts as beginning at most."""
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
    ahead: bool = False
    """Whether to say that it had begun before the program asked."""
    error: str = ""
    evidence: tuple[EvidenceView, ...] = ()
    thumbs: tuple[PictureView, ...] = ()
    """Pictures it is about, where no evidence shows them."""


@dataclass(frozen=True)
class Chip:
    """One value beside a line."""

    text: str
    full: str
    target: str
    """Id of what it leads to, where there is such a thing on the page."""
    failed: bool = False


@dataclass(frozen=True)
class LineView:
    """One line of a program."""

    number: int
    code: Markup
    indent: int
    """Columns that it goes on at where it is too long for one row."""
    chips: tuple[Chip, ...] = ()
    more: str = ""
    """What became of the calls that are not shown."""
    failing: bool = False
    message: str = ""


def call_view(call: Call, pictures: Sequence[Picture]) -> CallView:
    """Returns one finished call's card."""
    state: State = "failed" if call.error else "remembered" if call.remembered else "computed"
    ahead = call.ahead and state == "computed"
    return CallView(
        index=call.index,
        name=call.name,
        text=call_words(call.name, call.arguments),
        state=state,
        line=call.line,
        value="" if call.error else named_words(call.value, pictures),
        seconds=f"waited {seconds(call.seconds)}" if ahead else seconds(call.seconds),
        ahead=ahead,
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


def stands_for(calls: Sequence[Call], pictures: Sequence[Picture]) -> tuple[tuple[str, str], ...]:
    """Returns what a program calls its pictures, after the examples it is written from, and which they are."""
    opened = [call for call in calls if call.name in ("open_image", "open_images") and not call.error]
    return tuple(
        {str(path): named_words(call.value, pictures) for call in opened for path in call.arguments.values()}.items()
    )


def line_views(
    source: str,
    calls: Sequence[Call],
    error: ErrorRecord | None,
    pictures: Sequence[Picture] = (),
    compared: Sequence[Comparison] = (),
) -> tuple[LineView, ...]:
    """Returns a program line by line, each with what its calls gave and its comparisons said."""
    at: dict[int, list[Call]] = {}
    for call in calls:
        if call.line is not None:
            at.setdefault(call.line, []).append(call)
    lines = []
    for number, code in enumerate(code_lines(source), 1):
        here = at.get(number, [])
        chips = [_chip(call, pictures) for call in here[:MOST_VALUES]]
        for place, one in enumerate(compared, 1):
            if one.line == number:
                chips.append(Chip(f"{one.values} is {str(one.holds).lower()}", one.source, f"cv-compare-{place}"))
        failing = error is not None and error.line == number
        why = error.message if error and failing else ""
        lines.append(
            LineView(
                number,
                code,
                min(len(code) - len(code.lstrip()), MOST_INDENT) + HANGING,
                tuple(chips),
                _more(here),
                failing,
                why,
            )
        )
    return tuple(lines)


def _chip(call: Call, pictures: Sequence[Picture]) -> Chip:
    short, full = ("failed" if call.error else named_words(call.value, pictures, most) for most in (SHORT, MOST))
    said = f"call {call.index}: {call_words(call.name, call.arguments)} → {full}"
    return Chip(short, said, f"cv-call-{call.index}", call.error is not None)


def _more(calls: Sequence[Call]) -> str:
    rest = calls[MOST_VALUES:]
    if not rest:
        return ""
    failed = sum(call.error is not None for call in rest)
    return f"and {len(rest)} more" + (f", {failed} of them failed" if failed else "")
