"""What is known of a collection's files without decoding them again: a SQLite table on disk.

It is only ever a shortcut. A file that changed is looked at again; a table that is damaged is made anew; where the disk
is full or not ours, the collection works without.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import threading
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

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
        self._base = self._opened()

    def read(self) -> dict[str, Known]:
        """Returns what is known, by place."""
        with self._lock:
            try:
                rows = self._base.execute("SELECT * FROM files").fetchall() if self._base else []
                return {str(place): Known(*known) for place, *known in rows}
            except (sqlite3.Error, TypeError, UnicodeError) as error:
                self._give_up(error, anew=True)
                return {}

    def put(self, place: str, known: Known) -> None:
        """Keeps what was learnt of a file, soon."""
        with self._lock:
            self._new[place] = known
            if len(self._new) >= _EACH:
                self._write()

    def drop(self, places: Iterable[str]) -> None:
        """Forgets files that are gone."""
        with self._lock:
            self._do("DELETE FROM files WHERE place = ?", [(place,) for place in places])

    def save(self) -> None:
        """Keeps all that was learnt."""
        with self._lock:
            self._write()

    def _write(self) -> None:
        rows = [(place, *known) for place, known in self._new.items()]
        self._new = {}
        self._do("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?, ?)", rows)

    def _do(self, command: str, rows: Collection[tuple[object, ...]]) -> None:
        if self._base is None or not rows:
            return
        try:
            with self._base:
                self._base.executemany(command, rows)
        except (sqlite3.Error, UnicodeError) as error:
            self._give_up(error)

    def _opened(self, *, again: bool = True) -> sqlite3.Connection | None:
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            base = sqlite3.connect(self._file, timeout=30, check_same_thread=False)
            base.execute("PRAGMA journal_mode=WAL")
            base.execute("PRAGMA synchronous=NORMAL")
            base.execute(_TABLE)
            return base
        except sqlite3.DatabaseError as error:
            if again and not isinstance(error, sqlite3.OperationalError):
                _log.warning("The index %s is damaged and made anew: %s", self._file, error)
                self._remove()
                return self._opened(again=False)
            self._say(error)
        except OSError as error:
            self._say(error)
        return None

    def _give_up(self, error: Exception, *, anew: bool = False) -> None:
        """Goes on without the table, or with a new one where this one is damaged."""
        if self._base is not None:
            self._base.close()
        self._base = None
        if anew:
            _log.warning("The index %s is damaged and made anew: %s", self._file, error)
            self._remove()
            self._base = self._opened(again=False)
        else:
            self._say(error)

    def _say(self, error: Exception) -> None:
        _log.warning("The index %s cannot be kept (%s): the pictures will be read again next time.", self._file, error)

    def _remove(self) -> None:
        for end in ("", "-wal", "-shm"):
            with suppress(OSError):
                Path(f"{self._file}{end}").unlink()


def notes_of(known: Known) -> dict[str, float]:
    """Returns what models noted about a picture."""
    try:
        found = json.loads(known.notes or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
