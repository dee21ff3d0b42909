"""Answers the calls that one program makes of primitives, and keeps each of them for the trace.

A program makes one call at a time. Those that can be read off its source (:mod:`.call_plan`) begin when it starts, so
that they share batches, and those that follow from their results when these are there. When the program gets there, it
takes over the one that runs already, with its result or failure, evidence and cost, exactly as if it had begun there.
What it never asks for is cancelled, and leaves no trace.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ..batching.call_cache import Usage
from ..core.errors import CodeVQAError, ErrorRecord, ProgramRuntimeError, record
from ..core.events import CallBegan, CallEnded, Event
from ..core.trace import Call
from ..primitives.context import CallContext
from ..primitives.kinds import Image
from ..primitives.signature import PrimitiveSet
from .answers import replace_images
from .call_plan import UNKNOWN, CallPlan, PlannedCall

CATCHABLE = (TypeError, ValueError, LookupError)
"""What a program may catch; everything else ends it."""
AT_ONCE = 64
"""Calls of one program under way ahead of it at most."""
UNUSED = 256
"""Calls begun ahead that the program has not come to, at most: each holds its evidence."""
READINGS = 16
"""How often a program is read again, about, while as many results come as it has calls."""
_REST_S = 0.01
DETAILED = 200
"""Calls of one program whose evidence is kept in full. Ten thousand pictures would take hundreds of megabytes."""


@dataclass
class _Begun:
    """A call under way."""

    task: asyncio.Future[object]
    context: CallContext
    usage: Usage


@dataclass
class ProgramCalls:
    """The calls of one question's programs: the sandbox's host."""

    primitives: PrimitiveSet
    context: Callable[[], CallContext]
    """Makes the surroundings of one call."""
    usage: Usage
    """The cost of each call is added to it."""
    tell: Callable[[Event], None]
    """Told when a call begins and ends."""
    finished: list[Call] = field(default_factory=list)
    """Those that have ended, in the order they began: a program waits for each."""
    _plan: CallPlan | None = None
    _planned: dict[Hashable, tuple[str, Mapping[str, object]]] = field(default_factory=dict)
    _ahead: dict[Hashable, _Begun] = field(default_factory=dict)
    _results: dict[Hashable, object] = field(default_factory=dict)
    """Of every call that was ever planned; UNKNOWN where it has not returned."""
    _news: int = 0
    """Results since the program was last read."""

    def begin_ahead(self, plan: CallPlan) -> None:
        """Begins the calls of a plan in order, some at a time."""
        self._plan = plan
        self._look_ahead()

    def _look_ahead(self) -> None:
        """Plans what follows from the results that are there; a call whose arguments are wrong is the program's."""
        if self._plan is None:
            return
        self._news = 0
        planned = self._plan.calls(self._result_of)
        if len(planned) == 1 and not self._results:  # a single call has nothing to share a batch with
            self._plan = None
            return
        for call in planned:
            try:
                arguments = self.primitives.get(call.name).bind(call.args, call.kwargs)
            except CATCHABLE:
                continue
            key = _call_key(call.name, arguments)
            if key not in self._results:
                self._results[key] = UNKNOWN
                self._planned[key] = (call.name, arguments)
        self._fill()

    def _result_of(self, call: PlannedCall) -> object:
        try:
            key = _call_key(call.name, self.primitives.get(call.name).bind(call.args, call.kwargs))
        except CATCHABLE:
            return UNKNOWN
        result = self._results.get(key, UNKNOWN)
        return list(result) if isinstance(result, list) else result  # the program's own list must not change

    def _keep(self, key: Hashable, task: asyncio.Future[object]) -> None:
        """Keeps the result of a call that was begun ahead; the program is read again once the whole batch is there."""
        if self._plan is None or task.cancelled() or task.exception() is not None:
            return
        self._results[key] = task.result()
        self._news += 1
        if self._news == 1:
            asyncio.get_running_loop().call_soon(self._look_again)

    def _look_again(self) -> None:
        """Reads the program again where enough is new: each time takes as long as there are pictures."""
        if READINGS * self._news >= len(self._results) or all(begun.task.done() for begun in self._ahead.values()):
            self._look_ahead()
        elif self._plan is not None:
            asyncio.get_running_loop().call_later(_REST_S, self._look_again)

    def close(self) -> None:
        """Cancels what was begun ahead and never asked for."""
        self._plan = None
        self._planned.clear()
        for begun in self._ahead.values():
            begun.task.cancel()
        self._ahead.clear()

    async def __call__(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], line: int | None) -> object:
        """Answers one call; see :data:`codevqa.sandbox.Host`."""
        started = time.perf_counter()
        arguments: Mapping[str, object] = {}
        known: _Begun | None = None
        try:
            arguments = self.primitives.get(name).bind(args, kwargs)
            known = self._ahead.pop(_call_key(name, arguments), None) if self._ahead else None
            self._fill()
            begun = known or self._begin(name, arguments)
        except CATCHABLE as error:
            begun = _Begun(asyncio.get_running_loop().create_future(), self.context(), Usage())
            begun.task.set_exception(error)
        call = Call(
            len(self.finished) + 1,
            name,
            {key: replace_images(item) for key, item in arguments.items()},
            None,
            0.0,
            line,
        )
        self.tell(CallBegan(call.index, name, call.arguments, line))
        value: object = None
        failure: ErrorRecord | None = None
        try:
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
            self.usage.add(begun.usage)
            evidence = begun.context.evidence
            if call.index > DETAILED:
                evidence = [replace(entry, relevance=(), patches=(), prompt="") for entry in evidence]
            ended = replace(
                call,
                value=replace_images(value),
                seconds=time.perf_counter() - started,
                evidence=tuple(evidence),
                error=failure,
                remembered=0 < begun.usage.calls == begun.usage.remembered,
                ahead=known is not None,
            )
            self.finished.append(ended)
            self.tell(CallEnded(ended))

    def _fill(self) -> None:
        """Begins as many as may be under way, once half of them are used up: one at a time would share no batch."""
        under_way = sum(not begun.task.done() for begun in self._ahead.values())
        if 2 * under_way > AT_ONCE:
            return
        most = min(AT_ONCE - under_way, UNUSED - len(self._ahead))
        while self._planned and most > 0:
            most -= 1
            key = next(iter(self._planned))
            self._ahead[key] = begun = self._begin(*self._planned.pop(key))
            begun.task.add_done_callback(partial(self._keep, key))

    def _begin(self, name: str, arguments: Mapping[str, object]) -> _Begun:
        context, usage = self.context(), Usage(memory=self.usage.memory)

        async def call_primitive() -> object:
            with usage.counting():
                return await self.primitives.get(name).call(context, arguments)

        return _Begun(asyncio.get_running_loop().create_task(call_primitive()), context, usage)


def _call_key(name: str, arguments: Mapping[str, object]) -> Hashable:
    return (name, *[(parameter, _value_key(value)) for parameter, value in arguments.items()])


def _value_key(value: object) -> Hashable:
    if isinstance(value, Image):
        return (value.index, value.picture.key)
    if isinstance(value, list | tuple):
        return (type(value), *map(_value_key, value))
    return (type(value), value)
