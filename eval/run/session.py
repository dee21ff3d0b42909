"""One session of an evaluation: asks every example that a store lacks, a window of them at a time.

What an example brings - an answer, a picture that cannot be read - is a row; what is wrong with the machine - a server
that is down, a full disk - ends the session with every finished row kept.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import TypeAlias

from ...core.errors import (
    CodeVQAError,
    EmptyReadingError,
    InputError,
    ModelError,
    ReplayMissError,
    ServerError,
    SetupError,
)
from ...core.loop_thread import LoopThread
from ..task import DataSet, Example, Job, Row
from .local import Answerer
from .run_info import RunInfo, RunPace
from .store import Store

Progress: TypeAlias = "Callable[[Status], None]"
_MODEL_FAILED = (ModelError.__name__, EmptyReadingError.__name__)
PATIENCE = 16
"""Examples in a row for which a model fails that end a run; more where the window is larger."""


@dataclass
class Status:
    """How far a run is."""

    total: int | None = None
    """Examples of this run, as far as the data set says."""
    examples: int = 0
    """Examples that are finished, those of earlier sessions included."""
    skipped: int = 0
    """Examples that were finished before this session."""
    rows: int = 0
    """Rows of this session."""
    fallbacks: int = 0
    """Rows of this session that a baseline answered in the place of a program that failed."""
    unanswered: int = 0
    """Rows of this session without any answer."""
    seconds: float = 0.0
    """Since this session began."""
    under_way: int = 0
    """Examples that are being answered; each counts as half done."""
    first: tuple[float, float] = (0.0, 0.0)
    """Seconds and work at the first answer, from which on time is reckoned: before it, models may have warmed up."""

    @property
    def rate(self) -> float:
        """Examples a second in this session."""
        return (self.examples - self.skipped) / self.seconds if self.seconds else 0.0

    @property
    def work(self) -> float:
        """Examples' worth of work done in this session."""
        return self.examples - self.skipped + self.under_way / 2

    @property
    def seconds_left(self) -> float | None:
        """Seconds left at the rate since the first answer; None in the second after it, or without a total."""
        (since, before), todo = self.first, (self.total or 0) - self.skipped - self.work
        if self.total is None or (todo > 0 and (self.work <= before or self.seconds < since + 1)):
            return None
        return max(0.0, todo) * (self.seconds - since) / max(self.work - before, 0.5)


class Session:
    """Asks every example that a store lacks.

    Args:
        store: where rows go; opened for writing.
        dataset: where examples come from.
        ask: what answers them.
        info: methods, seeds, offset, limit and number of examples of this session.
        progress: told how far the run is, after each example.
        retry: whether to ask again what could not be asked before.
    """

    def __init__(
        self,
        store: Store,
        dataset: DataSet,
        ask: Answerer,
        info: RunInfo,
        progress: Progress | None = None,
        retry: bool = False,
    ) -> None:
        self.store, self.ask, self.progress, self.retry = store, ask, progress, retry
        self.jobs = [Job(method, repeat, seed) for repeat, seed in enumerate(info.seeds) for method in info.methods]
        # Twice as many as are answered at once, so that none waits.
        self.window = max(1, 2 * ask.workers // len(self.jobs))
        self.status = Status(total=info.questions)
        self.begun = time.monotonic()
        self.stopped: CodeVQAError | None = None
        self.failures = 0
        """Examples in a row for which a model failed."""
        self.under_way: dict[str, str] = {}
        """Question by id."""
        end = None if info.limit is None else info.offset + info.limit
        self.source = enumerate(islice(dataset, info.offset, end), info.offset)

    def run(self) -> None:
        """Asks, from any thread.

        Raises:
            ServerError: a model server went down.
            ModelError: a model failed for as many questions in a row as the window holds.
            SetupError: the disk is full, or nothing can be answered on this machine.
            InputError: the data set holds other questions than the run.
        """
        loop = LoopThread("codevqa-eval")
        try:
            loop.run(self._drive())
        finally:
            loop.close()
            with suppress(SetupError):  # a full disk was reported before
                status = self.status
                self.store.end_session(RunPace(status.examples - status.skipped, time.monotonic() - self.begun))

    async def _drive(self) -> None:
        """Asks until the data set or something else ends."""
        work = [asyncio.ensure_future(self._worker()) for _ in range(self.window)]
        try:
            await asyncio.gather(*work)
        finally:
            for task in work:
                task.cancel()
            await asyncio.gather(*work, return_exceptions=True)
        if (error := self.stopped) is not None:
            kept, retry = sum(self.store.counts().values()), " --retry-errors" * (type(error) is ModelError)
            raise type(error)(str(error), hint=f"Stopped with {kept:,} rows kept; --resume{retry} goes on.")

    async def _worker(self) -> None:
        """Answers examples until there are none, or something ends the run; others then finish theirs."""
        try:
            for place, example in self.source:
                if self.stopped is not None:
                    return
                jobs = self._open_jobs(place, example)
                if not jobs:
                    await asyncio.sleep(0)  # lets an interrupt in while millions are skipped
                    continue
                self.under_way[example.id] = example.question
                try:
                    rows = await self.ask(example, jobs)
                finally:
                    del self.under_way[example.id]
                self._keep(place, example, rows)
        except (InputError, ReplayMissError, ServerError, SetupError) as error:
            self.stopped = self.stopped or error

    def _open_jobs(self, place: int, example: Example) -> list[Job]:
        """Returns what is to be asked of an example; nothing where it is finished, or its id came before.

        Raises:
            InputError: the run has another question of that id.
        """
        known = self.store.find_example(example.id)
        asked = known[1] if known is not None else self.under_way.get(example.id)
        if asked not in (None, example.question):
            raise InputError(
                f"Question {example.id} reads {example.question!r} in the data set and {asked!r} in the run: the"
                " data have changed, or use an id twice."
            )
        if example.id in self.under_way or (known is not None and known[0] != place):
            return []
        rows = [
            job
            for job in self.jobs
            if known is None or not self.store.has(example.id, job.method, job.repeat, asked=self.retry)
        ]
        if not rows:
            self.status.skipped += 1
            self._report_progress()
        return rows

    def _keep(self, place: int, example: Example, rows: list[Row]) -> None:
        self.store.add(example, rows, place=place)
        self.status.rows += len(rows)
        self.status.fallbacks += sum(row.fallback for row in rows)
        self.status.unanswered += sum(row.error is not None and not row.fallback for row in rows)
        self._report_progress()
        failed = all(row.error in _MODEL_FAILED and not row.fallback for row in rows)
        self.failures = self.failures + 1 if failed else 0
        if self.failures >= max(PATIENCE, self.window):
            self.stopped = self.stopped or ModelError(rows[0].message)

    def _report_progress(self) -> None:
        status = self.status
        status.examples += 1
        status.seconds, status.under_way = time.monotonic() - self.begun, len(self.under_way)
        if status.first == (0.0, 0.0) and status.examples > status.skipped:
            status.first = status.seconds, status.work
        if self.progress is not None:
            self.progress(self.status)
