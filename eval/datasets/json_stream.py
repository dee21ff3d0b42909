"""Reads the JSON files of data sets: an object keyed by question, a list, an object with a list, or JSON Lines."""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Iterator
from typing import Any, TypeAlias

from ...core.errors import InputError
from ...core.given_files import check_values, parse_json, parser_errors, read_lines
from .files import Located

JsonRecord: TypeAlias = dict[str, Any]

LARGEST = 1 << 31
"""Characters a file may have: more than any official one has, and far less than an archive of zeros unpacks to."""


def stream_records(source: Located, *, within: str = "", keyed: bool = False) -> Iterator[tuple[str, JsonRecord]]:
    """Yields the records of a file with their keys, in order.

    Args:
        source: The file.
        within: Name of the list to read where the file is one object, such as ``questions``.
        keyed: Whether an object at the top maps keys to records; else objects at the top are records themselves.

    Raises:
        InputError: the file is not JSON, is too large, or holds something else than objects.
        SetupError: it cannot be opened.
    """
    shown, hint = str(source), "Check that it is the right file."
    try:
        with source.open() as file:
            text = file.read(LARGEST + 1)
    except (UnicodeDecodeError, zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
        raise InputError(f"Cannot read {shown}: {' '.join(str(error).split())}.", hint="Download it again.") from None
    if len(text) > LARGEST:
        raise InputError(f"{shown} has more than {LARGEST:,} characters.", hint=hint)
    with parser_errors(shown):
        try:
            whole = json.loads(text)
        except json.JSONDecodeError as error:
            if error.msg != "Extra data":
                raise
            whole = [parse_json(line, shown, number) for number, line in read_lines(text)]
    del text
    if within and isinstance(whole, dict):
        whole = whole.get(within)
        if not isinstance(whole, list):
            raise InputError(f"{shown} has no list {within!r}.", hint=hint)
    keyed = keyed and isinstance(whole, dict)
    rows = whole if isinstance(whole, list) else [whole]
    for count, (key, row) in enumerate(whole.items() if keyed else (("", row) for row in rows), 1):
        if not isinstance(row, dict):
            raise InputError(f"{shown} is not as it should be: record {count} is not an object.", hint=hint)
        check_values(row, f"{shown}, record {count}")
        yield key, row
