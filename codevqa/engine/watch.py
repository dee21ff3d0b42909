"""A question under way, as its events, for whatever thread or event loop takes them."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType

from ..core.answer import Answer
from ..core.errors import CodeVQAError
from ..core.events import Answered, Event, Failed, Tell, Writing

__all__ = ["Watch"]


class Watch:
    """One question under way, as its events: iterate over it from any thread, or with ``async for`` from any loop.

    It begins when it is made. The last event is :class:`Answered` or :class:`Failed`; an error of this package's never
    comes out of the iteration in any other way. Events wait here until somebody takes them, each once; the engine never
    waits. Leaving a ``with`` block over it cancels what still runs, and so does forgetting it.

    Args:
        begin: begins the question, given what to tell.
        engine: is kept while the watch is: an engine that nobody holds closes.
    """

    def __init__(self, begin: Callable[[Tell], Future[Answer]], engine: object = None) -> None:
        self._engine = engine
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
    """Events on their way from the engine to a watcher in any thread or event loop."""

    def __init__(self) -> None:
        self.answer: Answer | None = None
        self._changed = threading.Condition()
        self._events: deque[Event] = deque()
        self._sleepers: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self._over = False
        self._failed = False
        self._error: BaseException | None = None

    def put(self, event: Event) -> None:
        with self._changed:
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
        """Ends the iteration after what has been put; a fault of the program's own comes out of it."""
        error = None if future.cancelled() else future.exception()
        with self._changed:
            if isinstance(error, CodeVQAError):
                if not self._over and not self._failed:  # the engine was closed
                    self._events.append(Failed(error.record()))
            elif not self._over:
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
