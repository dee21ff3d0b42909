"""A model whose calls are on record: it asks the record first, and the model behind it for what is missing.

Without a model behind, it replays. Results are served as they were stored, to the bit, while recording too: an engine
that records sees nothing that its replay will not see.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...batching.model_services import BATCH
from ...core.errors import ModelError, ReplayMissError
from ...models.base import (
    Box,
    CaptionRequest,
    Completion,
    DetectRequest,
    GenerationRequest,
    Match,
    MatchRequest,
    SimilarityRequest,
)
from ...models.turn import Turn, turn_of
from .calls import CallStore, State, Stored
from .database import DAMAGE


@dataclass(frozen=True)
class _Kind:
    """One kind of call: what its result depends on, and how that is stored."""

    name: str
    """The method of a model."""
    content: Callable[[Any], Sequence[Any]]
    encode: Callable[[Any], Stored]
    decode: Callable[[Stored], Any]


class RecordedModel:
    """A model of any role on record; implements all protocols of :mod:`codevqa.models.base`, and the retriever's.

    Every call raises what the model behind it raises. Only results are recorded, so a replay raises ReplayMissError for
    a call that failed or was never made.

    Args:
        store: where the calls are.
        about: the ``name`` it reports; ``model`` and ``settings``, which decide its results and are part of every key;
            and ``grid``, ``chat`` and ``chat_only`` where it has them.
        model: asked for what is missing; None replays.
    """

    def __init__(self, store: CallStore, about: Mapping[str, Any], model: Any = None) -> None:
        self.name = str(about["name"])
        self.grid = int(about.get("grid", 0))
        self.chat = bool(about.get("chat", False))
        self.chat_only = bool(about.get("chat_only", False))
        self.model = model
        self.turn = Turn() if model is None else turn_of(model)
        self.computes = str(getattr(model, "computes", ""))
        self.batch = int(getattr(model, "batch", BATCH))
        self._store = store
        self._identity = {"model": about["model"], "settings": about["settings"]}

    def generate(self, requests: Sequence[GenerationRequest]) -> list[Completion]:
        """Continues each prompt."""
        return self._ask(_GENERATE, requests)

    def match(self, requests: Sequence[MatchRequest]) -> list[Match]:
        """Returns GradCAM relevance and the ITM logit of each pair."""
        return self._ask(_MATCH, requests)

    def similarity(self, requests: Sequence[SimilarityRequest]) -> list[float]:
        """Returns the ITC score of each pair."""
        return self._ask(_SIMILARITY, requests)

    def caption(self, requests: Sequence[CaptionRequest]) -> list[str]:
        """Returns one caption a request."""
        return self._ask(_CAPTION, requests)

    def detect(self, requests: Sequence[DetectRequest]) -> list[tuple[Box, ...]]:
        """Returns the boxes found for each request."""
        return self._ask(_DETECT, requests)

    def embed(self, sentences: Sequence[str]) -> npt.NDArray[np.float32]:
        """Returns one embedding a sentence, shape (sentences, width)."""
        rows = self._ask(_EMBED, sentences)
        return np.stack(rows) if rows else np.zeros((0, 0), np.float32)

    def _ask(self, kind: _Kind, requests: Sequence[Any]) -> list[Any]:
        keys = [self._key(kind, request) for request in requests]
        asked = dict(zip(keys, requests, strict=True))
        found = self._store.get(list(asked))
        missing = {key: one for key, one in asked.items() if key not in found}
        if self.model is None and missing:
            raise self._missed(kind, next(iter(missing.values())))
        if self.model is not None:
            missing |= {key: asked[key] for key, stored in found.items() if stored.state != State.FINAL}
            found |= self._compute(kind, missing) if missing else {}
        try:
            return [kind.decode(found[key]) for key in keys]
        except DAMAGE as error:
            raise self._store.damaged(error, f" at a {kind.name} call") from None

    def _key(self, kind: _Kind, request: Any) -> bytes:
        """Returns the SHA-256 of a call: what is asked of which model, with a picture's key in place of its pixels."""
        asked = [kind.name, self._identity, kind.content(request)]
        text = json.dumps(asked, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).digest()

    def _compute(self, kind: _Kind, missing: Mapping[bytes, Any]) -> dict[bytes, Stored]:
        results = getattr(self.model, kind.name)(list(missing.values()))
        if len(results) != len(missing):
            raise ModelError(f"A model returned {len(results)} results for {len(missing)} requests.")
        stored = dict(zip(missing, map(kind.encode, results), strict=True))
        self._store.put(kind.name, stored)
        return stored

    def _missed(self, kind: _Kind, request: Any) -> ReplayMissError:
        words = " ".join(" ".join(map(str, kind.content(request))).split())
        shown = words if len(words) <= 120 else f"{words[:40]} ... {words[-75:]}"
        return ReplayMissError(
            f"This run did not record the {kind.name} call of {self.name} for: {shown}.",
            hint="Run without --replay to compute it.",
        )


