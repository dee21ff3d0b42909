"""The models of an engine, each behind a batcher that all programs now running share, and asked each thing once."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import Context
from functools import partial
from typing import Any, TypeVar, cast

from ..core.errors import CodeVQAError, SetupError
from ..core.images import Picture
from ..models.protocols import (
    Box,
    Captioner,
    CaptionRequest,
    Completion,
    Contrast,
    Detector,
    DetectRequest,
    Eyes,
    GenerationRequest,
    LanguageModel,
    LookRequest,
    Match,
    Matcher,
    MatchRequest,
    Models,
    Sight,
    SimilarityRequest,
    grounds,
)
from ..models.request_queue import RequestQueue, lock_of
from ..models.retrieval import Embedding, Retriever, embed
from .batcher import BatchCallers, Batcher
from .call_cache import CallCache, Memory

Request = TypeVar("Request")
Result = TypeVar("Result")

BATCH = 64
"""Requests in one batch of a model that does not say how many it likes."""

LANES = 32
"""Calls that may be under way at once of a model that any number of threads may call."""


class ModelServices:
    """Async, batched calls of each model. Made and used on the engine's event loop.

    Calls of one model object never overlap, even when it plays two roles or serves several engines, which take turns
    (:mod:`.request_queue`), unless it says that they may, as served models do. Equal calls under way are made once, and
    finished ones remembered, except failures and completions that say nothing.

    Args:
        models: the reader, and the models that look at pictures.
        writer: the language model that writes programs; may be the reader.
        max_batch: requests in one batch at most; None takes each model's ``batch``, or :data:`BATCH`.
        max_wait: seconds a first request waits for company, where somebody could still join it.
        retriever: embeds questions, if examples are chosen so.
        remember: bytes of finished calls that are kept.
    """

    def __init__(
        self,
        models: Models,
        writer: LanguageModel,
        *,
        max_batch: int | None,
        max_wait: float,
        retriever: Retriever | None = None,
        remember: int = 64 << 20,
    ) -> None:
        self._threads: dict[int, ThreadPoolExecutor] = {}
        self._max_batch = max_batch
        self._max_wait = max_wait
        self._callers = BatchCallers()
        self._ahead: set[asyncio.Task[None]] = set()
        self.question = self._callers.member
        """A block that makes the calls of its task, and of those it starts, one question's: batches wait for its next
        calls."""
        self.memory = Memory(remember)
        self._home = object()
        """Begins the key of every call, since a memory may serve several engines with other models."""
        self.write = self._language(writer, "write")
        """Calls of the model that writes programs. ``on_text`` hears nothing where an equal call is under way."""
        self._read = self.write if models.reader is writer else self._language(models.reader, "read")
        self.embed: CallCache[str, Embedding] = self._merging(
            "embed",
            retriever,
            lambda sentences: list(embed(cast(Retriever, retriever), sentences)),
            lambda sentence: (sentence,),
            lambda sentence, embedding: 2 * len(sentence) + embedding.nbytes,
            needs="a retriever",
        )
        self.reader, self.eyes = models.reader, models.eyes
        """They may tell how much they can read (:mod:`codevqa.models.protocols`)."""
        self.grounds = grounds(models.matcher)
        """Whether :attr:`match` tells where a text looks."""
        self.summarises = hasattr(models.matcher, "summaries")
        """Whether :attr:`summary` has a model."""
        self.compares = models.matcher is not None
        """Whether :attr:`similarity` has a model."""
        self.detects = models.detector is not None
        """Whether :attr:`detect` has a model."""
        self._add_matcher(models.matcher)
        self._add_eyes(models.captioner, models.detector, models.eyes)

    def _add_matcher(self, matcher: Contrast | None) -> None:
        """Adds what compares pictures with texts."""
        self.match: CallCache[MatchRequest, Match] = self._merging(
            "match",
            matcher if grounds(matcher) else None,
            lambda requests: list(map(_match, cast(Matcher, matcher).match(requests))),
            lambda request: (request.picture.key, request.text, request.focus),
            lambda request, match: 2 * len(request.text) + match.relevance.nbytes,
            needs="a matcher that tells where it looks",
        )
        self.score: CallCache[MatchRequest, float] = self._merging(
            "score",
            matcher if grounds(matcher) else None,
            partial(_logits, matcher),
            lambda request: (request.picture.key, request.text),
            lambda request, logit: 2 * len(request.text),
            needs="a matcher that tells whether a text describes a picture",
        )
        """The logit of :attr:`match` alone, without the map: cheaper, where the matcher can tell it so."""
        self.summary: CallCache[Picture, Embedding] = self._merging(
            "summary",
            matcher if self.summarises else None,
            lambda pictures: cast(Any, matcher).summaries(pictures),
            lambda picture: (picture.key,),
            lambda picture, summary: summary.nbytes,
            needs="a matcher that tells what it makes of a picture",
        )
        self.similarity: CallCache[SimilarityRequest, float] = self._merging(
            "similarity",
            matcher,
            lambda requests: list(map(float, cast(Matcher, matcher).similarity(requests))),
            lambda request: (request.picture.key, request.text),
            lambda request, score: 2 * len(request.text),
            needs="a matcher",
        )

    def _add_eyes(self, captioner: Captioner | None, detector: Detector | None, eyes: Eyes | None) -> None:
        """Adds what says what is in a picture."""
        self.caption: CallCache[CaptionRequest, str] = self._merging(
            "caption",
            captioner,
            lambda requests: cast(Captioner, captioner).caption(requests),
            lambda request: (request.picture.key, request.patches, request.seed, request.tokens),
            lambda request, text: 8 * len(request.patches or ()) + 2 * len(text),
            needs="a captioner",
        )
        self.detect: CallCache[DetectRequest, tuple[Box, ...]] = self._merging(
            "detect",
            detector,
            lambda requests: [tuple(map(_box, boxes)) for boxes in cast(Detector, detector).detect(requests)],
            lambda request: (request.picture.key, request.phrase),
            lambda request, boxes: 2 * len(request.phrase) + 200 * len(boxes),
            needs="a detector",
        )
        self.look: CallCache[LookRequest, Sight] = self._merging(
            "look",
            eyes,
            lambda requests: cast(Eyes, eyes).look(requests),
            lambda request: (
                tuple(picture.key for picture in request.pictures),
                request.text,
                request.max_tokens,
                request.choices,
            ),
            lambda request, sight: (
                2 * (len(request.text) + len(sight.text)) + 40 * (len(request.pictures) + len(request.choices))
            ),
            lambda sight: bool(sight.text.strip()),
            lambda sight: (int(sight.prompt_tokens), int(sight.completion_tokens), False),
            needs="a vision-language model",
        )

    def embed_ahead(self, sentences: Sequence[str]) -> None:
        """Begins to embed what will be asked for: a failure is told to those who ask, and nobody is charged now."""

        async def embed_all() -> None:
            with suppress(CodeVQAError):
                await self.embed.many(sentences)

        if sentences:
            # In a context of its own, it is no question's call.
            task = asyncio.create_task(embed_all(), context=Context())
            self._ahead.add(task)
            task.add_done_callback(self._ahead.discard)

    async def read(self, request: GenerationRequest) -> Completion:
        """Returns what the model that reads captions makes of a prompt."""
        return await self._read(request, kind="read")

    def close(self) -> None:
        """Ends the threads; calls still running finish first."""
        for thread in self._threads.values():
            thread.shutdown(wait=True, cancel_futures=True)

    def _language(self, model: LanguageModel, role: str) -> CallCache[GenerationRequest, Completion]:
        return self._merging(
            role,
            model,
            model.generate,
            lambda request: (_digest(request), request.max_tokens, request.stop),
            lambda request, completion: 4 * len(completion.text),
            # A reader that got nothing asks again, and a served model may answer then.
            lambda completion: bool(completion.text.strip()),
            lambda text: (int(text.prompt_tokens), int(text.completion_tokens), text.estimated),
            join=getattr(model, "generate_joining", None) if getattr(model, "joins", False) else None,
        )

    def _merging(
        self,
        kind: str,
        model: Any,
        run: Callable[[Sequence[Request]], Sequence[Result]],
        key: Callable[[Request], tuple[Hashable, ...]],
        size: Callable[[Request, Result], int],
        keep: Callable[[Result], bool] | None = None,
        cost: Callable[[Result], tuple[int, int, bool]] | None = None,
        join: Callable[[RequestQueue[Request, Result]], None] | None = None,
        needs: str = "",
    ) -> CallCache[Request, Result]:
        if model is None:  # programs are not offered what needs it, and may try
            run = partial(_refuse_requests, needs)
        turn = lock_of(model)
        lanes = LANES if turn.free else 1
        thread = self._threads.get(id(model))
        if thread is None:
            thread = ThreadPoolExecutor(lanes, thread_name_prefix=f"codevqa-{type(model).__name__}")
            self._threads[id(model)] = thread
        liked: int = getattr(model, "batch", BATCH)
        most = self._max_batch or liked
        batcher = Batcher(run, thread, max_size=most, max_wait=self._max_wait, lanes=lanes, join=join, turn=turn)
        return CallCache(
            batcher,
            lambda request: (self._home, kind, *key(request)),
            size,
            kind=kind,
            memory=self.memory,
            callers=self._callers,
            keep=keep,
            cost=cost,
        )


def _refuse_requests(needs: str, requests: Sequence[object]) -> Any:
    raise SetupError(f"This needs {needs}.", hint="Name one in the preset or in Models(...).")


# Back ends may give NumPy's numbers, which JSON cannot write and programs do not take.
def _match(match: Match) -> Match:
    match.relevance.setflags(write=False)  # several calls may share a map: to change one, copy it
    return Match(match.relevance, float(match.logit))


def _logits(matcher: Any, requests: Sequence[MatchRequest]) -> list[float]:
    if hasattr(matcher, "logits"):
        return list(map(float, matcher.logits(requests)))
    return [float(match.logit) for match in matcher.match(requests)]


def _box(box: Box) -> Box:
    return Box(*map(float, dataclasses.astuple(box)))


def _digest(request: GenerationRequest) -> bytes:
    # Prompts are long and many: a hash of theirs is kept in their place.
    prompt = request.prompt if isinstance(request.prompt, str) else repr(request.prompt)
    form = b"text" if isinstance(request.prompt, str) else b"chat"
    return hashlib.sha256(form + prompt.encode("utf-8", "surrogatepass")).digest()
