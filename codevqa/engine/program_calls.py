"""Answers the calls that one program makes of primitives, and keeps each of them for the trace."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from ..batching.call_cache import Usage
from ..core.errors import CodeVQAError, ErrorRecord, ProgramRuntimeError, record
from ..core.events import CallBegan, CallEnded, Event
from ..core.trace import Call
from ..primitives.context import CallContext
from ..primitives.signature import EscapedError, PrimitiveSet
from .answer_text import plain
from .call_plan import PlannedCall
from .prefetch import Prefetch, PrefetchedCall

__all__ = ["ProgramCalls"]

CATCHABLE = (TypeError, ValueError, LookupError)
"""What a program may catch; everything else ends it."""


class ProgramCalls:
    """The calls of one question's programs: the sandbox's host.

    Args:
        primitives: what programs may call.
        context: makes the surroundings of one call.
        usage: to which the cost of each call is added.
        tell: told when a call begins and ends.
    """

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
        self._prefetch = Prefetch(primitives, context)

    def begin_ahead(self, planned: Iterable[PlannedCall]) -> None:
        """Begins calls that a program is going to make, so that they share batches."""
        self._prefetch.begin(planned)

    def close(self) -> None:
        """Cancels what was begun ahead and never asked for."""
        self._prefetch.close()

    async def __call__(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], line: int | None) -> object:
        """Answers one call; see :data:`codevqa.sandbox.Host`."""
        started = time.perf_counter()
        wrong: Exception | None = None
        arguments: Mapping[str, object] = {}
        try:
            arguments = self._primitives.bind(name, args, kwargs)
        except CATCHABLE as error:
            wrong = error
        call = Call(len(self.made) + 1, name, {key: plain(item) for key, item in arguments.items()}, None, 0.0, line)
        self._tell(CallBegan(call.index, name, call.arguments, line))
        context, usage = self._context(), Usage()
        value: object = None
        failure: ErrorRecord | None = None
        begun: PrefetchedCall | None = None
        try:
            if wrong is not None:
                raise wrong
            begun = self._prefetch.take(name, arguments)
            if begun is not None:
                context, usage = begun.context, begun.usage
                value = await begun.task
            else:
                with usage.counting():
                    value = await self._primitives.get(name).call(context, arguments)
            return value
        except (CodeVQAError, *CATCHABLE) as error:
            failure = record(error)
            raise
        except asyncio.CancelledError:
            failure = ErrorRecord("CancelledError", "the program was ended while it waited for this call", line)
            raise
        except Exception as error:
            failure = record((isinstance(error, EscapedError) and error.__cause__) or error)
            raise ProgramRuntimeError(f"{name}() failed: {failure.type}: {failure.message}", line=line) from error
        finally:
            self._usage.add(usage)
            ended = replace(
                call,
                value=plain(value),
                seconds=time.perf_counter() - started,
                evidence=tuple(context.evidence),
                error=failure,
                remembered=0 < usage.calls == usage.remembered,
                ahead=begun is not None,
            )
            self.made.append(ended)
            self._tell(CallEnded(ended))
