"""The models of an engine, each behind a batcher that all programs now running share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

from .batching import Batcher
from .errors import SetupError
from .models.base import (
    Box,
    CaptionRequest,
    Completion,
    DetectRequest,
    GenerationRequest,
    LanguageModel,
    Match,
    MatchRequest,
    Models,
    SimilarityRequest,
)

__all__ = ["Services", "Usage"]

Request = TypeVar("Request")
Result = TypeVar("Result")


@dataclass
class Usage:
    """What one question has cost so far; :class:`Services` adds to the usage of the task that asks."""

    tokens: int = 0
    """Tokens the language models read and wrote for it."""

    @classmethod
    def begin(cls) -> Usage:
        """Returns a new usage, to which this task's calls are added from now on."""
        usage = cls()
        _USAGE.set(usage)
        return usage


_USAGE: ContextVar[Usage | None] = ContextVar("codevqa-usage", default=None)


class Services:
    """Async, batched calls of each model. Made and used on the engine's event loop.

    Calls of one model object never overlap, even when it plays two roles.

    Args:
        models: reader, matcher, captioner and perhaps a detector.
        writer: the language model that writes programs; may be the reader.
        max_batch: requests in one batch at most.
        max_wait: seconds a first request waits for company.
    """

    def __init__(self, models: Models, writer: LanguageModel, *, max_batch: int, max_wait: float) -> None:
        self._threads: dict[int, ThreadPoolExecutor] = {}
        self._options = {"max_size": max_batch, "max_wait": max_wait}
        self._write: Batcher[GenerationRequest, Completion] = self._batcher(writer, writer.generate)
        self._read: Batcher[GenerationRequest, Completion] = (
            self._write if models.reader is writer else self._batcher(models.reader, models.reader.generate)
        )
        self.match: Batcher[MatchRequest, Match] = self._batcher(models.matcher, models.matcher.match)
        self.similarity: Batcher[SimilarityRequest, float] = self._batcher(models.matcher, models.matcher.similarity)
        self.caption: Batcher[CaptionRequest, str] = self._batcher(models.captioner, models.captioner.caption)
        detector = models.detector
        self._detect: Batcher[DetectRequest, tuple[Box, ...]] | None = (
            self._batcher(detector, detector.detect) if detector else None
        )

    async def write(self, request: GenerationRequest) -> Completion:
        """Returns what the model that writes programs makes of a prompt."""
        return _counted(await self._write(request))

    async def read(self, request: GenerationRequest) -> Completion:
        """Returns what the model that reads captions makes of a prompt."""
        return _counted(await self._read(request))

    async def detect(self, request: DetectRequest) -> tuple[Box, ...]:
        """Returns the boxes of a phrase.

        Raises:
            SetupError: this engine has no detector.
        """
        if self._detect is None:
            raise SetupError("find_object needs a detector.", hint="Give Models(detector=...).")
        return await self._detect(request)

    def close(self) -> None:
        """Ends the threads; calls still running finish first."""
        for thread in self._threads.values():
            thread.shutdown(wait=True, cancel_futures=True)

    def _batcher(self, model: Any, run: Callable[[Sequence[Request]], Sequence[Result]]) -> Batcher[Request, Result]:
        thread = self._threads.get(id(model))
        if thread is None:
            thread = ThreadPoolExecutor(1, thread_name_prefix=f"codevqa-{type(model).__name__}")
            self._threads[id(model)] = thread
        return Batcher(run, thread, max_size=int(self._options["max_size"]), max_wait=self._options["max_wait"])


def _counted(completion: Completion) -> Completion:
    usage = _USAGE.get()
    if usage is not None:
        usage.tokens += completion.prompt_tokens + completion.completion_tokens
    return completion
