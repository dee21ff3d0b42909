"""Between examples and rows as data, and as values of the store's tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from ..task import Example, PictureFile, Row

__all__ = ["changed_picture", "example_values", "row_values", "to_example", "to_row"]

_EXAMPLE, _ROW = TypeAdapter(Example), TypeAdapter(Row)


def _clean(text: str) -> str:
    """Returns text that UTF-8 can hold: half a surrogate pair, which JSON can smuggle in, becomes a question mark."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _json(value: Any) -> str:
    return _clean(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def example_values(example: Example, place: int | None) -> tuple[Any, ...]:
    """Returns an example as a row of its table."""
    images = _json([_picture(image) for image in example.images])
    gold, groups, record = _json(list(example.gold)), _json(dict(example.groups)), _json(dict(example.record))
    return (place, example.id, _clean(example.question), example.form, images, gold, groups, example.cluster, record)


def _picture(image: PictureFile) -> dict[str, Any]:
    shown: dict[str, Any] = {"path": str(image.path.absolute()), "member": image.member, "crop": image.crop}
    shown["digest"] = image.digest
    return {name: value for name, value in shown.items() if value}


def _place(shown: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns where a picture is; older runs have pictures that were in memory, of which they kept the name alone."""
    return shown if "path" in shown else {"path": shown["name"]}


def changed_picture(images: str) -> str:
    """Returns the first picture of an example's that is not what it was when it was asked about; empty if none is.

    One that cannot be read now is not judged: it may lie elsewhere.
    """
    for shown in json.loads(images):
        before, now = shown.get("digest"), PictureFile(Path(_place(shown)["path"]), shown.get("member", ""))
        if before and now.digest and now.digest != before:
            return str(now.path / now.member)
    return ""


def to_example(values: tuple[Any, ...]) -> Example:
    """Returns an example as it was.

    Raises:
        ValueError: that is no example, somebody else wrote it; or another error of ``DAMAGE``.
    """
    names = ("id", "question", "form", "images", "gold", "groups", "cluster", "record")
    told = dict(zip(names, values, strict=True))
    told |= {name: json.loads(told[name]) for name in ("images", "gold", "groups", "record")}
    return _EXAMPLE.validate_python({**told, "images": [_place(one) for one in told["images"]]})


def row_values(row: Row) -> tuple[Any, ...]:
    """Returns a row as a row of its table."""
    program = None if row.program is None else _clean(row.program)
    head = (row.id, row.method, row.repeat, _clean(row.prediction), int(row.fallback), row.error, _clean(row.message))
    return (*head, program, _json(dict(row.trace)), row.seconds, row.tokens)


def to_row(values: tuple[Any, ...]) -> Row:
    """Returns a row as it was.

    Raises:
        ValueError: that is no row, somebody else wrote it; or another error of ``DAMAGE``.
    """
    told = dict(zip((one.name for one in fields(Row)), values, strict=True))
    row = _ROW.validate_python({**told, "fallback": bool(told["fallback"]), "trace": json.loads(told["trace"])})
    calls = row.trace.get("calls", [])
    if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        raise TypeError("calls are no list")
    row.cost  # noqa: B018 - fails here where it is none
    return row
