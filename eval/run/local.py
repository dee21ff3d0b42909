"""Answers examples of a data set with an engine of this process."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ...core.answer import Answer
from ...core.errors import CodeVQAError, InputError, ReplayMissError, ServerError, SetupError
from ...core.images import Picture, load_pictures
from ...core.together import together
from ...engine.codevqa import CodeVQA
from ..task import Example, Job, Row
from .provenance import trace
from .request import KeptEvidence
from .shared_pictures import SharedPictures

__all__ = ["LocalAnswerer", "failed"]


class LocalAnswerer:
    """Answers examples with an engine of this process.

    Args:
        engine: the engine.
        seeds: seed of each repetition.
        evidence: what is kept of each call.
        shared: pictures that examples have in common; None shares none with others of this class.
    """

    def __init__(
        self,
        engine: CodeVQA,
        seeds: Sequence[int],
        evidence: KeptEvidence = "calls",
        shared: SharedPictures | None = None,
    ) -> None:
        self.engine = engine
        self.seeds = tuple(seeds)
        self.evidence = evidence
        self._shared = shared or SharedPictures()

    async def __call__(self, example: Example, jobs: Sequence[Job]) -> list[Row]:
        """Returns one row a job; the pictures are loaded once for all of them."""
        try:
            pictures = await asyncio.to_thread(self.pictures, example)
        except InputError as error:
            return [failed(example, job, error) for job in jobs]
        return await together(self._row(example, pictures, job) for job in jobs)

    def pictures(self, example: Example) -> tuple[Picture, ...]:
        """Loads the pictures of an example, through the engine where it keeps a record of them.

        Raises:
            ImageError: one is missing or unreadable.
        """
        load = getattr(self.engine, "load", None)
        if load is not None or not example.images:
            return load_pictures(load(example) if load is not None else ())
        return tuple(map(self._shared.load, example.images))

    async def _row(self, example: Example, pictures: Sequence[Picture], job: Job) -> Row:
        method, repeat = job
        try:
            answer = await self.engine.ask_async(
                pictures, example.question, form=example.form, method=method, seed=self.seeds[repeat]
            )
        except (ReplayMissError, ServerError, SetupError):
            raise
        except CodeVQAError as error:
            return failed(example, job, error)
        return self._answered(example, job, answer)

    def _answered(self, example: Example, job: Job, answer: Answer) -> Row:
        error = answer.error
        return Row(
            id=example.id,
            method=job[0],
            repeat=job[1],
            prediction=answer.text,
            fallback=answer.fallback,
            error=error.type if error else None,
            message=error.message if error else "",
            program=answer.program.source if answer.program else None,
            trace=trace(answer, full=self.evidence == "full"),
            seconds=answer.seconds,
            tokens=answer.tokens,
        )


def failed(example: Example, job: Job, error: CodeVQAError) -> Row:
    """Returns the row of an example that could not be answered."""
    shown = error.record()
    return Row(example.id, job[0], job[1], "", error=shown.type, message=shown.message)
