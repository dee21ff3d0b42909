"""Examples and rows as columns of the store's tables, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from ..task import AS_EXAMPLE, DatasetPicture, Example, Row

EXAMPLE = ("id", "question", "form", "images", "gold", "groups", "cluster", "record")
ROW = tuple(field.name for field in fields(Row))
_NESTED = frozenset(("images", "gold", "groups", "record", "trace"))
"""Columns that hold JSON."""
_TO_ROW = TypeAdapter(Row)


def to_columns(names: Sequence[str], data: Mapping[str, Any]) -> dict[str, Any]:
    """Returns values as SQLite holds them; half a surrogate pair, which JSON can hold, becomes a question mark."""
    values = {name: data[name] for name in names}
    for name, value in values.items():
        if name in _NESTED:
            value = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=dict)
        values[name] = value.encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) else value
    return values


def _from_columns(names: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
    pairs = zip(names, values, strict=True)
    return {name: json.loads(value) if name in _NESTED else value for name, value in pairs}


def example_values(example: Example) -> dict[str, Any]:
    """Returns an example as a row of its table."""
    return to_columns(EXAMPLE, {**vars(example), "images": [_picture_values(image) for image in example.images]})


def _picture_values(image: DatasetPicture) -> dict[str, Any]:
    shown = {"path": str(image.path.absolute()), "member": image.member, "crop": image.crop, "digest": image.digest}
    return {name: value for name, value in shown.items() if value}


def changed_picture(images: str) -> str:
    """Returns the first picture of an example's that is not what it was when it was asked about; empty if none is.

    One that cannot be read now is not judged: it may lie elsewhere.
    """
    for shown in json.loads(images):
        before, now = shown.get("digest"), DatasetPicture(Path(shown["path"]), shown.get("member", ""))
        if before and now.digest and now.digest != before:
            return str(now.path / now.member)
    return ""


def to_example(values: Sequence[Any]) -> Example:
    """Returns an example as it was.

    Raises:
        ValueError: that is no example, somebody else wrote it; or another error that ``Database.intact`` knows.
    """
    return AS_EXAMPLE.validate_python(_from_columns(EXAMPLE, values))


def to_row(values: Sequence[Any]) -> Row:
    """Returns a row as it was.

    Raises:
        ValueError: that is no row, somebody else wrote it; or another error that ``Database.intact`` knows.
    """
    row = _TO_ROW.validate_python(_from_columns(ROW, values))
    calls = row.trace.get("calls", [])
    if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        raise TypeError("calls are no list")
    row.cost  # noqa: B018 - fails here where it is none
    return row
