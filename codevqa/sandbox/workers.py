"""The worker processes, and the second wall: what the operating system refuses a worker, should a program break out.

Workers are started through :mod:`.launcher`, which closes descriptors, gives up privileges, hides files (Landlock),
and leaves few system calls (seccomp). Once a worker has started, before a program reaches it, it is shut: it can open
nothing any more, start no thread, and its memory is bounded.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import ctypes
import functools
import logging
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Hashable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, Literal, Protocol

import pydantic_monty as monty
from pydantic_monty._binary import find_monty_binary

from ..core.errors import SetupError
from ..core.loop_thread import check_process
from ..core.settings import Limits
from . import launcher
from .error_mapping import bounded_line

OVERHEAD = 512 << 20
"""Bytes of address space that a worker has beside what its programs may use: code, stacks, the static check."""

_log = logging.getLogger(__name__)


class _NoConfinementError(Exception):
    """This system offers no second wall; the message says why."""


class WorkerConfinement:
    """Starts the workers of one pool behind the second wall, and closes what they needed only to start.

    Args:
        memory_bytes: What a program may use.
    """

    def __init__(self, memory_bytes: int) -> None:
        system = sys.platform
        if system != "linux":
            raise _NoConfinementError(f"{system} offers none")
        if not sys.executable:
            raise _NoConfinementError("this Python does not know where it lies")
        # A program may double what it has before the interpreter counts it.
        self._memory = OVERHEAD + 4 * memory_bytes
        self._command = [sys.executable, "-IS", launcher.__file__, find_monty_binary()]
        # The pool starts one file, with an argument of its own. This one needs no folder to lie in, and none loses it.
        self._script = _file_in_memory()
        os.write(self._script, f'#!/bin/sh\nexec {shlex.join(self._command)} "$@" 2>/dev/null\n'.encode())
        self.path = f"/proc/{os.getpid()}/fd/{self._script}"
        """What the pool is to start in the interpreter's place."""

    def shut(self, pid: int | None) -> None:
        """Takes from a worker what it needed only to start; one that is gone is passed over."""
        if sys.platform == "linux" and pid is not None:
            import resource  # which Windows lacks

            nothing = (resource.RLIMIT_NPROC, resource.RLIMIT_FSIZE, resource.RLIMIT_CORE, resource.RLIMIT_NOFILE)
            with contextlib.suppress(ProcessLookupError):
                if resource.prlimit(pid, resource.RLIMIT_NOFILE) != (0, 0):
                    hard = resource.prlimit(pid, resource.RLIMIT_AS)[1]
                    most = self._memory if hard == resource.RLIM_INFINITY else min(hard, self._memory)
                    resource.prlimit(pid, resource.RLIMIT_AS, (most, most))
                    for what in nothing:
                        resource.prlimit(pid, what, (0, 0))

    def close(self) -> None:
        """Ends it: no worker can be started through it any more."""
        os.close(self._script)

    def reason(self) -> str:
        """Returns what the launcher says where it fails; empty where it does not."""
        command = [*self._command, "--version"]
        try:
            done = subprocess.run(command, env={}, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=10)
        except (OSError, subprocess.TimeoutExpired) as error:
            return bounded_line(str(error))
        lines = done.stderr.strip().splitlines()
        return lines[-1] if lines else "" if done.returncode == 0 else f"its launcher ended with {done.returncode}"


def open_pool(count: int, limits: Limits, timeout: float) -> tuple[monty.Monty, WorkerConfinement | None]:
    """Starts a pool of workers, behind the second wall where it is wanted and to be had.

    Args:
        count: workers at most.
        limits: what a program may use.
        timeout: seconds a worker may take to react.

    Raises:
        SetupError: the second wall has to be there, and is not; or the process was forked and cannot have workers.
    """
    check_process()
    try:
        if limits.second_wall:
            return _open_confined(count, limits, timeout)
    except _NoConfinementError as error:
        if limits.second_wall != "auto":
            raise SetupError(
                f"Workers cannot have the second wall that Limits.second_wall asks for: {error}.",
                hint='Set it to "auto".',
            ) from error
        _say_once(f"Workers of the sandbox run without a second wall: {error}. See SECURITY.md.")
    return monty.Monty(max_processes=count, request_timeout=timeout).__enter__(), None


