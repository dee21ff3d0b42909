"""Reads JSON records one after another, so that a file of millions of them needs the memory of one.

Data sets come as one object keyed by question, as a list, as an object with a list in it, or as one record a line.
:func:`stream_records` reads all four.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Iterator
from json.decoder import WHITESPACE  # type: ignore[attr-defined]  # in no __all__; what json itself skips
from typing import IO, Any, TypeAlias

from ...core.errors import InputError
from ...core.given_files import DEEPEST, check_values
from .files import Located

__all__ = ["JsonRecord", "stream_records"]

JsonRecord: TypeAlias = dict[str, Any]

CHUNK = 1 << 18
"""Characters read at a time."""
LARGEST = 1 << 26
"""Characters a single record may have; beyond that the file is taken to be broken."""


def stream_records(source: Located, *, within: str = "", keyed: bool = False) -> Iterator[tuple[str, JsonRecord]]:
    """Yields the records of a file with their keys, in order.

    Args:
        source: The file.
        within: Name of the list to read where the file is one object, such as ``questions``.
        keyed: Whether an object at the top maps keys to records; else objects at the top are records themselves.

    Raises:
        InputError: the file is not JSON, ends early, or holds something else than objects.
        SetupError: it cannot be opened.
    """
    count = 0
    try:
        with source.open() as handle:
            text = _JsonText(handle, str(source))
            for key, value in _values(text, within, keyed):
                if not isinstance(value, dict):
                    if keyed and not count:
                        raise InputError(
                            f"{source} is another data set's: it must be an object that maps ids to records.",
                            hint="Check that it is the right file.",
                        )
                    raise text.broken(f"record {count + 1} is not an object")
                count += 1
                yield key, value
    except (UnicodeDecodeError, zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
        message = f"Cannot read {source} beyond record {count}: {' '.join(str(error).split())}."
        raise InputError(message, hint="Download it again.") from None


def _values(text: _JsonText, within: str, keyed: bool) -> Iterator[tuple[str, Any]]:
    if keyed or text.peek() == "[":
        for key in text.keys("[]" if text.peek() == "[" else "{}"):
            yield key, text.value()
    elif within:
        found = False
        for name in text.keys("{}"):
            if name != within:
                text.value()
                continue
            found = True
            for key in text.keys("[]"):
                yield key, text.value()
        if not found:
            raise text.broken(f"it has no list {within!r}")
    else:
        while text.peek():
            yield "", text.value()
    if text.peek():
        raise text.broken("it goes on after its end")


class _JsonText:
    """A window on a file: what is read of it and not yet used."""

    def __init__(self, handle: IO[str], name: str) -> None:
        self.handle, self.name = handle, name
        self.buffer, self.at, self.passed = "", 0, 0
        self.decode = json.JSONDecoder().raw_decode

    def broken(self, why: str) -> InputError:
        """The error that says where."""
        where = f"{self.name} is not as it should be near character {self.passed + self.at}"
        return InputError(f"{where}: {why}.", hint="Download it again, or check what wrote it.")

    def more(self) -> bool:
        """Reads on, at least as much again as is waiting; False at the end."""
        waiting = len(self.buffer) - self.at
        if waiting > LARGEST:
            raise self.broken("a record does not end")
        chunk = self.handle.read(max(CHUNK, waiting))
        self.passed += self.at
        self.buffer, self.at = self.buffer[self.at :] + chunk, 0
        return bool(chunk)

    def peek(self) -> str:
        """The next character that is not a space; empty at the end."""
        while True:
            self.at = WHITESPACE.match(self.buffer, self.at).end()
            if self.at < len(self.buffer) or not self.more():
                return self.buffer[self.at : self.at + 1]

    def take(self, *wanted: str) -> str:
        """Steps over one of some characters and returns it."""
        found = self.peek()
        if found not in wanted:
            raise self.broken(f"{' or '.join(map(repr, wanted))} was expected" if found else "it ends early")
        self.at += 1
        return found

    def keys(self, marks: str) -> Iterator[str]:
        """Steps through an object, ``{}``, or a list, ``[]``, whose keys are empty; the caller takes each value."""
        opening, closing = marks[0], marks[1]
        self.take(opening)
        if self.peek() == closing:
            self.take(closing)
            return
        while True:
            key = ""
            if opening == "{":
                if self.peek() != '"':
                    raise self.broken("a key was expected")
                key = self.value()
                self.take(":")
            yield key
            if self.take(",", closing) == closing:
                return

    def value(self) -> Any:
        """Takes the next value."""
        if not self.peek():
            raise self.broken("it ends early")
        while True:
            try:
                value, end = self.decode(self.buffer, self.at)
            except json.JSONDecodeError as error:  # broken, or cut off by the window
                if self.more():
                    continue
                raise self.broken(error.msg[0].lower() + error.msg[1:]) from None
            except RecursionError:
                raise self.broken("it is nested too deeply") from None
            except ValueError:
                raise self.broken("a number has too many digits") from None
            if end == len(self.buffer) and self.more():
                continue  # a number may go on
            # Checking each value of a large file would cost half as much as parsing it.
            opened = self.buffer.count("[", self.at, end) + self.buffer.count("{", self.at, end)
            if opened > DEEPEST or self.buffer.find("\\u", self.at, end) >= 0:
                check_values(value, f"{self.name} near character {self.passed + self.at}")
            self.at = end
            return value