# -- results as they are stored ----------------------------------------------------------------------------------------


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is no text")
    return value


def _asked_of_lm(request: GenerationRequest) -> Sequence[Any]:
    # ``shared`` only says what is worth keeping in memory.
    prompt = request.prompt
    turns = prompt if isinstance(prompt, str) else [[turn.role, turn.content] for turn in prompt]
    return [turns, request.max_tokens, list(request.stop)]


def _completion(one: Completion) -> Stored:
    text = json.dumps([one.text, one.prompt_tokens, one.completion_tokens])
    return Stored(text, state=State.FINAL if one.text.strip() else State.BLANK)


def _read_completion(stored: Stored) -> Completion:
    text, read, written = json.loads(stored.text)
    return Completion(_text(text), int(read), int(written))


def _array(array: npt.NDArray[np.float32], **about: Any) -> Stored:
    little = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False)
    return Stored(json.dumps({"dtype": little.dtype.str, "shape": array.shape, **about}), little.tobytes())


def _read_array(stored: Stored) -> tuple[npt.NDArray[Any], dict[str, Any]]:
    about = json.loads(stored.text)
    little = np.frombuffer(stored.data or b"", np.dtype(about["dtype"])).reshape(about["shape"])
    if little.dtype.kind != "f" or not little.size:
        raise ValueError(f"an array of {about['dtype']} and {about['shape']} holds no numbers")
    return little.astype(little.dtype.newbyteorder("=")), about


def _read_match(stored: Stored) -> Match:
    relevance, about = _read_array(stored)
    rows, columns = relevance.shape
    return Match(relevance.reshape(rows, columns), float(about["logit"]))


_GENERATE = _Kind("generate", _asked_of_lm, _completion, _read_completion)
_MATCH = _Kind(
    "match",
    lambda one: [one.picture.key, one.text, one.focus],
    lambda one: _array(one.relevance, logit=float(one.logit)),
    _read_match,
)
_SIMILARITY = _Kind(
    "similarity",
    lambda one: [one.picture.key, one.text],
    lambda score: Stored(json.dumps(float(score))),
    lambda stored: float(json.loads(stored.text)),
)
_CAPTION = _Kind(
    "caption",
    lambda one: [one.picture.key, one.patches, one.seed, one.tokens],
    lambda caption: Stored(json.dumps(caption)),
    lambda stored: _text(json.loads(stored.text)),
)
_DETECT = _Kind(
    "detect",
    lambda one: [one.picture.key, one.phrase],
    lambda boxes: Stored(json.dumps([[float(number) for number in astuple(box)] for box in boxes])),
    lambda stored: tuple(Box(*map(float, row)) for row in json.loads(stored.text)),
)
_EMBED = _Kind("embed", lambda sentence: [sentence], _array, lambda stored: _read_array(stored)[0].reshape(-1))
