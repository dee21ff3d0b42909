"""One question as the page shows it: events go in, pieces of HTML come out.

Everything that a user, a model or a picture says becomes HTML in :mod:`codevqa.pages`, or is escaped here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape

from .. import pages
from ..core.answer import Answer
from ..core.errors import ErrorRecord
from ..core.events import Answered, CallBegan, CallEnded, Event, Failed, Prepared, Rejected, Shown, Writing, Wrote
from ..core.images import Picture
from ..core.trace import Call

__all__ = ["LiveQuestion", "PageUpdate", "answer_box", "message_box", "status_box"]

CARDS = 3 << 20
"""Characters of call cards with their evidence; calls beyond show without. The trace page has all."""


@dataclass(frozen=True)
class PageUpdate:
    """What the page shows of one question now; equal pieces are sent once, and None leaves alone what is there."""

    answer: str | None = ""
    baseline: str | None = ""
    examples: str | None = ""
    program: str | None = ""
    calls: str | None = ""
    """Cards of the calls that ended; only ever grows, so that the browser is sent what is new."""
    running: str | None = ""
    """Card of the call that runs."""
    message: str | None = ""
    status: str | None = ""
    source: str | None = None
    """Text for the editor."""

    @classmethod
    def notice(cls, message: str) -> PageUpdate:
        """Returns a message alone: what was shown before stays."""
        return cls(None, None, None, None, None, None, message_box(message), status_box("Ready."))


class LiveQuestion:
    """Shows one question.

    Args:
        pictures: the pictures it is about.
        compared: whether the plain baseline is asked beside it.
        source: the program, where the visitor wrote it; the editor then keeps their text.
    """

    def __init__(self, pictures: Sequence[Picture], *, compared: bool, source: str | None = None) -> None:
        self.pictures = pictures
        self.answer: Answer | None = None
        """The answer, or what was done until a program that the visitor wrote failed."""
        self.done = False
        self._examples: Sequence[Shown] = ()
        self._calls: list[Call] = []
        self._cards = ""
        self._compares = compared
        self._source = source or ""
        self._written = source is None
        waiting = answer_box("Plain baseline", note="reading captions ...") if compared else ""
        # A program that the visitor changed is still compared with the baseline of its question.
        baseline = waiting if source is None else None
        self.view = PageUpdate(
            answer_box("Answer", note="working ..."), baseline, status=status_box("Looking at the pictures.")
        )
        if source is not None:
            self._show(program=pages.program_html(source), status=status_box("Checking the program."))

    def feed(self, event: Event) -> None:
        """Shows what an event tells of the question."""
        match event:
            case Prepared(examples):
                self._examples = examples
                self._show(examples=_retrieved(examples, open=True), status=status_box("Writing the program."))
            case Writing(source):
                self._show(program=pages.program_html(source))
            case Wrote(program):
                self._wrote(program.source)
            case CallBegan():
                status = status_box(f"Running {event.name}(...), call {event.index}.")
                self._show(running=pages.running_html(event), status=status)
            case CallEnded(call):
                self._ended(call)
            case Rejected():
                self._rejected(event)
            case Answered(answer):
                self._answered(answer)
            case Failed(error, answer):
                self._failed(error, answer)

    def feed_baseline(self, event: Event) -> None:
        """Shows what an event tells of the baseline."""
        if isinstance(event, Answered | Failed):
            self._compares = False
        if isinstance(event, Answered):
            note = f"plain PnP-VQA, without a program: {_cost(event.answer)}"
            self._show(baseline=answer_box("Plain baseline", event.answer.text, note))
        elif isinstance(event, Failed):
            self._show(baseline=answer_box("Plain baseline", note=f"failed: {event.error.message}"))

    @property
    def pending(self) -> bool:
        """Whether the answer, or the baseline beside it, has not come yet."""
        return not self.done or self._compares

    def stopped(self, why: str) -> None:
        """Shows that the question was ended before its answer."""
        if self.answer is None:
            self._show(answer=answer_box("Answer", note="none: stopped"))
        self._end_baseline()
        self._show(running="", status=status_box(why))

    def failed(self, error: ErrorRecord) -> None:
        """Shows a failure outside of the question itself."""
        self._failed(error, None)
        self._end_baseline()

    def _end_baseline(self) -> None:
        if self._compares:
            self._show(baseline=answer_box("Plain baseline", note="none: stopped"))

    # -- events ------------------------------------------------------------------------------------------------------

    def _wrote(self, source: str) -> None:
        self._source = source
        # What is of interest now comes below them, so they fold.
        self._show(examples=_retrieved(self._examples, open=False))
        self._show(program=pages.program_html(source), status=status_box("Checking the program."))
        if self._written:
            self._show(source=source)

    def _ended(self, call: Call) -> None:
        self._calls.append(call)
        crowded = len(self._cards) > CARDS
        self._cards += pages.call_html(replace(call, evidence=()) if crowded else call, self.pictures)
        program = pages.program_html(self._source, self._calls)
        self._show(calls=self._cards, running="", program=program)

    def _rejected(self, event: Rejected) -> None:
        then = {"repair": "It is written again.", "fallback": "Plain PnP-VQA answers instead.", "nothing": ""}
        program = pages.program_html(event.program.source, self._calls, event.error)
        message = message_box(f"The program failed: {event.error.message} {then[event.next]}", kind="note")
        self._show(program=program, running="", message=message)

    def _answered(self, answer: Answer) -> None:
        self.answer, self.done = answer, True
        note = _cost(answer)
        if answer.fallback:
            note = f"from plain PnP-VQA, because the program failed: {note}"
        elif answer.method == "pnpvqa":
            note = f"plain PnP-VQA, without a program: {note}"
        evidence = "".join(pages.evidence_html(one, self.pictures) for one in answer.trace.baseline)
        self._show(
            answer=answer_box("Answer", answer.text or "(nothing)", note),
            calls=self._cards + evidence,
            running="",
            status=status_box(_done(answer)),
        )

    def _failed(self, error: ErrorRecord, answer: Answer | None) -> None:
        self.answer, self.done = answer, True
        self._show(
            answer=answer_box("Answer", note="none"),
            running="",
            message=message_box(error.message),
            status=status_box("Failed."),
        )
        if self._source and error.type.startswith("Program"):
            self._show(program=pages.program_html(self._source, self._calls, error))

    def _show(self, **pieces: str | None) -> None:
        self.view = replace(self.view, **pieces)


def answer_box(title: str, text: str = "", note: str = "") -> str:
    """Returns a box with a title, a big text and a small note."""
    big = f'<p class="demo-big">{escape(text)}</p>' if text else ""
    small = f'<p class="demo-small">{escape(note)}</p>' if note else ""
    return f'<section class="demo-box"><h2>{escape(title)}</h2>{big}{small}</section>'


def message_box(text: str, *, kind: str = "error") -> str:
    """Returns a message that screen readers say at once."""
    return f'<div class="demo-message demo-{escape(kind)}" role="alert">{escape(" ".join(text.split()))}</div>'


def status_box(text: str) -> str:
    """Returns a line on how far things are, which screen readers say when they have time."""
    return f'<div class="demo-status" role="status">{escape(text)}</div>'


def _retrieved(examples: Sequence[Shown], *, open: bool) -> str:
    if not examples:
        return ""
    count = f"{len(examples)} example{'' if len(examples) == 1 else 's'}"
    return (
        f'<details class="demo-retrieved"{" open" if open else ""}><summary>{count} retrieved and shown to the'
        f" language model</summary>{pages.examples_html(examples)}</details>"
    )


def _cost(answer: Answer) -> str:
    return f"{answer.seconds:.2f} s, {answer.tokens:,} tokens"


def _done(answer: Answer) -> str:
    calls = len(answer.trace.calls)
    if not calls:
        return f"Done in {answer.seconds:.2f} s."
    remembered = sum(call.remembered for call in answer.trace.calls)
    plural = "" if calls == 1 else "s"
    memory = f", {remembered} of them from memory" if remembered else ""
    return f"Done in {answer.seconds:.2f} s: {calls} call{plural}{memory}."
