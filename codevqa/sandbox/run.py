"""One program on its way through a worker.

The interpreter's calls block, each for as long as the program computes. So they are made in threads, and the event loop
sees a program only where it calls a primitive: one hand-over there and back is all that a call costs beside the call.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import pydantic_monty as monty

from ..core.errors import ProgramAnswerError, ProgramError, ProgramLimitError, ProgramRuntimeError, UnsetAnswerError
from ..core.settings import Limits
from ..primitives import Image, PrimitiveSet
from .boundary import Handles, ProgramValue, answer_value, interpreter_error, program_globals, resume_refused
from .error_mapping import bounded_line, explain
from .rewrite import Rewritten, rewrite
from .stand_ins import PRELUDE, READ, READ_KEYED
from .workers import WorkerConfinement

if TYPE_CHECKING:
    from pydantic_monty import FunctionSnapshot, MontySession, SyncSnapshot

Result = TypeVar("Result")

Host: TypeAlias = Callable[[str, "tuple[Any, ...]", "dict[str, Any]", "int | None"], Awaitable[object]]
"""``await host(name, args, kwargs, line)`` answers one call of a primitive. The arguments are whatever the program
passed: bind them before use. A TypeError, ValueError or LookupError is raised inside the program; anything else ends
the run and reaches the caller of :meth:`Sandbox.run` as it is."""

_FILE = "<python-input-1>"
"""The interpreter's name for the program: what it was fed after the prelude."""
_KILL = getattr(signal, "SIGKILL", signal.SIGTERM)


@dataclass(frozen=True)
class Outcome:
    """What a program left."""

    value: ProgramValue
    """The value of ``answer``: plain data, images as the host's Image objects."""
    printed: str = ""
    """What it printed."""
    seconds: float = 0.0
    """How long it was at work, without waiting."""


Clock = Literal["wall", "model"]
_SAYS: dict[Clock, str] = {
    "wall": "ran longer than {:g} seconds, models left out",
    "model": "waited for models for more than {:g} seconds",
}
"""What to say of a program that needs more time, by the clock that counts it."""


