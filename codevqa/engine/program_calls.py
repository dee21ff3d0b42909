"""Answers the calls that one program makes of primitives, and keeps each of them for the trace.

A program makes one call at a time. Those that can be read off its source (:mod:`.call_plan`) begin when it starts, so
that they share batches; when it gets there, it takes over the one that runs already, with its result or failure,
evidence and cost, exactly as if it had begun there. What it never asks for is cancelled, and leaves no trace.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..batching.call_cache import Usage
from ..core.errors import CodeVQAError, ErrorRecord, ProgramRuntimeError, record
from ..core.events import CallBegan, CallEnded, Event
from ..core.trace import Call
from ..primitives.context import CallContext
from ..primitives.kinds import Image
from ..primitives.signature import PrimitiveSet
from .answer_text import plain
from .call_plan import PlannedCall

CATCHABLE = (TypeError, ValueError, LookupError)
"""What a program may catch; everything else ends it."""
AT_ONCE = 64
"""Calls of one program under way ahead of it at most."""
DETAILED = 200
"""Calls of one program whose evidence is kept in full. Ten thousand pictures would take hundreds of megabytes."""


@dataclass
class _Begun:
    """A call under way."""

    task: asyncio.Task[object]
    context: CallContext
    usage: Usage


class ProgramCalls:
    """The calls of one question's programs: the sandbox's host. The cost of each call is added to ``usage``."""

    def __init__(
        self,
        primitives: PrimitiveSet,
        context: Callable[[], CallContext],
        usage: Usage,
        tell: Callable[[Event], None],
    ) -> None:
        self.made: list[Call] = []
        """Those that have ended, in the order they began: a program waits for each."""
        self._primitives = primitives
        self._context = context
        self._usage = usage
        self._tell = tell
        self._planned: dict[Hashable, tuple[str, Mapping[str, object]]] = {}
        self._ahead: dict[Hashable, _Begun] = {}

    def begin_ahead(self, planned: Iterable[PlannedCall]) -> None:
        """Begins calls in order, some at a time; a call whose arguments are wrong is left to the program."""
        for one in planned:
            try:
                arguments = self._primitives.get(one.name).bind(one.args, one.kwargs)
            except CATCHABLE:
                continue
            self._planned.setdefault(_key(one.name, arguments), (one.name, arguments))
        self._fill()

    def close(self) -> None:
        """Cancels what was begun ahead and never asked for."""
        self._planned.clear()
        for begun in self._ahead.values():
            begun.task.cancel()
        self._ahead.clear()

    async def __call__(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], line: int | None) -> object:
        """Answers one call; see :data:`codevqa.sandbox.Host`."""
        started = time.perf_counter()
        wrong: Exception | None = None
        arguments: Mapping[str, object] = {}
        try:
            arguments = self._primitives.get(name).bind(args, kwargs)
        except CATCHABLE as error:
            wrong = error
        call = Call(len(self.made) + 1, name, {key: plain(item) for key, item in arguments.items()}, None, 0.0, line)
        self._tell(CallBegan(call.index, name, call.arguments, line))
        value: object = None
        failure: ErrorRecord | None = None
        begun: _Begun | None = None
        ahead = False
        try:
            if wrong is not None:
                raise wrong
            begun = self._ahead.pop(_key(name, arguments), None) if self._ahead else None
            ahead = begun is not None
            self._fill()
            begun = begun or self._begin(name, arguments)
            value = await begun.task
            return value
        except (CodeVQAError, *CATCHABLE) as error:
            failure = record(error)
            raise
        except asyncio.CancelledError:
            failure = ErrorRecord("CancelledError", "the program was ended while it waited for this call", line)
            raise
        except Exception as error:
            failure = record(error)
            raise ProgramRuntimeError(f"{name}() failed: {failure.type}: {failure.message}", line=line) from error
        finally:
            usage = begun.usage if begun else Usage()
            self._usage.add(usage)
            evidence = begun.context.evidence if begun else []
            if call.index > DETAILED:
                evidence = [replace(one, relevance=(), patches=(), prompt="") for one in evidence]
            ended = replace(
                call,
                value=plain(value),
                seconds=time.perf_counter() - started,
                evidence=tuple(evidence),
                error=failure,
                remembered=0 < usage.calls == usage.remembered,
                ahead=ahead,
            )
            self.made.append(ended)
            self._tell(CallEnded(ended))

    def _fill(self) -> None:
        """Begins as many as may be under way, once half of them are used up: one at a time would share no batch."""
        if 2 * len(self._ahead) > AT_ONCE:
            return
        while self._planned and len(self._ahead) < AT_ONCE:
            key = next(iter(self._planned))
            self._ahead[key] = self._begin(*self._planned.pop(key))

    def _begin(self, name: str, arguments: Mapping[str, object]) -> _Begun:
        context, usage = self._context(), Usage(memory=self._usage.memory)

        async def made() -> object:
            with usage.counting():
                return await self._primitives.get(name).call(context, arguments)

        return _Begun(asyncio.get_running_loop().create_task(made()), context, usage)


def _key(name: str, arguments: Mapping[str, object]) -> Hashable:
    return (name, *((parameter, _value(value)) for parameter, value in arguments.items()))


def _value(value: object) -> Hashable:
    if isinstance(value, Image):
        return (value.index, value.picture.key)
    if isinstance(value, list | tuple):
        return (type(value), *map(_value, value))
    return (type(value), value)
