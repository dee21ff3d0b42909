"""Where a run lives: one SQLite file that loses no finished row, whatever ends the program.

A run is a folder that holds ``run.sqlite``: what was run (:class:`RunInfo`), every example once, in the order of the
data set, and one row for each example, method and repetition. What is added is committed at once. Nothing in the file
is pickled; every nested value is JSON.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, TextIO, TypeVar

from pydantic import TypeAdapter

from ...core.database import Database, what_to_copy
from ...core.errors import CodeVQAError, InputError, SetupError
from ...core.trace import Method
from ..task import UNASKED, Example, Row
from .run_info import RunInfo, RunPace
from .store_values import EXAMPLE, ROW, changed_picture, example_values, to_columns, to_example, to_row

FILE = "run.sqlite"
_EXAMPLE, _ROW = (", ".join(f"{table}.{name}" for name in names) for table, names in (("e", EXAMPLE), ("r", ROW)))
_ADD_EXAMPLE = (
    f"INSERT INTO examples (place, {', '.join(EXAMPLE)}) VALUES (:place, :{', :'.join(EXAMPLE)})"
    # Where its pictures are may change: one that was missing has come.
    " ON CONFLICT (id) DO UPDATE SET images = excluded.images"
)
_ADD_ROW = f"INSERT OR REPLACE INTO rows ({', '.join(ROW)}) VALUES (:{', :'.join(ROW)})"
_ABOUT = "INSERT OR REPLACE INTO info VALUES (?, ?)"
_JOIN = "FROM examples AS e CROSS JOIN rows AS r ON r.id = e.id AND r.method = ? AND r.repeat = ? ORDER BY e.place"
"""CROSS JOIN keeps the order of the loops: examples by place, each row by its key, so nothing is sorted in memory."""
_ASKED = f"(prediction != '' OR fallback OR error IS NULL OR error NOT IN ({', '.join(map(repr, sorted(UNASKED)))}))"
"""The opposite of :attr:`Row.is_unasked`."""
_PACE = TypeAdapter(RunPace)
_T = TypeVar("_T")


class Store(Database):
    """One run on disk; use it in a ``with`` block.

    Make one with :meth:`create` or :meth:`open`. One thread at a time may use it. Any number of readers may look at a
    run while one writer goes on with it.
    """

    what = "run"
    application = 0x43565141
    tables = """
