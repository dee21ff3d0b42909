"""Runs programs that a language model wrote.

Programs run in pydantic-monty, a Python interpreter without file system, network or environment, each in a worker
process of its own. A primitive that a program calls suspends it; the caller's ``host`` answers, and the program goes
on. While it waits it costs nothing but its worker, so many programs can wait for one batch.

The interpreter is the boundary. Its process bounds the damage of a fault in it, and where the operating system offers
it there is a second wall around that process (:mod:`.workers`).
"""

from __future__ import annotations

import asyncio
import re
import unicodedata
from collections.abc import Callable, Coroutine, Hashable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import pydantic_monty as monty
from cachetools import LRUCache

from ..core.errors import ProgramError, ProgramLimitError, ProgramSyntaxError, UnsetAnswerError
from ..core.settings import Limits
from ..primitives import Image, PrimitiveSet
from .error_mapping import crash, explain
from .many_runs import Ask, ManyRuns, Result
from .program_tree import shape
from .rewrite import rewrite
from .run import Host, Outcome, Run, closed_error, in_thread, nonsense
from .static_check import CHECKED_AS, checker_declarations, checker_view, finding
from .workers import Pools, Workers

if TYPE_CHECKING:
    from pydantic_monty import MontySession

CHECKS_KEPT = 2048
"""Results of the static check, and of random worlds, that are remembered."""
CHECK_TRIES = 3
"""How often a program is checked whose checker dies, before it is said to be the program's fault."""