def _open_confined(count: int, limits: Limits, timeout: float) -> tuple[monty.Monty, WorkerConfinement]:
    wall = WorkerConfinement(limits.memory_bytes)
    with contextlib.ExitStack() as undo:
        undo.callback(wall.close)
        if not launcher.landlock_version():
            missing = "this system has no Landlock"
            if limits.second_wall != "auto":
                raise _NoConfinementError(missing)
            _say_once(f"The second wall around workers of the sandbox has a gap: {missing}. See SECURITY.md.")
        pool = monty.Monty(binary_path=wall.path, max_processes=count, request_timeout=timeout).__enter__()
        undo.callback(pool.__exit__, None, None, None)
        try:  # before any program needs a worker
            with pool.checkout() as session:
                wall.shut(session.worker_pid)
                session.feed_run("None")
        except (monty.MontyError, OSError, RuntimeError) as error:
            raise _NoConfinementError(wall.reason() or bounded_line(str(error))) from error
        undo.pop_all()
    return pool, wall


def _file_in_memory() -> int:
    try:
        descriptor = int(ctypes.CDLL(None).memfd_create(b"codevqa-worker", 1))  # closed in children
    except AttributeError:
        descriptor = -1
    if descriptor < 0:
        raise _NoConfinementError("no file can be made in memory")
    return descriptor


@functools.cache
def _say_once(text: str) -> None:
    _log.warning("%s", text)


GRACE = 5.0
"""Seconds past its time limit after which a worker that does not react is killed."""


DRAIN = 0.05
"""Seconds a process that used the sandbox waits before it ends, so that the interpreter's threads come to rest."""


class Workers:
    """A pool of worker processes, with threads that wait for those that compute."""

    def __init__(self, pool: monty.Monty, wall: WorkerConfinement | None, count: int) -> None:
        self.pool, self.wall = pool, wall
        # More of them only get in one another's way: a program that waits for its host needs none.
        threads = min(count, max(8, 2 * (os.cpu_count() or 1)))
        self.threads = ThreadPoolExecutor(threads, thread_name_prefix="codevqa-sandbox")
        self.slots = asyncio.Semaphore(count)

    def close(self) -> None:
        """Ends the processes and the threads."""
        self.pool.__exit__(None, None, None)
        if self.wall is not None:
            self.wall.close()
        self.threads.shutdown()


class Killable(Protocol):
    """A program under way."""

    def kill(self) -> None:
        """Ends its worker's process."""


class Pools:
    """The workers of a sandbox: those that run programs, and those that check them. Knows no primitive."""

    def __init__(self, count: int, limits: Limits) -> None:
        self._counts = {"runners": count, "checkers": min(count, os.cpu_count() or 1)}
        self._limits = limits
        self._started: dict[str, Workers] = {}
        self._starting = asyncio.Lock()
        self.runs: set[Killable] = set()
        self.checks: dict[Hashable, asyncio.Task[Any]] = {}

    async def get(self, which: Literal["runners", "checkers"]) -> Workers:
        """Returns workers; they are started where there are none.

        Checking is work for the processor, waiting for a model is none: as many checkers as there are processors keep
        warm, where one of many workers would be cold most times.
        """
        if which not in self._started:
            async with self._starting:
                if which not in self._started:
                    self._started[which] = await self._start(self._counts[which])
        return self._started[which]

    def has(self, workers: Workers) -> bool:
        """Whether these are still open."""
        return workers in self._started.values()

    async def aclose(self) -> None:
        """Ends them; programs under way fail."""
        checks = tuple(self.checks.values())
        for task in checks:
            task.cancel()
        async with self._starting:
            ended, self._started = list(self._started.values()), {}
        for run in self.runs:
            run.kill()
        for workers in ended:
            workers.close()
        if checks:
            await asyncio.wait(checks)

    async def _start(self, count: int) -> Workers:
        _drain_at_exit()
        patience = self._limits.seconds + GRACE  # with a worker that hangs, also the first
        opening = asyncio.ensure_future(asyncio.to_thread(open_pool, count, self._limits, patience))
        try:
            return Workers(*await asyncio.shield(opening), count)
        except asyncio.CancelledError:
            # A start cannot be called off, and workers that nobody knows of would stay.
            await asyncio.wait((opening,))
            if not opening.cancelled() and opening.exception() is None:
                Workers(*opening.result(), count).close()
            raise
        except (monty.MontyError, OSError, RuntimeError) as error:
            raise SetupError(f"The sandbox cannot start: {error}.", hint="Reinstall pydantic-monty.") from error


@cache
def _drain_at_exit() -> None:
    # The pool's threads call into Python after their last result; meeting a Python that is ending, they abort it.
    atexit.register(time.sleep, DRAIN)
