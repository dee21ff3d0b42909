"""One question as the page shows it: events go in, pieces of HTML come out.

Everything that a user, a model or a picture says becomes HTML in :mod:`codevqa.pages`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import replace
from difflib import unified_diff
from typing import NamedTuple

from .. import pages
from ..core.answer import Answer
from ..core.answer_words import DONT_KNOW
from ..core.errors import ErrorRecord
from ..core.events import (
    Answered,
    CallBegan,
    CallEnded,
    Event,
    Failed,
    Prepared,
    PromptExample,
    Rejected,
    Writing,
    Wrote,
)
from ..core.images import Picture
from ..core.notices import current
from ..core.trace import Call, Method
from ..pages.words import seconds

log = logging.getLogger(__name__)

CARDS = 3 << 20
"""Characters of call cards with their evidence. Calls beyond show without it. The trace page has all."""

_DECLINED = "not asked: outside of what these models know"
_STOPPED = "stopped before an answer"
_WORKING = "working ..."
_TITLES = {"direct": "No program, asked directly", "pnpvqa": "No program, from captions (PnP-VQA)"}
_OPTIONS = re.compile(r"(?<!\S)--[a-z]|\bcodevqa [a-z]|\bpip install|\b[A-Z]{3,}_[A-Z]")
"""What only somebody at a command line can use: options, commands, variables of the environment."""
_FAILED = "The page cannot answer. The reason is in its log."
_NEXT = {
    "repair": " It is written again.",
    "others": " Other programs are run.",
    "fallback": " The question is answered without one.",
    "nothing": "",
}
_AGREED = {"agrees": "Same answer. ", "disagrees": "Another answer. ", "": ""}


class PageUpdate(NamedTuple):
    """What the page shows of one question now, in the order of the page's parts."""

    message: str
    status: str
    answer: str
    baseline: str
    gallery: str
    """The pictures, where they are many: those that count first."""
    examples: str
    program: str
    calls: str
    """Cards of the calls that ended. It only ever grows, so that the browser is sent what is new."""
    running: str
    """Card of the call that runs."""
    source: str | None
    """Text for the editor. None leaves it alone."""