class Run:
    """One program in a session of its own.

    Args:
        session: Not entered yet.
        source: The program.
        host: Answers its calls of primitives.
        limits: What it may use.
        primitives: What it may call.
        executor: Has a thread to spare for it.
        wall: Shuts its worker; None where there is none.
    """

    def __init__(
        self,
        session: MontySession,
        source: str,
        host: Host,
        limits: Limits,
        primitives: PrimitiveSet,
        executor: Executor,
        wall: WorkerConfinement | None = None,
    ) -> None:
        self.line: int | None = None
        """Program line of the call last made."""
        self._session = session
        self._source = source
        self._program = Rewritten(source)
        self._encoded = b""
        self._host = host
        self._limits = limits
        self._primitives = primitives
        self._executor = executor
        self._wall = wall
        self._handles = Handles()
        self._left_of: dict[Clock, float] = {"wall": limits.wall_seconds, "model": limits.model_seconds}
        self._seconds = 0.0
        self._printed = monty.CollectString(limits.output_bytes)
        self._calls = 0
        self._turn = threading.Lock()
        """Held by the thread that uses the session."""
        self._lock = threading.Lock()
        """Guards the next two."""
        self._pid: int | None = None
        self._killed = False
        self._begun = self._closed = False

    # -- on the event loop -------------------------------------------------------------------------------------------

    async def finish(self, images: Sequence[Image]) -> Outcome:
        """Runs it to its end.

        Raises:
            ProgramError: as :meth:`Sandbox.run` says.
            MontyCrashedError: its worker died.
        """
        self._begun = True
        try:
            state = await self._run_within("wall", self._go(self._begin, images))
            while not isinstance(state, Outcome):
                reply = await self._run_within("model", self._reply(state))
                state = await self._run_within("wall", self._go(state.resume, reply))
        except ProgramError as error:
            error.printed, error.seconds = self._printed.output, self._seconds
            raise
        return state

    async def _run_within(self, clock: Clock, stretch: Awaitable[Result]) -> Result:
        """Awaits a stretch of the run, as long as a clock has time left.

        Raises:
            ProgramLimitError: it has none.
        """
        begun = time.perf_counter()
        try:
            async with asyncio.timeout(self._left_of[clock]) as end:
                return await stretch
        except TimeoutError:
            if not end.expired():
                raise
            limit = self._limits.wall_seconds if clock == "wall" else self._limits.model_seconds
            raise ProgramLimitError(f"the program {_SAYS[clock].format(limit)}.", line=self.line) from None
        finally:
            self._left_of[clock] -= time.perf_counter() - begun

    def end(self, then: Callable[[], object]) -> None:
        """Gives the worker back, by force where it computes, and calls ``then`` on this event loop once it has."""
        if self._closed or not self._begun:
            then()
            return
        if self._turn.locked():
            self.kill()
        loop = asyncio.get_running_loop()

        def call_then(_: object) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(then)

        try:
            self._executor.submit(self._give_back).add_done_callback(call_then)
        except RuntimeError:  # the sandbox was closed, its workers killed: nothing to wait for
            self._give_back()
            then()

    def kill(self) -> None:
        """Ends the worker's process, whatever it does."""
        with self._lock:
            self._killed = True
            if self._pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._pid, _KILL)

    async def _go(self, work: Callable[..., SyncSnapshot], *args: object) -> FunctionSnapshot | Outcome:
        try:
            return await in_thread(self._executor, self._step, work, *args)
        except RuntimeError:
            if not self._killed:
                raise
            raise closed_error() from None  # no thread is left for it

    async def _reply(self, state: FunctionSnapshot) -> Any:
        """Returns the answer to a call of a primitive, in the interpreter's form."""
        self._calls += 1
        if self._calls > self._limits.calls:
            raise ProgramLimitError(f"the program made more than {self._limits.calls} calls.", line=self.line)
        try:
            value = await self._host(str(state.function_name), state.args, state.kwargs, self.line)
            return {"return_value": self._handles.enter(value)}
        except (TypeError, ValueError, LookupError) as error:
            return interpreter_error(error)

    # -- in a thread -------------------------------------------------------------------------------------------------

    def _step(self, work: Callable[..., SyncSnapshot], *args: object) -> FunctionSnapshot | Outcome:
        """Goes on to the next call of a primitive, or to the end, where it gives the worker back."""
        with self._turn:
            waiting, begun = False, time.perf_counter()
            try:
                state = work(*args)
                while not isinstance(state, monty.MontyComplete):
                    self.line = self._line_of(state.position) or self.line
                    if isinstance(state, monty.FunctionSnapshot) and self._is_call(state):
                        waiting = True
                        return state
                    state = resume_refused(state)
                left = self._read_answer()
                return Outcome(left, self._printed.output, self._seconds + time.perf_counter() - begun)
            except monty.MontyCrashedError:
                raise
            except monty.MontyError as error:
                raise explain(error, self._limits, self._source, _FILE, self._program.line) from None
            except RuntimeError as error:  # what came over the pipe is no event of the interpreter's
                raise nonsense() from error
            finally:
                self._seconds += time.perf_counter() - begun
                if not waiting:
                    self._close()

    def _begin(self, images: Sequence[Image]) -> SyncSnapshot:
        if self._killed or self._closed:
            raise closed_error()
        self._session.__enter__()
        with self._lock:
            self._pid = self._session.worker_pid
            if self._killed:
                raise closed_error()
        if self._wall is not None:
            self._wall.shut(self._pid)
        self._program = program = rewrite(self._source, self._primitives)
        self._encoded = program.source.encode()
        inputs = program_globals(self._handles, images, self._primitives)
        entered = [name for name in inputs if program.has_picture_keys and name not in self._primitives]
        before = "".join(f"{name} = vqa_in({name})\n" for name in entered)
        self._session.feed_run(f"{PRELUDE}{program.before}{before}", inputs=inputs)
        return self._session.feed_start(program.source, print_callback=self._printed)

    def _give_back(self) -> None:
        with self._turn:
            self._close()

    def _close(self) -> None:
        if not self._closed:
            self._closed = True
            with self._lock:
                self._pid = None  # from now on it may be another program's
            self._session.__exit__(None, None, None)

    def _is_call(self, state: FunctionSnapshot) -> bool:
        return not state.is_os_function and state.object_id is None and state.function_name in self._primitives

    def _read_answer(self) -> ProgramValue:
        """Returns what the program left in ``answer``."""
        try:
            read = self._session.feed_run(
                READ_KEYED if self._program.has_picture_keys else READ, print_callback=monty.CollectString(1024)
            )
        except monty.MontyCrashedError:
            raise
        except monty.MontyError as error:
            if isinstance(error.exception(), NameError):
                raise UnsetAnswerError("the program ended without setting answer.") from None
            raise ProgramAnswerError("what the program left in answer is too large to read.") from None
        wrong, value = read if type(read) is tuple and len(read) == 2 else ("", read)
        if isinstance(wrong, str) and wrong.startswith("a Image,"):  # the handles in it were taken out before
            raise ProgramAnswerError("answer has pictures as keys.", hint="Use texts or numbers as keys.")
        if isinstance(wrong, str) and wrong:
            raise ProgramAnswerError(f"answer holds {bounded_line(wrong[:200])}.")
        return answer_value(value)

    def _line_of(self, position: monty.SourceRange) -> int | None:
        if position.filename != _FILE:
            return None
        before = self._encoded[: position.start]
        return self._program.line(before.count(b"\n") + 1, len(before) - before.rfind(b"\n") - 1)


async def in_thread(executor: Executor, work: Callable[..., Result], *args: object) -> Result:
    """Runs blocking work in an executor and returns its result.

    It does what ``loop.run_in_executor`` does, without a second future and the turns of the loop between the two.
    """
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not over.done():
            over.set_result(None)

    def wake_loop(_: Future[Result]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended, and nobody waits any more
            loop.call_soon_threadsafe(wake)

    running = executor.submit(work, *args)
    running.add_done_callback(wake_loop)
    try:
        await over
    except asyncio.CancelledError:
        running.cancel()
        raise
    return running.result()


def closed_error() -> ProgramError:
    """Returns the error of a program whose sandbox was closed meanwhile."""
    return ProgramRuntimeError("the sandbox was closed while the program ran.", hint="Run it again.")


def nonsense() -> ProgramError:
    """Returns the error of a program whose worker answers what cannot be read: it is not trusted to begin with."""
    return ProgramRuntimeError("the process running the program answered what cannot be read.", hint="Run it again.")
