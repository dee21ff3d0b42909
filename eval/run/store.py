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
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO, TypeVar

from ...core.errors import InputError, SetupError
from ..task import Example, Method, Row
from .calls import DAMAGE
from .pace import Pace
from .run_info import RunInfo
from .store_values import Gone, changed_picture, example_values, row_values, to_example, to_row

__all__ = ["Gone", "RunInfo", "Store"]

FILE = "run.sqlite"
SCHEMA = 1
APPLICATION = 0x43565141
"""Marks a file as ours in its header ("CVQA"), where ``file`` and we look for it."""
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
        file = _folder(Path(path)) / FILE
        if not file.is_file():
            return False
        try:
            with closing(_reader(file)) as db:
                return not _is_empty(db)
        except sqlite3.Error:
            return True

    @classmethod
    def create(cls, path: Path | str, info: RunInfo) -> Store:
        """Makes a run in a new or empty folder and opens it for writing.

        Raises:
            InputError: there is a run already, or another program writes to it.
            SetupError: the folder cannot be written.
        """
        folder = _folder(Path(path))
        if cls.exists(folder):
            raise InputError(f"{folder / FILE} is there already.", hint="Go on with --resume, or choose another --out.")
        with _writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            lock = _lock(folder)
            try:
                db = _connect(folder / FILE)
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
                _unlock(lock)
                raise
        return cls(folder, _tuned(db), info, lock)

    @classmethod
    def open(cls, path: Path | str, *, writable: bool = False) -> Store:
        """Opens a run: its folder, or the file inside. A run that was killed while it wrote opens like any other.

        Args:
            path: the run.
            writable: to add rows; one program at a time may.

        Raises:
            InputError: it is no run, is of a later version of this package, or another program writes to it.
        """
        folder = _folder(Path(path))
        file = folder / FILE
        if not file.is_file():
            raise InputError(f"{path} is no run: there is no {FILE} in it.", hint="Make one with codevqa eval.")
        lock = _lock(folder) if writable else None
        try:
            db = _connect(file) if writable else _reader(file)
            try:
                return cls(folder, _tuned(db), _read_info(db, path), lock)
            except BaseException:
                db.close()
                raise
        except sqlite3.Error as error:
            _unlock(lock)
            raise InputError(f"{path} is no run: {error}.", hint="Make one with codevqa eval.") from None
        except BaseException:
            _unlock(lock)
            raise

    def close(self) -> None:
        """Commits what is pending and closes the file. Safe to call twice."""
        try:
            self.flush()
        finally:
            self._pending = 0
            self._db.close()
            _unlock(self._lock)

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
        with _writing(self.folder):
            self._begin()
            self._db.execute("INSERT OR REPLACE INTO info VALUES ('run', ?)", (info.to_json(),))
        self._info = info
        self._pending += 1
        self.flush()

    def begin_session(self, started: str, version: str, machine: str) -> None:
        """Notes that a program began or went on with the run."""
        with _writing(self.folder):
            self._begin()
            self._db.execute(
                "INSERT INTO sessions (started, version, machine) VALUES (?, ?, ?)", (started, version, machine)
            )
        self._pending += 1
        self.flush()

    def end_session(self, pace: Pace) -> None:
        """Notes what the session that was begun last took."""
        with _writing(self.folder):
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
        with _writing(self.folder, self._db):
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
        with _writing(self.folder, self._db):
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

    def since(self, mark: int, most: int) -> tuple[list[str], int]:
        """Returns the ids of examples with rows after a mark, and the mark to go on from; 0 stands before all rows.

        Args:
            mark: what the call before returned.
            most: how many rows to look at.
        """
        found = list(self._all("SELECT rowid, id FROM rows WHERE rowid > ? ORDER BY rowid LIMIT ?", mark, most))
        return list(dict.fromkeys(id for _, id in found)), found[-1][0] if found else mark

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

        Args:
            most: examples whose pictures are looked at, spread over the run.
        """
        step = max(1, len(self) // most)
        query = (
            "SELECT images FROM (SELECT images, ROW_NUMBER() OVER (ORDER BY place) AS n FROM examples) WHERE n % ? = 0"
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


# -- files -----------------------------------------------------------------------------------------------------------


def _folder(path: Path) -> Path:
    return path.parent if path.name == FILE else path


def _connect(file: Path) -> sqlite3.Connection:
    return sqlite3.connect(file, isolation_level=None, timeout=30, check_same_thread=False)


def _reader(file: Path) -> sqlite3.Connection:
    """Opens for reading alone. On a disk that cannot be written, the file is taken as one that nobody changes."""
    for extra in ("", "&immutable=1"):
        name = f"{file.resolve().as_uri()}?mode=ro{extra}"
        db = sqlite3.connect(name, uri=True, isolation_level=None, timeout=30, check_same_thread=False)
        try:
            db.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
        except sqlite3.OperationalError:
            db.close()
            if extra or file.with_name(f"{FILE}-wal").exists():
                raise
        else:
            return db
    raise AssertionError  # the second round returns or raises


def _tuned(db: sqlite3.Connection) -> sqlite3.Connection:
    db.execute("PRAGMA synchronous = NORMAL")
    db.execute("PRAGMA cache_size = -16000")  # KiB
    return db


def _is_empty(db: sqlite3.Connection) -> bool:
    return int(db.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]) == 0


def _read_info(db: sqlite3.Connection, path: Path | str) -> RunInfo:
    application, schema = (
        int(db.execute(f"PRAGMA {name}").fetchone()[0]) for name in ("application_id", "user_version")
    )
    if application != APPLICATION:
        raise InputError(f"{path} is no run: {FILE} is of another kind.", hint="Make one with codevqa eval.")
    if schema > SCHEMA:
        raise InputError(
            f"{path} was written by a later version of codevqa (store version {schema}, this one reads {SCHEMA}).",
            hint="Update codevqa.",
        )
    found = db.execute("SELECT value FROM info WHERE key = 'run'").fetchone()
    try:
        return RunInfo.from_json(found[0])
    except DAMAGE:
        raise InputError(f"{path} is damaged: what was run is missing from {FILE}.") from None


def _lock(folder: Path) -> TextIO:
    """Takes the writer's lock of a run, which ends with the process that holds it."""
    try:
        import fcntl
    except ImportError:  # pragma: no cover - Windows: SQLite's own lock remains
        return (folder / "run.lock").open("a")
    file = (folder / "run.lock").open("a")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise InputError(f"Another program writes to {folder}.", hint="Wait for it, or choose another --out.") from None
    return file


def _unlock(lock: TextIO | None) -> None:
    if lock is not None:
        lock.close()


@contextmanager
def _writing(folder: Path, db: sqlite3.Connection | None = None) -> Iterator[None]:
    """Says in one line why a run cannot be written. A transaction that failed is taken back as a whole."""
    try:
        yield
    except (sqlite3.OperationalError, OSError) as error:
        if db is not None:
            with suppress(sqlite3.Error):
                db.execute("ROLLBACK")
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise SetupError(
            f"Cannot write the run {folder}: {reason}.", hint="What was committed is safe: make room and --resume."
        ) from None
