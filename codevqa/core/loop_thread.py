"""A private event loop in a thread of its own, so that sync and async callers of every thread share one engine.

And several coroutines at once on it, of which the first failure ends the others (:func:`together`).
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable
from concurrent.futures import Future
from contextvars import ContextVar
from typing import Any, TypeVar

from .errors import CodeVQAError, EngineClosedError, InputError, InternalError, SetupError

Result = TypeVar("Result")

PATIENCE = 10.0
"""Seconds that closing waits for work that does not react to being cancelled."""

_log = logging.getLogger(__name__)
_INSIDE: ContextVar[frozenset[LoopThread]] = ContextVar("codevqa-inside", default=frozenset())
"""The loops whose work the code that reads this is part of, in their threads and in those that their work uses."""
_process: int | None = None
"""The process that made the first loop."""


def check_process() -> None:
    """Checks that no engine was made before this process was forked: threads and locks do not survive a fork.

    Raises:
        SetupError: one was.
    """
    global _process
    if _process is None:
        _process = os.getpid()
    elif _process != os.getpid():
        raise SetupError(
            "This process was forked from one that had made an engine, and engines do not survive a fork.",
            hint='Start processes with multiprocessing.get_context("spawn"), or fork before you make the first engine.',
        )


class LoopThread:
    """Runs coroutines for callers of any thread.

    Args:
        name: the thread's.
        ending: what closing awaits once all work is cancelled, such as the end of worker processes. The thread holds
            it, so it must not hold the object whose end closes the loop.

    Raises:
        SetupError: this process was forked from one that had made such a loop.
    """

    def __init__(self, name: str, ending: Callable[[], Awaitable[None]] | None = None) -> None:
        check_process()
        self._process = os.getpid()
        self._ending = ending
        self._lock = threading.Lock()
        """Guards the next two."""
        self._closing = False
        self._callers: set[Future[Any]] = set()
        self._asked: set[asyncio.Task[Any]] = set()
        """The callers' work, without the tasks that it starts."""
        self._ended = threading.Event()
        self._loop = asyncio.new_event_loop()
        # A daemon: a program that forgets to close its engine still ends.
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    @property
    def closed(self) -> bool:
        """Whether it takes no more work."""
        return self._closing

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

    def submit(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Begins a coroutine; cancelling the future cancels it.

        Raises:
            EngineClosedError: the loop is closed. What is under way when it closes ends with that, too.
            InputError: the caller is part of this loop's own work, which would wait for itself.
            SetupError: the loop was made before this process was forked.
        """
        try:
            check_process()
            if self._is_inside():
                raise InputError(
                    "A primitive cannot ask the engine that runs it: each would wait for the other.",
                    hint="Use context.pnpvqa and context.services in it, or a second engine.",
                )
            with self._lock:
                if self._closing:
                    raise EngineClosedError
                future = asyncio.run_coroutine_threadsafe(self._guard(work), self._loop)
                self._callers.add(future)
        except CodeVQAError:
            work.close()  # an interrupt leaves it alone: the loop may be at work on it
            raise
        future.add_done_callback(self._callers.discard)
        return future

    def close(self) -> None:
        """Cancels what runs and ends the loop and its thread; from any thread, any number of times.

        It returns when the loop has ended; at once where the loop's own work calls it, which then is cancelled too. In
        a process that was forked off it does nothing: the loop is the parent's.
        """
        self.end()
        here = self._process == os.getpid() and not sys.is_finalizing()  # when threads stand still
        if here and not self._is_inside():
            self._ended.wait()

    def end(self) -> None:
        """Begins to close, and waits for nothing."""
        if self._process != os.getpid():
            return
        with self._lock:
            if not self._closing:
                self._closing = True
                self._loop.call_soon_threadsafe(self._loop.stop)

    def _is_inside(self) -> bool:
        return self in _INSIDE.get() or threading.current_thread() is self._thread

    async def _guard(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Awaits a caller's work; nothing comes out of it that would end the loop, or leave the caller waiting."""
        task = asyncio.current_task()
        assert task is not None
        self._asked.add(task)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # a caller that gave up never asks
        _INSIDE.set(_INSIDE.get() | {self})
        try:
            return await work
        except asyncio.CancelledError:
            if self._closing:
                raise EngineClosedError from None
            raise
        except (Exception, GeneratorExit):
            raise
        except BaseException as error:  # it would end the loop
            raise InternalError(f"codevqa let a {type(error).__name__} through.", hint="Please report it.") from error
        finally:
            self._asked.discard(task)

    # -- in the thread -----------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._run()
            self._loop.create_task(self._wind_down()).add_done_callback(lambda _: self._loop.stop())
            self._run()
            self._loop.close()
        finally:
            for future in tuple(self._callers):
                if not future.done() and future.set_running_or_notify_cancel():
                    future.set_exception(EngineClosedError())
            self._ended.set()

    def _run(self) -> None:
        """Runs the loop until it is stopped, whatever is raised in it."""
        while True:
            try:
                self._loop.run_forever()
            except BaseException:  # noqa: BLE001 - a task raised it, whose caller has it
                _log.exception("A task tried to end the event loop")
            else:
                return

    async def _wind_down(self) -> None:
        await self._cancel(self._asked)
        if self._ending is not None:
            try:
                await self._ending()
            except Exception:  # noqa: BLE001 - the rest is to end all the same
                _log.exception("Closing failed")
        await self._cancel(asyncio.all_tasks() - {asyncio.current_task()})
        await self._loop.shutdown_asyncgens()
        await self._loop.shutdown_default_executor()

    async def _cancel(self, tasks: Collection[asyncio.Task[Any]]) -> None:
        tasks = tuple(tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=PATIENCE)


async def together(work: Iterable[Coroutine[Any, Any, Result]]) -> list[Result]:
    """Returns what each gives, in their order. Unlike ``asyncio.gather`` it leaves nothing running behind a failure.

    Raises:
        Exception: what the first to fail raised; the others are cancelled, and have ended.
    """
    coroutines = list(work)
    if len(coroutines) == 1:  # a task of its own would pay for nothing
        return [await coroutines[0]]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(coroutine) for coroutine in coroutines]
    except BaseExceptionGroup as failed:
        failure = failed.exceptions[0]
    else:
        return [task.result() for task in tasks]
    raise failure
