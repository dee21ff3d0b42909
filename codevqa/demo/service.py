"""What the page's buttons do: they check what a visitor gave, start the engine and show what it tells."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..batching.call_cache import Memory
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
from .turn import Turn, Visitor, follow

if TYPE_CHECKING:
    from ..engine.codevqa import CodeVQA

__all__ = ["DemoRequest", "DemoService"]

log = logging.getLogger(__name__)

LOOK = 0.05
"""Seconds between two looks at whether a question's turn has come."""
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
        self.files = files
        self.histories = Histories(files, limits)
        self.each_question: Callable[[], None] = lambda: None
        """Called as each question comes in."""
        self._visitors: dict[str, Visitor] = {}
        """By session, who was away longest first."""
        self._line: list[Turn] = []
        """The questions that are worked on, and behind them those that wait."""

    async def serve(
        self, asked: DemoRequest, session: str
    ) -> AsyncGenerator[tuple[PageUpdate, LiveQuestion | None], None]:
        """Yields what to show, from the first look to the end; failures are shown, never raised.

        Args:
            asked: what is asked; it ends what the same visitor asked before.
            session: of who asks.
        """
        live: LiveQuestion | None = None
        self.each_question()
        visitor = self.visitor(session)
        visitor.end(replaced=True)
        try:
            with self._turn(visitor) as turn:
                asked, pictures = await self._checked(asked)
                async with aclosing(self._wait(turn, asked.preset)) as waits:
                    async for view in waits:
                        yield view, None
                if turn.ended:
                    if not turn.replaced:
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
                turn.begin(_begin(vqa, asked, pictures, visitor, compare))
                async with aclosing(follow(turn, live, self.limits.seconds)) as views:
                    async for view in views:
                        if turn.replaced:  # what they turned to is shown by itself
                            live.stopped("Stopped.")
                            live.replaced = True
                            return
                        yield view, live
                visitor.without, visitor.pictures = live.without, tuple(one.key for one in pictures)
        except CodeVQAError as error:
            yield _failed(live, error.record()), live
        except Exception:
            log.exception("a question of the demo failed")
            yield _failed(live, ErrorRecord("CodeVQAError", OWN_FAULT)), live

    async def answer(self, asked: DemoRequest, session: str) -> Answer:
        """Returns the answer alone, as a client of the API wants it; several of theirs may run side by side.

        A program of the client's that failed gives an answer with empty text and its error.

        Raises:
            CodeVQAError: there is no answer; the message says why.
        """
        self.each_question()
        visitor = self.visitor(session)
        last: Event | None = None
        with self._turn(visitor) as turn:
            asked, pictures = await self._checked(asked)
            async for _ in self._wait(turn, asked.preset):
                pass
            if turn.ended:
                raise InputError("Stopped.")
            vqa = await asyncio.to_thread(self.engines.get, asked.preset)
            turn.begin(_begin(vqa, asked, pictures, visitor, compare=False))
            try:
                async with asyncio.timeout(self.limits.seconds):
                    async for event in turn.watches[0]:
                        last = event
            except TimeoutError:
                raise InputError(f"Stopped: that took more than {self.limits.seconds:.0f} seconds.") from None
        if isinstance(last, Answered):
            return _public(last.answer)
        if isinstance(last, Failed):
            if last.answer is None or asked.program is None:
                raise InputError(last.error.message)
            return _public(last.answer)
        raise InputError("Stopped.")

    @contextmanager
    def _turn(self, visitor: Visitor) -> Iterator[Turn]:
        turn = Turn()
        visitor.turns.append(turn)
        try:
            yield turn
        finally:
            turn.end()
            visitor.turns.remove(turn)
            if turn in self._line:
                self._line.remove(turn)

    async def _wait(self, turn: Turn, preset: str) -> AsyncGenerator[PageUpdate, None]:
        """Yields what to show until a question's turn has come and its models are here, or it was stopped.

        Raises:
            InputError: too many wait already.
        """
        if (waiting := len(self._line) - self.limits.at_once) >= self.limits.queue:
            raise InputError(f"The server is busy: {waiting} questions are waiting.", hint="Ask again in a while.")
        self._line.append(turn)
        told = 0
        while (before := self._line.index(turn) - self.limits.at_once + 1) > 0 and not turn.ended:
            if before != told:
                yield _waiting(f"Waiting: {before} before you.")
            told = before
            await asyncio.sleep(LOOK)
        # A question that was stopped while it waited loads no models.
        if not turn.ended and not self.engines.loaded(preset):
            yield _waiting(f"Loading the models of {preset}.")
            await asyncio.to_thread(self.engines.get, preset)

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

    def visitor(self, session: str) -> Visitor:
        """Returns the visitor of a session; beyond the limit, who was away longest and asks nothing is forgotten."""
        visitor = self._visitors.pop(session, None) or Visitor(Memory(self.limits.memory_bytes))
        if len(self._visitors) >= self.limits.visitors:
            idle = next((name for name, one in self._visitors.items() if not one.turns), None)
            self._visitors.pop(idle or next(iter(self._visitors))).end()
        self._visitors[session] = visitor
        return visitor

    def stop(self, session: str) -> bool:
        """Ends what runs for a visitor, also while it waits for its models; returns whether anything did."""
        return self.visitor(session).end()

    def turn_away(self, session: str) -> None:
        """Ends what runs for a visitor who looks at something else, which is not to be covered by how it ended."""
        self.visitor(session).end(replaced=True)

    def forget(self, session: str) -> None:
        """Forgets a visitor who has gone."""
        if (visitor := self._visitors.pop(session, None)) is not None:
            visitor.end()

    def close(self) -> None:
        """Ends everything that runs, and the engines."""
        for session in list(self._visitors):
            self.forget(session)
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


def _public(answer: Answer) -> Answer:
    """Returns the answer without the folders of this machine that models were loaded from."""
    names = {role: Path(name).name if Path(name).is_absolute() else name for role, name in answer.models.items()}
    return replace(answer, models=names)


def _begin(
    vqa: CodeVQA, asked: DemoRequest, pictures: tuple[Picture, ...], visitor: Visitor, compare: bool
) -> list[Watch]:
    """Begins to answer, and beside it to answer without a program where the two are compared."""
    images, memory = list(pictures), visitor.memory
    if asked.program is not None:
        return [vqa.watch_run(images, asked.program, question=asked.question, memory=memory)]
    method: Method = "pnpvqa" if asked.method == "pnpvqa" else "codevqa"
    begun = [vqa.watch(images, asked.question, method=method, shots=asked.shots, memory=memory)]
    return begun + ([vqa.watch(images, asked.question, method="pnpvqa", memory=memory)] if compare else [])


def _known_without(visitor: Visitor, asked: DemoRequest, pictures: Sequence[Picture]) -> Answer | None:
    """Returns what the question of a program that the visitor changed got without one."""
    without = visitor.without if asked.program is not None else None
    same = without is not None and without.question == asked.question
    return without if same and visitor.pictures == tuple(one.key for one in pictures) else None


def _ended() -> PageUpdate:
    return PageUpdate(answer_box("Answer", note="none: stopped"), status=status_box("Stopped."))


def _waiting(text: str) -> PageUpdate:
    return PageUpdate(answer_box("Answer", note="waiting ..."), status=status_box(text, busy=True))


def _failed(live: LiveQuestion | None, error: ErrorRecord) -> PageUpdate:
    if live is not None:
        live.failed(error)
        return live.view
    return PageUpdate.refusal(error.message)
