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
from ..pages.words import seconds

__all__ = ["LiveQuestion", "PageUpdate", "answer_box", "message_box", "status_box"]

CARDS = 3 << 20
"""Characters of call cards with their evidence; calls beyond show without. The trace page has all."""

_DECLINED = "no model was asked"
_WITHOUT = "Answered without a program"
_AGREED = {"agrees": "Both agree. ", "disagrees": "They differ. ", "": ""}


@dataclass(frozen=True)
class PageUpdate:
    """What the page shows of one question now."""

    answer: str = ""
    baseline: str = ""
    examples: str = ""
    program: str = ""
    calls: str = ""
    """Cards of the calls that ended; only ever grows, so that the browser is sent what is new."""
    running: str = ""
    """Card of the call that runs."""
    message: str = ""
    status: str = ""
    source: str | None = None
    """Text for the editor; None leaves alone what is there."""


class LiveQuestion:
    """Shows one question.

    Args:
        pictures: the pictures it is about.
        compared: whether it is answered without a program as well.
        question: what is asked, named above the answer.
        source: the program, where the visitor wrote it; the editor then keeps their text.
    """

    def __init__(
        self,
        pictures: Sequence[Picture],
        *,
        compared: bool,
        question: str = "",
        source: str | None = None,
    ) -> None:
        self.pictures = pictures
        self.question = question
        self.answer: Answer | None = None
        """The answer, or what was done until a program that the visitor wrote failed."""
        self.done = False
        self._examples: Sequence[Shown] = ()
        self._calls: list[Call] = []
        self._cards = ""
        self._compares = compared
        self.without: Answer | None = None
        """The answer without a program."""
        self._outcome = ""
        """What the status says from the end of the question on."""
        self._source = source or ""
        self._written = source is None
        baseline = answer_box(_WITHOUT, note="working ...") if compared else ""
        status = status_box("Looking at the pictures.", busy=True)
        self.view = PageUpdate(self._box(note="working ..."), baseline, status=status)
        if source is not None:
            self._show(program=pages.program_html(source), status=status_box("Checking the program.", busy=True))

    def waits(self, why: str) -> None:
        """Shows why it has not begun."""
        self._show(status=status_box(why, busy=True))

    def feed(self, event: Event) -> None:
        """Shows what an event tells of the question."""
        match event:
            case Prepared(examples):
                self._examples = examples
                self._show(
                    examples=_retrieved(examples, open=True), status=status_box("Writing the program.", busy=True)
                )
            case Writing(source):
                self._show(program=pages.program_html(source))
            case Wrote(program):
                self._wrote(program.source)
            case CallBegan():
                status = status_box(f"Running {event.name}(...), call {event.index}.", busy=True)
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
        """Shows what an event tells of the answer without a program."""
        if isinstance(event, Answered):
            self.without = event.answer
        elif isinstance(event, Failed):
            self._show(baseline=answer_box(_WITHOUT, note=f"failed: {event.error.message}"))
        if isinstance(event, Answered | Failed):
            self._compares = False
            self._settle()

    @property
    def pending(self) -> bool:
        """Whether the answer, or the one without a program, has not come yet."""
        return not self.done or self._compares

    def stopped(self, why: str) -> None:
        """Shows that the question was ended before its answer."""
        if self.answer is None:
            self._show(answer=self._box(note="none: stopped"))
        self._outcome = self._outcome or why
        self._end()

    def failed(self, error: ErrorRecord) -> None:
        """Shows a failure outside of the question itself."""
        self._failed(error, None)
        self._end()

    def _end(self) -> None:
        if self._compares:
            self._compares = False
            self._show(baseline=answer_box(_WITHOUT, note="none: stopped"))
        self._show(running="")
        self._settle()

    def _settle(self) -> None:
        """Says how it ended, what is still under way, and whether the two answers agree."""
        if self._outcome and self._compares:
            self._show(status=status_box(f"{self._outcome} Answering without a program ...", busy=True))
        elif self._outcome:
            self._show(status=status_box(self._outcome))
        if (without := self.without) is not None:
            agreed = _AGREED[pages.agreement(self.answer, without) if self.answer else ""]
            note = _DECLINED if without.declined else f"{agreed}{seconds(without.seconds)}"
            self._show(baseline=answer_box(_WITHOUT, without.text, note))

    def _box(self, text: str = "", note: str = "") -> str:
        return answer_box("Answer", text, note, self.question)

    # -- events ------------------------------------------------------------------------------------------------------

    def _wrote(self, source: str) -> None:
        self._source = source
        # What is of interest now comes below them, so they fold.
        self._show(examples=_retrieved(self._examples, open=False))
        self._show(program=pages.program_html(source), status=status_box("Checking the program.", busy=True))
        if self._written:
            self._show(source=source)

    def _ended(self, call: Call) -> None:
        self._calls.append(call)
        crowded = len(self._cards) > CARDS
        self._cards += pages.call_html(replace(call, evidence=()) if crowded else call, self.pictures)
        program = pages.program_html(self._source, self._calls, pictures=self.pictures)
        self._show(calls=self._cards, running="", program=program)

    def _rejected(self, event: Rejected) -> None:
        then = {"repair": "It is written again.", "fallback": "The question is answered without one.", "nothing": ""}
        program = pages.program_html(event.program.source, self._calls, event.error)
        message = message_box(f"The program failed: {event.error.message} {then[event.next]}", kind="note")
        self._show(program=program, running="", message=message)

    def _answered(self, answer: Answer) -> None:
        self.answer, self.done = answer, True
        note = seconds(answer.seconds)
        if answer.declined:
            note = _DECLINED
        elif answer.fallback:
            note = f"without a program, because the program failed: {note}"
        elif answer.method == "pnpvqa":
            note = f"without a program: {note}"
        evidence = "".join(pages.evidence_html(one, self.pictures) for one in answer.trace.baseline)
        # As on the trace page: what was compared follows the program.
        shown = pages.comparisons_html(self._source, self._calls, self.pictures) + self._cards + evidence
        self._show(answer=self._box(answer.text or "(nothing)", note), calls=shown, running="")
        self._outcome = _done(answer)
        self._settle()
        if answer.warnings:
            self._show(message="".join(message_box(one.message, kind="note") for one in answer.warnings))

    def _failed(self, error: ErrorRecord, answer: Answer | None) -> None:
        self.answer, self.done = answer, True
        self._show(answer=self._box(note="none"), running="", message=message_box(error.message))
        self._outcome = "Failed."
        self._settle()
        if self._source and error.type.startswith("Program"):
            self._show(program=pages.program_html(self._source, self._calls, error))

    def _show(self, **pieces: str) -> None:
        self.view = replace(self.view, **pieces)


