"""A private event loop in a thread of its own, so that sync and async callers of every thread share one engine."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

Result = TypeVar("Result")

__all__ = ["LoopThread"]


class LoopThread:
    """Runs coroutines for callers of any thread."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        # A daemon: a program that forgets to close its engine still ends.
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    @property
    def closed(self) -> bool:
        """Whether the loop has ended."""
        return self._loop.is_closed()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Runs a coroutine to its end and returns its result; an interrupt of the caller cancels it."""
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    async def wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Awaits a coroutine that runs on this loop from any other loop; cancelling it cancels the coroutine."""
        return await asyncio.wrap_future(self.submit(work))

    def close(self) -> None:
        """Ends the loop and its thread; what still runs is cancelled."""
        if self.closed:
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def submit(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Begins a coroutine; cancelling the future cancels it.

        Raises:
            RuntimeError: the loop is closed.
        """
        if self.closed:
            work.close()
            raise RuntimeError(f"{self._thread.name} is closed: make another.")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
