"""The models of an engine, each behind a batcher that all programs now running share, and asked each thing once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

from .batching import Batcher, Company
from .errors import SetupError
from .merging import Memory, Merging
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
    """What one question has cost so far; :class:`Services` adds to the usage of the task that asks.

    A call counts in full for everyone who makes it, also where it was shared or remembered: what is reported with an
    answer is what it costs by itself, and does not depend on what else was asked.
    """

    tokens: int = 0
    """Tokens the language models read and wrote for it."""

    @classmethod
    def begin(cls) -> Usage:
        """Returns a new usage, to which this task's calls are added from now on."""
        usage = cls()
        usage.count()
        return usage

    def count(self) -> None:
        """Adds this task's calls to this usage from now on."""
        _USAGE.set(self)


_USAGE: ContextVar[Usage | None] = ContextVar("codevqa-usage", default=None)


class Services:
    """Async, batched calls of each model. Made and used on the engine's event loop.

    Calls of one model object never overlap, even when it plays two roles. Equal calls under way are made once, and
    finished ones remembered, except failures and completions that say nothing.

    Args:
        models: reader, matcher, captioner and perhaps a detector.
        writer: the language model that writes programs; may be the reader.
        max_batch: requests in one batch at most.
        max_wait: seconds a first request waits for company, where somebody could still join it.
        remember: bytes of finished calls that are kept.
    """

    def __init__(
        self, models: Models, writer: LanguageModel, *, max_batch: int, max_wait: float, remember: int = 64 << 20
    ) -> None:
        self._threads: dict[int, ThreadPoolExecutor] = {}
        self._options = {"max_size": max_batch, "max_wait": max_wait}
        self._company = Company(max_wait)
        self.memory = Memory(remember)
        self._write = self._language(writer, "write")
        self._read = self._write if models.reader is writer else self._language(models.reader, "read")
        self.match: Merging[MatchRequest, Match] = self._merging(
            models.matcher,
            lambda requests: _sealed(models.matcher.match(requests)),
            lambda one: ("match", one.picture.key, one.text, one.focus),
            lambda one, match: 2 * len(one.text) + match.relevance.nbytes,
        )
        self.similarity: Merging[SimilarityRequest, float] = self._merging(
            models.matcher,
            models.matcher.similarity,
            lambda one: ("similarity", one.picture.key, one.text),
            lambda one, score: 2 * len(one.text),
        )
        self.caption: Merging[CaptionRequest, str] = self._merging(
            models.captioner,
            models.captioner.caption,
            lambda one: ("caption", one.picture.key, one.patches, one.seed),
            lambda one, text: 8 * len(one.patches or ()) + 2 * len(text),
        )
        detector = models.detector
        self._detect: Merging[DetectRequest, tuple[Box, ...]] | None = (
            self._merging(
                detector,
                detector.detect,
                lambda one: ("detect", one.picture.key, one.phrase),
                lambda one, boxes: 2 * len(one.phrase) + 200 * len(boxes),
            )
            if detector
            else None
        )

    def question(self) -> AbstractContextManager[None]:
        """Makes the calls of this task, and of those it starts, one question's: batches wait for its next calls."""
        return self._company.member()

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

    def _language(self, model: LanguageModel, role: str) -> Merging[GenerationRequest, Completion]:
        return self._merging(
            model,
            model.generate,
            lambda one: (role, _digest(one), one.max_tokens, one.stop),
            lambda one, completion: 4 * len(completion.text),
            # Whoever reads nothing asks again, and a served model may answer then.
            lambda completion: bool(completion.text.strip()),
        )

    def _merging(
        self,
        model: Any,
        run: Callable[[Sequence[Request]], Sequence[Result]],
        key: Callable[[Request], Hashable],
        size: Callable[[Request, Result], int],
        keep: Callable[[Result], bool] = lambda result: True,
    ) -> Merging[Request, Result]:
        thread = self._threads.get(id(model))
        if thread is None:
            thread = ThreadPoolExecutor(1, thread_name_prefix=f"codevqa-{type(model).__name__}")
            self._threads[id(model)] = thread
        batcher = Batcher(run, thread, max_size=int(self._options["max_size"]), max_wait=self._options["max_wait"])
        return Merging(batcher, key, size, memory=self.memory, company=self._company, keep=keep)


def _sealed(matches: Sequence[Match]) -> Sequence[Match]:
    # Several calls may share a map: whoever wants to change one makes a copy.
    for match in matches:
        match.relevance.setflags(write=False)
    return matches


def _digest(request: GenerationRequest) -> bytes:
    # Prompts are long and many: a hash of theirs is kept in their place.
    prompt = request.prompt if isinstance(request.prompt, str) else repr(request.prompt)
    form = b"text" if isinstance(request.prompt, str) else b"chat"
    return hashlib.sha256(form + prompt.encode("utf-8", "surrogatepass")).digest()


def _counted(completion: Completion) -> Completion:
    usage = _USAGE.get()
    if usage is not None:
        usage.tokens += completion.prompt_tokens + completion.completion_tokens
    return completion
