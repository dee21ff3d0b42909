"""A model whose calls are on record: it asks the record first, and the model behind it for what is missing.

Without a model behind, it replays. Results are served as they were stored, to the bit, while recording too: an engine
that records sees nothing that its replay will not see.

Calls lie in the memory on disk of a place (:mod:`codevqa.collections.disk_memory`): a run's folder, or the user's cache
for what servers were asked. A result is committed before its caller sees it, so that no finished row outlives a call it
rests on, whatever ends the process.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, fields
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ..collections.disk_memory import DiskMemory, StoredCall
from ..core.errors import ModelError, ReplayMissError
from ..core.images import Picture
from .protocols import Box, Completion, Match, Sight
from .request_queue import ModelLock, lock_of

KINDS = frozenset(("generate", "match", "similarity", "caption", "detect", "look"))
"""Calls of the protocols of :mod:`codevqa.models.protocols`."""


class RecordedModel:
    """A model of any role on record; implements all protocols of :mod:`codevqa.models.protocols`, and the retriever's.

    Every call raises what the model behind it raises. Only results are recorded, so a replay raises ReplayMissError for
    a call that failed or was never made.

    Args:
        store: where the calls are.
        about: the ``name`` it reports; ``model`` and ``settings``, which decide its results and are part of every key;
            and ``grid``, ``chat``, ``chat_only``, ``cheap`` and ``reading_shots`` where it has them. One
            without a grid has no ``match``.
        model: asked for what is missing; None replays.
    """

    def __init__(self, store: DiskMemory, about: Mapping[str, Any], model: Any = None) -> None:
        self.name = str(about["name"])
        self.grid = int(about.get("grid", 0))
        self.chat = bool(about.get("chat", False))
        self.chat_only = bool(about.get("chat_only", False))
        self.cheap = bool(about.get("cheap", False))
        self.reading_shots: int | None = about.get("reading_shots")
        self.model = model
        self.turn = ModelLock() if model is None else lock_of(model)
        self.computes = str(getattr(model, "computes", ""))
        if hasattr(model, "batch"):
            self.batch = int(model.batch)
        self._store = store
        self._identity = {"model": about["model"], "settings": about["settings"]}

    def __getattr__(self, kind: str) -> Callable[[Sequence[Any]], list[Any]]:
        """Returns what answers calls of a kind; a matcher without a grid only compares."""
        if kind not in KINDS or (kind == "match" and not self.grid):
            raise AttributeError(kind)
        return partial(self._ask, kind)

    def embed(self, sentences: Sequence[str]) -> npt.NDArray[np.float32]:
        """Returns one embedding a sentence, shape (sentences, width)."""
        rows = self._ask("embed", sentences)
        return np.stack(rows) if rows else np.zeros((0, 0), np.float32)

    def _ask(self, kind: str, requests: Sequence[Any]) -> list[Any]:
        keys = [self._key(kind, request) for request in requests]
        asked = dict(zip(keys, requests, strict=True))
        answers = {key: self._read(kind, stored) for key in asked if (stored := self._store.get(key))}
        # A text model that said nothing is asked again, as without a record; a replay says what it said.
        missing = {
            key: request
            for key, request in asked.items()
            if key not in answers or (self.model and _is_blank(answers[key]))
        }
        if missing:
            if self.model is None:
                raise self._miss_error(kind, next(iter(missing.values())))
            results = getattr(self.model, kind)(list(missing.values()))
            if len(results) != len(missing):
                raise ModelError(f"A model returned {len(results)} results for {len(missing)} requests.")
            new = dict(zip(missing, map(_to_stored, results), strict=True))
            self._store.save_calls(kind, new)
            answers |= {key: self._read(kind, stored) for key, stored in new.items()}
        return [answers[key] for key in keys]

    def _read(self, kind: str, stored: StoredCall) -> Any:
        with self._store.intact(f" at a {kind} call"):
            return _from_stored(kind, stored)

    def _key(self, kind: str, request: Any) -> bytes:
        """Returns the SHA-256 of a call: what is asked of which model."""
        asked = [kind, self._identity, _request_values(request)]
        text = json.dumps(asked, sort_keys=True, separators=(",", ":"), allow_nan=False, default=_json_default)
        return hashlib.sha256(text.encode()).digest()

    def _miss_error(self, kind: str, request: Any) -> ReplayMissError:
        words = json.dumps(_request_values(request), ensure_ascii=False, default=_json_default)
        shown = words if len(words) <= 120 else f"{words[:40]} ... {words[-75:]}"
        return ReplayMissError(
            f"This run did not record the {kind} call of {self.name} for: {shown}.",
            hint="Run without --replay to compute it.",
        )


def _request_values(request: Any) -> list[Any]:
    """Returns what a result depends on. What is ``shared`` only says what is worth keeping in memory."""
    if isinstance(request, str):
        return [request]
    return [getattr(request, field.name) for field in fields(request) if field.compare and field.name != "shared"]


def _json_default(value: Any) -> Any:
    """Returns a value as JSON has it; a picture's key stands for its pixels."""
    if isinstance(value, Picture):
        return value.key
    return value.item() if isinstance(value, np.generic) else astuple(value)


def _is_blank(result: object) -> bool:
    return isinstance(result, Completion | Sight) and not result.text.strip()


def _to_stored(result: Any) -> StoredCall:
    if not isinstance(result, Match | np.ndarray):
        return StoredCall(json.dumps(result, default=_json_default))
    array, more = (result, {}) if isinstance(result, np.ndarray) else (result.relevance, {"logit": float(result.logit)})
    little = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False)
    return StoredCall(json.dumps({"dtype": little.dtype.str, "shape": array.shape, **more}), little.tobytes())


def _from_stored(kind: str, stored: StoredCall) -> Any:
    """Returns what was stored, or fails of it."""
    data = json.loads(stored.text)
    match kind:
        case "generate":
            return Completion(_as_text(data[0]), int(data[1]), int(data[2]), any(data[3:]))
        case "similarity":
            return float(data)
        case "caption":
            return _as_text(data)
        case "look":
            chances = tuple((_as_text(choice), float(chance)) for choice, chance in data[1])
            return Sight(_as_text(data[0]), chances, int(data[2]), int(data[3]), any(data[4:]))
        case "detect":
            return tuple(Box(*map(float, row)) for row in data)
    array = np.frombuffer(stored.data or b"", np.dtype(data["dtype"])).reshape(data["shape"])
    if array.dtype.kind != "f" or array.ndim != (2 if kind == "match" else 1) or not array.size:
        raise ValueError(f"an array of {data['dtype']} and {data['shape']} is no result")
    array = array.astype(array.dtype.newbyteorder("="))  # a copy, which can be written to
    return Match(array, float(data["logit"])) if kind == "match" else array


def _as_text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is no text")
    return value
