"""Where a run lives: one SQLite file that loses no finished row, whatever ends the program.

A run is a folder that holds ``run.sqlite``: what was run (:class:`RunInfo`), every example once, in the order of the
data set, and one row for each example, method and repetition. The file is in write-ahead mode with
``synchronous=NORMAL``: what is committed survives the death of the process at any moment, and rows are committed by
the sixty-four or by the second. Nothing in it is pickled; every nested value is JSON.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO, TypeVar

from ...core.errors import InputError, SetupError
from ..task import UNASKED, Example, Method, Row
from .calls import DAMAGE
from .pace import Pace
from .run_info import RunInfo
from .store_file import (
    APPLICATION,
    FILE,
    SCHEMA,
    connect,
    is_empty,
    locked,
    read_info,
    reader,
    run_folder,
    tuned,
    unlock,
    writing,
)
from .store_values import Gone, changed_picture, example_values, row_values, to_example, to_row

__all__ = ["Gone", "RunInfo", "Store"]

BATCH = 64
"""Rows of one commit at most."""
SECONDS = 1.0
"""A commit is due when the one before it is older."""

TABLES = """
CREATE TABLE info (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE sessions (number INTEGER PRIMARY KEY, started TEXT NOT NULL, version TEXT NOT NULL, machine TEXT NOT NULL);
CREATE TABLE examples (
    place INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, question TEXT NOT NULL, form TEXT NOT NULL,
    images TEXT NOT NULL, gold TEXT NOT NULL, groups TEXT NOT NULL, cluster TEXT NOT NULL, record TEXT NOT NULL);
CREATE TABLE rows (
    id TEXT NOT NULL, method TEXT NOT NULL, repeat INTEGER NOT NULL, prediction TEXT NOT NULL,
    fallback INTEGER NOT NULL, error TEXT, message TEXT NOT NULL, program TEXT, trace TEXT NOT NULL,
    seconds REAL NOT NULL, tokens INTEGER NOT NULL, PRIMARY KEY (id, method, repeat));
"""
INSERT = (
    "INSERT INTO examples VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET images = excluded.images"
)
"""Where its pictures are may change: one that was missing has come."""
EXAMPLE = "e.id, e.question, e.form, e.images, e.gold, e.groups, e.cluster, e.record"
ROW = "r.id, r.method, r.repeat, r.prediction, r.fallback, r.error, r.message, r.program, r.trace, r.seconds, r.tokens"
JOIN = "FROM examples AS e CROSS JOIN rows AS r ON r.id = e.id AND r.method = ? AND r.repeat = ? ORDER BY e.place"
"""CROSS JOIN keeps the order of the loops: examples by place, each row by its key, so nothing is sorted in memory."""
UNASKED_ROW = (
    "r.prediction = '' AND NOT r.fallback AND r.error IS NOT NULL"
    f" AND r.error IN ({', '.join(map(repr, sorted(UNASKED)))})"
)
"""As :attr:`Row.unasked`."""
_DAMAGED = "Begin a new run, or go on from a copy of this one."
_T = TypeVar("_T")


class Store:
    """One run on disk; use it in a ``with`` block.

    Make one with :meth:`create` or :meth:`open`. One thread at a time may use it. Any number of readers may look at a
    run while one writer goes on with it.
    """

    def __init__(self, folder: Path, connection: sqlite3.Connection, info: RunInfo, lock: TextIO | None) -> None:
        self.folder = folder
        self.path = folder / FILE
        self._info = info
        self._db = connection
        self._lock = lock
        self._pending = 0
        self._committed = time.monotonic()

    # -- opening -----------------------------------------------------------------------------------------------------

    @staticmethod
    def exists(path: Path | str) -> bool:
        """Whether something is there that :meth:`create` would refuse. A program killed while it began left nothing."""
        file = run_folder(Path(path)) / FILE
        if not file.is_file():
            return False
        try:
            with closing(reader(file)) as db:
                return not is_empty(db)
        except sqlite3.Error:
            return True

    @classmethod
    def create(cls, path: Path | str, info: RunInfo) -> Store:
        """Makes a run in a new or empty folder and opens it for writing.

        Raises:
            InputError: there is a run already, or another program writes to it.
            SetupError: the folder cannot be written.
        """
        folder = run_folder(Path(path))
        if cls.exists(folder):
            raise InputError(f"{folder / FILE} is there already.", hint="Go on with --resume, or choose another --out.")
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            lock = locked(folder)
            try:
                db = connect(folder / FILE)
                db.execute("PRAGMA journal_mode = WAL")
                with closing(db.cursor()) as cursor:  # all or nothing, should the process end here
                    cursor.execute("BEGIN IMMEDIATE")
                    for statement in TABLES.split(";"):
                        cursor.execute(statement)
                    cursor.execute(f"PRAGMA application_id = {APPLICATION}")
                    cursor.execute(f"PRAGMA user_version = {SCHEMA}")
                    cursor.execute("INSERT INTO info VALUES ('run', ?)", (info.to_json(),))
                    cursor.execute("COMMIT")
            except BaseException:
                unlock(lock)
                raise
        return cls(folder, tuned(db), info, lock)

    @classmethod
    def open(cls, path: Path | str, *, writable: bool = False) -> Store:
        """Opens a run: its folder, or the file inside. A run that was killed while it wrote opens like any other.

        Args:
            path: the run.
            writable: to add rows; one program at a time may.

        Raises:
            InputError: it is no run, is of a later version of this package, or another program writes to it.
        """
        folder = run_folder(Path(path))
        file = folder / FILE
        if not file.is_file():
            raise InputError(f"{path} is no run: there is no {FILE} in it.", hint="Make one with codevqa eval.")
        lock = locked(folder) if writable else None
        try:
            db = connect(file) if writable else reader(file)
            try:
                return cls(folder, tuned(db), read_info(db, path), lock)
            except BaseException:
                db.close()
                raise
        except sqlite3.Error as error:
            unlock(lock)
            raise InputError(f"{path} is no run: {error}.", hint="Make one with codevqa eval.") from None
        except BaseException:
            unlock(lock)
            raise

    def close(self) -> None:
        """Commits what is pending and closes the file. Safe to call twice."""
        try:
            self.flush()
        finally:
            self._pending = 0
            self._db.close()
            unlock(self._lock)

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if isinstance(error, SetupError):  # it could not be written a moment ago: let that error through
            with suppress(SetupError):
                self.close()
            return
        self.close()

    @property
    def info(self) -> RunInfo:
        """What was run."""
        return self._info

    # -- writing -----------------------------------------------------------------------------------------------------

    def update(self, info: RunInfo) -> None:
        """Replaces what is known of the run, such as a larger limit, and commits.

        Raises:
            SetupError: the file cannot be written.
        """
        with writing(self.folder):
            self._begin()
            self._db.execute("INSERT OR REPLACE INTO info VALUES ('run', ?)", (info.to_json(),))
        self._info = info
        self._pending += 1
        self.flush()

    def begin_session(self, started: str, version: str, machine: str) -> None:
        """Notes that a program began or went on with the run."""
        with writing(self.folder):
            self._begin()
            self._db.execute(
                "INSERT INTO sessions (started, version, machine) VALUES (?, ?, ?)", (started, version, machine)
            )
        self._pending += 1
        self.flush()

    def end_session(self, pace: Pace) -> None:
        """Notes what the session that was begun last took."""
        with writing(self.folder):
            self._begin()
            self._db.execute(
                "INSERT OR REPLACE INTO info SELECT 'session ' || number, ? FROM sessions ORDER BY number DESC LIMIT 1",
                (pace.to_json(),),
            )
        self._pending += 1
        self.flush()

    def add(self, example: Example, rows: Iterable[Row], *, place: int | None = None) -> None:
        """Keeps finished rows of one example, and the example itself the first time.

        A row of the same id, method and repetition is replaced. What is added is committed with the next batch, or by
        :meth:`flush`.

        Args:
            example: what was asked.
            rows: what came of it.
            place: where the example stands in its data set, from 0; None puts it after the last one stored.

        Raises:
            InputError: another example has that place.
            SetupError: the disk is full or the file cannot be written; what was committed is safe.
        """
        added = [row_values(row) for row in rows]
        with writing(self.folder, self._db):
            self._begin()
            try:
                self._db.execute(INSERT, example_values(example, place))
            except sqlite3.IntegrityError:
                raise InputError(
                    f"Place {place} of the run holds another question than {example.id}: the data set has changed.",
                    hint="Begin a new run.",
                ) from None
            self._db.executemany("INSERT OR REPLACE INTO rows VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", added)
        self._pending += len(added)
        if self._pending >= BATCH or time.monotonic() - self._committed >= SECONDS:
            self.flush()

    def flush(self) -> None:
        """Commits what is pending: from now on it survives anything but the loss of the disk.

        Raises:
            SetupError: the disk is full or the file cannot be written.
        """
        if not self._pending:
            return
        self._pending = 0
        with writing(self.folder, self._db):
            if self._db.in_transaction:
                self._db.execute("COMMIT")
        self._committed = time.monotonic()

    def _begin(self) -> None:
        if not self._db.in_transaction:
            self._db.execute("BEGIN")

    # -- reading -----------------------------------------------------------------------------------------------------

    def has(self, id: str, method: Method, repeat: int = 0, *, asked: bool = False) -> bool:
        """Whether that row is there; with ``asked``, and its question could be asked."""
        if asked:
            row = self.row(id, method, repeat)
            return row is not None and not row.unasked
        query = "SELECT 1 FROM rows WHERE id = ? AND method = ? AND repeat = ?"
        return self._one(query, id, method, repeat) is not None

    def known(self, id: str) -> tuple[int, str] | None:
        """Returns an example's place and question, or None where it is not stored."""
        found = self._one("SELECT place, question FROM examples WHERE id = ?", id)
        return None if found is None else (int(found[0]), str(found[1]))

    def counts(self) -> dict[tuple[Method, int], int]:
        """Returns how many rows there are of each method and repetition."""
        query = "SELECT method, repeat, COUNT(*) FROM rows GROUP BY method, repeat ORDER BY method, repeat"
        return {(method, repeat): count for method, repeat, count in self._all(query)}

    def __len__(self) -> int:
        """Returns the number of examples."""
        return sum(count for (count,) in self._all("SELECT COUNT(*) FROM examples"))

    def sessions(self) -> list[dict[str, str]]:
        """Returns when, on what machine and with what version the run was begun and gone on with."""
        found = self._all("SELECT started, version, machine FROM sessions ORDER BY number")
        return [{"started": started, "version": version, "machine": machine} for started, version, machine in found]

    def pace(self) -> Pace | None:
        """Returns what the sessions took, as far as they came to say so; None where none did."""
        found = self._all("SELECT value FROM info WHERE key LIKE 'session %'")
        known = [self._made(lambda values: Pace.from_json(values[0]), one) for one in found]
        return Pace.of(known) if known else None

    def examples(self) -> Iterator[Example]:
        """Yields the examples in the order of the data set, reading as it goes."""
        return (
            self._made(to_example, one) for one in self._all(f"SELECT {EXAMPLE} FROM examples AS e ORDER BY e.place")
        )

    def rows(self, method: Method, repeat: int = 0) -> Iterator[Row]:
        """Yields the rows of a method in the order of the data set."""
        return (self._made(to_row, one) for one in self._all(f"SELECT {ROW} {JOIN}", method, repeat))

    def pairs(self, method: Method, repeat: int = 0) -> Iterator[tuple[Example, Row]]:
        """Yields each example with its row, in the order of the data set; examples without a row are left out."""
        for one in self._all(f"SELECT {EXAMPLE}, {ROW} {JOIN}", method, repeat):
            yield self._made(to_example, one[:8]), self._made(to_row, one[8:])

    def example(self, id: str) -> Example | None:
        """Returns one example, or None."""
        found = self._one(f"SELECT {EXAMPLE} FROM examples AS e WHERE e.id = ?", id)
        return None if found is None else self._made(to_example, found)

    def changed_picture(self, most: int = 100) -> str:
        """Returns a picture that is not what it was when it was asked about; empty if none is found.

        Pictures that could not be asked about may be mended.

        Args:
            most: examples whose pictures are looked at, spread over the run.
        """
        step = max(1, len(self) // most)
        query = (
            "SELECT images FROM (SELECT id, images, ROW_NUMBER() OVER (ORDER BY place) AS n FROM examples) AS e"
            f" WHERE n % ? = 0 AND EXISTS (SELECT 1 FROM rows AS r WHERE r.id = e.id AND NOT ({UNASKED_ROW}))"
        )
        found = (self._made(lambda values: changed_picture(values[0]), one) for one in self._all(query, step))
        return next(filter(None, found), "")

    def row(self, id: str, method: Method, repeat: int = 0) -> Row | None:
        """Returns one row, or None."""
        query = f"SELECT {ROW} FROM rows AS r WHERE r.id = ? AND r.method = ? AND r.repeat = ?"
        found = self._one(query, id, method, repeat)
        return None if found is None else self._made(to_row, found)

    def _all(self, query: str, *values: object) -> Iterator[tuple[Any, ...]]:
        """Yields what a query finds.

        Raises:
            InputError: the file is damaged.
        """
        try:
            # "yield from" would close the cursor, maybe after the file.
            for found in self._db.execute(query, values):  # noqa: UP028
                yield found
        except sqlite3.Error as error:
            raise InputError(f"The run {self.folder} is damaged: {error}.", hint=_DAMAGED) from None

    def _one(self, query: str, *values: object) -> tuple[Any, ...] | None:
        return next(self._all(query, *values), None)

    def _made(self, make: Callable[[tuple[Any, ...]], _T], values: tuple[Any, ...]) -> _T:
        """Returns a row of a table as what it stands for.

        Raises:
            InputError: it stands for nothing.
        """
        try:
            return make(values)
        except DAMAGE as error:
            where = f"question {values[0]!r:.40}"
            raise InputError(
                f"The run {self.folder} is damaged at {where}: {str(error)[:200]}.", hint=_DAMAGED
            ) from None
