"""Model calls on disk, by the hash of what was asked: one SQLite file beside the rows of a run.

A result is committed before whoever asked sees it, so that no finished row outlives a call it rests on, whatever ends
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
from ...core.images import MAX_SIDE

__all__ = ["FILE", "CallStore", "State", "Stored", "identities", "key_of"]

FILE = "calls.sqlite"
"""Its name in a run's folder."""
FORMAT = 1
"""Written into the file; a file of another number is refused."""
_APPLICATION = 0x43565143
_AGAIN = "Record the run again."
_MANY = 500
"""Keys looked up in one statement; SQLite of old takes 999 parameters."""
_SCHEMA = """
CREATE TABLE calls (
    id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, kind TEXT NOT NULL, state INTEGER NOT NULL, text TEXT NOT NULL,
    data BLOB
);
CREATE TABLE pictures (
    example TEXT NOT NULL, position INTEGER NOT NULL, key BLOB NOT NULL, width INTEGER NOT NULL,
    height INTEGER NOT NULL, name TEXT NOT NULL, PRIMARY KEY (example, position)
) WITHOUT ROWID;
CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""


class State(IntEnum):
    """What a stored call is worth."""

    FINAL = 0
    BLANK = 1
    """A text model said nothing: replayed, but asked again while recording, as an unrecorded engine would."""
    FAILED = 2
    """The model failed: the same error when replayed, but asked again while recording."""


_REPLACE = (
    "ON CONFLICT (key) DO UPDATE SET state = excluded.state, text = excluded.text, data = excluded.data"
    f" WHERE calls.state > {State.FINAL:d}"
)
"""A call that is final keeps its result; another takes the new one."""


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


DAMAGE = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""What comes of reading data that somebody else wrote."""


def damaged(path: Path, error: Exception) -> InputError:
    """Returns the error of a file that holds what no record does."""
    return InputError(f"{path} is damaged: {type(error).__name__}: {' '.join(str(error)[:200].split())}.", hint=_AGAIN)


