"""Models whose calls are on record: each asks the record first, and the model behind it for what is missing.

Without a model behind, they replay. Results are served as they were stored, to the bit, while recording too: an engine
that records sees nothing that its replay will not see.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NoReturn, TypeVar

import numpy as np
import numpy.typing as npt

from ...batching.model_services import BATCH
from ...core import errors
from ...core.errors import CodeVQAError, InputError, ModelError, ReplayMissError, ServerError
from ...models.base import (
    Box,
    Captioner,
    CaptionRequest,
    Completion,
    Detector,
    DetectRequest,
    GenerationRequest,
    LanguageModel,
    Match,
    Matcher,
    MatchRequest,
    SimilarityRequest,
)
from ...models.retrieval import Retriever
from ...models.turn import Turn, turn_of
from .calls import DAMAGE, CallStore, State, Stored, key_of

__all__ = [
    "RecordedCaptioner",
    "RecordedDetector",
    "RecordedLM",
    "RecordedMatcher",
    "RecordedRetriever",
]

_Model = TypeVar("_Model")
_Request = TypeVar("_Request")
_Result = TypeVar("_Result")


class _Recorded(Generic[_Model]):
    """What the five have in common.

    Args:
        store: where the calls are.
        about: the ``name`` it reports; ``model`` and ``settings``, which decide its results and are part of every key;
            and ``grid``, ``chat`` and ``chat_only`` where it has them.
        model: asked for what is missing; None replays.
    """

    def __init__(self, store: CallStore, about: Mapping[str, Any], model: _Model | None = None) -> None:
        self.name = str(about["name"])
        self.grid = int(about.get("grid", 0))
        self.chat = bool(about.get("chat", False))
        self.chat_only = bool(about.get("chat_only", False))
        self.model = model
        self.turn = Turn() if model is None else turn_of(model)
        self._store = store
        self._identity = {"model": about["model"], "settings": about["settings"]}

    @property
    def computes(self) -> str:
        """Precision and device of the model behind."""
        return str(getattr(self.model, "computes", ""))

    @property
    def batch(self) -> int:
        """How many requests the model behind likes best at once."""
        return int(getattr(self.model, "batch", BATCH))

    def _ask(
        self,
        kind: str,
        requests: Sequence[_Request],
        content: Callable[[_Request], Sequence[Any]],
        run: Callable[[_Model, Sequence[_Request]], Sequence[_Result]],
        encode: Callable[[_Result], Stored],
        decode: Callable[[Stored], _Result],
    ) -> list[_Result]:
        keys = [key_of(kind, self._identity, content(request)) for request in requests]
        asked = dict(zip(keys, requests, strict=True))
        found = self._store.get(list(asked))
        if self.model is not None:
            missing = {key: one for key, one in asked.items() if key not in found or found[key].state != State.FINAL}
            if missing:
                found |= self._compute(self.model, kind, missing, run, encode)
        try:
            if self.model is None:
                _check_replay(self.name, kind, asked, content, found)
            return [decode(found[key]) for key in keys]
        except DAMAGE as error:
            raise InputError(
                f"{self._store.path} holds a damaged {kind} call: {str(error)[:200]}.", hint="Record again."
            ) from None

    def _compute(
        self,
        model: _Model,
        kind: str,
        missing: Mapping[bytes, _Request],
        run: Callable[[_Model, Sequence[_Request]], Sequence[_Result]],
        encode: Callable[[_Result], Stored],
    ) -> dict[bytes, Stored]:
        try:
            results = run(model, list(missing.values()))
        except Exception as error:
            # Of several, one may be at fault, and each is tried alone next; a server that is down fails them all.
            if len(missing) == 1 or isinstance(error, ServerError):
                self._store.put(kind, dict.fromkeys(missing, _failure(error)))
            raise
        if len(results) != len(missing):
            raise ModelError(f"A model returned {len(results)} results for {len(missing)} requests.")
        self._store.put(kind, dict(zip(missing, map(encode, results), strict=True)))
        return self._store.get(list(missing))  # another process may have been first: then its results stand


class RecordedLM(_Recorded[LanguageModel]):
    """A language model on record. Implements :class:`codevqa.models.base.LanguageModel`."""

    def generate(self, requests: Sequence[GenerationRequest]) -> list[Completion]:
        """Continues each prompt.

        Raises:
            ReplayMissError: a replay was asked what is not on record.
            ModelError: as the model behind it.
        """

        def content(request: GenerationRequest) -> Sequence[Any]:
            # ``shared`` only says what is worth keeping in memory.
            prompt = request.prompt
            turns = prompt if isinstance(prompt, str) else [[turn.role, turn.content] for turn in prompt]
            return [turns, request.max_tokens, list(request.stop)]

        def encode(one: Completion) -> Stored:
            text = json.dumps([one.text, one.prompt_tokens, one.completion_tokens])
            return Stored(text, state=State.FINAL if one.text.strip() else State.BLANK)

        def decode(stored: Stored) -> Completion:
            text, read, written = json.loads(stored.text)
            return Completion(_text(text), int(read), int(written))

        return self._ask("generate", requests, content, lambda model, some: model.generate(some), encode, decode)


class RecordedMatcher(_Recorded[Matcher]):
    """A matcher on record. Implements :class:`codevqa.models.base.Matcher`."""

    def match(self, requests: Sequence[MatchRequest]) -> list[Match]:
        """Returns GradCAM relevance and the ITM logit of each pair.

        Raises:
            ReplayMissError: a replay was asked what is not on record.
            ModelError: as the model behind it.
        """

        def content(request: MatchRequest) -> Sequence[Any]:
            return [request.picture.key, request.text, request.focus]

        def encode(one: Match) -> Stored:
            return _array(one.relevance, logit=float(one.logit))

        def decode(stored: Stored) -> Match:
            relevance, about = _read_array(stored)
            rows, columns = relevance.shape
            return Match(relevance.reshape(rows, columns), float(about["logit"]))

        return self._ask("match", requests, content, lambda model, some: model.match(some), encode, decode)

    def similarity(self, requests: Sequence[SimilarityRequest]) -> list[float]:
        """Returns the ITC score of each pair.

        Raises:
            ReplayMissError: a replay was asked what is not on record.
            ModelError: as the model behind it.
        """

        def content(request: SimilarityRequest) -> Sequence[Any]:
            return [request.picture.key, request.text]

        return self._ask(
            "similarity",
            requests,
            content,
            lambda model, some: model.similarity(some),
            lambda score: Stored(json.dumps(float(score))),
            lambda stored: float(json.loads(stored.text)),
        )


class RecordedCaptioner(_Recorded[Captioner]):
    """A captioner on record. Implements :class:`codevqa.models.base.Captioner`."""

    def caption(self, requests: Sequence[CaptionRequest]) -> list[str]:
        """Returns one caption a request.

        Raises:
            ReplayMissError: a replay was asked what is not on record.
            ModelError: as the model behind it.
        """
        return self._ask(
            "caption",
            requests,
            lambda one: [one.picture.key, one.patches, one.seed, one.tokens],
            lambda model, some: model.caption(some),
            lambda caption: Stored(json.dumps(caption)),
            lambda stored: _text(json.loads(stored.text)),
        )


class RecordedDetector(_Recorded[Detector]):
    """A detector on record. Implements :class:`codevqa.models.base.Detector`."""

    def detect(self, requests: Sequence[DetectRequest]) -> list[tuple[Box, ...]]:
        """Returns the boxes found for each request.

        Raises:
            ReplayMissError: a replay was asked what is not on record.
            ModelError: as the model behind it.
        """

        def content(request: DetectRequest) -> Sequence[Any]:
            return [request.picture.key, request.phrase]

        def encode(boxes: tuple[Box, ...]) -> Stored:
            rows = [[float(x) for x in (box.left, box.top, box.right, box.bottom, box.score)] for box in boxes]
            return Stored(json.dumps(rows))

        def decode(stored: Stored) -> tuple[Box, ...]:
            return tuple(Box(*map(float, row)) for row in json.loads(stored.text))

        return self._ask("detect", requests, content, lambda model, some: model.detect(some), encode, decode)


class RecordedRetriever(_Recorded[Retriever]):
    """A sentence embedder on record. Implements :class:`codevqa.models.retrieval.Retriever`."""

    def embed(self, sentences: Sequence[str]) -> npt.NDArray[np.float32]:
        """Returns one embedding a sentence, shape (sentences, width).

        Raises:
            ReplayMissError: a replay was asked what is not on record.
        """
        rows = self._ask(
            "embed",
            sentences,
            lambda sentence: [sentence],
            lambda model, some: list(model.embed(some)),
            _array,
            lambda stored: _read_array(stored)[0].reshape(-1),
        )
        return np.stack(rows) if rows else np.zeros((0, 0), np.float32)


# -- arrays and failures as they are stored --------------------------------------------------------------------------


def _array(array: npt.NDArray[np.float32], **about: Any) -> Stored:
    little = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False)
    return Stored(json.dumps({"dtype": little.dtype.str, "shape": array.shape, **about}), little.tobytes())


def _read_array(stored: Stored) -> tuple[npt.NDArray[Any], dict[str, Any]]:
    about = json.loads(stored.text)
    little = np.frombuffer(stored.data or b"", np.dtype(about["dtype"])).reshape(about["shape"])
    if little.dtype.kind != "f" or not little.size:
        raise ValueError(f"an array of {about['dtype']} and {about['shape']} holds no numbers")
    return little.astype(little.dtype.newbyteorder("=")), about


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is no text")
    return value


def _failure(error: Exception) -> Stored:
    """What is kept of an error: what an answer would say of it."""
    if isinstance(error, CodeVQAError):
        about = [type(error).__name__, error.message, error.hint, getattr(error, "retryable", False)]
    else:
        about = ["ModelError", f"{type(error).__name__}: {error}", "", False]
    return Stored(json.dumps(about), state=State.FAILED)


def _raise_failure(stored: Stored) -> NoReturn:
    name, message, hint, retryable = json.loads(stored.text)
    kind = getattr(errors, _text(name), ModelError)
    if not (isinstance(kind, type) and issubclass(kind, CodeVQAError)):
        raise ValueError(f"there is no error {name!r:.40}")
    if issubclass(kind, ModelError):
        raise kind(_text(message), hint=_text(hint), retryable=retryable)
    raise kind(_text(message), hint=_text(hint))


def _check_replay(
    name: str,
    kind: str,
    asked: Mapping[bytes, _Request],
    content: Callable[[_Request], Sequence[Any]],
    found: Mapping[bytes, Stored],
) -> None:
    """Raises what a replay cannot answer, and what the model raised when it was recorded."""
    for key, request in asked.items():
        if key not in found:
            words = " ".join(" ".join(str(part) for part in content(request)).split())
            shown = words if len(words) <= 120 else f"{words[:40]} ... {words[-75:]}"
            raise ReplayMissError(
                f"This run did not record the {kind} call of {name} for: {shown}.",
                hint="Run without --replay to compute it.",
            )
    failed = [stored for stored in found.values() if stored.state == State.FAILED]
    if failed and len(asked) > 1:
        # Not its own error: a server's would end the calls beside it, which are on record.
        raise ModelError("One call of a batch is on record as failed: ask each alone.")
    if failed:
        _raise_failure(failed[0])
