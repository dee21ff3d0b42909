"""Reads the text files that users hand in: JSON, JSON Lines, TOML, programs. Each is read, or an error of one line."""

from __future__ import annotations

import json
import math
import os
import stat
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import IO, Any

from .errors import InputError
from .text import NO_TEXT

LARGEST = 64 << 20
"""Bytes of one file."""
DEEPEST = 100
"""Lists and objects within each other."""
MOST_FIELDS = 1000
"""Of a question."""
_BITS = 64
"""Of a whole number: more are not what anything here counts."""


def read_text(path: Traversable | Path | None, shown: str = "") -> str:
    """Returns a file's text, in UTF-8 with or without a byte order mark, with line ends as ``\\n``.

    None is standard input.

    Raises:
        InputError: it is missing, unreadable, too large, not a regular file, or not text.
    """
    shown = shown or str(path or "standard input")
    return _decode_text(read_bytes(path, shown), shown)


def read_bytes(path: Traversable | Path | None, shown: str) -> bytes:
    """Returns what a file holds; None is standard input.

    Raises:
        InputError: it is missing, unreadable, too large, or not a regular file.
    """
    try:
        if path is None:
            data = sys.stdin.buffer.read(LARGEST + 1)
        elif not isinstance(path, Path):  # inside an archive
            data = path.read_bytes()
        else:
            with open_file(path, shown) as file:
                data = file.read(LARGEST + 1)
    except FileNotFoundError:
        raise InputError(f"No file {shown}.", hint="Check the path.") from None
    except (OSError, ValueError) as error:  # the latter for a path that no file can have
        raise InputError(f"Cannot read {shown}: {getattr(error, 'strerror', None) or error}.") from None
    if len(data) > LARGEST:
        raise InputError(f"{shown} has more than {LARGEST >> 20} MB.", hint="Split it.")
    return data


def open_file(path: Path, shown: str) -> IO[bytes]:
    """Opens a file to read its bytes. A pipe is refused: it would wait for its writer.

    Raises:
        InputError: it is a pipe, a device, or made as it is read, as the kernel's log is.
        OSError: it cannot be opened.
        ValueError: no file can have such a path.
    """
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0)))  # noqa: SIM115
    about = os.fstat(file.fileno())
    if stat.S_ISREG(about.st_mode) and (about.st_size or file.raw.read(1) == b""):
        return file
    file.close()
    raise InputError(f"{shown} is not a regular file.", hint="Give a file; where - is allowed, it is standard input.")


def read_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yields the lines that are not empty, with their numbers, counted from 1."""
    # Not splitlines(): a text may hold U+2028, which ends no line of JSON.
    yield from ((number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip())


def parse_json(text: str, shown: str, line: int = 0) -> Any:
    """Returns what a JSON text says, of a file or of one line of it.

    Raises:
        InputError: it is not JSON, nested too deeply, or holds a key twice, or what nothing here can use.
    """
    where = f"{shown}, line {line}" if line else shown

    def make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        row = dict(pairs)
        if len(row) < len(pairs):
            check_once((name for name, _ in pairs), where)
        return row

    with parser_errors(shown, line):
        value = json.loads(text, object_pairs_hook=make_object)
    check_values(value, where)
    return value


def check_once(names: Iterable[str], where: str) -> None:
    """Refuses a key or a column that is there twice: one of the two would be lost.

    Raises:
        InputError: it is.
    """
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise InputError(f"{where} has {twice!r:.80} twice.", hint="Keep one of them.")


def pictures_and_question(data: Any, where: str) -> tuple[list[str], str]:
    """Returns the pictures and the question that a line of a file of questions names; what else it says is its own.

    Raises:
        InputError: it is no such line.
    """
    row: dict[str, Any] = data if isinstance(data, dict) else {}
    if len(row) > MOST_FIELDS:
        raise InputError(f"{where} has {len(row):,} fields, more than {MOST_FIELDS:,}.", hint="Take some out.")
    named, question = [row[name] for name in ("images", "image") if row.get(name) is not None], row.get("question")
    if len(named) > 1:
        raise InputError(f'{where} has "image" and "images".', hint="Keep one of them.")
    words = named if named and isinstance(named[0], str) else next(iter(named), None)
    if not isinstance(words, list) or not all(isinstance(path, str) for path in words) or not isinstance(question, str):
        raise InputError(
            f'{where} lacks "images" or "question".', hint='Write {"images": ["a.png"], "question": "..."}.'
        )
    return words, question


@contextmanager
def parser_errors(shown: str, line: int = 0) -> Iterator[None]:
    """Says as an :class:`InputError` what a parser of JSON or TOML finds wrong."""
    where = f"{shown}, line {line}" if line else shown
    try:
        yield
    except json.JSONDecodeError as error:
        raise InputError(f"{shown}, line {line or error.lineno}: not JSON: {error.msg}.") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{where}: not TOML: {error}.") from None
    except RecursionError:
        raise InputError(f"{where} is nested too deeply.") from None
    except ValueError:
        raise InputError(f"{where}: a number has too many digits.") from None


def parse_toml(text: str, shown: str) -> dict[str, Any]:
    """Returns what a TOML text says.

    Raises:
        InputError: it is not TOML, nested too deeply, or holds a number or a text that nothing here can use.
    """
    with parser_errors(shown):
        data = tomllib.loads(text)
    check_values(data, shown, finite=False)  # TOML has infinities; which field takes them is checked there
    return data


def check_values(value: Any, where: str, *, finite: bool = True, depth: int = 0) -> None:
    """Checks what a parser made of a file.

    Raises:
        InputError: it is nested too deeply, or holds a number or a text that nothing here can use.
    """
    if isinstance(value, str):
        if NO_TEXT.search(value):
            raise InputError(f"{where}: a text holds NUL or half a surrogate pair.", hint="Take it out.")
    elif isinstance(value, dict | list):
        if depth == DEEPEST:
            raise InputError(f"{where} is nested too deeply.")
        for inner in (value, value.values()) if isinstance(value, dict) else (value,):
            for child in inner:
                check_values(child, where, finite=finite, depth=depth + 1)
    elif isinstance(value, int) and value.bit_length() > _BITS:
        raise InputError(f"{where}: a number has too many digits.")
    elif isinstance(value, float) and finite and not math.isfinite(value):
        raise InputError(f"{where}: a number is {value}.", hint="Give a finite one.")


def _decode_text(data: bytes, shown: str) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{shown} is not a text file in UTF-8: {error.reason} at byte {error.start}.", hint="Save it as UTF-8."
        ) from None
    if "\0" in text:
        raise InputError(f"{shown} is not a text file: it holds NUL.", hint="Save it as UTF-8.")
    return text.replace("\r\n", "\n").replace("\r", "\n")
