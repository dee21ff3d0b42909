"""No call is made twice: equal calls under way are one, and finished ones are remembered. Knows nothing of models.

This rests on results that depend on the request alone, which the contract of every model back end promises: sampling
is seeded by the request, and text is decoded greedily.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from .batching import Batcher, Company

__all__ = ["Memory", "MergeStats", "Merging"]

Request = TypeVar("Request")
Result = TypeVar("Result")

ENTRY = 400
"""Bytes that one remembered call takes besides its key and its result: dict entry, tuples, numbers."""


class Memory:
    """Finished calls of all kinds, the least recently used forgotten first.

    Args:
        limit: bytes kept at most, as estimated by those who put them here; 0 keeps nothing.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.size = 0
        """Bytes kept now."""
        self._kept: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: Hashable) -> tuple[Any] | None:
        """Returns the result in a tuple of one; None where there is none."""
        found = self._kept.get(key)
        if found is None:
            return None
        self._kept.move_to_end(key)
        return (found[0],)

    def put(self, key: Hashable, result: object, size: int) -> None:
        """Keeps a result, unless it alone is over the limit, and forgets what no longer fits."""
        if size > self.limit:
            return
        if key in self._kept:
            self.size -= self._kept.pop(key)[1]
        self._kept[key] = (result, size)
        self.size += size
        while self.size > self.limit:
            _, (_, freed) = self._kept.popitem(last=False)
            self.size -= freed


@dataclass
class MergeStats:
    """Counts since the start; those neither merged nor remembered went to the batcher."""

    calls: int = 0
    merged: int = 0
    """Calls that shared the result of an equal one under way."""
    remembered: int = 0
    """Calls answered from memory."""


class _Flight(Generic[Result]):
    """One call under way, and how many wait for it."""

    __slots__ = ("callers", "future", "key")

    def __init__(self, key: Hashable, future: asyncio.Future[Result]) -> None:
        self.key = key
        self.future = future
        self.callers = 0


class Merging(Generic[Request, Result]):
    """A batcher that is asked each thing once.

    A caller that is cancelled leaves the others their result; when the last is cancelled, so is the call. A failure
    reaches all who wait for it and is forgotten.

    Args:
        batcher: answers what is new.
        key: what of a request its result depends on, without pixels or long texts.
        size: bytes that key and result take, beside a fixed part.
        keep: whether a result may be remembered.
        memory: where finished calls are kept; may be shared by mergings whose keys differ.
        company: knows who could still join a batch.
    """

    def __init__(
        self,
        batcher: Batcher[Request, Result],
        key: Callable[[Request], Hashable],
        size: Callable[[Request, Result], int],
        *,
        memory: Memory,
        company: Company,
        keep: Callable[[Result], bool] = lambda result: True,
    ) -> None:
        self.batcher = batcher
        self.stats = MergeStats()
        self._key = key
        self._size = size
        self._keep = keep
        self._memory = memory
        self._company = company
        self._flights: dict[Hashable, _Flight[Result]] = {}
        company.add(batcher)

    async def __call__(self, request: Request) -> Result:
        """Returns the result of a request: remembered, from an equal call under way, or computed."""
        return (await self.many((request,)))[0]

    async def many(self, requests: Sequence[Request]) -> list[Result]:
        """Returns the results of several requests, in their order; raises what the first to fail raises."""
        results: list[Any] = [None] * len(requests)
        waiting: list[tuple[int, _Flight[Result]]] = []
        for place, request in enumerate(requests):
            key = self._key(request)
            known = self._memory.get(key)
            if known is not None:
                self.stats.remembered += 1
                results[place] = known[0]
                continue
            flight = self._flights.get(key)
            if flight is None:
                flight = self._begin(key, request)
            else:
                self.stats.merged += 1
            flight.callers += 1
            waiting.append((place, flight))
        self.stats.calls += len(requests)
        if waiting:
            await self._wait([flight for _, flight in waiting])
            for place, flight in waiting:
                results[place] = flight.future.result()
        return results

    async def _wait(self, flights: Sequence[_Flight[Result]]) -> None:
        """Waits until all have landed, or one has failed."""
        try:
            with self._company.waiting():
                # Unlike awaiting the futures, this leaves them alone when the caller is cancelled.
                await asyncio.wait({flight.future for flight in flights}, return_when=asyncio.FIRST_EXCEPTION)
            for flight in flights:
                if flight.future.done():
                    flight.future.result()
        finally:
            for flight in flights:
                flight.callers -= 1
                if not flight.callers and not flight.future.done():
                    flight.future.cancel()
                    self._end(flight)

    def _begin(self, key: Hashable, request: Request) -> _Flight[Result]:
        flight = _Flight(key, self.batcher.submit(request))

        def landed(future: asyncio.Future[Result]) -> None:
            self._end(flight)
            if not future.cancelled() and future.exception() is None:
                result = future.result()
                if self._keep(result):
                    self._memory.put(key, result, ENTRY + self._size(request, result))

        flight.future.add_done_callback(landed)
        self._flights[key] = flight
        return flight

    def _end(self, flight: _Flight[Result]) -> None:
        if self._flights.get(flight.key) is flight:  # a call that began after this one was cancelled stays
            del self._flights[flight.key]
