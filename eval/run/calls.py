"""Model calls on disk, by the hash of what was asked: one SQLite file beside the rows of a run.

A result is committed before its caller sees it, so that no finished row outlives a call it rests on, whatever ends
the process. Nothing is pickled: texts and numbers are JSON, arrays raw little-endian bytes whose type and shape stand
beside them. What was asked is kept as a hash alone.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

from ...core.errors import InputError, SetupError
from .database import DAMAGE, Layout, check, connect, is_empty, make, transaction

__all__ = ["FILE", "CallStore", "State", "Stored", "key_of"]

FILE = "calls.sqlite"
"""Its name in a run's folder."""
LAYOUT = Layout(
    "record of calls",
    0x43565143,
    1,
    """
CREATE TABLE calls (
    id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, kind TEXT NOT NULL, state INTEGER NOT NULL, text TEXT NOT NULL,
    data BLOB
);
CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID
""",
    "Give the folder of a run.",
)
_MANY = 500
"""Keys looked up in one statement; SQLite of old takes 999 parameters."""


class State(IntEnum):
    """What a stored call is worth."""

    FINAL = 0
    BLANK = 1
    """A text model said nothing: replayed, but asked again while recording, as an unrecorded engine would."""
    FAILED = 2
    """The model failed: the same error when replayed, but asked again while recording."""


@dataclass(frozen=True)
class Stored:
    """The result of one call as it lies in the file."""

    text: str
    """JSON."""
    data: bytes | None = None
    """The bytes of an array, where the result has one."""
    state: State = State.FINAL


def key_of(kind: str, model: Mapping[str, Any], request: Sequence[Any]) -> bytes:
    """Returns the SHA-256 of one call.

    Args:
        kind: what is asked of the model, e.g. ``caption``.
        model: what the model is: its name, and the settings that change its results.
        request: everything the result depends on, with a picture's key in place of its pixels.
    """
    text = json.dumps([kind, model, request], sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).digest()


class CallStore:
    """The calls of one run. Safe to use from many threads.

    Args:
        path: the file; made where it is absent, unless it is only read.
        read_only: whether calls are only looked up.

    Raises:
        InputError: it is to be read and is absent, or it is not a record of calls.
        SetupError: it cannot be opened or made.
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path = path
        self._lock = threading.Lock()
        if read_only and not path.is_file():
            raise InputError(f"{path.parent} holds no recorded calls.", hint=f"Record the run first: {FILE} is absent.")
        try:
            if not read_only:
                path.parent.mkdir(parents=True, exist_ok=True)
            self._db = connect(path, write=not read_only)
            try:
                if not read_only:
                    with transaction(self._db):
                        if is_empty(self._db):
                            make(self._db, LAYOUT)
                check(self._db, LAYOUT, path)
                if not read_only:
                    self._db.execute("PRAGMA journal_mode = WAL")
            except BaseException:
                self._db.close()
                raise
        except (sqlite3.OperationalError, OSError) as error:
            raise SetupError(f"Cannot open {path}: {error}.", hint="Check the folder and its rights.") from None
        except (sqlite3.DatabaseError, *DAMAGE) as error:
            raise InputError(f"{path} is no {LAYOUT.what}: {error}.", hint=LAYOUT.hint) from None

    def get(self, keys: Sequence[bytes]) -> dict[bytes, Stored]:
        """Returns the calls there are of these, by key.

        Raises:
            InputError: the file is damaged; so does :meth:`about`.
        """
        found: dict[bytes, Stored] = {}
        with self._reading():
            for start in range(0, len(keys), _MANY):
                some = keys[start : start + _MANY]
                marks = ",".join("?" * len(some))
                rows = self._db.execute(f"SELECT key, text, data, state FROM calls WHERE key IN ({marks})", some)
                found.update((key, Stored(str(text), data, State(state))) for key, text, data, state in rows)
        return found

    def put(self, kind: str, calls: Mapping[bytes, Stored]) -> None:
        """Stores calls and commits them.

        Raises:
            SetupError: the file cannot be written, e.g. because the disk is full; so does :meth:`set_about`.
        """
        rows = [(key, kind, one.state, one.text, one.data) for key, one in calls.items()]
        with self._writing():
            self._db.executemany(
                "INSERT OR REPLACE INTO calls (key, kind, state, text, data) VALUES (?, ?, ?, ?, ?)",
                rows,
            )

    def set_about(self, name: str, value: Any) -> None:
        """Keeps something about the run, as JSON."""
        with self._writing():
            self._db.execute("INSERT OR REPLACE INTO about VALUES (?, ?)", (name, json.dumps(value)))

    def about(self, name: str) -> Any:
        """Returns what is kept under a name; None where nothing is."""
        with self._reading():
            row = self._db.execute("SELECT value FROM about WHERE name = ?", (name,)).fetchone()
            return None if row is None else json.loads(row[0])

    def close(self) -> None:
        """Closes the file; the write-ahead log is merged into it. Safe to call twice."""
        with self._lock:
            self._db.close()

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            with self._lock:
                yield
        except (sqlite3.Error, *DAMAGE) as error:
            raise damaged(self.path, error) from None

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            with self._lock, transaction(self._db):
                yield
        except sqlite3.Error as error:
            raise SetupError(f"Cannot write {self.path}: {error}.", hint="Is the disk full?") from None


def damaged(path: Path, error: Exception) -> InputError:
    """Returns the error of a file that holds what no record does."""
    said = " ".join(str(error)[:200].split())
    return InputError(f"{path} is damaged: {type(error).__name__}: {said}.", hint="Record the run again.")
