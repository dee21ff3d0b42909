"""Runs programs that a language model wrote.

Programs run in pydantic-monty, a Python interpreter without file system, network or environment, each in a worker
process of its own. A primitive that a program calls suspends it; the caller's ``host`` answers, and the program goes
on. While it waits it costs nothing but its worker, so many programs can wait for one batch.

The interpreter is the boundary, and its process bounds the damage of a fault in it. Workers run as the user who
started them.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import os
import re
import time
import unicodedata
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import pydantic_monty as monty

from .errors import (
    ProgramAnswerError,
    ProgramError,
    ProgramLimitError,
    ProgramRuntimeError,
    ProgramSyntaxError,
    SetupError,
)
from .primitives import CONSTANTS, Image, PrimitiveSet
from .sandbox_check import CHECKED_AS, finding, prefix, stubs, variables
from .sandbox_prelude import READ, prelude
from .sandbox_values import Handles, Plain, answer_value
from .settings import Limits
from .syntax import shape

if TYPE_CHECKING:
    from pydantic_monty import AsyncFunctionSnapshot, AsyncMontySession, AsyncSnapshot

    Suspended: TypeAlias = AsyncFunctionSnapshot | monty.AsyncNameLookupSnapshot | monty.AsyncFutureSnapshot

__all__ = ["Host", "Limits", "Outcome", "Sandbox"]

Host: TypeAlias = Callable[[str, "tuple[Any, ...]", "dict[str, Any]", "int | None"], Awaitable[object]]
"""``await host(name, args, kwargs, line)`` answers one call of a primitive. The arguments are whatever the program
passed: bind them before use. A TypeError, ValueError or LookupError is raised inside the program; anything else ends
the run and reaches the caller of :meth:`Sandbox.run` as it is."""

_Key: TypeAlias = "tuple[str, tuple[tuple[str, str], ...]]"

CHECKS_KEPT = 2048
"""Results of the static check that are remembered."""
GRACE = 5.0
"""Seconds past its time limit after which a worker that does not react is killed."""
DRAIN = 0.05
"""Seconds a process that used the sandbox waits before it ends, so that the interpreter's threads come to rest."""

_PROGRAM_FILE = "<python-input-1>"  # the second thing fed to a session; the prelude is the first
_UNSUPPORTED = "The monty syntax parser does not yet support "
_SUSPENDED_IN_BUILTIN = "cannot suspend in this synchronous context"


@dataclass(frozen=True)
class Outcome:
    """What a program left."""

    value: Plain
    """The value of ``answer``: plain data, images as the host's Image objects."""
    printed: str = ""
    """What it printed."""