class Sandbox:
    """A pool of workers that check and run programs.

    It starts with its first use, or by ``async with``, and belongs to the event loop it started in.

    Args:
        primitives: What programs may call.
        limits: What one program may use.
        workers: Programs that can be under way at once; a program waiting for its host keeps its worker.
    """

    def __init__(self, primitives: PrimitiveSet, limits: Limits = Limits(), *, workers: int = 8) -> None:
        self.primitives = primitives
        self.limits = limits
        self.workers = workers
        self.pools = Pools(workers, limits)
        """Its workers, which do not hold its primitives."""
        self._done: LRUCache[Hashable, object] = LRUCache(CHECKS_KEPT)

    async def aclose(self) -> None:
        """Ends the workers; programs under way fail."""
        await self.pools.aclose()

    async def __aenter__(self) -> Sandbox:
        await self.pools.get("runners")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def check(self, source: str) -> None:
        """Checks a program without running any of it.

        Results are remembered, also for programs that differ only in words and names (:func:`.program_tree.shape`).

        Args:
            source: The program.

        Raises:
            ProgramSyntaxError: it does not parse.
            ProgramTypeError: an unknown name, or a use that is certain to fail.
            UnsetAnswerError: it never mentions ``answer``.
            ProgramLimitError: it is too long, or too much for the checker.
        """
        error = await self._verdict(self._readable(source))
        if error is not None:
            # A fresh one each time: an exception that is raised collects its traceback and context.
            raise type(error)(error.message, line=error.line, hint=error.hint)

    async def run(self, source: str, host: Host, *, images: Sequence[Image] = ()) -> Outcome:
        """Runs a program to its end.

        Args:
            source: The program. It finds ``images``, and ``img`` where there is one image only.
            host: Answers its calls of primitives.
            images: The question's pictures.

        Raises:
            ProgramSyntaxError: it does not parse.
            ProgramRuntimeError: it raised, or its worker died.
            ProgramLimitError: it ran past a limit.
            ProgramAnswerError: it ended without a usable ``answer``.
            CodeVQAError: whatever ``host`` raised.
        """
        source = self._readable(source)
        workers = await self.pools.get("runners")
        await workers.slots.acquire()
        limits = self.limits.about(len(images))
        session = self._checkout(workers.pool, limits=limits)
        run = Run(session, source, host, limits, self.primitives, workers.threads, workers.wall)
        self.pools.runs.add(run)
        try:
            if not self.pools.has(workers):
                raise closed_error()
            return await run.finish(images)
        except monty.MontyCrashedError as error:
            raise crash(error) from None
        finally:
            self.pools.runs.discard(run)
            run.end(workers.slots.release)

    async def run_in_worlds(
        self, source: str, ask: Ask, images: Sequence[Image], work: Callable[[ManyRuns], Result]
    ) -> Result | None:
        """Runs a program many times over, in one worker.

        Args:
            source: The program.
            ask: Answers each of its calls in all worlds at once; called in a thread.
            images: The question's pictures.
            work: Runs it as often as it likes; called in a thread.

        Returns:
            What ``work`` returns; None where the program cannot be run at all.
        """
        try:
            many = ManyRuns(self._readable(source), ask, images, self.primitives, self.limits)
        except ProgramError:
            return None
        workers = await self.pools.get("checkers")
        session = self._checkout(workers.pool, limits=self.limits.about(len(images)))
        return await in_thread(workers.threads, many.study, session, workers.wall, work)

    async def once(self, key: Hashable, work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """Returns what some work gives, which is done once for all who ask, and remembered.

        Raises:
            ProgramRuntimeError: the sandbox was closed meanwhile.
        """
        if key in self._done:
            return cast(Result, self._done[key])
        if key not in self.pools.checks:
            self.pools.checks[key] = asyncio.create_task(work())
            self.pools.checks[key].add_done_callback(lambda _: self.pools.checks.pop(key))
        try:
            # The caller that began it may be cancelled; others wait for it too.
            result: Result = await asyncio.shield(self.pools.checks[key])
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise closed_error() from None
        self._done[key] = result
        return result

    # -- parts -------------------------------------------------------------------------------------------------------

    async def _verdict(self, source: str) -> ProgramError | None:
        """Returns what is wrong with a program, remembered or found."""
        return await self.once(source, partial(self._find, source))

    async def _find(self, source: str) -> ProgramError | None:
        """Returns what is wrong with a program; nothing where nothing is wrong with those of its shape."""
        like = shape(source, self.primitives.names)
        if like is not None and like != source and await self._verdict(like) is None:
            return None
        workers = await self.pools.get("checkers")
        return await in_thread(workers.threads, self._check_now, workers, source)

    def _checkout(
        self, pool: monty.Monty, stub_source: str | None = None, limits: Limits | None = None
    ) -> MontySession:
        limits = limits or self.limits
        return pool.checkout(
            script_name=CHECKED_AS,
            limits={
                "max_memory": limits.memory_bytes,
                "max_feed_duration_secs": limits.seconds,
                "max_recursion_depth": limits.recursion,
                # Calls of primitives are counted here; names looked up in vain, and the like, are bounded too.
                "max_suspensions": 2 * limits.calls + 100,
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

    def _check_now(self, workers: Workers, source: str, tries: int = CHECK_TRIES) -> ProgramError | None:
        """Checks a program, in a thread of the checkers."""
        try:
            program = checker_view(rewrite(source))
        except ProgramSyntaxError as error:
            return error
        known, before = checker_declarations(program.source, self.primitives)
        offset = before.count("\n")
        try:
            with self._checkout(workers.pool, known) as session:
                if workers.wall is not None:
                    workers.wall.shut(session.worker_pid)
                state = session.feed_start(before + program.source, print_callback=monty.CollectString(0))
                while isinstance(state, monty.FunctionSnapshot) and state.is_os_function:
                    # The checker asks for the declarations of a module it does not know: there are none.
                    state = state.resume_not_handled()
        except monty.MontyTypingError as error:
            failure = finding(error.display(), program, offset, self.primitives.names)
            if failure is not None:
                return failure
        except (monty.MontySyntaxError, monty.MontyRuntimeError) as error:
            return explain(
                error, self.limits, source, "<python-input-0>", lambda line, column: program.line(line - offset, column)
            )
        except monty.MontyCrashedError as error:
            if tries > 1 and not error.timed_out:
                return self._check_now(workers, source, tries - 1)
            return ProgramLimitError("the program is too much for the static check.", hint="Write it more simply.")
        except RuntimeError as error:
            raise nonsense() from error  # says nothing of the program, and is not remembered
        if re.search(r"\banswer\b", unicodedata.normalize("NFKC", source)) is None:
            return UnsetAnswerError("the program never sets answer.")
        return None
