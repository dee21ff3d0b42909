"""Reads JSON records one after another, so that a file of millions of them needs the memory of one.

Data sets come as one object keyed by question, as a list, as an object with a list in it, or as one record a line;
:func:`stream_records` reads all four.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Callable, Iterator
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
SPACES = " \t\r\n"


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
                            f"{source} is another data set's: no object that maps ids to records.",
                            hint="Check that it is the right file.",
                        )
                    raise text.broken(f"record {count + 1} is not an object")
                count += 1
                yield key, value
    except (UnicodeDecodeError, zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
        message = f"Cannot read {source} beyond record {count}: {' '.join(str(error).split())}."
        raise InputError(message, hint="Download it again.") from None


def _values(text: _JsonText, within: str, keyed: bool) -> Iterator[tuple[str, Any]]:
    if text.peek() == "[":
        for value in _list(text):
            yield "", value
    elif keyed:
        for key in _members(text):
            yield key, text.value()
    elif within:
        found = False
        for key in _members(text):
            if key != within:
                text.value()
                continue
            found = True
            for value in _list(text):
                yield "", value
        if not found:
            raise text.broken(f"it has no list {within!r}")
    else:
        while text.peek():
            yield "", text.value()
    if text.peek():
        raise text.broken("it goes on after its end")


def _list(text: _JsonText) -> Iterator[Any]:
    text.skip("[", "a list")
    if text.peek() == "]":
        text.skip("]", "")
        return
    while True:
        yield text.value()
        if text.either(",", "]") == "]":
            return


def _members(text: _JsonText) -> Iterator[str]:
    """Yields the keys of an object; the caller takes each value before asking for the next key."""
    text.skip("{", "an object")
    if text.peek() == "}":
        text.skip("}", "")
        return
    while True:
        if text.peek() != '"':
            raise text.broken("a key was expected")
        key = text.value()
        text.skip(":", "':' after a key")
        yield key
        if text.either(",", "}") == "}":
            return


class _JsonText:
    """A window on a file: what is read of it and not yet used."""

    def __init__(self, handle: IO[str], name: str) -> None:
        self.handle, self.name = handle, name
        self.buffer, self.at, self.passed = "", 0, 0
        self.ended = False
        self.decode: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().raw_decode

    def broken(self, why: str) -> InputError:
        """The error that says where."""
        where = f"{self.name} is not as it should be near character {self.passed + self.at}"
        return InputError(f"{where}: {why}.", hint="Download it again, or check what wrote it.")

    def more(self) -> bool:
        """Reads on, at least as much again as is waiting; False at the end."""
        if self.ended:
            return False
        waiting = len(self.buffer) - self.at
        if waiting > LARGEST:
            raise self.broken("a record does not end")
        chunk = self.handle.read(max(CHUNK, waiting))
        self.ended = not chunk
        self.passed += self.at
        self.buffer, self.at = self.buffer[self.at :] + chunk, 0
        return not self.ended

    def peek(self) -> str:
        """The next character that is no space; empty at the end."""
        while True:
            while self.at < len(self.buffer):
                if self.buffer[self.at] not in SPACES:
                    return self.buffer[self.at]
                self.at += 1
            if not self.more():
                return ""

    def skip(self, char: str, what: str) -> None:
        """Steps over a character that must come."""
        if self.peek() != char:
            raise self.broken(f"{what} was expected" if self.peek() else "it ends early")
        self.at += 1

    def either(self, go_on: str, end: str) -> str:
        """Steps over one of two characters and returns it."""
        found = self.peek()
        if found not in (go_on, end) or not found:
            raise self.broken(f"{go_on!r} or {end!r} was expected" if found else "it ends early")
        self.at += 1
        return found

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
