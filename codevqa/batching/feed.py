"""Requests for a function that lets new ones join those it works on. Knows nothing of models."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

from ..core.errors import CodeVQAError
from ..models.turn import Turn

Request = TypeVar("Request")
Result = TypeVar("Result")


class Slot:
    """Where the result of one request goes, with its share of the time that the batch took.

    It ends once, on the event loop, and calls :meth:`ended` at once: a future would take a turn of the loop for each of
    those who wait, a fifth of what a question costs Python.
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
        self.ended()

    def set_exception(self, error: BaseException) -> None:
        """Ends it with a failure."""
        self.error = error
        self.ended()

    def cancel(self) -> None:
        """Ends it, if it has not ended: nobody waits any more."""
        if not self.done():
            self.cancelled = True
            self.ended()

    def ended(self) -> None:
        """Hears that it has ended."""


Pair = tuple[Request, Slot]


class Feed(Generic[Request, Result]):
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
        turn: Turn,
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
        for queue in (self._first,) if self._turn.wanted else (self._first, self._waiting):
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
        tell(self._loop, _settle, slot, result, self._share - self._begun.pop(number))

    def _pass(self) -> None:
        """Shares out the time since the last request came or went among those under way."""
        now = time.perf_counter()
        if self.open:
            self._share += (now - self._since) / len(self.open)
        self._since = now

    def left(self) -> list[Pair[Request]]:
        """Returns what has no result, in the order it came."""
        return [*self.open.values(), *self._first]


def tell(loop: asyncio.AbstractEventLoop, callback: Callable[..., object], *args: object) -> None:
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
