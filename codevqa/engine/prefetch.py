"""Begins the calls a program is going to make before it makes them, so that they share batches.

A program makes one call at a time. Those that can be read off its source (:mod:`.call_plan`) begin when it starts;
when it gets there, it takes over the one that runs already, with its result or failure, evidence and cost, exactly as
if it had begun there. What it never asks for is cancelled, and leaves no trace.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field

from ..batching.call_cache import Usage
from ..primitives.context import CallContext
from ..primitives.kinds import Image
from ..primitives.signature import Primitive, PrimitiveSet
from .call_plan import PlannedCall

__all__ = ["AT_ONCE", "Prefetch", "PrefetchedCall"]

AT_ONCE = 32
"""Calls of one program under way ahead of it at most."""


@dataclass
class PrefetchedCall:
    """A call under way that its program has not made yet."""

    task: asyncio.Task[object]
    context: CallContext
    usage: Usage = field(default_factory=Usage)


class Prefetch:
    """The calls of one program that have begun ahead of it.

    Args:
        primitives: what the program may call.
        context: makes the surroundings of one call.
    """

    def __init__(self, primitives: PrimitiveSet, context: Callable[[], CallContext]) -> None:
        self._primitives = primitives
        self._context = context
        self._waiting: dict[Hashable, tuple[Primitive, Mapping[str, object]]] = {}
        self._under_way: dict[Hashable, PrefetchedCall] = {}

    def begin(self, planned: Iterable[PlannedCall]) -> None:
        """Begins calls in order, :data:`AT_ONCE` at a time; a call whose arguments are wrong is left to the program."""
        for one in planned:
            try:
                arguments = self._primitives.bind(one.name, one.args, one.kwargs)
            except (TypeError, ValueError, LookupError):
                continue
            self._waiting.setdefault(_key(one.name, arguments), (self._primitives.get(one.name), arguments))
        self._fill()

    def take(self, name: str, arguments: Mapping[str, object]) -> PrefetchedCall | None:
        """Hands over the call that the program makes now, once; None where it has not begun."""
        if not self._under_way:
            return None
        begun = self._under_way.pop(_key(name, arguments), None)
        if begun is not None:
            self._fill()
        return begun

    def close(self) -> None:
        """Cancels what the program did not ask for, and silences what of it has failed."""
        self._waiting.clear()
        for begun in self._under_way.values():
            begun.task.cancel()
        self._under_way.clear()

    def _fill(self) -> None:
        while self._waiting and len(self._under_way) < AT_ONCE:
            key = next(iter(self._waiting))
            primitive, arguments = self._waiting.pop(key)
            context, usage = self._context(), Usage()
            task = asyncio.get_running_loop().create_task(_call(primitive, context, arguments, usage))
            self._under_way[key] = PrefetchedCall(task, context, usage)


async def _call(primitive: Primitive, context: CallContext, arguments: Mapping[str, object], usage: Usage) -> object:
    with usage.counting():
        return await primitive.call(context, arguments)


def _key(name: str, arguments: Mapping[str, object]) -> Hashable:
    return (name, *((parameter, _value(value)) for parameter, value in arguments.items()))


def _value(value: object) -> Hashable:
    if isinstance(value, Image):
        return (value.index, value.picture.key)
    if isinstance(value, list | tuple):
        return (type(value), *map(_value, value))
    return (type(value), value)
