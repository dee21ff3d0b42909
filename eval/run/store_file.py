"""The file of a run: opened for one that writes or for many that read, locked, and known by its header."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from ...core.errors import InputError, SetupError
from .calls import DAMAGE, refuse_programs
from .run_info import RunInfo

FILE = "run.sqlite"
SCHEMA = 1
APPLICATION = 0x43565141
"""Marks a file as ours in its header ("CVQA"), where ``file`` and we look for it."""


def run_folder(path: Path) -> Path:
    """Returns the folder of a run, which may be named by the file in it."""
    return path.parent if path.name == FILE else path


def connect(file: Path) -> sqlite3.Connection:
    """Opens for reading and writing; transactions are begun and ended by hand."""
    return sqlite3.connect(file, isolation_level=None, timeout=30, check_same_thread=False)


def reader(file: Path) -> sqlite3.Connection:
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


def tuned(db: sqlite3.Connection) -> sqlite3.Connection:
    """Sets what a connection does not keep."""
    db.execute("PRAGMA synchronous = NORMAL")
    db.execute("PRAGMA cache_size = -16000")  # KiB
    return db


def is_empty(db: sqlite3.Connection) -> bool:
    """Whether the file has no table yet."""
    return int(db.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]) == 0


def read_info(db: sqlite3.Connection, path: Path | str) -> RunInfo:
    """Returns what was run.

    Raises:
        InputError: the file is of another kind or of a later version, or it is damaged.
    """
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
    refuse_programs(db, path)
    found = db.execute("SELECT value FROM info WHERE key = 'run'").fetchone()
    try:
        return RunInfo.from_json(found[0])
    except DAMAGE:
        raise InputError(f"{path} is damaged: what was run is missing from {FILE}.") from None


def locked(folder: Path) -> TextIO:
    """Takes the writer's lock of a run, which ends with the process that holds it.

    Raises:
        InputError: another program holds it.
    """
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


def unlock(lock: TextIO | None) -> None:
    """Gives the lock back, if there is one."""
    if lock is not None:
        lock.close()


@contextmanager
def writing(folder: Path, db: sqlite3.Connection | None = None) -> Iterator[None]:
    """Says in one line why a run cannot be written. A transaction that failed is taken back as a whole.

    Raises:
        SetupError: it cannot.
    """
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