class Sandbox:
    """A pool of workers that check and run programs.

    It starts with its first use, or by ``async with`` or :meth:`start`, and belongs to the event loop it started in.

    Args:
        primitives: What programs may call.
        limits: What one program may use.
        workers: Programs that can be under way at once; a program waiting for its host keeps its worker.
    """

    def __init__(self, primitives: PrimitiveSet, limits: Limits = Limits(), *, workers: int = 8) -> None:
        self.primitives = primitives
        self.limits = limits
        self.workers = workers
        self._pool: monty.AsyncMonty | None = None
        self._checkers: monty.AsyncMonty | None = None
        self._starting = asyncio.Lock()
        self._checked: OrderedDict[_Key, ProgramError | None] = OrderedDict()
        self._checking: dict[_Key, asyncio.Task[ProgramError | None]] = {}

    async def start(self) -> None:
        """Starts the workers, unless they run already.

        Raises:
            SetupError: they cannot be started on this machine.
        """
        await self._started()

    async def aclose(self) -> None:
        """Ends the workers; programs under way fail."""
        pools, self._pool, self._checkers = (self._pool, self._checkers), None, None
        for pool in pools:
            if pool is not None:
                await pool.__aexit__(None, None, None)

    async def __aenter__(self) -> Sandbox:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def check(self, source: str, *, given: Mapping[str, str] | None = None) -> None:
        """Checks a program without running any of it.

        Results are remembered, also for programs that differ only in words and names (:func:`codevqa.syntax.shape`).

        Args:
            source: The program.
            given: Annotations of the globals it will have beside ``img``, ``images`` and the grid's edges.

        Raises:
            ProgramSyntaxError: it does not parse.
            ProgramTypeError: an unknown name, or a use that is certain to fail.
            ProgramAnswerError: it never mentions ``answer``.
            ProgramLimitError: it is too long, or too much for the checker.
        """
        source = self._readable(source)
        error = await self._verdict(source, given or {})
        if error is not None:
            # A fresh one each time: an exception that is raised collects its traceback and context.
            raise type(error)(error.message, line=error.line, hint=error.hint)

    async def run(
        self,
        source: str,
        host: Host,
        *,
        images: Sequence[Image] = (),
        given: Mapping[str, object] | None = None,
    ) -> Outcome:
        """Runs a program to its end.

        Args:
            source: The program. It finds ``images``, and ``img`` where there is one image only.
            host: Answers its calls of primitives.
            images: The question's pictures.
            given: Further globals: plain data and images.

        Raises:
            ProgramSyntaxError: it does not parse.
            ProgramRuntimeError: it raised, or its worker died.
            ProgramLimitError: it ran past a limit.
            ProgramAnswerError: it ended without a usable ``answer``.
            CodeVQAError: whatever ``host`` raised.
        """
        source = self._readable(source)
        pool = await self._started()
        try:
            async with self._checkout(pool) as session:
                run = _Run(self, session, source, host)
                try:
                    async with asyncio.timeout(self.limits.wall_seconds) as clock:
                        return await run.finish(images, given or {})
                except TimeoutError:
                    if not clock.expired():
                        raise
                    limit = f"{self.limits.wall_seconds:g} seconds, models included"
                    raise ProgramLimitError(f"the program ran longer than {limit}.", line=run.line) from None
        except monty.MontyCrashedError as error:
            raise _crash(error) from None

    # -- parts -------------------------------------------------------------------------------------------------------

    async def _started(self) -> monty.AsyncMonty:
        async with self._starting:
            if self._pool is None:
                self._pool = await self._start_pool(self.workers)
            return self._pool

    async def _start_pool(self, workers: int) -> monty.AsyncMonty:
        _drain_at_exit()
        pool = monty.AsyncMonty(max_processes=workers, request_timeout=self.limits.seconds + GRACE)
        try:
            return await pool.__aenter__()
        except (monty.MontyError, OSError, RuntimeError) as error:
            raise SetupError(f"The sandbox cannot start: {error}.", hint="Reinstall pydantic-monty.") from error

    async def _verdict(self, source: str, given: Mapping[str, str]) -> ProgramError | None:
        """Returns what is wrong with a program, remembered or found."""
        key = (source, tuple(sorted(given.items())))
        if key in self._checked:
            self._checked.move_to_end(key)
            return self._checked[key]
        if key not in self._checking:
            self._checking[key] = asyncio.create_task(self._find(source, given))
            self._checking[key].add_done_callback(lambda _: self._checking.pop(key))
        # Whoever began it may be cancelled; others wait for it too.
        error = await asyncio.shield(self._checking[key])
        self._checked[key] = error
        if len(self._checked) > CHECKS_KEPT:
            self._checked.popitem(last=False)
        return error

    async def _find(self, source: str, given: Mapping[str, str]) -> ProgramError | None:
        """Returns what is wrong with a program; nothing where nothing is wrong with those of its shape."""
        like = None if given else shape(source, self.primitives.names)
        if like is not None and like != source and await self._verdict(like, given) is None:
            return None
        return await self._check(source, variables(given))

    def _checkout(self, pool: monty.AsyncMonty, stub_source: str | None = None) -> AsyncMontySession:
        return pool.checkout(
            script_name=CHECKED_AS,
            limits={
                "max_memory": self.limits.memory_bytes,
                "max_feed_duration_secs": self.limits.seconds,
                "max_recursion_depth": self.limits.recursion,
                # Calls of primitives are counted here; names looked up in vain, and the like, are bounded too.
                "max_suspensions": 2 * self.limits.calls + 100,
            },
            os_policy={"sleep": "zero", "random_start": {"seed": 0}},
            type_check=stub_source is not None,
            type_check_stubs=stub_source,
            type_check_format="json",
        )

    def _readable(self, source: str) -> str:
        source = source.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
        try:
            size = len(source.encode())
        except UnicodeEncodeError:
            raise ProgramSyntaxError("the program contains half a surrogate pair, which no text has.") from None
        if "\0" in source:
            line = source[: source.index("\0")].count("\n") + 1
            raise ProgramSyntaxError("the program contains a NUL character.", line=line)
        if size > self.limits.source_bytes:
            raise ProgramLimitError(f"the program is {size:,} bytes long; the limit is {self.limits.source_bytes:,}.")
        return source

    async def _check(self, source: str, given: Mapping[str, str]) -> ProgramError | None:
        before = prefix(given)
        # Checking is work for the processor, waiting for a model is none: as many checkers as there are processors
        # keep warm, where one of many workers would be cold most times.
        async with self._starting:
            if self._checkers is None:
                self._checkers = await self._start_pool(min(self.workers, os.cpu_count() or 1))
            pool = self._checkers
        try:
            async with self._checkout(pool, stubs(self.primitives, given)) as session:
                state = await session.feed_start(before + source, print_callback=monty.CollectString(0))
                while isinstance(state, monty.AsyncFunctionSnapshot) and state.is_os_function:
                    # The checker asks for the declarations of a module it does not know: there are none.
                    state = await state.resume_not_handled()
        except monty.MontyTypingError as error:
            found = finding(error.display(), source, before.count("\n"))
            if found is not None:
                return found
        except (monty.MontySyntaxError, monty.MontyRuntimeError) as error:
            return _explain(error, self.limits, before.count("\n"), "<python-input-0>")
        except monty.MontyCrashedError:
            return ProgramLimitError("the program is too much for the static check.", hint="Write it more simply.")
        if re.search(r"\banswer\b", unicodedata.normalize("NFKC", source)) is None:
            return ProgramAnswerError("the program never sets answer.")
        return None


