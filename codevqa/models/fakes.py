"""Models that answer from a script: for unit tests of programs, prompts and engines, without weights.

Each keeps what it was asked (``requests``) and the size of every batch (``batches``), so that a test can check what
was batched, and how. Answers depend on the request alone, except that a list given to :class:`ScriptedLM` is used up.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import numpy as np

from ..core.errors import ModelError
from .protocols import (
    Box,
    CaptionRequest,
    Completion,
    DetectRequest,
    GenerationRequest,
    LookRequest,
    Map,
    Match,
    MatchRequest,
    Sight,
    SimilarityRequest,
    cut_at_stop,
)

__all__ = ["FakeCaptioner", "FakeDetector", "FakeEyes", "FakeMatcher", "ScriptedLM"]

_R = TypeVar("_R")
_T = TypeVar("_T")


class Log(Generic[_R]):
    """What one method of a fake was asked."""

    def __init__(self) -> None:
        self.requests: list[_R] = []
        """Every request, in order."""
        self.batches: list[int] = []
        """Size of each batch."""

    @property
    def calls(self) -> int:
        """Batches so far."""
        return len(self.batches)

    def add(self, requests: Sequence[_R]) -> None:
        """Notes one batch."""
        self.requests.extend(requests)
        self.batches.append(len(requests))


class ScriptedLM(Log[GenerationRequest]):
    """A language model that answers from a script.

    Args:
        completions: one text for every request; or texts that are used up in order; or a function of the request.
            Like a real model's, a completion ends before the request's first stop string.
        name: id it reports.
        chat: whether it says of itself that it is one to talk with.
        cheap: whether it says of itself that several texts at once cost little more than one.
    """

    def __init__(
        self,
        completions: str | Sequence[str] | Callable[[GenerationRequest], str],
        *,
        name: str = "scripted",
        chat: bool = False,
        cheap: bool = False,
    ) -> None:
        super().__init__()
        self.name = name
        self.chat = chat
        self.cheap = cheap
        self._completions = completions
        self._used = 0

    def generate(self, requests: Sequence[GenerationRequest]) -> list[Completion]:
        """Answers each request.

        Raises:
            ModelError: the list of completions is used up.
        """
        self.add(requests)
        return [self._complete(request) for request in requests]

    def _complete(self, request: GenerationRequest) -> Completion:
        script = _reply_to(self._completions, request)
        if not isinstance(script, str):
            if self._used >= len(script):
                raise ModelError(f"The script has {len(script)} completions and was asked for one more.")
            script = script[self._used]
            self._used += 1
        text = cut_at_stop(script, request.stop)
        prompt = request.prompt
        words = prompt if isinstance(prompt, str) else " ".join(message.content for message in prompt)
        return Completion(text, prompt_tokens=len(words.split()), completion_tokens=len(text.split()))


class FakeMatcher:
    """A matcher with fixed answers, or functions of the request.

    Args:
        grid: patches along each side.
        relevance: the map of every pair, shape (grid, grid), or a function that returns it; None puts a single peak
            where a hash of picture and text says.
        logit: ITM logit, or a function that returns it.
        similarity: ITC score, or a function that returns it; None takes one in -1..1 from a hash of picture and text.
        name: id it reports.

    ``matches`` and ``similarities`` hold what was asked.
    """

    def __init__(
        self,
        grid: int = 24,
        *,
        relevance: Map | Callable[[MatchRequest], Map] | None = None,
        logit: float | Callable[[MatchRequest], float] = 0.0,
        similarity: float | Callable[[SimilarityRequest], float] | None = None,
        name: str = "fake-matcher",
    ) -> None:
        self.name = name
        self.grid = grid
        self.matches: Log[MatchRequest] = Log()
        self.similarities: Log[SimilarityRequest] = Log()
        self._relevance = self._peak if relevance is None else relevance
        self._logit = logit
        self._similarity = _hash_similarity if similarity is None else similarity

    def match(self, requests: Sequence[MatchRequest]) -> list[Match]:
        """Returns the map and the logit of each pair."""
        self.matches.add(requests)
        return [Match(self._map(request), float(_reply_to(self._logit, request))) for request in requests]

    def similarity(self, requests: Sequence[SimilarityRequest]) -> list[float]:
        """Returns the score of each pair."""
        self.similarities.add(requests)
        return [float(_reply_to(self._similarity, request)) for request in requests]

    def _peak(self, request: MatchRequest) -> Map:
        relevance = np.zeros((self.grid, self.grid), np.float32)
        relevance.flat[_hash(request.picture.key, request.text, str(request.focus)) % relevance.size] = 1.0
        return relevance

    def _map(self, request: MatchRequest) -> Map:
        relevance = np.array(_reply_to(self._relevance, request), np.float32)
        if relevance.shape != (self.grid, self.grid):
            raise ModelError(f"The fake map has shape {relevance.shape}; the grid is {self.grid}x{self.grid}.")
        return relevance


class FakeCaptioner(Log[CaptionRequest]):
    """A captioner with fixed captions.

    Args:
        captions: one caption for all; or several, picked by the request's seed (the first for greedy decoding); or a
            function of the request.
        grid: patches along each side.
        name: id it reports.
    """

    def __init__(
        self,
        captions: str | Sequence[str] | Callable[[CaptionRequest], str] = "a thing on a table",
        *,
        grid: int = 24,
        name: str = "fake-captioner",
    ) -> None:
        super().__init__()
        self.name = name
        self.grid = grid
        self._captions = captions

    def caption(self, requests: Sequence[CaptionRequest]) -> list[str]:
        """Returns one caption a request."""
        self.add(requests)
        pairs = [(request.seed or 0, _reply_to(self._captions, request)) for request in requests]
        return [captions if isinstance(captions, str) else captions[seed % len(captions)] for seed, captions in pairs]


class FakeDetector(Log[DetectRequest]):
    """A detector with fixed boxes, or a function of the request."""

    def __init__(
        self, boxes: Sequence[Box] | Callable[[DetectRequest], Sequence[Box]] = (), *, name: str = "fake-detector"
    ) -> None:
        super().__init__()
        self.name = name
        self._boxes = boxes

    def detect(self, requests: Sequence[DetectRequest]) -> list[tuple[Box, ...]]:
        """Returns the boxes for each request, best first."""
        self.add(requests)
        return [tuple(sorted(_reply_to(self._boxes, request), key=lambda box: -box.score)) for request in requests]


class FakeEyes(Log[LookRequest]):
    """A vision-language model with one answer for all, or a function of the request."""

    def __init__(self, answers: str | Callable[[LookRequest], str] = "yes", *, name: str = "fake-eyes") -> None:
        super().__init__()
        self.name = name
        self._answers = answers

    def look(self, requests: Sequence[LookRequest]) -> list[Sight]:
        """Answers each request."""
        self.add(requests)
        return [Sight(_reply_to(self._answers, request)) for request in requests]


def _reply_to(source: _T | Callable[[_R], _T], request: _R) -> _T:
    """Returns what was given, or what a function that was given says of a request."""
    return source(request) if callable(source) else source


def _hash_similarity(request: SimilarityRequest) -> float:
    return _hash(request.picture.key, request.text) % 2001 / 1000 - 1


def _hash(*parts: str) -> int:
    return int.from_bytes(hashlib.sha256("\0".join(parts).encode()).digest()[:8], "big")