CREATE TABLE info (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE examples (
    place INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, question TEXT NOT NULL, form TEXT NOT NULL,
    images TEXT NOT NULL, gold TEXT NOT NULL, groups TEXT NOT NULL, cluster TEXT NOT NULL, record TEXT NOT NULL);
CREATE TABLE rows (
    id TEXT NOT NULL, method TEXT NOT NULL, repeat INTEGER NOT NULL, prediction TEXT NOT NULL,
    fallback INTEGER NOT NULL, error TEXT, message TEXT NOT NULL, program TEXT, trace TEXT NOT NULL,
    seconds REAL NOT NULL, tokens INTEGER NOT NULL, PRIMARY KEY (id, method, repeat))
"""
    hint = "Make one with codevqa eval."
    info: RunInfo
    """What was run; :meth:`update` replaces it."""

    def __init__(self, path: Path | str, *, write: bool, info: RunInfo | None = None) -> None:
        self.folder, self._first, self._marked, self._held = _run_folder(path), info, False, ExitStack()
        log = self.folder / f"{FILE}-wal"
        self._logged = log.is_file() and log.stat().st_size > 0
        with ExitStack() as held:
            if write:
                held.enter_context(_lock_run(self.folder))
            super().__init__(self.folder / FILE, write=write)
            self._held = held.pop_all()

    # -- opening -----------------------------------------------------------------------------------------------------

    @staticmethod
    def exists(path: Path | str) -> bool:
        """Whether something is there that :meth:`create` would refuse; not what was killed before it was a run."""
        file = _run_folder(path) / FILE
        if not file.is_file() or not file.stat().st_size or file.with_name(f"{FILE}-journal").exists():
            return False
        try:
            with Store(path, write=False) as store:
                return any(store.read("SELECT 1 FROM info UNION ALL SELECT 1 FROM examples"))
        except CodeVQAError:
            return True

    @classmethod
    def create(cls, path: Path | str, info: RunInfo) -> Store:
        """Makes a run in a new or empty folder and opens it for writing.

        Raises:
            InputError: there is a run already, or another program writes to it.
            SetupError: the folder cannot be written.
        """
        file = _run_folder(path) / FILE
        if cls.exists(path):
            raise InputError(f"{file} is there already.", hint="Go on with --resume, or choose another --out.")
        with ExitStack() as opened:
            store = opened.enter_context(cls(path, write=True, info=info))
            store.update(info)
            store._mark_open()
            opened.pop_all()
        return store

    @classmethod
    def open(cls, path: Path | str, *, writable: bool = False) -> Store:
        """Opens a run: its folder, or the file inside. A run that was killed while it wrote opens like any other.

        Args:
            path: the run.
            writable: to add rows; one program at a time may.

        Raises:
            InputError: it is no run, is of a later version of this package, or another program writes to it.
        """
        if not cls.exists(path):
            raise InputError(f"{path} is no run: there is no {FILE} in it, or it was never begun.", hint=cls.hint)
        with ExitStack() as opened:
            store = opened.enter_context(cls(path, write=writable))
            about = dict(store.read("SELECT key, value FROM info WHERE key IN ('run', 'open')"))
            if "open" in about and not store._logged:
                message = f"{store.path} lacks what was kept last: its {FILE}-wal is not here."
                raise InputError(message, hint=f"{what_to_copy(store.path)} Else begin a new run.")
            with store.intact(" where it says what was run"):
                store.info = RunInfo.from_json(about["run"])
            if writable:
                store._mark_open()
            opened.pop_all()
        return store

    def close(self) -> None:
        """Closes the file. Safe to call twice."""
        if self._marked:
            self._marked = False
            with suppress(SetupError), self.writing() as db:  # a full disk was reported before
                db.execute("DELETE FROM info WHERE key = 'open'")
        super().close()
        self._held.close()

    def _fill(self) -> None:
        if self._first is not None:
            self._db.execute(_ABOUT, ("run", self._first.to_json()))

    def _mark_open(self) -> None:
        """Marks the file itself, and not its log, until it is closed: a copy without the log can be told."""
        with self.writing() as db:
            db.execute(_ABOUT, ("open", ""))
        with suppress(sqlite3.Error):  # it is safe in the log
            self._db.execute("PRAGMA wal_checkpoint")
        self._marked = True

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- writing -----------------------------------------------------------------------------------------------------

    def update(self, info: RunInfo) -> None:
        """Replaces what is known of the run, such as a larger limit.

        Raises:
            SetupError: the file cannot be written.
        """
        with self.writing() as db:
            db.execute(_ABOUT, ("run", info.to_json()))
        self.info = info

    def end_session(self, pace: RunPace) -> None:
        """Notes what a session took.

        Raises:
            SetupError: the file cannot be written.
        """
        with self.writing() as db:
            db.execute(
                "INSERT INTO info SELECT 'session ' || (1 + IFNULL(MAX(0 + SUBSTR(key, 9)), 0)), ? FROM info"
                " WHERE key LIKE 'session %'",
                (_PACE.dump_json(pace).decode(),),
            )

    def add(self, example: Example, rows: Iterable[Row], *, place: int | None = None) -> None:
        """Keeps finished rows of one example, and the example itself the first time.

        A row of the same id, method and repetition is replaced. When this returns, the rows survive anything but the
        loss of the disk.

        Args:
            example: what was asked.
            rows: what came of it.
            place: where the example stands in its data set, from 0; None puts it after the last one stored.

        Raises:
            InputError: another example has that place.
            SetupError: the disk is full or the file cannot be written; what was added before is safe.
        """
        added = [to_columns(ROW, vars(row)) for row in rows]
        with self.writing() as db:
            try:
                db.execute(_ADD_EXAMPLE, {"place": place, **example_values(example)})
            except sqlite3.IntegrityError:
                raise InputError(
                    f"Place {place} of the run holds another question than {example.id}: the data set has changed.",
                    hint="Begin a new run.",
                ) from None
            db.executemany(_ADD_ROW, added)

    def regroup(self, dataset: Iterable[Example]) -> None:
        """Gives the examples that are stored the groups that their data set puts them in now.

        Raises:
            SetupError: the file cannot be written.
        """
        values = (
            {"place": place, **to_columns(("id", "groups"), vars(example))} for place, example in enumerate(dataset)
        )
        with self.writing() as db:
            db.executemany("UPDATE examples SET groups = :groups WHERE place = :place AND id = :id", values)

    # -- reading -----------------------------------------------------------------------------------------------------

    def has(self, id: str, method: Method, repeat: int = 0, *, asked: bool = False) -> bool:
        """Whether that row is there; with ``asked``, and its question could be asked."""
        query = f"SELECT 1 FROM rows WHERE id = ? AND method = ? AND repeat = ?{f' AND {_ASKED}' if asked else ''}"
        return self._fetch_row(query, id, method, repeat) is not None

    def find_example(self, id: str) -> tuple[int, str] | None:
        """Returns an example's place and question, or None where it is not stored."""
        stored_row = self._fetch_row("SELECT place, question FROM examples WHERE id = ?", id)
        return (
            None
            if stored_row is None
            else self._convert_row(lambda values: (int(values[0]), str(values[1])), stored_row)
        )

    def counts(self) -> dict[tuple[Method, int], int]:
        """Returns how many rows there are of each method and repetition."""
        query = "SELECT method, repeat, COUNT(*) FROM rows GROUP BY method, repeat ORDER BY method, repeat"
        return {(method, repeat): count for method, repeat, count in self.read(query)}

    def __len__(self) -> int:
        """Returns the number of examples."""
        return sum(count for (count,) in self.read("SELECT COUNT(*) FROM examples"))

    def pace(self) -> RunPace | None:
        """Returns what the sessions took, as far as they came to say so; None where none did."""
        sessions = self.read("SELECT value FROM info WHERE key LIKE 'session %'")
        known = [
            self._convert_row(lambda values: _PACE.validate_json(values[0], strict=True), session)
            for session in sessions
        ]
        return (
            RunPace(
                sum(session_pace.questions for session_pace in known),
                sum(session_pace.seconds for session_pace in known),
            )
            if known
            else None
        )

    def examples(self) -> Iterator[Example]:
        """Yields the examples in the order of the data set, reading as it goes."""
        query = f"SELECT {_EXAMPLE} FROM examples AS e ORDER BY e.place"
        return (self._convert_row(to_example, values) for values in self.read(query))

    def rows(self, method: Method, repeat: int = 0) -> Iterator[Row]:
        """Yields the rows of a method in the order of the data set."""
        return (self._convert_row(to_row, values) for values in self.read(f"SELECT {_ROW} {_JOIN}", method, repeat))

    def pairs(self, method: Method, repeat: int = 0) -> Iterator[tuple[Example, Row]]:
        """Yields each example with its row, in the order of the data set; examples without a row are left out."""
        for values in self.read(f"SELECT {_EXAMPLE}, {_ROW} {_JOIN}", method, repeat):
            yield (
                self._convert_row(to_example, values[: len(EXAMPLE)]),
                self._convert_row(to_row, values[len(EXAMPLE) :]),
            )

    def row(self, id: str, method: Method, repeat: int = 0) -> Row | None:
        """Returns one row, or None."""
        stored_row = self._fetch_row(
            f"SELECT {_ROW} FROM rows AS r WHERE r.id = ? AND r.method = ? AND r.repeat = ?", id, method, repeat
        )
        return None if stored_row is None else self._convert_row(to_row, stored_row)

    def changed_picture(self) -> str:
        """Returns a picture that is not what it was when it was asked about; empty if none is found.

        Looks at those of a hundred examples, spread over the run. Pictures that could not be asked about may be mended.
        """
        step = max(1, len(self) // 100)
        query = (
            "SELECT images FROM (SELECT id, images, ROW_NUMBER() OVER (ORDER BY place) AS n FROM examples) AS e"
            f" WHERE n % ? = 0 AND EXISTS (SELECT 1 FROM rows AS r WHERE r.id = e.id AND {_ASKED})"
        )
        changed = (
            self._convert_row(lambda values: changed_picture(values[0]), values) for values in self.read(query, step)
        )
        return next(filter(None, changed), "")

    def _fetch_row(self, query: str, *values: object) -> tuple[Any, ...] | None:
        return next(self.read(query, *values), None)

    def _convert_row(self, make: Callable[[tuple[Any, ...]], _T], values: tuple[Any, ...]) -> _T:
        """Returns a row of a table as what it stands for.

        Raises:
            InputError: it stands for nothing.
        """
        with self.intact(f" at question {values[0]!r:.40}"):
            return make(values)


def _run_folder(path: Path | str) -> Path:
    """Returns the folder of a run, which may be named by the file in it."""
    path = Path(path)
    return path.parent if path.name == FILE else path


def _lock_run(folder: Path) -> TextIO:
    """Takes the writer's lock of a run, which ends with the process that holds it.

    Raises:
        InputError: another program holds it.
        SetupError: the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / "run.lock").open("a")
    except OSError as error:
        raise SetupError(f"Cannot write the run {folder}: {error.strerror}.", hint="Check its rights.") from None
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:  # pragma: no cover - Windows: SQLite's own lock remains
        pass
    except BlockingIOError:
        file.close()
        raise InputError(f"Another program writes to {folder}.", hint="Wait for it, or choose another --out.") from None
    return file
