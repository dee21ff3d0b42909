"""SQLite files of ours: known by their header, opened for one that writes or many that read.

What is committed survives the death of the process at any moment: write-ahead mode with ``synchronous=NORMAL``.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ...core.errors import InputError

DAMAGE = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""What comes of reading data that somebody else wrote."""


@dataclass(frozen=True)
class Layout:
    """A kind of file."""

    what: str
    """What messages call it."""
    application: int
    """Marks it in its header, where ``file`` and we look."""
    version: int
    tables: str
    """Statements that make it."""
    hint: str
    """Where such a file comes from."""


def connect(file: Path, *, write: bool) -> sqlite3.Connection:
    """Opens a file for any thread; on a disk that cannot be written, it is read as one that nobody changes."""
    for mode in ("rwc",) if write else ("ro", "ro&immutable=1"):
        address = f"{file.resolve().as_uri()}?mode={mode}"
        db = sqlite3.connect(address, uri=True, isolation_level=None, timeout=60, check_same_thread=False)
        try:
            is_empty(db)
            db.execute("PRAGMA synchronous = NORMAL")
            db.execute("PRAGMA cache_size = -16000")  # KiB
            return db
        except sqlite3.Error as error:
            db.close()
            last = write or "immutable" in mode or file.with_name(f"{file.name}-wal").exists()
            if last or not isinstance(error, sqlite3.OperationalError):
                raise
    raise AssertionError  # the last round returns or raises


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """Commits what the block writes, or none of it."""
    with db:
        db.execute("BEGIN IMMEDIATE")
        yield


def is_empty(db: sqlite3.Connection) -> bool:
    """Whether the file has no table yet."""
    return db.execute("SELECT 1 FROM sqlite_master").fetchone() is None


def make(db: sqlite3.Connection, layout: Layout) -> None:
    """Makes the tables of an empty file, within a transaction."""
    for statement in layout.tables.split(";"):
        db.execute(statement)
    db.execute(f"PRAGMA application_id = {layout.application}")
    db.execute(f"PRAGMA user_version = {layout.version}")


def check(db: sqlite3.Connection, layout: Layout, path: Path | str) -> None:
    """Refuses a file of another kind or of a later version, and one that computes what is read from it.

    Raises:
        InputError: it is such a file.
    """
    found, version = (int(db.execute(f"PRAGMA {name}").fetchone()[0]) for name in ("application_id", "user_version"))
    if found != layout.application:
        raise InputError(f"{path} is no {layout.what}: its file is of another kind.", hint=layout.hint)
    if version > layout.version:
        raise InputError(
            f"{path} was written by a later version of codevqa (file version {version}, this one reads"
            f" {layout.version}).",
            hint="Update codevqa.",
        )
    for kind, name, virtual in db.execute("SELECT type, name, sql LIKE 'CREATE VIRTUAL%' FROM sqlite_master"):
        if virtual or kind not in ("table", "index"):
            what = "virtual table" if virtual else kind
            raise InputError(f"{path} is no {layout.what}: its file has the {what} {name!r}.", hint="Delete it.")
