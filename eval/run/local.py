"""Answers examples of a data set with an engine of this process."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

from ...core.answer import Answer
from ...core.errors import CodeVQAError, InputError, ReplayMissError, ServerError, SetupError
from ...core.images import Picture
from ...core.loop_thread import together
from ...core.selection import selections
from ...core.trace import ImageRef
from ...engine.codevqa import CodeVQA
from ...pages.heat import relevance_grid
from ..task import Example, Job, Row
from .provenance import engine_info
from .run_info import RunInfo

_COLUMNS = (
    *("question", "answer", "program", "fallback", "error", "warnings"),
    *("seconds", "stages", "models", "method", "tokens"),
)
"""Keys of an answer that a row has columns for, or that belong to the run."""
_LONG = ("relevance", "patches", "prompt")
"""What a row leaves out of a call's evidence; of the first, a few maps stay, coarse."""
MAPS = 12
"""Heat maps that a row keeps, for reports."""
LEVELS = 99
"""What is most relevant in them."""


class Answerer(Protocol):
    """Answers examples: an engine of this process, or engines elsewhere."""

    info: RunInfo
    """What identifies a run with it (:func:`.provenance.engine_info`)."""
    workers: int
    """Questions that it answers at once."""

    async def __call__(self, example: Example, jobs: Sequence[Job]) -> list[Row]:
        """Returns one row a job.

        Raises:
            ServerError: a model server is down.
            SetupError: this machine lacks something, so no example can be answered.
        """
        ...

    def close(self) -> None:
        """Ends it."""
        ...


class LocalAnswerer:
    """Answers examples with an engine of this process; a program that an example brings is run as it is."""

    def __init__(self, engine: CodeVQA) -> None:
        self.engine = engine
        self.info = engine_info(engine)
        self.workers = engine.settings.workers

    async def __call__(self, example: Example, jobs: Sequence[Job]) -> list[Row]:
        """Returns one row a job; the pictures are loaded once for all of them."""
        try:
            pictures = [await asyncio.to_thread(image.load) for image in example.images]
        except InputError as error:
            return [_failure_row(example, job, error) for job in jobs]
        return await together(self._row(example, pictures, job) for job in jobs)

    def close(self) -> None:
        """Closes the engine."""
        self.engine.close()

    async def _row(self, example: Example, pictures: Sequence[Picture], job: Job) -> Row:
        program = example.record.get("program")
        try:
            if isinstance(program, str) and job.method == "codevqa":
                answer = await self.engine.run_async(
                    pictures, program, question=example.question, form=example.form, seed=job.seed
                )
            else:
                answer = await self.engine.ask_async(
                    pictures, example.question, form=example.form, method=job.method, seed=job.seed
                )
        except (ReplayMissError, ServerError, SetupError):
            raise
        except CodeVQAError as error:
            return _failure_row(example, job, error)
        wrong, trace = answer.error, _trace(answer)
        if outside := {warning.kind for warning in answer.warnings} - {"spelling", "unsure"}:
            trace["outside"] = sorted(outside)
        if "pictures" in example.record and (indices := picture_numbers(answer)) is not None:
            trace["picked"] = indices
        return Row(
            id=example.id,
            method=job.method,
            repeat=job.repeat,
            prediction=answer.text,
            fallback=answer.fallback,
            error=wrong.type if wrong else None,
            message=wrong.message if wrong else "",
            program=answer.program.source if answer.program else None,
            trace=trace,
            seconds=answer.seconds,
            tokens=answer.tokens,
        )


def picture_numbers(answer: Answer) -> list[int] | None:
    """Returns the numbers of the pictures that an answer names or counts; None where its trace does not tell them.

    They are those that it names, or of the one question that each picture was asked those with the answer, yes or no,
    that it counts.
    """
    if (
        isinstance(answer.value, list)
        and answer.value
        and all(isinstance(reference, ImageRef) for reference in answer.value)
    ):
        return [reference.index for reference in answer.value]
    if not answer.text.isdigit() or len(selected := selections(answer.trace)) != 1:
        return None
    parts = (part for part in (selected[0].picked, selected[0].others) if len(part) == int(answer.text))
    counted = next(parts, None)
    return None if counted is None else sorted(pick.image.index for pick in counted)


def _failure_row(example: Example, job: Job, error: CodeVQAError) -> Row:
    """Returns the row of an example that could not be answered."""
    shown = error.record()
    return Row(example.id, job.method, job.repeat, "", error=shown.type, message=shown.message)


def _trace(answer: Answer) -> dict[str, Any]:
    """Returns calls, failed attempts and the baseline's evidence, without patches and prompts, with a few maps."""
    kept = {key: value for key, value in answer.to_dict().items() if key not in _COLUMNS}
    for call in kept["calls"]:
        # What these say depends on what was asked before, and a run that was broken off asks in another order.
        del call["remembered"], call["ahead"]
    room = MAPS
    for item in (*kept["baseline"], *(item for call in kept["calls"] for item in call["evidence"])):
        maps = [_coarse(map) for map in item["relevance"][:room]]
        room -= len(maps)
        for name in _LONG:
            item.pop(name, None)
        if maps:
            item["relevance"] = maps
    for program in (kept["written"], *(attempt["program"] for attempt in kept["attempts"])):
        if program is not None:
            del program["prompt"]
    if kept["written"] is not None:
        del kept["written"]["source"], kept["written"]["question"]  # columns of the row and of the example
    return kept


def _coarse(map: Any) -> list[list[int]]:
    """Returns a map in whole numbers up to :data:`LEVELS`, which take a tenth of the room; empty where it is flat."""
    grid = relevance_grid(map)
    return [] if grid is None else (LEVELS * grid).round().astype(int).tolist()
