"""No call is made twice: equal calls under way are one, and finished ones are remembered. Knows nothing of models.

This rests on results that depend on the request alone, which the contract of every model back end promises: sampling
is seeded by the request, and text is decoded greedily.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from cachetools import LRUCache

from ..collections.collection import StoredPicture
from ..models.request_queue import Slot
from .batcher import BatchCallers, Batcher

Request = TypeVar("Request")
Result = TypeVar("Result")

ENTRY = 400
"""Bytes that one remembered call takes besides its key and its result: dict entry, tuples, numbers."""


class Memory:
    """Finished calls of all kinds, the least recently used forgotten first.

    One may serve several engines at once: calls of one are never taken for those of another.

    Args:
        limit: bytes kept at most, as estimated by those who put them here; 0 keeps nothing.
        tell: told the key of each call that is finished, in an engine's thread.
    """

    def __init__(self, limit: int, tell: Callable[[Hashable], object] = lambda key: None) -> None:
        self.limit, self._tell = limit, tell
        self._kept: LRUCache[Hashable, tuple[Any, int]] = LRUCache(limit, getsizeof=lambda entry: entry[1])
        self._guard = threading.Lock()  # each engine has a thread of its own

    def get(self, key: Hashable) -> Any:
        """Returns what was kept; None where nothing was."""
        with self._guard:
            return self._kept.get(key, (None, 0))[0]

    def add(self, key: Hashable, result: object, size: int) -> None:
        """Keeps a result, unless it alone is over the limit, and forgets what no longer fits."""
        self._tell(key)
        if size > self.limit:
            return
        with self._guard:
            self._kept[key] = (result, size)


@dataclass
class Usage:
    """What somebody has asked of models so far, one question or one call of a primitive.

    A call counts in full for everyone who makes it, also where it was shared or remembered: what is reported with an
    answer is what it costs by itself, and does not depend on what else was asked.
    """

    prompt_tokens: int = 0
    """Tokens the language models read for it."""
    completion_tokens: int = 0
    """Tokens they wrote."""
    estimated_tokens: int = 0
    """Those of both that nobody counted."""
    seconds: float = 0.0
    """Its calls' shares of the batches that they were in."""
    kinds: Counter[str] = field(default_factory=Counter)
    """Model calls by kind."""
    remembered: int = 0
    """Those of them that were answered from memory."""
    memory: Memory | None = None
    """Where they are looked up and kept; None takes that of all questions."""

    @property
    def calls(self) -> int:
        """Model calls."""
        return self.kinds.total()

    @property
    def tokens(self) -> int:
        """Tokens the language models read and wrote for it."""
        return self.prompt_tokens + self.completion_tokens

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Adds the calls of this task, and of those it starts, to this usage for the length of the block."""
        token = _USAGE.set(self)
        try:
            yield
        finally:
            _USAGE.reset(token)

    def add(self, other: Usage) -> None:
        """Adds what another has counted."""
        self.prompt_tokens += other.prompt_tokens
        self.completion_tokens += other.completion_tokens
        self.estimated_tokens += other.estimated_tokens
        self.seconds += other.seconds
        self.kinds += other.kinds
        self.remembered += other.remembered


_USAGE: ContextVar[Usage | None] = ContextVar("codevqa-usage", default=None)


class _Flight(Slot, Generic[Request, Result]):
    """One call under way, who waits for it and where they want it kept."""

    __slots__ = ("_land", "key", "memories", "request", "waiting")

    def __init__(self, key: Hashable, request: Request, land: Callable[[_Flight[Request, Result]], None]) -> None:
        super().__init__()
        self.key = key
        self.request = request
        self.waiting: list[_Waiting] = []
        self.memories: list[Memory] = []
        self._land = land

    def on_end(self) -> None:
        """Keeps the result, and wakes who waits for it."""
        self._land(self)
        for waiting in self.waiting:
            waiting.hear(self)


class _Waiting:
    """Somebody who waits until several calls have landed."""

    def __init__(self, flights: Sequence[_Flight[Any, Any]]) -> None:
        self._left = len(flights)
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for flight in flights:
            flight.waiting.append(self)

    def hear(self, flight: _Flight[Any, Any]) -> None:
        """Hears of one that has landed; the first failure ends the wait."""
        self._left -= 1
        if self.over.done():
            return
        if flight.error is not None:
            self.over.set_exception(flight.error)
        elif self._left == 0:
            self.over.set_result(None)


class CallCache(Generic[Request, Result]):
    """A batcher that is asked each thing once.

    A caller that is cancelled leaves the others their result; when the last is cancelled, so is the call. A failure
    reaches all who wait for it and is forgotten.

    Args:
        batcher: answers what is new.
        key: what of a request its result depends on, without pixels or long texts.
        kind: what such a call is called where calls are counted.
        size: bytes that key and result take, beside a fixed part.
        keep: whether a result may be remembered; None keeps all.
        cost: tokens that were read and written for a result, and whether they are estimated; counted for everyone who
            asks.
        memory: where finished calls are kept, unless the caller has one of its own (:attr:`Usage.memory`). May be
            shared by mergings whose keys differ.
        callers: knows who could still join a batch.
    """

    def __init__(
        self,
        batcher: Batcher[Request, Result],
        key: Callable[[Request], Hashable],
        size: Callable[[Request, Result], int],
        *,
        kind: str,
        memory: Memory,
        callers: BatchCallers,
        keep: Callable[[Result], bool] | None = None,
        cost: Callable[[Result], tuple[int, int, bool]] | None = None,
    ) -> None:
        self.batcher = batcher
        self._key = key
        self._size = size
        self._kind = kind
        self._keep = keep
        self._cost = cost
        self._memory = memory
        self._callers = callers
        self._flights: dict[Hashable, _Flight[Request, Result]] = {}
        callers.batchers.append(batcher)

    async def __call__(self, request: Request, *, kind: str = "") -> Result:
        """Returns the result of a request: remembered, from an equal call under way, or computed.

        Args:
            request: what is asked.
            kind: the kind under which the call is counted; empty takes this cache's own.
        """
        return (await self.many((request,), kind=kind))[0]

    def remembers(self, requests: Sequence[Request]) -> bool:
        """Whether the results of requests are known, for all who bring no memory of their own."""
        return all(self._memory.get(self._key(request)) is not None for request in requests)

    async def many(self, requests: Sequence[Request], *, kind: str = "") -> list[Result]:
        """Returns the results of several requests, in their order; raises what the first to fail raises."""
        usage = _USAGE.get()
        memory = self._memory if usage is None or usage.memory is None else usage.memory
        results: list[Any] = [None] * len(requests)
        waiting: list[tuple[int, _Flight[Request, Result]]] = []
        seconds = 0.0
        for place, request in enumerate(requests):
            picture = getattr(request, "picture", None)
            for stored in getattr(request, "pictures", ()) if picture is None else (picture,):
                if isinstance(stored, StoredPicture):
                    stored.check()
            key = self._key(request)
            known = memory.get(key)
            if known is not None:
                results[place], took = known
                seconds += took
                continue
            flight = self._flights.get(key)
            if flight is None:
                flight = self._flights[key] = _Flight(key, request, self._land)
                self.batcher.add(request, flight)
            if memory not in flight.memories:
                flight.memories.append(memory)
            waiting.append((place, flight))
        if usage is not None:
            usage.kinds[kind or self._kind] += len(requests)
            usage.remembered += len(requests) - len(waiting)
        if waiting:
            await self._wait([flight for _, flight in waiting])
        for place, flight in waiting:
            assert flight.result is not None
            results[place], took = flight.result
            seconds += took
        if usage is not None:
            usage.seconds += seconds
            for read, written, estimated in map(self._cost, results) if self._cost is not None else ():
                usage.prompt_tokens += read
                usage.completion_tokens += written
                usage.estimated_tokens += (read + written) * estimated
        return results

    async def _wait(self, flights: Sequence[_Flight[Request, Result]]) -> None:
        """Waits until all have landed, or raises what the first to fail failed of."""
        waiting = _Waiting(flights)
        try:
            with self._callers.waiting():
                await waiting.over
        finally:
            for flight in flights:
                flight.waiting.remove(waiting)
                if not flight.waiting:
                    flight.cancel()

    def _land(self, flight: _Flight[Request, Result]) -> None:
        """Keeps a result where somebody wants it kept."""
        del self._flights[flight.key]
        if flight.result is not None and (self._keep is None or self._keep(flight.result[0])):
            size = ENTRY + self._size(flight.request, flight.result[0])
            for memory in flight.memories:
                memory.add(flight.key, flight.result, size)
