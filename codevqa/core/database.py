"""SQLite files of ours: known by their header, opened for one that writes or many that read.

What is committed survives the death of the process at any moment: write-ahead mode with ``synchronous=NORMAL``.
"""

from __future__ import annotations

import sqlite3
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

from .errors import InputError, SetupError, record

_DAMAGE = (sqlite3.Error, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""What comes of reading data that somebody else wrote."""


class Database:
    """One file. Any thread may use it, and many may write; those who read beside them take its ``lock``.

    A kind of file is a subclass that says what follows.

    Args:
        path: the file; made by one that writes where it is absent. None is one in memory, which ends with its object.
        write: whether it is written.

    Raises:
        InputError: it is another kind of file, of a later version, or one that computes what is read from it.
        SetupError: it cannot be opened or made.
    """

    what: ClassVar[str]
    """What messages call it."""
    application: ClassVar[int]
    """Marks it in its header, where ``file`` and we look."""
    version: ClassVar[int] = 1
    tables: ClassVar[str]
    """Statements that make it. Those of a later version are run on an earlier file, too."""
    hint: ClassVar[str]
    """Where such a file comes from."""

    def __init__(self, path: Path | None, *, write: bool) -> None:
        self.path, self.lock = path or Path(":memory:"), threading.RLock()
        self._open(path, write)

    def _open(self, path: Path | None, write: bool) -> None:
        """Opens the file; a second time, where another has taken its place."""
        try:
            if write and path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
            self._db = _open_connection(path, write=write)
            try:
                if not write or self._mark("page_count"):
                    self._check()  # before anything is written: it may be somebody else's
                if write:
                    with self.writing():
                        if not _has_tables(self._db) or self._mark("user_version") < self.version:
                            marks = f"PRAGMA application_id={self.application}; PRAGMA user_version={self.version}"
                            for statement in f"{self.tables}; {marks}".split(";"):
                                self._db.execute(statement)
                            self._fill()
                    # Only now: whatever kills the process, the file is empty, or has its marks and tables.
                    with suppress(sqlite3.OperationalError):  # of several that begin at once, another does it
                        self._db.execute("PRAGMA journal_mode = WAL")
            except BaseException:
                self._db.close()
                raise
        except (sqlite3.OperationalError, OSError) as error:
            raise SetupError(f"Cannot open {path}: {error}.", hint="Check the folder and its rights.") from None
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # the latter where sqlite's own message is damaged
            raise InputError(f"{path} is no {self.what}: {error}.", hint=self.hint) from None

    def _fill(self) -> None:
        """Writes what a new file holds beside its tables, in the same transaction."""

    def __del__(self) -> None:
        # A connection and its statements hold each other: left alone, it would stay open until rubbish is collected.
        if hasattr(self, "_db"):
            self.close()

    def close(self) -> None:
        """Closes the file; the write-ahead log is merged into it. Safe to call twice."""
        with self.lock:
            self._db.close()

    def read(self, query: str, *values: object) -> Iterator[tuple[Any, ...]]:
        """Yields what a query finds.

        Raises:
            InputError: the file is damaged.
        """
        with self.intact():
            # "yield from" would close the cursor, maybe after the file.
            for row in self._db.execute(query, values):  # noqa: UP028
                yield row

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Commits what the block writes, or none of it.

        Raises:
            SetupError: the file cannot be written, e.g. because the disk is full.
        """
        try:
            with self.lock, self._db:
                self._db.execute("BEGIN IMMEDIATE")
                yield self._db
        except sqlite3.Error as error:
            raise SetupError(
                f"Cannot write {self.path}: {error}.", hint="What was added before is safe: make room."
            ) from None

    @contextmanager
    def intact(self, where: str = "") -> Iterator[None]:
        """Reads what somebody else may have written.

        Raises:
            InputError: the block failed of what none of these files holds.
        """
        try:
            yield
        except _DAMAGE as error:
            raise InputError(f"{self.path} is damaged{where}: {record(error).message[:200]}.", hint=self.hint) from None

    def _mark(self, name: str) -> int:
        return int(self._db.execute(f"PRAGMA {name}").fetchone()[0])

    def _check(self) -> None:
        path = self.path
        schema, version = self._mark("application_id"), self._mark("user_version")
        if not _has_tables(self._db):
            raise InputError(
                f"{path} is no {self.what}: it holds nothing.", hint=f"{what_to_copy(path)} Else delete it."
            )
        if schema != self.application:
            raise InputError(f"{path} is no {self.what}: its file is of another kind.", hint=self.hint)
        if version > self.version:
            written = f"(file version {version}, this one reads {self.version})"
            raise InputError(f"{path} was written by a later version of codevqa {written}.", hint="Update codevqa.")
        for kind, name, virtual in self._db.execute("SELECT type, name, sql LIKE 'CREATE VIRTUAL%' FROM sqlite_master"):
            if virtual or kind not in ("table", "index"):
                what = "virtual table" if virtual else kind
                raise InputError(f"{path} is no {self.what}: its file has the {what} {name!r}.", hint="Delete it.")


def what_to_copy(file: Path) -> str:
    """Returns what to do where a copy of a file lacks what its write-ahead log holds."""
    return f"If it was copied, copy {file.name}-wal and {file.name}-shm with it."


def _open_connection(file: Path | None, *, write: bool) -> sqlite3.Connection:
    """Opens a file; on a disk that cannot be written, it is read as one that nobody changes."""
    if file is None:
        return sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    if file.exists() and not stat.S_ISREG(file.stat().st_mode):  # a pipe would wait for its writer
        raise InputError(f"{file} is not a regular file.", hint="Take it away, or give another folder.")
    logged = file.with_name(f"{file.name}-wal").exists()
    modes = ["rwc"] if write else ["ro"] if logged else ["ro", "ro&immutable=1"]
    for mode in modes:
        address = f"{file.resolve().as_uri()}?mode={mode}"
        db = sqlite3.connect(address, uri=True, isolation_level=None, timeout=60, check_same_thread=False)
        try:
            _has_tables(db)
            db.execute("PRAGMA synchronous = NORMAL")
            db.execute("PRAGMA cache_size = -16000")  # KiB
            break
        except sqlite3.Error as error:
            db.close()
            if mode == modes[-1] or not isinstance(error, sqlite3.OperationalError):
                raise
    return db


def _has_tables(db: sqlite3.Connection) -> bool:
    return db.execute("SELECT 1 FROM sqlite_master").fetchone() is not None
