"""Joins calls that are made at the same time into one batch. Knows nothing of models."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from .errors import CodeVQAError, ModelError, ServerError

__all__ = ["BatchStats", "Batcher", "Company"]

Request = TypeVar("Request")
Result = TypeVar("Result")


@dataclass
class BatchStats:
    """Counts since the batcher was made."""

    requests: int = 0
    batches: int = 0
    largest: int = 0


class Batcher(Generic[Request, Result]):
    """Collects requests for one batch function and hands each caller its own result.

    A batch starts when it is full, when ``max_wait`` has passed since its first request, when :meth:`hurry` says that
    nobody else will join, or as soon as the one before it ends: while a batch runs, the next one fills. One batch runs
    at a time, in ``executor``. Requests keep their order. If a batch fails, each of its requests is tried alone, so
    that only the one at fault fails; a server that is down fails all of them at once.

    Must be used from one event loop.

    Args:
        run: takes a sequence of requests, returns as many results in order; called in ``executor``.
        executor: where ``run`` runs; share a one-thread executor between functions of one model.
        max_size: requests in one batch at most.
        max_wait: seconds the first request of a batch waits for others.
    """

    def __init__(
        self,
        run: Callable[[Sequence[Request]], Sequence[Result]],
        executor: Executor,
        *,
        max_size: int = 64,
        max_wait: float = 0.003,
    ) -> None:
        self.stats = BatchStats()
        self._run = run
        self._executor = executor
        self._max_size = max_size
        self._max_wait = max_wait
        self._waiting: deque[tuple[Request, asyncio.Future[Result]]] = deque()
        self._timer: asyncio.Handle | None = None
        self._hurried = False
        self._task: asyncio.Task[None] | None = None

    async def __call__(self, request: Request) -> Result:
        """Returns the result of one request, computed together with others made meanwhile."""
        return await self.submit(request)

    def submit(self, request: Request) -> asyncio.Future[Result]:
        """Returns the future of one request's result. One that is cancelled before its batch starts costs nothing."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        self._waiting.append((request, future))
        if self._task is None:
            if len(self._waiting) >= self._max_size:
                self._start()
            elif self._timer is None:
                self._timer = loop.call_later(self._max_wait, self._start)
        return future

    @property
    def busy(self) -> bool:
        """Whether a batch is running."""
        return self._task is not None

    def hurry(self) -> None:
        """Starts the batch that fills, as soon as those have joined who are about to in this turn of the loop."""
        if self._timer is not None and not self._hurried:
            self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_soon(self._start)
            self._hurried = True

    def _start(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._hurried = False
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._drain())

    async def _drain(self) -> None:
        try:
            while self._waiting:
                batch: list[tuple[Request, asyncio.Future[Result]]] = []
                while self._waiting and len(batch) < self._max_size:
                    request, future = self._waiting.popleft()
                    if not future.done():  # a caller that was cancelled needs no answer
                        batch.append((request, future))
                if batch:
                    await self._one_batch(batch)
        finally:
            self._task = None

    async def _one_batch(self, batch: list[tuple[Request, asyncio.Future[Result]]]) -> None:
        self.stats.requests += len(batch)
        self.stats.batches += 1
        self.stats.largest = max(self.stats.largest, len(batch))
        loop = asyncio.get_running_loop()
        try:
            results = await loop.run_in_executor(self._executor, self._run, [request for request, _ in batch])
            if len(results) != len(batch):
                raise ModelError(f"A model returned {len(results)} results for {len(batch)} requests.")
        except asyncio.CancelledError:
            for _, future in batch:
                future.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - whatever a back end raises belongs to its callers, not to this loop
            if len(batch) > 1 and not isinstance(error, ServerError):
                for pair in batch:
                    await self._one_batch([pair])
                return
            shown = error if isinstance(error, CodeVQAError) else ModelError(f"{type(error).__name__}: {error}")
            shown.__cause__ = None if shown is error else error
            for _, future in batch:
                if not future.done():
                    future.set_exception(shown)
            return
        for (_, future), result in zip(batch, results, strict=True):
            if not future.done():
                future.set_result(result)


class _Member:
    """One member of a company and how many results it waits for."""

    __slots__ = ("pending",)

    def __init__(self) -> None:
        self.pending = 0


_MEMBER: ContextVar[_Member | None] = ContextVar("codevqa-member", default=None)


class Company:
    """Who could still join a batch.

    Waiting pays only while somebody may come with another request. Once every member waits for a result and no batch is
    running that would give one, each batch that fills is as full as it will get: then all batchers hurry. So a question
    asked alone does not wait for company, and many asked at once wait for one another, ``max_wait`` at most.
    A member that left a moment ago is likely to be followed by another, as where so many questions are kept under way:
    until then its place is kept.

    Must be used from one event loop.

    Args:
        patience: seconds the place of a member that left is kept.
    """

    def __init__(self, patience: float = 0.003) -> None:
        self._patience = patience
        self._left: deque[float] = deque()
        self._members = 0
        self._waiting = 0
        self._batchers: list[Batcher[Any, Any]] = []

    def add(self, batcher: Batcher[Any, Any]) -> None:
        """Adds a batcher that its members use."""
        self._batchers.append(batcher)

    @contextmanager
    def member(self) -> Iterator[None]:
        """Makes this task, and those it starts, one member for the length of the block."""
        token = _MEMBER.set(_Member())
        self._members += 1
        if self._left:
            self._left.popleft()
        try:
            yield
        finally:
            _MEMBER.reset(token)
            self._members -= 1
            self._left.append(time.monotonic())

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Says that this task's member waits for a result for the length of the block."""
        member = _MEMBER.get()
        if member is None:  # a caller from outside: nobody waits for it
            self._changed()
            yield
            return
        member.pending += 1
        if member.pending == 1:
            self._waiting += 1
        self._changed()
        try:
            yield
        finally:
            member.pending -= 1
            if member.pending == 0:
                self._waiting -= 1

    def _changed(self) -> None:
        while self._left and self._left[0] < time.monotonic() - self._patience:
            self._left.popleft()
        if self._waiting >= self._members + len(self._left) and not any(batcher.busy for batcher in self._batchers):
            for batcher in self._batchers:
                batcher.hurry()
