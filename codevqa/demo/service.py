"""What the page's buttons do: they check what a visitor gave, start the engine and show what it tells."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.answer import Answer
from ..core.errors import CodeVQAError, ErrorRecord, InputError, ProgramLimitError, QuestionError
from ..core.events import Answered, Event, Failed
from ..core.images import Picture
from ..core.trace import Method
from ..engine.watch import Watch
from ..pages import trace_page
from .engines import Engines
from .history import Histories, Past
from .limits import DemoLimits
from .live import LiveQuestion, PageUpdate, answer_box, status_box
from .pictures import read_pictures
from .turn import Turn, follow
from .visitor import Visitor, Visitors
from .waiting_line import Place, WaitingLine

if TYPE_CHECKING:
    from ..engine.codevqa import CodeVQA

__all__ = ["DemoRequest", "DemoService"]

log = logging.getLogger(__name__)

OWN_FAULT = "The demo itself failed; whoever runs it finds out why in its terminal."


@dataclass(frozen=True)
class DemoRequest:
    """One question, or one program to run, as it came from the page or from a client."""

    pictures: Sequence[str]
    """Files on this machine that the visitor uploaded."""
    question: str
    preset: str
    method: str = "codevqa"
    shots: int | None = None
    program: str | None = None
    """A program to run; None has one written."""


class DemoService:
    """Serves visitors, each by themselves. Used on one event loop.

    Args:
        engines: the models.
        limits: what visitors may use.
        files: the folder of what they upload and download, and of nothing else.
    """

    def __init__(self, engines: Engines, limits: DemoLimits, files: Path) -> None:
        self.engines = engines
        self.limits = limits
        self.visitors = Visitors(limits)
        self.line = WaitingLine(limits)
        self.files = files
        self.histories = Histories(files, limits)
        self.each_question: Callable[[], None] = _nothing
        """Called as each question comes in."""

    async def serve(
        self, asked: DemoRequest, session: str
    ) -> AsyncGenerator[tuple[PageUpdate, LiveQuestion | None], None]:
        """Yields what to show, from the first look to the end; failures are shown, never raised.

        Args:
            asked: what is asked.
            session: of who asks.
        """
        live: LiveQuestion | None = None
        place: Place | None = None
        visitor: Visitor | None = None
        self.each_question()
        try:
            visitor = self.visitors.admit(session)
            visitor.asking += 1
            number = visitor.latest = visitor.begin()
            self.line.stir()  # an earlier question of theirs may wait, and ends now
            asked, pictures = await self._checked(asked)
            place = self.line.join()
            async with aclosing(self._wait(place, visitor, asked.preset)) as waits:
                async for view in waits:
                    yield view, None
            if visitor.turn != number:
                if visitor.latest == number:
                    yield _ended(), None
                return
            vqa = await asyncio.to_thread(self.engines.get, asked.preset)
            compare = asked.program is None and asked.method == "codevqa"
            live = LiveQuestion(
                pictures,
                compared=compare,
                question=asked.question,
                source=asked.program,
                without=_known_without(visitor, asked, pictures),
            )
            yield live.view, live
            turn = Turn(_begin(vqa, asked, pictures, visitor), _baseline(vqa, asked, pictures, visitor, compare))
            async with aclosing(follow(turn, live, visitor, self.limits.seconds)) as views:
                async for view in views:
                    if visitor.latest != number:  # what they turned to is shown by itself
                        live.stopped("Stopped.")
                        live.replaced = True
                        return
                    yield view, live
            visitor.without, visitor.pictures = live.without, pictures
        except CodeVQAError as error:
            yield _failed(live, error.record()), live
        except Exception:
            log.exception("a question of the demo failed")
            yield _failed(live, ErrorRecord("CodeVQAError", OWN_FAULT)), live
        finally:
            if visitor is not None:
                visitor.asking -= 1
            if place is not None:
                place.leave()

    async def _wait(self, place: Place, visitor: Visitor, preset: str) -> AsyncGenerator[PageUpdate, None]:
        """Yields what to show until a question's turn has come and its models are here, or it was stopped."""
        number = visitor.turn
        while place.before and visitor.turn == number:
            yield _waiting(f"Waiting: {place.before} before you.")
            await place.moved()
        # A question that was stopped while it waited loads no models.
        if visitor.turn == number and not self.engines.loaded(preset):
            yield _waiting(f"Loading the models of {preset}.")
            await asyncio.to_thread(self.engines.get, preset)

    async def answer(self, asked: DemoRequest, session: str) -> Answer:
        """Returns the answer alone, as a client of the API wants it; several of theirs may run side by side.

        A program of the client's that failed gives an answer with empty text and its error.

        Raises:
            CodeVQAError: there is no answer; the message says why.
        """
        self.each_question()
        visitor = self.visitors.admit(session)
        asked, pictures = await self._checked(asked)
        place = self.line.join()
        watch: Watch | None = None
        last: Event | None = None
        try:
            while place.before:
                await place.moved()
            vqa = await asyncio.to_thread(self.engines.get, asked.preset)
            watch = _begin(vqa, asked, pictures, visitor)
            visitor.running.append(watch)
            async with asyncio.timeout(self.limits.seconds):
                async for event in watch:
                    last = event
        except TimeoutError:
            raise InputError(f"Stopped: that took more than {self.limits.seconds:.0f} seconds.") from None
        finally:
            place.leave()
            if watch is not None:
                watch.cancel()
                if watch in visitor.running:
                    visitor.running.remove(watch)
        if isinstance(last, Answered):
            return _public(last.answer)
        if isinstance(last, Failed):
            if last.answer is None or asked.program is None:
                raise InputError(last.error.message)
            return _public(last.answer)
        raise InputError("Stopped.")

    async def keep(self, asked: DemoRequest, live: LiveQuestion, token: str) -> Past | None:
        """Keeps an answer, for its visitor to see again and to download; None where there is none.

        Args:
            asked: what was asked.
            live: what came of it.
            token: what the visitor's browser knows their earlier questions by.
        """
        if live.answer is None:
            return None
        answer, pictures, without = _public(live.answer), live.pictures, live.without
        view = replace(live.view, source=live.view.source or asked.program)
        try:
            written = await asyncio.to_thread(lambda: self.histories.write(view, trace_page(answer, pictures, without)))
        except OSError as error:  # the answer itself is shown already
            log.warning("an answer was not kept: %s", error.strerror)
            return None
        return self.histories.add(token, answer.question, answer.text, tuple(asked.pictures), written)

    def stop(self, session: str) -> bool:
        """Ends what runs for a visitor, also while it waits for its models; returns whether anything did."""
        visitor = self.visitors.known(session)
        if visitor is None:
            return False
        visitor.begin()
        self.line.stir()
        return visitor.asking > 0

    def turn_away(self, session: str) -> None:
        """Ends what runs for a visitor who looks at something else, which is not to be covered by how it ended."""
        visitor = self.visitors.known(session)
        if visitor is not None:
            visitor.latest = visitor.begin()
            self.line.stir()

    def forget(self, session: str) -> None:
        """Forgets a visitor who has gone."""
        self.visitors.forget(session)

    def close(self) -> None:
        """Ends everything that runs, and the engines."""
        self.visitors.clear()
        self.engines.close()

    async def _checked(self, asked: DemoRequest) -> tuple[DemoRequest, tuple[Picture, ...]]:
        """Returns what is asked, with the question in one line, and its pictures.

        Raises:
            InputError: something is missing, too long, or no picture.
            ProgramLimitError: the program is too long.
        """
        question = " ".join(asked.question.split())
        if len(question) > self.limits.question:
            raise QuestionError(
                f"The question has {len(question):,} characters.", hint=f"The limit is {self.limits.question:,}."
            )
        if asked.program is None and not question:
            raise QuestionError("The question is empty.", hint="Ask something about the pictures.")
        if asked.program is not None and not asked.program.strip():
            raise InputError("The program is empty.", hint="Ask a question first, or write one.")
        if len(asked.program or "") > self.limits.program:
            raise ProgramLimitError(
                f"the program has {len(asked.program or ''):,} characters",
                hint=f"The limit is {self.limits.program:,}.",
            )
        if asked.method not in ("codevqa", "pnpvqa"):
            raise InputError(f"No method {asked.method!r}.", hint="There are: codevqa, pnpvqa.")
        if asked.shots is not None and not 0 <= asked.shots <= self.limits.shots:
            raise InputError(f"{asked.shots} examples cannot be shown.", hint=f"The limit is {self.limits.shots}.")
        pictures = await asyncio.to_thread(read_pictures, asked.pictures, self.limits, self.files)
        return replace(asked, question=question, shots=asked.shots or None), pictures


