"""A question under way, as its events, for whatever thread or event loop takes them."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType

from ..core.answer import Answer
from ..core.errors import record
from ..core.events import Answered, Event, EventListener, Failed, Writing


class Watch:
    """One question under way, as its events: iterate over it from any thread, or with ``async for`` from any loop.

    It begins when it is made. The last event is :class:`Answered` or :class:`Failed`; an error of this package's never
    comes out of the iteration in any other way. Events wait here until somebody takes them, each once; the engine never
    waits. Leaving a ``with`` block over it cancels what still runs, and so does forgetting it.

    Args:
        begin: begins the question, given what to tell.
    """

    def __init__(self, begin: Callable[[EventListener], Future[Answer]]) -> None:
        # What the engine holds is the inbox: a watch that nobody holds any more can be seen to be forgotten.
        self._inbox = _Inbox()
        self._future = begin(self._inbox.add)
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
        while isinstance(event := self._inbox.take(), Future):
            event.result()
        if event is None:
            raise StopIteration
        return event

    def __aiter__(self) -> Watch:
        return self

    async def __anext__(self) -> Event:
        while isinstance(event := self._inbox.take(), Future):
            await asyncio.wrap_future(event)
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
    """Events on their way from the engine to a watcher in any thread or event loop."""

    def __init__(self) -> None:
        self.answer: Answer | None = None
        self._guard = threading.Lock()
        self._events: deque[Event] = deque()
        self._waiting: list[Future[None]] = []
        self._over = False
        self._failed = False

    def add(self, event: Event) -> None:
        with self._guard:
            if self._over:
                return
            if isinstance(event, Writing) and self._events and isinstance(self._events[-1], Writing):
                self._events.pop()
            if isinstance(event, Answered):
                self.answer = event.answer
            self._failed = isinstance(event, Failed)
            self._events.append(event)
            self._wake()

    def end(self, future: Future[Answer]) -> None:
        """Ends the iteration after what has been put."""
        error = None if future.cancelled() else future.exception()
        with self._guard:
            if error is not None and not self._over and not self._failed:  # such as where the engine was closed
                self._events.append(Failed(record(error)))
            self._over = True
            self._wake()

    def close(self) -> None:
        """Ends the iteration now."""
        with self._guard:
            self._over = True
            self._events.clear()
            self._wake()

    def take(self) -> Event | Future[None] | None:
        """Returns the next event; None after the last; or where there is none yet, what is done when to look again."""
        with self._guard:
            if self._events:
                return self._events.popleft()
            if self._over:
                return None
            self._waiting.append(Future())
            return self._waiting[-1]

    def _wake(self) -> None:
        for waiting in self._waiting:
            if waiting.set_running_or_notify_cancel():
                waiting.set_result(None)
        self._waiting.clear()
