"""What is known of a collection's files without decoding them again: a SQLite table on disk.

It is only ever a shortcut. A file that changed is looked at again; a table that is damaged is made anew; where the disk
is full or not ours, the collection works without. Each write is one transaction, so a process may be killed at any time
and several may share a table.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

_T = TypeVar("_T")
_log = logging.getLogger(__name__)
_TABLE = """CREATE TABLE IF NOT EXISTS files (
    place TEXT PRIMARY KEY, stamp TEXT, key TEXT, width INTEGER, height INTEGER, wrong TEXT, notes TEXT)"""
_EACH = 128
"""Files after which what was learnt of them is kept: a process that is killed loses no more."""


class Known(NamedTuple):
    """What is known of a file."""

    stamp: str
    """Changes with the file."""
    key: str
    """Of its picture; empty where it cannot be read."""
    width: int
    height: int
    wrong: str
    """Why it cannot be read; else empty."""
    notes: str
    """What models found out about it, as JSON."""


class Catalogue:
    """The table of one collection. Any thread may use it.

    Args:
        file: where it is, or will be.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._new: dict[str, Known] = {}
        self._lost = False

    def read(self) -> dict[str, Known]:
        """Returns what is known, by place."""

        def rows(base: sqlite3.Connection) -> dict[str, Known]:
            return {str(place): Known(*known) for place, *known in base.execute("SELECT * FROM files")}

        with self._lock:
            return self._do(rows) or {}

    def put(self, place: str, known: Known) -> None:
        """Keeps what was learnt of a file, soon."""
        with self._lock:
            self._new[place] = known
            if len(self._new) >= _EACH:
                self._write()

    def drop(self, places: Iterable[str]) -> None:
        """Forgets files that are gone."""
        rows = [(place,) for place in places]
        with self._lock:
            if rows:
                self._do(lambda base: base.executemany("DELETE FROM files WHERE place = ?", rows))

    def save(self) -> None:
        """Keeps all that was learnt."""
        with self._lock:
            if self._new:
                self._write()

    def _write(self) -> None:
        rows = [(place, *known) for place, known in self._new.items()]
        self._new = {}
        self._do(lambda base: base.executemany("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?, ?)", rows))

    def _do(self, work: Callable[[sqlite3.Connection], _T]) -> _T | None:
        """Does something with the table, with a new one where it is damaged; returns None where there can be none."""
        for last in (False, True):
            if self._lost:
                break
            try:
                self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                with closing(sqlite3.connect(self._file, timeout=30)) as base, base:
                    base.execute(_TABLE)
                    return work(base)
            except (OSError, sqlite3.Error, TypeError, ValueError) as error:
                # Others of SQLite's errors say that it cannot be written or is in use, not what is in it.
                if last or isinstance(error, OSError | sqlite3.OperationalError):
                    self._lost = True
                    cannot_keep(self._file.parent, error)
                    break
                _log.warning("The index %s is damaged and made anew: %s", self._file, error)
                for end in ("", "-journal", "-wal", "-shm"):
                    with suppress(OSError):
                        Path(f"{self._file}{end}").unlink()
        return None


def notes_of(known: Known) -> dict[str, float]:
    """Returns what models noted about a picture."""
    try:
        found = json.loads(known.notes or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


_told: set[Path] = set()


def cannot_keep(index: Path, error: Exception) -> None:
    """Warns that a folder cannot hold an index: once, however much of it fails."""
    if index not in _told:
        _told.add(index)
        _log.warning("The index %s cannot be kept: %s. Pictures will be looked at again next time.", index, error)
