"""What one question does, told while it does it.

:meth:`codevqa.CodeVQA.watch` yields these events in the order things happen; the last one carries the answer, or the
error that ended the question. They are frozen data: whoever shows them needs nothing else.

    with vqa.watch("picture.png", "What color is the star?") as watch:
        for event in watch:
            match event:
                case Writing(source):
                    ...
                case CallEnded(call):
                    ...
                case Answered(answer):
                    ...
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, TypeAlias

from .errors import CodeVQAError, ErrorRecord
from .program import Answer, Call, Plain, Program

__all__ = [
    "Answered",
    "CallBegan",
    "CallEnded",
    "Event",
    "Failed",
    "Prepared",
    "Rejected",
    "Shown",
    "Tell",
    "Watch",
    "Writing",
    "Wrote",
]


@dataclass(frozen=True)
class Shown:
    """One in-context example that the language model is shown."""

    id: str
    question: str
    program: str
    """With the line that opens its image, as the prompt shows it."""


@dataclass(frozen=True)
class Prepared:
    """The pictures are read and the prompt is made: these examples were picked, in the order shown.

    Not told where there is no prompt: of the baseline, and of a program that the user wrote.
    """

    examples: tuple[Shown, ...]
    prompt: str
    """Exactly what the language model sees."""


@dataclass(frozen=True)
class Writing:
    """The program as far as it is written; each replaces the one before.

    Language models that cannot tell skip this, and so do programs that come from memory. Where nobody takes events for
    a while, only the newest of these is kept.
    """

    source: str


@dataclass(frozen=True)
class Wrote:
    """A program is written, or was given by the user, and goes to the check and then runs."""

    program: Program


@dataclass(frozen=True)
class CallBegan:
    """The program calls a primitive and waits for it."""

    index: int
    """Counted from 1, as in the :class:`~codevqa.Call` that ends it."""
    name: str
    arguments: Mapping[str, Plain]
    line: int | None


@dataclass(frozen=True)
class CallEnded:
    """The primitive has answered, or failed."""

    call: Call


@dataclass(frozen=True)
class Rejected:
    """A program failed its check or its run. Another may be written, or the plain answer take its place."""

    program: Program
    error: ErrorRecord
    next: Literal["repair", "fallback", "nothing"]


@dataclass(frozen=True)
class Answered:
    """The end, with everything. Its trace holds all calls told before."""

    answer: Answer


@dataclass(frozen=True)
class Failed:
    """The end without an answer: the pictures, the question, a model or (where the user wrote it) the program."""

    error: ErrorRecord
    answer: Answer | None = None
    """What was done until then, with an empty text and this error: its trace holds the calls that ran, which are not
    lost. None where the pictures or the question could not be used at all."""


Event: TypeAlias = Prepared | Writing | Wrote | CallBegan | CallEnded | Rejected | Answered | Failed
"""Any of them; tell them apart with ``match``."""

Tell: TypeAlias = Callable[[Event], None]
"""Takes an event; called from the engine's thread, or from a model's. Quick, and never raises."""


class Watch:
    """One question under way, as its events: iterate over it from any thread, or with ``async for`` from any loop.

    It begins when it is made. The last event is :class:`Answered` or :class:`Failed`; an error of this package's never
    comes out of the iteration in any other way. Events wait here until somebody takes them, each once; the engine never
    waits. Leaving a ``with`` block over it cancels what still runs, and so does forgetting it.

    Args:
        begin: begins the question, given what to tell.
    """

    def __init__(self, begin: Callable[[Tell], Future[Answer]]) -> None:
        # What the engine holds is the inbox: a watch that nobody holds any more can be seen to be forgotten.
        self._inbox = _Inbox()
        self._future = begin(self._inbox.put)
        self._future.add_done_callback(self._inbox.end)

    @property
    def answer(self) -> Answer | None:
        """The answer, once :class:`Answered` has been told; also before anybody has taken that event."""
        return self._inbox.answer

    @property
    def done(self) -> bool:
        """Whether nothing runs any more; events may still wait to be taken."""
        return self._future.done()

    def cancel(self) -> None:
        """Ends the question and the iteration, from any thread; harmless where it has ended.

        Model calls that nobody else waits for are taken back; a batch that runs already ends by itself.
        """
        self._inbox.close()
        self._future.cancel()

    def __iter__(self) -> Watch:
        return self

    def __next__(self) -> Event:
        event = self._inbox.wait()
        if event is None:
            raise StopIteration
        return event

    def __aiter__(self) -> Watch:
        return self

    async def __anext__(self) -> Event:
        event = await self._inbox.wait_async()
        if event is None:
            raise StopAsyncIteration
        return event

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.cancel()

    def __del__(self) -> None:
        if hasattr(self, "_future"):
            self._future.cancel()


class _Inbox:
    """Events on their way from the engine to whoever watches, of whatever thread or event loop."""

    def __init__(self) -> None:
        self.answer: Answer | None = None
        self._changed = threading.Condition()
        self._events: deque[Event] = deque()
        self._sleepers: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self._over = False
        self._error: BaseException | None = None

    def put(self, event: Event) -> None:
        with self._changed:
            if self._over:
                return
            if isinstance(event, Writing) and self._events and isinstance(self._events[-1], Writing):
                self._events.pop()
            if isinstance(event, Answered):
                self.answer = event.answer
            self._events.append(event)
            self._wake()

    def end(self, future: Future[Answer]) -> None:
        """Ends the iteration after what has been put; a fault of the program's own comes out of it."""
        error = None if future.cancelled() else future.exception()
        with self._changed:
            if not self._over and not isinstance(error, CodeVQAError):  # which has been told
                self._error = error
            self._over = True
            self._wake()

    def close(self) -> None:
        """Ends the iteration now."""
        with self._changed:
            self._over = True
            self._error = None
            self._events.clear()
            self._wake()

    def wait(self) -> Event | None:
        """Returns the next event; None after the last."""
        with self._changed:
            while not self._events and not self._over:
                self._changed.wait()
            return self._take()

    async def wait_async(self) -> Event | None:
        """Returns the next event; None after the last."""
        loop = asyncio.get_running_loop()
        while True:
            with self._changed:
                if self._events or self._over:
                    return self._take()
                sleeper = (loop, loop.create_future())
                self._sleepers.append(sleeper)
            try:
                await sleeper[1]
            finally:
                with self._changed:
                    if sleeper in self._sleepers:
                        self._sleepers.remove(sleeper)

    def _take(self) -> Event | None:
        if self._events:
            return self._events.popleft()
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        return None

    def _wake(self) -> None:
        self._changed.notify_all()
        for loop, sleeper in self._sleepers:
            try:
                loop.call_soon_threadsafe(_rouse, sleeper)
            except RuntimeError:  # a loop that has ended has nobody to wake
                continue
        self._sleepers.clear()


def _rouse(sleeper: asyncio.Future[None]) -> None:
    if not sleeper.done():
        sleeper.set_result(None)
