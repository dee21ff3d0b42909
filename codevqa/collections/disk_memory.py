"""What one place on disk remembers: pictures that were read, models that were asked, tables that were answered.

A place is a folder: the user's cache, an index of one's own, or a run. It has one SQLite file. Features of pictures lie
beside it as safetensors files, which it lists. Nothing is pickled: texts and numbers are JSON, arrays raw little-endian
bytes whose type and shape stand beside them. What models were asked is kept as a hash alone. It is only ever a
shortcut: what is missing, damaged or of another file is computed again.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from pydantic import TypeAdapter

from ..core.database import Database
from ..core.errors import CodeVQAError, InputError, SetupError

_log = logging.getLogger(__name__)
FILE = "codevqa.sqlite"
"""Its name in an index."""
CALLS = "calls.sqlite"
"""Its name in a run's folder."""
FEATURES = "codevqa-features"
"""Folder of features, beside it."""
_EACH = 128
"""Files after which what was learnt of them is kept: a process that is killed loses no more."""
_VARIABLES = 500
"""Values in one query."""
# Earlier versions of this package kept failed calls too, as state 2. They are asked again.
_GET_CALL = "SELECT text, data FROM calls WHERE key = ? AND state < 2"
_ADD_CALL = "INSERT OR REPLACE INTO calls (key, kind, state, text, data) VALUES (?, ?, 0, ?, ?)"
_ABOUT = TypeAdapter(dict[str, dict[str, Any]])


class Known(NamedTuple):
    """What is known of a file."""

    stamp: str
    """Changes with the file."""
    key: str = ""
    """Of its picture; empty where it cannot be read."""
    size: tuple[int, int] = (0, 0)
    """Width and height in pixels."""
    wrong: str = ""
    """Why it cannot be read; else empty."""


class StoredCall(NamedTuple):
    """The result of one call as it lies in the file."""

    text: str
    """JSON."""
    data: bytes | None = None
    """The bytes of an array, where the result has one."""


class StoredCell(NamedTuple):
    """What a question's program said of one picture."""

    value: str
    chance: float | None
    wrong: str


