"""Between callers and a model: who may use it, which requests join its batch, and whether anybody still waits.

A :class:`ModelLock` stands for parts that two callers may not use at once, such as a network. Callers get it in the
order they came. Models that share a part share the wait for it. A :class:`RequestQueue` hands a model requests while it
works, and a :class:`Slot` takes the result of one. Nothing here knows what models compute.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Generic, TypeVar

from ..core.errors import CodeVQAError, SetupError

_queues_changed = threading.Condition()
_queues: dict[int, list[int]] = {}
"""Threads that want a part, by its id, in the order they came: it is the first one's."""
_owners: list[int] = []
"""Threads that have what they wanted, as often as they entered."""


class ModelLock:
    """The right to use some parts alone, for the length of a ``with`` block. It may be entered again inside.

    Threads get it in the order in which they ask. Two locks over one part exclude each other. A lock without parts
    excludes nobody: it suits models that any number of threads may call, such as clients of a server.

    Args:
        parts: what only one thread may use at a time.
    """

    def __init__(self, *parts: object) -> None:
        self._parts = {id(part): part for part in parts}  # held, so that an id means no other object
        self._process = os.getpid()

    @property
    def free(self) -> bool:
        """Whether the lock excludes nobody."""
        return not self._parts

    @property
    def has_waiters(self) -> bool:
        """Whether another thread waits for one of the parts. A long computation should then let it go first."""
        with _queues_changed:
            return any(queue[-1] != queue[0] for part in self._parts if (queue := _queues.get(part)))

    def __enter__(self) -> None:
        if os.getpid() != self._process:  # a fork copies no threads: locks stay shut, and pools never answer
            raise SetupError(
                "A model cannot be used in a process that was forked after it was loaded.",
                hint="Load it there, or start processes with spawn.",
            )
        me = threading.get_ident()
        with _queues_changed:
            # Into all queues at once, so that two threads that want the same parts never wait for each other. A thread
            # that owns a part goes before all that own none, since they may wait for what it owns.
            for queue in [_queues.setdefault(part, []) for part in self._parts]:
                taken = bool(queue) and queue[0] in _owners and queue[0] != me
                queue.insert(int(taken) if me in _owners else len(queue), me)
            try:
                while [part for part in self._parts if _queues[part][0] != me]:
                    _queues_changed.wait()
            except BaseException:  # an interrupt
                self._leave(me)
                raise
            _owners.append(me)

    def __exit__(self, *_: object) -> None:
        with _queues_changed:
            _owners.remove(threading.get_ident())
            self._leave(threading.get_ident())

    def _leave(self, thread: int) -> None:
        for part in self._parts:
            _queues[part].remove(thread)
            if not _queues[part]:
                del _queues[part]
        _queues_changed.notify_all()


def lock_of(model: object) -> ModelLock:
    """Returns the turn of a model: its attribute ``turn``, else one over the object itself."""
    own = getattr(model, "turn", None)
    return own if isinstance(own, ModelLock) else ModelLock(model)


def _forget() -> None:
    global _queues_changed
    _queues_changed = threading.Condition()
    _queues.clear()
    _owners.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)  # models that are loaded in the child have lines of their own


_UNWANTED: ContextVar[Callable[[int], bool]] = ContextVar("codevqa-unwanted", default=lambda number: False)


@contextmanager
def unwanted_once(over: Sequence[Callable[[], bool]]) -> Iterator[None]:
    """Tells the model that is called in the block, for each of its requests, whether nobody waits for it any more.

    The result of such a request is of no use to anybody; its place must be filled, with whatever it is.
    """
    token = _UNWANTED.set(lambda number: over[number]())
    try:
        yield
    finally:
        _UNWANTED.reset(token)


def cancellation_check() -> Callable[[int], bool]:
    """Returns what says whether a request of this call, by its number, is wanted no more; from any thread."""
    return _UNWANTED.get()


