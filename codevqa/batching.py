"""Joins calls that are made at the same time into one batch. Knows nothing of models."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Generic, TypeVar

from .errors import CodeVQAError, ModelError, ServerError

__all__ = ["BatchStats", "Batcher"]

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

    A batch starts when it is full, when ``max_wait`` has passed since its first request, or as soon as the one before
    it ends: while a batch runs, the next one fills. One batch runs at a time, in ``executor``. Requests keep their
    order. If a batch fails, each of its requests is tried alone, so that only the one at fault fails; a server that is
    down fails all of them at once.

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
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    async def __call__(self, request: Request) -> Result:
        """Returns the result of one request, computed together with others made meanwhile."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        self._waiting.append((request, future))
        if self._task is None:
            if len(self._waiting) >= self._max_size:
                self._start()
            elif self._timer is None:
                self._timer = loop.call_later(self._max_wait, self._start)
        return await future

    def _start(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
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
