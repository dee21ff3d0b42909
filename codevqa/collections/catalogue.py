"""What is known of a collection's files without decoding them again: a line of JSON for each, of which the last counts.

It is only ever a shortcut. A file that changed is looked at again, and so is one whose line is damaged. Where the disk
is full or not ours, the collection works without. Lines are added by one write, so a process may be killed at any time
and several may share a catalogue.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_log = logging.getLogger(__name__)
_EACH = 128
"""Files after which what was learnt of them is kept: a process that is killed loses no more."""


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
    notes: Mapping[str, float] = {}
    """What models found out about it."""


class Catalogue:
    """What is known of the files of one collection. Any thread may use it."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._new: dict[str, Known] = {}

    def read(self) -> dict[str, Known]:
        """Returns what is known, by place."""
        known: dict[str, Known] = {}
        try:
            lines = self._file.read_bytes().splitlines()
        except FileNotFoundError:
            return known
        except OSError as error:
            cannot_keep(self._file.parent, error)
            return known
        for line in lines:
            with suppress(ValueError, TypeError):
                place, stamp, key, (width, height), wrong, notes = json.loads(line)
                known[place] = Known(stamp, key, (int(width), int(height)), wrong, dict(notes))
        return known

    def add(self, place: str, known: Known) -> None:
        """Keeps what was learnt of a file, soon."""
        with self._lock:
            self._new[place] = known
            if len(self._new) >= _EACH:
                self._write()

    def save(self) -> None:
        """Keeps all that was learnt."""
        with self._lock:
            self._write()

    def _write(self) -> None:
        # A line that was half written before stays alone.
        lines = "".join(f"\n{json.dumps([place, *known])}" for place, known in self._new.items())
        self._new = {}
        try:
            if lines:
                self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                with self._file.open("ab", buffering=0) as file:
                    file.write(lines.encode())
        except OSError as error:
            cannot_keep(self._file.parent, error)


_warned_folders: set[Path] = set()


def cannot_keep(index: Path, error: Exception) -> None:
    """Warns that a folder cannot hold an index: once, however much of it fails."""
    if index not in _warned_folders:
        _warned_folders.add(index)
        _log.warning("The index %s cannot be kept: %s. Pictures will be looked at again next time.", index, error)