class _Run:
    """One program on its way through a session."""

    def __init__(self, sandbox: Sandbox, session: AsyncMontySession, source: str, host: Host) -> None:
        self.sandbox = sandbox
        self.limits = sandbox.limits
        self.session = session
        self.source = source
        self.encoded = source.encode()
        self.host = host
        self.handles = Handles()
        self.calls = 0
        self.line: int | None = None

    async def finish(self, images: Sequence[Image], given: Mapping[str, object]) -> Outcome:
        printed = monty.CollectString(self.limits.output_bytes)
        try:
            await self.session.feed_run(prelude(self.source))
            inputs = self._globals(images, given)
            state = await self.session.feed_start(self.source, inputs=inputs, print_callback=printed)
            while not isinstance(state, monty.MontyComplete):
                state = await self._answer(state)
        except monty.MontyCrashedError:
            raise
        except monty.MontyError as error:
            raise _explain(error, self.limits, 0, _PROGRAM_FILE) from None
        return Outcome(await self._read_answer(), printed.output)

    def _globals(self, images: Sequence[Image], given: Mapping[str, object]) -> dict[str, object]:
        entered = self.handles.enter_all(images)
        inputs: dict[str, object] = {"Image": self.handles.image_type, **CONSTANTS, "images": entered}
        if len(entered) == 1:
            inputs["img"] = entered[0]
        inputs.update({name: self.handles.enter(value) for name, value in given.items()})
        inputs.update({name: _placeholder(name) for name in self.sandbox.primitives.names})
        return inputs

    async def _answer(self, state: Suspended) -> AsyncSnapshot:
        self.line = self._line_of(state.position) or self.line
        if isinstance(state, monty.AsyncNameLookupSnapshot):
            return await state.resume()  # NameError, or AttributeError on a handle
        if isinstance(state, monty.AsyncFutureSnapshot):
            return await state.resume({})
        if state.is_os_function:
            return await state.resume_not_handled()
        name = str(state.function_name)
        if state.object_id is not None:
            if name == "__call__":
                return await state.resume({"exc_type": "TypeError", "message": "a program cannot make an Image"})
            message = f"'Image' object has no attribute {name!r}"
            return await state.resume({"exc_type": "AttributeError", "message": message})
        if name not in self.sandbox.primitives.names:
            return await state.resume({"exc_type": "NameError", "message": f"name {name!r} is not defined"})
        return await self._call(state, name)

    async def _call(self, state: AsyncFunctionSnapshot, name: str) -> AsyncSnapshot:
        self.calls += 1
        if self.calls > self.limits.calls:
            raise ProgramLimitError(f"the program made more than {self.limits.calls} calls.", line=self.line)
        try:
            value = self.handles.enter(await self.host(name, state.args, state.kwargs, self.line))
        except (TypeError, ValueError, LookupError) as error:
            # Under its plain name: a program has no use for subclasses, and they may hold anything.
            kinds = ((TypeError, "TypeError"), (ValueError, "ValueError"), (LookupError, "LookupError"))
            kind = next(text for real, text in kinds if isinstance(error, real))
            message = str(error.args[0] if error.args else error)[:500]
            return await state.resume(cast("Any", {"exc_type": kind, "message": message}))
        return await state.resume({"return_value": value})

    async def _read_answer(self) -> Plain:
        try:
            read = await self.session.feed_run(READ, print_callback=monty.CollectString(1024))
        except monty.MontyCrashedError:
            raise
        except monty.MontyError as error:
            if isinstance(error.exception(), NameError):
                raise ProgramAnswerError("the program ended without setting answer.") from None
            raise ProgramAnswerError("what the program left in answer is too large to read.") from None
        wrong, value = read if type(read) is tuple and len(read) == 2 else ("", read)
        if isinstance(wrong, str) and wrong:
            raise ProgramAnswerError(f"answer holds {_one_line(wrong[:200])}.")
        return answer_value(value)

    def _line_of(self, position: monty.SourceRange) -> int | None:
        if position.filename != _PROGRAM_FILE:
            return None
        return self.encoded[: position.start].count(b"\n") + 1