class DiskMemory(Database):
    """What a place remembers. Any thread may use it, and so may several processes.

    Args:
        file: the SQLite file; made where it is absent, unless it is only read. None remembers in this object alone.
        read_only: whether it is only looked up.

    Raises:
        InputError: it is to be read and is absent, or it is another kind of file.
        SetupError: it cannot be opened or made.
    """

    what = "memory of codevqa"
    application = 0x43565143
    version = 2
    tables = """
CREATE TABLE IF NOT EXISTS calls (
    id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, kind TEXT NOT NULL, state INTEGER NOT NULL, text TEXT NOT NULL,
    data BLOB
);
CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS files (
    place TEXT PRIMARY KEY, stamp TEXT NOT NULL, key TEXT NOT NULL, width INTEGER NOT NULL, height INTEGER NOT NULL,
    wrong TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS notes (
    key TEXT NOT NULL, name TEXT NOT NULL, value REAL NOT NULL, PRIMARY KEY (key, name)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS features (
    network TEXT NOT NULL, key TEXT NOT NULL, file TEXT NOT NULL, bytes INTEGER NOT NULL,
    PRIMARY KEY (network, key)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS programs (
    asked BLOB PRIMARY KEY, cells BLOB NOT NULL, question TEXT NOT NULL, model TEXT NOT NULL, at TEXT NOT NULL,
    source TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS cells (
    asked BLOB NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, chance REAL, wrong TEXT NOT NULL,
    PRIMARY KEY (asked, key)) WITHOUT ROWID
"""
    hint = "Give the folder of a run, or record the run again."

    def __init__(self, file: Path | None, *, read_only: bool = False) -> None:
        if read_only and (file is None or not file.is_file()):
            raise InputError(f"{file} holds no recorded calls.", hint="Record the run first.")
        super().__init__(file, write=not read_only)
        self._new: dict[str, tuple[Any, ...]] = {}
        self._new_notes: list[tuple[str, str, float]] = []

    @property
    def folder(self) -> Path:
        """The place."""
        return self.path.parent

    # -- calls of models -----------------------------------------------------------------------------------------------

    def get(self, key: bytes) -> StoredCall | None:
        """Returns a call, or None where it is not on record.

        Raises:
            InputError: the file is damaged.
        """
        with self.lock:
            return next((StoredCall(*row) for row in self.read(_GET_CALL, key)), None)

    def find_call(self, key: bytes) -> StoredCall | None:
        """Returns a call, or None where it is not on record, or cannot be read."""
        return next((StoredCall(*row) for row in self._look_up(_GET_CALL, key)), None)

    def save_calls(self, kind: str, calls: Mapping[bytes, StoredCall]) -> None:
        """Stores calls and commits them.

        Raises:
            SetupError: the file cannot be written, e.g. because the disk is full.
        """
        with self.writing() as db:
            db.executemany(_ADD_CALL, [(key, kind, *call) for key, call in calls.items()])

    @property
    def models(self) -> dict[str, dict[str, Any]] | None:
        """What the models of a run are by role, as plain JSON-ready data; None where that is not set yet.

        Raises:
            InputError: the file is damaged.
        """
        with self.intact():
            return next((_ABOUT.validate_json(text) for (text,) in self.read("SELECT value FROM about")), None)

    @models.setter
    def models(self, about: Mapping[str, Mapping[str, Any]]) -> None:
        with self.writing() as db:
            db.execute("INSERT OR REPLACE INTO about VALUES ('models', ?)", (json.dumps(about),))

    # -- files of pictures ---------------------------------------------------------------------------------------------

    def known_files(self, places: Sequence[str]) -> dict[str, Known]:
        """Returns what is known of files, by place; a row that no picture can have is not believed."""
        known: dict[str, Known] = {}
        for place, stamp, key, width, height, wrong in self._read_in("files", "*", "place", places):
            whole = len(key) == 64 and width > 0 and height > 0 and not wrong
            if whole or (wrong and not key):
                known[place] = Known(stamp, key, (width, height), wrong)
        return known

    def add_file(self, place: str, known: Known) -> None:
        """Keeps what was learnt of a file, soon."""
        with self.lock:
            self._new[place] = (place, known.stamp, known.key, *known.size, known.wrong)
            if len(self._new) >= _EACH:
                self.save()

    def notes(self, keys: Sequence[str]) -> dict[str, dict[str, float]]:
        """Returns what was measured of pictures, by key and name."""
        notes: dict[str, dict[str, float]] = {}
        for key, name, value in self._read_in("notes", "*", "key", keys):
            notes.setdefault(key, {})[name] = float(value)
        return notes

    def add_note(self, key: str, name: str, value: float) -> None:
        """Keeps a number that was measured of a picture, soon."""
        with self.lock:
            self._new_notes.append((key, name, value))
            if len(self._new_notes) >= _EACH:
                self.save()

    def save(self) -> None:
        """Keeps all that was learnt of files and pictures."""
        with self.lock, self.keeping():
            files, notes = [*self._new.values()], self._new_notes
            self._new, self._new_notes = {}, []
            if files or notes:
                with self.writing() as db:
                    db.executemany("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?)", files)
                    db.executemany("INSERT OR REPLACE INTO notes VALUES (?, ?, ?)", notes)

    def places_below(self, roots: Iterable[str]) -> list[str]:
        """Returns the places of files that are known in folders and zip files, or are these files."""
        prefixes = [json.dumps(root.rstrip(os.sep))[:-1] for root in roots]
        return [
            place
            for prefix in prefixes
            for (place,) in self._look_up("SELECT place FROM files WHERE substr(place, 2, ?) = ?", len(prefix), prefix)
            if place[len(prefix) + 1] in ('"', "/", "\\")
        ]

    def forget(self, places: Sequence[str], keys: Iterable[str]) -> None:
        """Forgets files, and all that was learnt of pictures; features files that hold nothing else are deleted.

        Raises:
            SetupError: the file cannot be written.
            OSError: a file of features cannot be deleted.
        """
        pictures = list(keys)
        with self.writing() as db:
            before = dict(db.execute("SELECT DISTINCT file, network FROM features"))
            for table in ("notes", "features", "cells"):
                db.executemany(f"DELETE FROM {table} WHERE key = ?", [(key,) for key in pictures])
            db.executemany("DELETE FROM files WHERE place = ?", [(place,) for place in places])
            db.execute("DELETE FROM programs WHERE cells NOT IN (SELECT asked FROM cells)")
            after = {file for (file,) in db.execute("SELECT DISTINCT file FROM features")}
        for file, network in before.items():
            if file not in after:
                (self.folder / FEATURES / network / file).unlink(missing_ok=True)

    def drop_if_empty(self) -> None:
        """Deletes the file, and the folder, where it remembers nothing."""
        with self.lock:
            tables = ("calls", "files", "features", "programs", "cells")
            if any(self._look_up(f"SELECT 1 FROM {table} LIMIT 1") for table in tables):
                return
            self.close()
            for suffix in ("", "-wal", "-shm"):
                self.path.with_name(f"{self.path.name}{suffix}").unlink(missing_ok=True)
        folders = [*(self.folder / FEATURES).glob("*"), self.folder / FEATURES, self.folder]
        for folder in folders:
            with suppress(OSError):  # it is not empty, or not there
                folder.rmdir()

    # -- features ------------------------------------------------------------------------------------------------------

    def features(self, network: str) -> dict[str, str]:
        """Returns the files that hold what a network made of pictures, by the pictures' keys."""
        return dict(self._look_up("SELECT key, file FROM features WHERE network = ?", network))

    def add_features(
        self, network: str, file: str, sizes: Mapping[str, int], write: Callable[[list[str]], object]
    ) -> None:
        """Lists a new file of features, which ``write`` writes, without pictures that another process added meanwhile.

        Raises:
            SetupError: the list cannot be written.
        """
        with self.writing() as db:  # nobody else adds any until this is committed
            keys = list(sizes.keys() - self.features(network).keys())
            if keys:
                write(keys)
            db.executemany(
                "INSERT INTO features VALUES (?, ?, ?, ?)", [(network, key, file, sizes[key]) for key in keys]
            )

    def drop_features(self, network: str, file: str) -> None:
        """Takes a file of features off the list."""
        with self.keeping(), self.writing() as db:
            db.execute("DELETE FROM features WHERE network = ? AND file = ?", (network, file))

    def feature_bytes(self, keys: Sequence[str]) -> int:
        """Returns how many bytes the features of pictures take."""
        return sum(size for (size,) in self._read_in("features", "bytes", "key", keys))

    # -- tables --------------------------------------------------------------------------------------------------------

    def program(self, asked: bytes) -> str | None:
        """Returns the program that was written for a question, or None; it is empty where none could be."""
        return next((str(row[0]) for row in self._look_up("SELECT source FROM programs WHERE asked = ?", asked)), None)

    def add_program(self, asked: bytes, cells: bytes, question: str, model: str, at: str, source: str) -> None:
        """Keeps the program of a question, and under which name it says what of pictures."""
        row = (asked, cells, question, model, at, source)
        with self.keeping(), self.writing() as db:
            db.execute("INSERT OR REPLACE INTO programs VALUES (?, ?, ?, ?, ?, ?)", row)

    def questions(self) -> list[tuple[str, str, str, int]]:
        """Returns the questions of tables: the question, its model, when it was asked, and about how many pictures."""
        query = (
            "SELECT question, model, at, (SELECT COUNT(*) FROM cells WHERE cells.asked = programs.cells)"
            " FROM programs ORDER BY at"
        )
        rows = self._look_up(query)
        return [(str(question), str(model), str(at), int(count)) for question, model, at, count in rows]

    def cells(self, asked: bytes) -> dict[str, StoredCell]:
        """Returns what a program said of pictures, by key."""
        rows = self._look_up("SELECT key, value, chance, wrong FROM cells WHERE asked = ?", asked)
        return {key: StoredCell(value, chance, wrong) for key, value, chance, wrong in rows}

    def add_cells(self, cells: Sequence[tuple[bytes, str, StoredCell]]) -> None:
        """Keeps what programs said, each with what was asked and the picture's key; it is committed at once."""
        with self.keeping(), self.writing() as db:
            db.executemany(
                "INSERT OR REPLACE INTO cells VALUES (?, ?, ?, ?, ?)",
                [(asked, key, *cell) for asked, key, cell in cells],
            )

    # -- the rest ------------------------------------------------------------------------------------------------------

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """Warns once, and goes on, where the block cannot write: the disk may be full."""
        try:
            yield
        except SetupError as error:
            cannot_keep(self.folder, error)

    def _read_in(self, table: str, columns: str, by: str, values: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        for start in range(0, len(values), _VARIABLES):
            part = values[start : start + _VARIABLES]
            marks = ", ".join("?" * len(part))
            yield from self._look_up(f"SELECT {columns} FROM {table} WHERE {by} IN ({marks})", *part)

    def _look_up(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Returns what a query finds: nothing in a damaged file, which is set aside for a new one."""
        with self.lock:
            try:
                return list(self.read(query, *values))
            except InputError as error:
                try:
                    self.close()
                    if _is_damaged(self.path):
                        _set_aside(self.path)
                        self._open(self.path, write=True)
                except (CodeVQAError, OSError):
                    cannot_keep(self.folder, error)
                return []


_lock = threading.Lock()
_memories: WeakValueDictionary[Path, DiskMemory] = WeakValueDictionary()
"""Those of this process, by their files."""
_warned_folders: set[Path] = set()


def user_place() -> Path:
    """Returns the folder of the user's cache in which collections and servers' answers are remembered."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "codevqa" / "memory"


def memory_at(folder: Path) -> DiskMemory:
    """Returns the memory of a place. One that is damaged is set aside; where there can be none, nothing is kept."""
    file = Path(os.path.realpath(folder)) / FILE
    with _lock:
        memory = _memories.get(file)
        if memory is None or not file.exists():
            memory = _memories[file] = _open_memory(file)
        return memory


def _open_memory(file: Path) -> DiskMemory:
    try:
        if not file.parent.exists():
            file.parent.mkdir(mode=0o700, parents=True)
        memory = DiskMemory(file)
    except (CodeVQAError, OSError) as error:
        with suppress(CodeVQAError, OSError):
            if _is_damaged(file):
                _set_aside(file)
                return DiskMemory(file)
        cannot_keep(file.parent, error)
        return DiskMemory(None)
    return memory


def _set_aside(file: Path) -> None:
    """Renames a damaged file, so that the next to open it begins anew."""
    _log.warning("%s is damaged: it is set aside, and what it held is computed again.", file)
    for suffix in ("", "-wal", "-shm"):
        part = file.with_name(f"{file.name}{suffix}")
        if part.exists():
            part.replace(file.with_name(f"{file.name}.damaged{suffix}"))


def _is_damaged(file: Path) -> bool:
    """Whether a file begins as ours does, or as nothing that anybody else made."""
    with suppress(OSError):
        if file.is_file():
            with file.open("rb") as opened:
                head = opened.read(100)
            ours = head[68:72] == DiskMemory.application.to_bytes(4, "big")
            later = int.from_bytes(head[60:64], "big") > DiskMemory.version
            return not head.startswith(b"SQLite format 3\0") or (ours and not later)
    return False


def cannot_keep(index: Path, error: Exception) -> None:
    """Warns that a folder cannot hold a memory: once, however much of it fails."""
    if index not in _warned_folders:
        _warned_folders.add(index)
        why = str(error).rstrip(".")
        _log.warning("The index %s cannot be kept: %s. Pictures will be looked at again next time.", index, why)
