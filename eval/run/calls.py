"""Model calls on disk, by the hash of what was asked: one SQLite file beside the rows of a run.

A result is committed before its caller sees it, so that no finished row outlives a call it rests on, whatever ends
the process. Nothing is pickled: texts and numbers are JSON, arrays raw little-endian bytes whose type and shape stand
beside them. What was asked is kept as a hash alone.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

from ...core.errors import InputError, SetupError
from .database import DAMAGE, Database, Layout

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
    "Give the folder of a run, or record the run again.",
    "Is the disk full?",
)
_MANY = 500
"""Keys looked up in one statement; SQLite of old takes 999 parameters."""


class State(IntEnum):
    """What a stored call is worth."""

    FINAL = 0
    BLANK = 1
    """A text model said nothing: replayed, but asked again while recording, as an unrecorded engine would."""
    FAILED = 2
    """In records of earlier versions: the model failed. It is asked again."""


@dataclass(frozen=True)
class Stored:
    """The result of one call as it lies in the file."""

    text: str
    """JSON."""
    data: bytes | None = None
    """The bytes of an array, where the result has one."""
    state: State = State.FINAL


class CallStore:
    """The calls of one run, and what models made them. Safe to use from many threads.

    Args:
        folder: the run; made where it is absent, unless it is only read.
        read_only: whether calls are only looked up.

    Raises:
        InputError: it is to be read and is absent, or it is not a record of calls.
        SetupError: it cannot be opened or made.
    """

    def __init__(self, folder: Path, *, read_only: bool = False) -> None:
        self.path = folder / FILE
        if read_only and not self.path.is_file():
            raise InputError(f"{folder} holds no recorded calls.", hint=f"Record the run first: {FILE} is absent.")
        try:
            if not read_only:
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SetupError(f"Cannot open {self.path}: {error}.", hint="Check the folder and its rights.") from None
        self._lock = threading.Lock()
        self._db = Database(self.path, LAYOUT, write=not read_only)

    def get(self, keys: Sequence[bytes]) -> dict[bytes, Stored]:
        """Returns the calls there are of these, by key.

        Raises:
            InputError: the file is damaged.
        """
        found: dict[bytes, Stored] = {}
        for start in range(0, len(keys), _MANY):
            some = keys[start : start + _MANY]
            places = ",".join("?" * len(some))
            query = f"SELECT key, text, data, state FROM calls WHERE key IN ({places}) AND state != {State.FAILED:d}"
            with self._lock:
                rows = list(self._db.read(query, *some))
            try:
                found.update((key, Stored(str(text), data, State(state))) for key, text, data, state in rows)
            except DAMAGE as error:
                raise self._db.damaged(error) from None
        return found

    def put(self, kind: str, calls: Mapping[bytes, Stored]) -> None:
        """Stores calls and commits them.

        Raises:
            SetupError: the file cannot be written, e.g. because the disk is full.
        """
        rows = [(key, kind, one.state, one.text, one.data) for key, one in calls.items()]
        columns = "(key, kind, state, text, data) VALUES (?, ?, ?, ?, ?)"
        with self._lock, self._db.writing() as db:
            db.executemany(f"INSERT OR REPLACE INTO calls {columns}", rows)

    @property
    def models(self) -> dict[str, dict[str, Any]] | None:
        """What the models are by role, as plain JSON-ready data; None where that is not set yet.

        Raises:
            InputError: the file is damaged.
        """
        (text,) = next(self._db.read("SELECT value FROM about WHERE name = 'models'"), (None,))
        try:
            return None if text is None else {role: {**about} for role, about in json.loads(text).items()}
        except DAMAGE as error:
            raise self._db.damaged(error) from None

    @models.setter
    def models(self, about: Mapping[str, Mapping[str, Any]]) -> None:
        with self._lock, self._db.writing() as db:
            db.execute("INSERT OR REPLACE INTO about VALUES ('models', ?)", (json.dumps(about),))

    def close(self) -> None:
        """Closes the file. Safe to call twice."""
        with self._lock:
            self._db.close()

    def damaged(self, error: Exception, where: str = "") -> InputError:
        """Returns the error of a file that holds what no record does."""
        return self._db.damaged(error, where)