@functools.cache
def _drain_at_exit() -> None:
    # The pool's threads call into Python after their last result; meeting a Python that is ending, they abort it.
    atexit.register(time.sleep, DRAIN)


def _placeholder(name: str) -> Callable[[], None]:
    # The interpreter takes the name of a function and nothing else of it.
    def primitive() -> None:
        """Stands for a primitive."""

    primitive.__name__ = primitive.__qualname__ = name
    return primitive


def _crash(error: monty.MontyCrashedError) -> ProgramError:
    if error.timed_out:
        return ProgramLimitError("the program did not react to its time limit and was ended.")
    return ProgramRuntimeError("the process running the program died.", hint="Run it again.")


def _explain(error: monty.MontyError, limits: Limits, offset: int, filename: str) -> ProgramError:
    """Maps an error of the interpreter to ours; lines lose ``offset``."""
    if not isinstance(error, monty.MontySyntaxError | monty.MontyRuntimeError):
        return ProgramRuntimeError(_one_line(str(error)))
    lines = [frame.line - offset for frame in error.traceback() if frame.filename == filename]
    line = lines[-1] if lines and lines[-1] > 0 else None
    text = _one_line(error.display("msg"))
    if isinstance(error, monty.MontySyntaxError):
        return ProgramSyntaxError(text, line=line)
    inner = error.exception()
    if isinstance(inner, NotImplementedError) and text.startswith(_UNSUPPORTED):
        what = text.removeprefix(_UNSUPPORTED)
        return ProgramSyntaxError(f"programs cannot use {what}.", line=line)
    exceeded = _exceeded(inner, text, limits)
    if exceeded:
        return ProgramLimitError(exceeded, line=line)
    if isinstance(inner, NotImplementedError) and _SUSPENDED_IN_BUILTIN in text:
        hint = "Call it before, or use sorted(..., key=...) or a comprehension."
        return ProgramRuntimeError("a primitive cannot be called from inside this builtin.", line=line, hint=hint)
    return ProgramRuntimeError(_one_line(error.display("type-msg")), line=line)


def _exceeded(inner: BaseException, text: str, limits: Limits) -> str:
    """Says which limit an error of the interpreter stands for; empty where it stands for none."""
    if isinstance(inner, TimeoutError) and "time limit exceeded" in text:
        return f"the program computed longer than {limits.seconds:g} seconds."
    if isinstance(inner, MemoryError) and "memory limit" in text:
        if text.endswith(f"> {limits.output_bytes} bytes"):
            return f"the program printed more than {limits.output_bytes:,} bytes."
        return f"the program used more than {limits.memory_bytes:,} bytes of memory."
    if isinstance(inner, RecursionError):
        return f"the program called itself more than {limits.recursion} deep."
    if isinstance(inner, RuntimeError) and text.startswith("suspension limit"):
        return "the program asked its host too often."
    return ""


def _one_line(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 500 else text[:497] + "..."