class CallStore:
    """The calls of one run. Safe to use from many threads, and from several processes on one machine.

    Args:
        path: the file; made where it is absent, unless it is only read.
        read_only: whether calls are only looked up.

    Raises:
        InputError: it is to be read and is absent, or it is not a record of calls.
        SetupError: it cannot be opened or made.
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path = path
        self.read_only = read_only
        self._lock = threading.Lock()
        if read_only and not path.is_file():
            raise InputError(f"{path.parent} holds no recorded calls.", hint=f"Record the run first: {FILE} is absent.")
        try:
            if not read_only:
                path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = _connect(path, read_only)
            try:
                self._prepare()
            except BaseException:
                self._connection.close()
                raise
        except (ValueError, TypeError) as error:
            raise damaged(path, error) from None
        except sqlite3.OperationalError as error:
            raise SetupError(f"Cannot open {path}: {error}.", hint="Check the folder and its rights.") from None
        except sqlite3.DatabaseError as error:
            raise InputError(f"{path} is no record of calls: {error}.", hint="Give the folder of a run.") from None
        except OSError as error:
            raise SetupError(f"Cannot make {path}: {error.strerror or error}.", hint="Give another folder.") from None

    def get(self, keys: Sequence[bytes]) -> dict[bytes, Stored]:
        """Returns the calls there are of these, by key.

        Raises:
            InputError: the file is damaged; so do the others that read.
        """
        found: dict[bytes, Stored] = {}
        with self._reading():
            for start in range(0, len(keys), _MANY):
                some = keys[start : start + _MANY]
                marks = ",".join("?" * len(some))
                rows = self._connection.execute(
                    f"SELECT key, text, data, state FROM calls WHERE key IN ({marks})", some
                )
                found.update((key, Stored(str(text), data, State(state))) for key, text, data, state in rows)
        return found

    def put(self, kind: str, calls: Mapping[bytes, Stored]) -> None:
        """Stores calls and commits them. One that has a final result keeps it.

        Raises:
            SetupError: the file cannot be written, e.g. because the disk is full.
        """
        rows = [(key, kind, one.state, one.text, one.data) for key, one in calls.items()]
        with self._writing():
            self._connection.executemany(
                f"INSERT INTO calls (key, kind, state, text, data) VALUES (?, ?, ?, ?, ?) {_REPLACE}", rows
            )

    def put_picture(self, example: str, position: int, key: str, size: tuple[int, int], name: str) -> None:
        """Stores which picture an example had.

        Raises:
            SetupError: the file cannot be written.
        """
        # A file name may hold bytes that are no text.
        row = (example, position, bytes.fromhex(key), *size, name.encode("utf-8", "replace").decode())
        with self._writing():
            self._connection.execute("INSERT OR REPLACE INTO pictures VALUES (?, ?, ?, ?, ?, ?)", row)

    def picture(self, example: str, position: int) -> tuple[str, tuple[int, int], str] | None:
        """Returns key, (width, height) and name of a picture of an example; None where it was not recorded."""
        with self._reading():
            row = self._connection.execute(
                "SELECT key, width, height, name FROM pictures WHERE example = ? AND position = ?", (example, position)
            ).fetchone()
            return None if row is None else (row[0].hex(), (_side(row[1]), _side(row[2])), str(row[3]))

    def set_about(self, name: str, value: Any) -> None:
        """Keeps something about the run, as JSON.

        Raises:
            SetupError: the file cannot be written.
        """
        with self._writing():
            self._connection.execute("INSERT OR REPLACE INTO about VALUES (?, ?)", (name, json.dumps(value)))

    def about(self, name: str) -> Any:
        """Returns what is kept under a name; None where nothing is."""
        with self._reading():
            row = self._connection.execute("SELECT value FROM about WHERE name = ?", (name,)).fetchone()
            return None if row is None else json.loads(row[0])

    def counts(self) -> dict[str, int]:
        """Returns how many calls there are of each kind."""
        with self._reading():
            return dict(self._connection.execute("SELECT kind, count(*) FROM calls GROUP BY kind ORDER BY kind"))

    def close(self) -> None:
        """Closes the file; the write-ahead log is merged into it. Safe to call twice."""
        with self._lock:
            self._connection.close()

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            with self._lock:
                yield
        except (sqlite3.Error, *DAMAGE) as error:
            raise damaged(self.path, error) from None

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._lock:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                yield
                self._connection.execute("COMMIT")
            except sqlite3.Error as error:
                raise SetupError(f"Cannot write {self.path}: {error}.", hint="Is the disk full?") from None
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")

    def _prepare(self) -> None:
        run = self._connection.execute
        if not self.read_only:
            run("PRAGMA journal_mode = WAL")
            run("PRAGMA synchronous = NORMAL")
            run("BEGIN IMMEDIATE")  # of two processes, one makes the tables
        found, made = run("PRAGMA application_id").fetchone()[0], run("PRAGMA user_version").fetchone()[0]
        if not self.read_only and (found, made) == (0, 0) and not run("SELECT 1 FROM sqlite_master").fetchone():
            for statement in _SCHEMA.split(";"):
                run(statement)
            run(f"PRAGMA application_id = {_APPLICATION}")
            run(f"PRAGMA user_version = {FORMAT}")
        elif (found, made) != (_APPLICATION, FORMAT):
            known = found == _APPLICATION
            raise InputError(
                f"{self.path} is " + (f"of format {made}, not {FORMAT}." if known else "no record of calls."),
                hint="Replay it with the version that recorded it." if known else "Give the folder of a run.",
            )
        refuse_programs(self._connection, self.path)
        if not self.read_only:
            run("COMMIT")


def refuse_programs(db: sqlite3.Connection, path: Path | str) -> None:
    """Refuses a file that would compute or change what is read from it and written to it.

    Raises:
        InputError: it has a view, a trigger or a virtual table.
    """
    query = "SELECT type, name, sql LIKE 'CREATE VIRTUAL%' FROM sqlite_master"
    for kind, name, virtual in db.execute(query):
        if virtual or kind not in ("table", "index"):
            what = "virtual table" if virtual else kind
            raise InputError(f"{path} is not a run of codevqa: its file has the {what} {name!r}.", hint="Delete it.")


def _side(pixels: object) -> int:
    if not isinstance(pixels, int) or not 0 < pixels <= MAX_SIDE:
        raise ValueError(f"a picture is {pixels!r:.40} pixels wide")
    return pixels


def _connect(path: Path, read_only: bool) -> sqlite3.Connection:
    """Opens the file for any thread, with transactions begun and ended by hand."""
    address = f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rwc'}"
    connection = sqlite3.connect(address, uri=True, timeout=60, isolation_level=None, check_same_thread=False)
    if read_only:
        try:
            connection.execute("SELECT 1 FROM sqlite_master").fetchone()
        except sqlite3.OperationalError:  # a folder that cannot be written has no room for the log's index
            connection.close()
            address = f"{path.absolute().as_uri()}?immutable=1"
            connection = sqlite3.connect(address, uri=True, isolation_level=None, check_same_thread=False)
    return connection


def identities(models: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Returns by role what decides results; the name that a model reports may be a path on its machine."""
    return {role: {key: value for key, value in about.items() if key != "name"} for role, about in models.items()}
