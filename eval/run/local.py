"""Answers examples of a data set with an engine of this process."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from weakref import WeakValueDictionary

from ...core.answer import Answer
from ...core.errors import CodeVQAError, InputError, ReplayMissError, ServerError, SetupError
from ...core.images import Picture, load_picture
from ...core.together import together
from ...engine.codevqa import CodeVQA
from ..task import EvalImage, Example, Job, PictureFile, Row
from .request import KeptEvidence

__all__ = ["LocalAnswerer", "SharedPictures", "failed"]

_COLUMNS = ("question", "answer", "program", "fallback", "error", "seconds", "models", "method", "tokens", "warnings")
"""Keys of an answer that a row has columns for, or that belong to the run."""
_LONG = ("relevance", "patches", "prompt")


class SharedPictures:
    """Pictures of questions under way: one that several are about is decoded once, from one event loop.

    Data sets ask much about one picture in a row, and decoding it takes longer than much that is asked. What no
    question holds any more is forgotten.
    """

    def __init__(self) -> None:
        self._held: WeakValueDictionary[PictureFile, Picture] = WeakValueDictionary()
        self._loading: dict[PictureFile, asyncio.Future[Picture]] = {}

    async def load(self, image: EvalImage) -> Picture:
        """Returns the picture.

        Raises:
            ImageError: it is missing or unreadable.
        """
        if not isinstance(image, PictureFile):  # in memory already, and not known by its name alone
            return await asyncio.to_thread(_read, image)
        held = self._held.get(image)
        if held is None:
            if image not in self._loading:
                self._loading[image] = asyncio.ensure_future(asyncio.to_thread(_read, image))
                self._loading[image].add_done_callback(lambda _: self._loading.pop(image))
            held = self._held[image] = await asyncio.shield(self._loading[image])
        return held


def _read(image: EvalImage) -> Picture:
    return load_picture(image.load())


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
            pictures = [await self._shared.load(image) for image in example.images]
        except InputError as error:
            return [failed(example, job, error) for job in jobs]
        return await together(self._row(example, pictures, job) for job in jobs)

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
        wrong = answer.error
        return Row(
            id=example.id,
            method=method,
            repeat=repeat,
            prediction=answer.text,
            fallback=answer.fallback,
            error=wrong.type if wrong else None,
            message=wrong.message if wrong else "",
            program=answer.program.source if answer.program else None,
            trace=_trace(answer, full=self.evidence == "full"),
            seconds=answer.seconds,
            tokens=answer.tokens,
        )


def failed(example: Example, job: Job, error: CodeVQAError) -> Row:
    """Returns the row of an example that could not be answered."""
    shown = error.record()
    return Row(example.id, job[0], job[1], "", error=shown.type, message=shown.message)


def _trace(answer: Answer, *, full: bool = False) -> dict[str, Any]:
    """Returns calls, failed attempts and the baseline's evidence; maps, patches and prompts only in full."""
    shown = answer.to_dict()
    kept = {key: value for key, value in shown.items() if key not in _COLUMNS}
    for call in kept["calls"]:
        # What these say depends on what was asked before, and a run that was broken off asks in another order.
        del call["remembered"], call["ahead"]
    if not full:
        for item in (*kept["baseline"], *(item for call in kept["calls"] for item in call["evidence"])):
            for name in _LONG:
                item.pop(name, None)
        for program in (kept["written"], *(attempt["program"] for attempt in kept["attempts"])):
            if program is not None:
                del program["prompt"]
    if kept["written"] is not None:
        del kept["written"]["source"], kept["written"]["question"]  # columns of the row and of the example
    return kept