class LiveQuestion:
    """What is known of one question so far.

    Args:
        question: is named above the answer.
        source: the program, if the visitor wrote it. The editor then keeps their text.
        compared: how the question is answered without a program as well.
        original: what the visitor's program was before they changed it; empty where they wrote all of it.
    """

    def __init__(
        self, question: str = "", source: str | None = None, *, compared: Sequence[Method] = (), original: str = ""
    ) -> None:
        self.question = question
        self.pictures: Sequence[Picture] = ()
        self.corrections: dict[tuple[str, str], bool] = {}
        """What the visitor said of pictures, by their key and what was asked of them."""
        self.answer: Answer | None = None
        """The answer, or what was done until a program of the visitor's failed."""
        self.error: ErrorRecord | None = None
        """Why there is no answer."""
        self.without: dict[Method, Answer | str] = dict.fromkeys(compared, _WORKING)
        """The answers without a program by their method, or why there is none."""
        self.stage = "Looking at the pictures."
        self._note, self._outcome = _WORKING, ""
        self._messages: list[tuple[str, str]] = []
        self._examples: Sequence[PromptExample] = ()
        self._own, self._source, self._writing = source is not None, source or "", True
        self._edited = None if source is None else _diff_program(original, source)
        self._rejected: ErrorRecord | None = None
        self.calls: list[Call] = []
        """Those that ended."""
        self._running: CallBegan | None = None
        self._cards, self._carded = "", 0

    # -- events ------------------------------------------------------------------------------------------------------

    def feed(self, event: Event) -> None:
        """Takes what an event tells of the question."""
        match event:
            case Prepared(examples):
                self._examples, self.stage = examples, "Writing the program."
            case Writing(source):
                self._source, self._rejected = source, None
            case Wrote(program):
                self._source, self._rejected, self._writing = program.source, None, False
                self.stage = "Checking the program."
            case CallBegan():
                self._running, self.stage = event, f"Running {event.name}(...), call {event.index}."
            case CallEnded(call):
                self._running = None
                self.calls.append(call)
            case Rejected(program, error):
                self._source, self._rejected, self._running = program.source, error, None
                self._messages = [(f"The program failed: {error.message}{_NEXT[event.next]}", "note")]
            case Answered(answer):
                self.answer, self._running = answer, None
                self._outcome = f"Done in {seconds(answer.seconds)}."
                if answer.warnings:
                    self._messages = [(visitor_words(warning.message), "note") for warning in answer.warnings]
            case Failed(error, answer):
                self.answer = answer
                self.fail(error)

    def feed_without(self, method: Method, event: Event) -> None:
        """Takes what an event tells of the answer that a method gives without a program."""
        if isinstance(event, Answered):
            self.without[method] = event.answer
        elif isinstance(event, Failed):
            why = _words_and_log(event.error.message)
            same = self.error is not None and self.error.message == why  # it stands there already
            self.without[method] = "failed" if same else f"failed: {why}"

    def replay(self, answer: Answer, without: Answer) -> None:
        """Takes a question that was answered before, with an answer without a program."""
        if answer.program is not None:
            self.feed(Wrote(answer.program))
        for call in answer.trace.calls:
            self.feed(CallEnded(call))
        self.feed(Answered(answer))
        self.feed_without(without.method, Answered(without))

    def fail(self, error: ErrorRecord) -> None:
        """Ends the question itself with an error."""
        if error.type.startswith("Program"):  # it speaks of the program, which may hold any words
            self._rejected = error
        else:
            error = replace(error, message=_words_and_log(error.message))
        self.error, self._running = error, None
        self._note, self._outcome = "no answer", "Failed."
        self._messages = [(error.message, "error")]

    def end(self, why: str) -> None:
        """Ends what is still under way."""
        if not self._outcome:
            self._note, self._outcome, self._running = _STOPPED, why, None
            self.error = ErrorRecord("InputError", why)
        self.without = {method: _STOPPED if kept == _WORKING else kept for method, kept in self.without.items()}

    @property
    def many(self) -> bool:
        """Whether a gallery is shown in place of each picture."""
        return len(self.pictures) > pages.LARGE

    # -- pieces of the page ------------------------------------------------------------------------------------------

    def view(self) -> PageUpdate:
        """Returns what the page shows. This draws heat maps, which takes time."""
        failed = self._rejected and replace(self._rejected, message="")  # it stands above already
        waits = "" if self._outcome and _WORKING not in self.without.values() else current()
        messages = [*self._messages, (f"{waits[0].upper()}{waits[1:]}", "note")] if waits else self._messages
        return PageUpdate(
            "".join(pages.demo_html("message", *message) for message in messages),
            self._status(),
            self._answer_box(),
            "".join(self._box_without(method, kept) for method, kept in self.without.items()),
            self._gallery_html(),
            self._examples_html(),
            pages.program_html(self._source, self.calls, failed, self.pictures) if self._source else "",
            self._calls_html(),
            pages.call_html(self._running) if self._running else "",
            "" if self.answer and not self.answer.program else None if self._own or self._writing else self._source,
        )

    def _status(self) -> str:
        if self._outcome and _WORKING not in self.without.values():
            return pages.demo_html("status", self._outcome)
        return pages.demo_html("status", "Answering without a program." if self._outcome else self.stage, "busy")

    def _answer_box(self) -> str:
        answer = self.answer
        if answer is None or self.error is not None:
            return pages.demo_html("box", "Answer", "", self._note, self.question, self._edited)
        note = seconds(answer.seconds)
        if answer.declined:
            note = _DECLINED
        elif answer.fallback:
            note = f"{note}, without a program because the program failed"
        elif answer.method != "codevqa":
            note = f"{note}, without a program"
        text, unsure = answer.text or "(nothing)", answer.text == DONT_KNOW
        return pages.demo_html("box", "Answer", text, note, self.question, self._edited, unsure)

    def _box_without(self, method: Method, kept: Answer | str) -> str:
        """Returns the box of an answer without a program, with its evidence folded."""
        if isinstance(kept, str):
            return pages.demo_html("box", _TITLES[method], "", kept)
        agreed = _AGREED[pages.agreement(self.answer, kept) if self.answer else ""]
        note = _DECLINED if kept.declined else f"{agreed}{seconds(kept.seconds)}"
        evidence = "".join(pages.evidence_html(entry, self.pictures) for entry in kept.trace.baseline)
        return pages.demo_html("box", _TITLES[method], kept.text, note, "", None, False, evidence)

    def _gallery_html(self) -> str:
        if not self.many or self.answer is None or self.error is not None:
            return ""
        help_ = "Click a picture to see what the models saw in it, and to correct them."
        return f'<p class="demo-small">{help_}</p>{pages.gallery_html(self.answer, self.pictures)}'

    def _examples_html(self) -> str:
        """Returns the examples, closed: what opens by itself pushes down what somebody reads."""
        if not self._examples:
            return ""
        count = f"{len(self._examples)} worked example{'' if len(self._examples) == 1 else 's'}"
        return (
            f'<details class="demo-retrieved"><summary>{count} that the language model was shown</summary>'
            f"{pages.examples_html(self._examples)}</details>"
        )

    def _calls_html(self) -> str:
        """Returns the cards of calls; at the end what was compared stands before them, as on the trace page."""
        if self.many:  # hundreds of cards are no use to anybody
            return pages.calls_html(self.calls, self.pictures) if self._outcome else ""
        for call in self.calls[self._carded :]:
            crowded = len(self._cards) > CARDS
            self._cards += pages.call_html(replace(call, evidence=()) if crowded else call, self.pictures)
            self._carded += 1
        if self.answer is None or self.error is not None:
            return self._cards
        evidence = "".join(pages.evidence_html(entry, self.pictures) for entry in self.answer.trace.baseline)
        return pages.comparisons_html(self._source, self.calls, self.pictures) + self._cards + evidence


def opened_html(number: int, answer: Answer, pictures: Sequence[Picture]) -> str:
    """Returns one picture of a gallery: why it was answered so, and two buttons to correct that."""
    cards = "".join(pages.call_html(call, pictures) for call in answer.trace.calls)
    name = pictures[number - 1].name or f"image {number}"
    return pages.demo_html("opened", number, name, answer.text or "(nothing)", cards)


def _diff_program(original: str, source: str) -> tuple[str, list[str]]:
    """Returns whose program ran, and the lines that a visitor changed beside those they replaced."""
    lines = list(unified_diff(original.splitlines(), source.splitlines(), n=0, lineterm=""))[2:]
    changed = [line for line in lines if not line.startswith("@@")]
    if not original.strip():
        return "own program", []
    return "edited program" if changed else "program run again", changed


def visitor_words(text: str) -> str:
    """Returns a message without its sentences that only somebody at a command line can use."""
    kept = [part for part in re.split(r"(?<=[.;!?])\s+", text) if not _OPTIONS.search(part)]
    return " ".join(kept).rstrip(";") or _FAILED


def _words_and_log(text: str) -> str:
    """Returns what a visitor reads of a failure; what is left out goes to the log, for whoever runs the page."""
    words = visitor_words(text)
    if words != text:
        log.warning("a visitor's question failed: %s", text)
    return words