def answer_box(title: str, text: str = "", note: str = "", question: str = "") -> str:
    """Returns a box with a title, what was asked, a big text and a small note."""
    asked = f'<p class="demo-asked">{escape(question)}</p>' if question else ""
    big = f'<p class="demo-big">{escape(text)}</p>' if text else ""
    small = f'<p class="demo-small">{escape(note)}</p>' if note else ""
    return f'<section class="demo-box"><h2>{escape(title)}</h2>{asked}{big}{small}</section>'


def message_box(text: str, *, kind: str = "error") -> str:
    """Returns a message that screen readers say at once."""
    return f'<div class="demo-message demo-{escape(kind)}" role="alert">{escape(" ".join(text.split()))}</div>'


def status_box(text: str, *, busy: bool = False) -> str:
    """Returns a line on how far things are, which screen readers say when they have time.

    Args:
        text: what it says.
        busy: whether something runs: the page's script reads it there, and has Stop or Ask pressed accordingly.
    """
    return f'<div class="demo-status"{" data-busy" if busy else ""} role="status">{escape(text)}</div>'


def _retrieved(examples: Sequence[Shown], *, open: bool) -> str:
    if not examples:
        return ""
    count = f"{len(examples)} worked example{'' if len(examples) == 1 else 's'}"
    return (
        f'<details class="demo-retrieved"{" open" if open else ""}><summary>{count} that the language'
        f" model was shown</summary>{pages.examples_html(examples)}</details>"
    )


def _done(answer: Answer) -> str:
    calls = len(answer.trace.calls)
    if not calls:
        return f"Done in {seconds(answer.seconds)}."
    remembered = sum(call.remembered for call in answer.trace.calls)
    plural = "" if calls == 1 else "s"
    memory = f", {remembered} of them from memory" if remembered else ""
    return f"Done in {seconds(answer.seconds)}: {calls} call{plural}{memory}."