Request = TypeVar("Request")
Result = TypeVar("Result")


class Slot:
    """Where the result of one request goes, with its share of the time that the batch took.

    It ends once, on the event loop, and calls :meth:`on_end` at once: a future would take a turn of the loop for each
    of those who wait, a fifth of what a question costs Python.
    """

    __slots__ = ("cancelled", "error", "result")

    def __init__(self) -> None:
        self.result: tuple[Any, float] | None = None
        self.error: BaseException | None = None
        self.cancelled = False

    def done(self) -> bool:
        """Whether it has ended."""
        return self.result is not None or self.error is not None or self.cancelled

    def set_result(self, result: tuple[Any, float]) -> None:
        """Ends it with a result and seconds."""
        self.result = result
        self.on_end()

    def set_exception(self, error: BaseException) -> None:
        """Ends it with a failure."""
        self.error = error
        self.on_end()

    def cancel(self) -> None:
        """Ends it, if it has not ended: nobody waits any more."""
        if not self.done():
            self.cancelled = True
            self.on_end()

    def on_end(self) -> None:
        """Hears that it has ended."""


Pair = tuple[Request, Slot]


class RequestQueue(Generic[Request, Result]):
    """Requests that wait, taken from the thread that works on them; results go out from there as they come.

    Args:
        first: requests to begin with.
        waiting: where others arrive meanwhile, on the loop's thread; taken from its left.
        most: requests under way at once.
        loop: where results are handed out.
        turn: the function's; while others wait for it, those who wait here are left for the next feed.
    """

    def __init__(
        self,
        first: Sequence[Pair[Request]],
        waiting: deque[Pair[Request]],
        most: int,
        loop: asyncio.AbstractEventLoop,
        turn: ModelLock,
    ) -> None:
        self.open: dict[int, Pair[Request]] = {}
        """What was taken and has no result yet."""
        self._first, self._waiting, self._most = deque(first), waiting, most
        self._loop, self._turn = loop, turn
        self._numbers = itertools.count()
        self._since = time.perf_counter()
        self._share = 0.0
        """Seconds that one request under way from the start would have had of those that were shared."""
        self._begun: dict[int, float] = {}

    def take(self, most: int) -> Sequence[tuple[int, Request]]:
        """Returns the next requests, each with its number; none where nobody waits, or others want their turn."""
        taken: list[tuple[int, Request]] = []
        self._pass()
        most = min(most, self._most - len(self.open))
        for queue in (self._first,) if self._turn.has_waiters else (self._first, self._waiting):
            while queue and len(taken) < most:
                pair = queue.popleft()
                if not pair[1].done():
                    number = next(self._numbers)
                    self.open[number] = pair
                    self._begun[number] = self._share
                    taken.append((number, pair[0]))
        return taken

    def give(self, number: int, result: Result | CodeVQAError) -> None:
        """Hands out a result, or why there is none."""
        self._pass()
        _, slot = self.open.pop(number)
        call_on_loop(self._loop, _settle, slot, result, self._share - self._begun.pop(number))

    def _pass(self) -> None:
        """Shares out the time since the last request came or went among those under way."""
        now = time.perf_counter()
        if self.open:
            self._share += (now - self._since) / len(self.open)
        self._since = now

    def pending_requests(self) -> list[Pair[Request]]:
        """Returns what has no result, in the order it came."""
        return [*self.open.values(), *self._first]


def call_on_loop(loop: asyncio.AbstractEventLoop, callback: Callable[..., object], *args: object) -> None:
    """Calls back on the loop's thread."""
    with suppress(RuntimeError):  # the loop has ended, and nobody waits any more
        loop.call_soon_threadsafe(callback, *args)


def _settle(slot: Slot, result: object, seconds: float) -> None:
    if slot.done():
        return
    if isinstance(result, CodeVQAError):
        slot.set_exception(result)
    else:
        slot.set_result((result, seconds))
