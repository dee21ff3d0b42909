"""Joins calls that are made at the same time into one batch. Knows nothing of models."""

from __future__ import annotations

import asyncio
import functools
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Executor, Future
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ..core.errors import CodeVQAError, ModelError, ServerError, record
from ..models.request_queue import ModelLock, Pair, RequestQueue, Slot, call_on_loop, unwanted_once

Request = TypeVar("Request")
Result = TypeVar("Result")

_REST = 0.001
"""Seconds between a failure and the next batch: callers that failed cancel their other requests meanwhile."""


class Batcher(Generic[Request, Result]):
    """Collects requests for one batch function and hands each caller its own result.

    A batch starts when it is full, when ``max_wait`` has passed since its first request, when :meth:`hurry` says that
    nobody else will join, or as soon as the one before it ends: while a batch runs, the next one fills. As many batches
    run at a time as there are ``lanes``, in ``executor``, when it is its ``turn``. Requests keep their order. If a
    batch fails, each of its requests is tried alone, so that only the one at fault fails; a server that is down fails
    all of them at once. Where ``join`` is given, a batch has no end while requests come: it takes them as it has room,
    and hands out each result when it is there.

    Must be used from one event loop. It runs on plain callbacks: a task for every batch, and futures that forward to
    futures, would cost more than all else here.

    Args:
        run: takes a sequence of requests, returns as many results in order; called in ``executor``.
        executor: where ``run`` runs; share a one-thread executor between functions of one model.
        max_size: requests in one batch at most.
        max_wait: seconds the first request of a batch waits for others.
        lanes: batches that may run at a time. More than one suits a server, whose calls end each in its own time.
        join: works on the requests of a :class:`RequestQueue` until none is left; called in ``executor``.
        turn: the lock of the model, held while ``run`` or ``join`` works; None where the model needs no lock.
    """

    def __init__(
        self,
        run: Callable[[Sequence[Request]], Sequence[Result]],
        executor: Executor,
        *,
        max_size: int = 64,
        max_wait: float = 0.003,
        lanes: int = 1,
        join: Callable[[RequestQueue[Request, Result]], None] | None = None,
        turn: ModelLock | None = None,
    ) -> None:
        self._join = join
        self._turn = turn or ModelLock()
        self.running = 0
        """Batches that run now."""
        self._run = run
        self._executor = executor
        self._max_size = max_size
        self._max_wait = max_wait
        self._lanes = lanes
        self._waiting: deque[Pair[Request]] = deque()
        self._alone: deque[Pair[Request]] = deque()
        self.timer: asyncio.Handle | None = None
        """Starts the batch that fills; None where none does."""
        self._hurried = False

    def add(self, request: Request, slot: Slot) -> None:
        """Takes a request whose result goes to ``slot``; one that is done before its batch starts costs nothing."""
        self._waiting.append((request, slot))
        if self.running < self._lanes:
            if len(self._waiting) >= self._max_size:
                self._start()
            elif self.timer is None:
                self.timer = asyncio.get_running_loop().call_later(self._max_wait, self._start)

    def hurry(self) -> None:
        """Starts the batch that fills, as soon as those have joined who are about to in this turn of the loop."""
        if self.timer is not None and not self._hurried:
            self.timer.cancel()
            self.timer = asyncio.get_running_loop().call_soon(self._start)
            self._hurried = True

    def _start(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        self._hurried = False
        if self.running < self._lanes:
            self.running += 1
            asyncio.get_running_loop().call_soon(self._next)  # who asks before that still joins

    def _next(self) -> None:
        """Hands the next batch to the executor; the lane rests where there is none."""
        loop = asyncio.get_running_loop()
        while True:
            alone = bool(self._alone)
            batch = self._take_batch()
            if not batch:
                break
            feed: RequestQueue[Request, Result] | None = None
            try:
                if self._join is None or alone:
                    running: Future[Any] = self._executor.submit(self._run_timed, batch)
                else:
                    feed = RequestQueue(batch, self._waiting, self._max_size, loop, self._turn)
                    running = self._executor.submit(self._run_joining, self._join, feed)
            except RuntimeError as error:  # it was shut down
                self._fail_batch(batch, error)
                continue
            running.add_done_callback(functools.partial(call_on_loop, loop, self._finish_batch, batch, feed))
            return
        self.running -= 1

    def _run_timed(self, batch: Sequence[Pair[Request]]) -> tuple[Sequence[Result], float]:
        with self._turn, unwanted_once([slot.done for _, slot in batch]):
            begun = time.perf_counter()
            return list(self._run([request for request, _ in batch])), time.perf_counter() - begun

    def _run_joining(
        self, join: Callable[[RequestQueue[Request, Result]], None], feed: RequestQueue[Request, Result]
    ) -> None:
        with self._turn:
            join(feed)

    def _take_batch(self) -> list[Pair[Request]]:
        """Takes the requests of the next batch; a caller that was cancelled needs no answer."""
        while self._alone:
            pair = self._alone.popleft()
            if not pair[1].done():
                return [pair]
        batch: list[Pair[Request]] = []
        while self._waiting and len(batch) < self._max_size:
            pair = self._waiting.popleft()
            if not pair[1].done():
                batch.append(pair)
        return batch

    def _finish_batch(
        self,
        batch: Sequence[Pair[Request]],
        feed: RequestQueue[Request, Result] | None,
        ran: Future[tuple[Sequence[Result], float]],
    ) -> None:
        """Hands out what a batch gave, and starts the next."""
        if feed is not None:
            batch = feed.pending_requests()  # the others have their results
        error = CancelledError() if ran.cancelled() else ran.exception()
        if error is not None:
            if len(batch) > 1 and not isinstance(error, ServerError):
                self._alone.extend(batch)
            else:
                self._fail_batch(batch, error)
                asyncio.get_running_loop().call_later(_REST, self._next)
                return
        elif feed is not None:
            self._fail_batch(batch, ModelError(f"A model gave no result for {len(batch)} requests."))
        else:
            results, seconds = ran.result()
            if len(results) != len(batch):
                wrong = f"A model returned {len(results)} results for {len(batch)} requests."
                self._fail_batch(batch, ModelError(wrong))
            else:
                for (_, slot), result in zip(batch, results, strict=True):
                    if not slot.done():
                        slot.set_result((result, seconds / len(batch)))
        self._next()

    def _fail_batch(self, batch: Sequence[Pair[Request]], error: BaseException) -> None:
        # Whatever a back end raises belongs to its callers.
        failure = record(error)
        shown = error if isinstance(error, CodeVQAError) else ModelError(f"{failure.type}: {failure.message}")
        shown.__cause__ = None if shown is error else error
        for _, slot in batch:
            if not slot.done():
                slot.set_exception(shown)


@dataclass(slots=True)
class _Member:
    """One member of a company and how many results it waits for."""

    counts: bool = False
    pending: int = 0


_MEMBER: ContextVar[_Member | None] = ContextVar("codevqa-member", default=None)


class BatchCallers:
    """Who could still join a batch.

    Waiting pays only while somebody may come with another request. Once every member waits for a result and no batch is
    running that would give one, each batch that fills is as full as it will get: then all batchers hurry. So a question
    asked alone does not wait for company, and many asked at once wait for one another, ``max_wait`` at most.

    Must be used from one event loop.
    """

    def __init__(self) -> None:
        self._members = 0
        self._waiting = 0
        self.batchers: list[Batcher[Any, Any]] = []
        """Those that its members use."""

    @contextmanager
    def member(self) -> Iterator[None]:
        """Makes this task, and those it starts, one member for the length of the block."""
        token = _MEMBER.set(_Member(counts=True))
        self._members += 1
        try:
            yield
        finally:
            _MEMBER.reset(token)
            self._members -= 1

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Says that this task's member waits for a result, for the length of the block."""
        member = _MEMBER.get() or _Member()  # nobody waits for a caller from outside
        member.pending += 1
        self._waiting += member.counts and member.pending == 1
        running = [batcher for batcher in self.batchers if batcher.running]  # no generator: it costs a call for each
        if self._waiting >= self._members and not running:
            for batcher in [batcher for batcher in self.batchers if batcher.timer is not None]:
                batcher.hurry()
        try:
            yield
        finally:
            member.pending -= 1
            self._waiting -= member.counts and member.pending == 0
