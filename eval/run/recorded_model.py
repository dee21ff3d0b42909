"""A model whose calls are on record: it asks the record first, and the model behind it for what is missing.

Without a model behind, it replays. Results are served as they were stored, to the bit, while recording too: an engine
that records sees nothing that its replay will not see.

Model calls lie by the hash of what was asked in one SQLite file beside the rows of a run. A result is committed before
its caller sees it, so that no finished row outlives a call it rests on, whatever ends the process. Nothing is pickled:
texts and numbers are JSON, arrays raw little-endian bytes whose type and shape stand beside them. What was asked is
kept as a hash alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, fields
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import TypeAdapter

from ...batching.model_services import BATCH
from ...core.errors import InputError, ModelError, ReplayMissError
from ...core.images import Picture
from ...models.protocols import Box, Completion, Match, Sight
from ...models.request_queue import ModelLock, lock_of
from .database import Database

FILE = "calls.sqlite"
"""Its name in a run's folder."""
# Earlier versions of this package kept failed calls too, as state 2. They are asked again.
_GET = "SELECT text, data FROM calls WHERE key = ? AND state < 2"
_PUT = "INSERT OR REPLACE INTO calls (key, kind, state, text, data) VALUES (?, ?, 0, ?, ?)"
_ABOUT = TypeAdapter(dict[str, dict[str, Any]])
KINDS = frozenset(("generate", "match", "similarity", "caption", "detect", "look"))
"""Calls of the protocols of :mod:`codevqa.models.protocols`."""


class Stored(NamedTuple):
    """The result of one call as it lies in the file."""

    text: str
    """JSON."""
    data: bytes | None = None
    """The bytes of an array, where the result has one."""


class CallStore(Database):
    """The calls of one run, and what models made them. Safe to use from many threads.

    Args:
        folder: the run; made where it is absent, unless it is only read.
        read_only: whether calls are only looked up.

    Raises:
        InputError: it is to be read and is absent, or it is not a record of calls.
        SetupError: it cannot be opened or made.
    """

    what = "record of calls"
    application = 0x43565143
    tables = """
CREATE TABLE calls (
    id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, kind TEXT NOT NULL, state INTEGER NOT NULL, text TEXT NOT NULL,
    data BLOB
);
CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID
"""
    hint = "Give the folder of a run, or record the run again."

    def __init__(self, folder: Path, *, read_only: bool = False) -> None:
        if read_only and not (folder / FILE).is_file():
            raise InputError(f"{folder} holds no recorded calls.", hint=f"Record the run first: {FILE} is absent.")
        super().__init__(folder / FILE, write=not read_only)

    def get(self, key: bytes) -> Stored | None:
        """Returns a call, or None where it is not on record.

        Raises:
            InputError: the file is damaged.
        """
        with self.lock:
            return next((Stored(*row) for row in self.read(_GET, key)), None)

    def save_calls(self, kind: str, calls: Mapping[bytes, Stored]) -> None:
        """Stores calls and commits them.

        Raises:
            SetupError: the file cannot be written, e.g. because the disk is full.
        """
        with self.writing() as db:
            db.executemany(_PUT, [(key, kind, *call) for key, call in calls.items()])

    @property
    def models(self) -> dict[str, dict[str, Any]] | None:
        """What the models are by role, as plain JSON-ready data; None where that is not set yet.

        Raises:
            InputError: the file is damaged.
        """
        with self.intact():
            return next((_ABOUT.validate_json(text) for (text,) in self.read("SELECT value FROM about")), None)

    @models.setter
    def models(self, about: Mapping[str, Mapping[str, Any]]) -> None:
        with self.writing() as db:
            db.execute("INSERT OR REPLACE INTO about VALUES ('models', ?)", (json.dumps(about),))


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

    def __init__(self, store: CallStore, about: Mapping[str, Any], model: Any = None) -> None:
        self.name = str(about["name"])
        self.grid = int(about.get("grid", 0))
        self.chat = bool(about.get("chat", False))
        self.chat_only = bool(about.get("chat_only", False))
        self.cheap = bool(about.get("cheap", False))
        self.reading_shots: int | None = about.get("reading_shots")
        self.model = model
        self.turn = ModelLock() if model is None else lock_of(model)
        self.computes = str(getattr(model, "computes", ""))
        self.batch = int(getattr(model, "batch", BATCH))
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

    def _read(self, kind: str, stored: Stored) -> Any:
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


def _to_stored(result: Any) -> Stored:
    if not isinstance(result, Match | np.ndarray):
        return Stored(json.dumps(result, default=_json_default))
    array, more = (result, {}) if isinstance(result, np.ndarray) else (result.relevance, {"logit": float(result.logit)})
    little = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False)
    return Stored(json.dumps({"dtype": little.dtype.str, "shape": array.shape, **more}), little.tobytes())


def _from_stored(kind: str, stored: Stored) -> Any:
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
            return Sight(_as_text(data[0]), chances, *map(int, data[2:]))
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
