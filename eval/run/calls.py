"""Model calls on disk, by the hash of what was asked: one SQLite file beside the rows of a run.

A result is committed before its caller sees it, so that no finished row outlives a call it rests on, whatever ends
the process. Nothing is pickled: texts and numbers are JSON, arrays raw little-endian bytes whose type and shape stand
beside them. What was asked is kept as a hash alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from ...core.errors import InputError
from .database import Database, Layout

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
)
# Earlier versions of this package kept failed calls too, as state 2. They are asked again.
_GET = "SELECT text, data FROM calls WHERE key = ? AND state < 2"
_PUT = "INSERT OR REPLACE INTO calls (key, kind, state, text, data) VALUES (?, ?, 0, ?, ?)"
_ABOUT = TypeAdapter(dict[str, dict[str, Any]])


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

    def __init__(self, folder: Path, *, read_only: bool = False) -> None:
        if read_only and not (folder / FILE).is_file():
            raise InputError(f"{folder} holds no recorded calls.", hint=f"Record the run first: {FILE} is absent.")
        super().__init__(folder / FILE, LAYOUT, write=not read_only)

    def get(self, key: bytes) -> Stored | None:
        """Returns a call, or None where it is not on record.

        Raises:
            InputError: the file is damaged.
        """
        with self.lock:
            return next((Stored(*one) for one in self.read(_GET, key)), None)

    def put(self, kind: str, calls: Mapping[bytes, Stored]) -> None:
        """Stores calls and commits them.

        Raises:
            SetupError: the file cannot be written, e.g. because the disk is full.
        """
        with self.writing() as db:
            db.executemany(_PUT, [(key, kind, *one) for key, one in calls.items()])

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