def _nothing() -> None:
    pass


def _public(answer: Answer) -> Answer:
    """Returns the answer without the folders of this machine that models were loaded from."""
    names = {role: Path(name).name if Path(name).is_absolute() else name for role, name in answer.models.items()}
    return replace(answer, models=names)


def _begin(vqa: CodeVQA, asked: DemoRequest, pictures: tuple[Picture, ...], visitor: Visitor) -> Watch:
    if asked.program is not None:
        return vqa.watch_run(list(pictures), asked.program, question=asked.question, memory=visitor.memory)
    method: Method = "pnpvqa" if asked.method == "pnpvqa" else "codevqa"
    return vqa.watch(list(pictures), asked.question, method=method, shots=asked.shots, memory=visitor.memory)


def _baseline(
    vqa: CodeVQA, asked: DemoRequest, pictures: tuple[Picture, ...], visitor: Visitor, compare: bool
) -> Watch | None:
    if not compare:
        return None
    return vqa.watch(list(pictures), asked.question, method="pnpvqa", memory=visitor.memory)


def _known_without(visitor: Visitor, asked: DemoRequest, pictures: Sequence[Picture]) -> Answer | None:
    """Returns what the question of a program that the visitor changed got without one."""
    without = visitor.without if asked.program is not None else None
    same = without is not None and without.question == asked.question
    return without if same and [one.key for one in visitor.pictures] == [one.key for one in pictures] else None


def _ended() -> PageUpdate:
    return PageUpdate(answer_box("Answer", note="none: stopped"), status=status_box("Stopped."))


def _waiting(text: str) -> PageUpdate:
    return PageUpdate(answer_box("Answer", note="waiting ..."), status=status_box(text, busy=True))


def _failed(live: LiveQuestion | None, error: ErrorRecord) -> PageUpdate:
    if live is not None:
        live.failed(error)
        return live.view
    return PageUpdate.refusal(error.message)
