"""Records of prompt sets in JSON, checked against the dataclasses that they become."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from importlib.resources.abc import Traversable
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from ..core.errors import InputError
from ..core.input_files import parse_json, read_lines, read_text
from ..core.settings import input_error

_Kind = TypeVar("_Kind")


def read_object(kind: type[_Kind], data: Any, where: str, *, strict: bool = True) -> _Kind:
    """Returns a JSON object as a dataclass.

    Args:
        kind: the dataclass.
        data: what a parser made of the object.
        where: where it stands, for messages.
        strict: whether it may have no other keys.

    Raises:
        InputError: it is no object, or a key is unknown, missing, or has a value that it cannot have.
    """
    if not isinstance(data, dict):
        raise InputError(f"{where}: expected a JSON object, found {type(data).__name__}.")
    known = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    if strict and (unknown := sorted(data.keys() - known)):
        raise InputError(f"{where}: unknown key {unknown[0]!r}.", hint=f"Known: {', '.join(sorted(known))}.")
    try:
        record: _Kind = _type_adapter(cast(Any, kind)).validate_json(json.dumps(data), strict=True)
    except ValidationError as error:
        raise input_error(error, kind, f"{where}: ") from None
    return record


@cache
def _type_adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def read_records(
    kind: type[_Kind], path: Traversable, shown: str = "", *, strict: bool = False, **usual: Any
) -> tuple[_Kind, ...]:
    """Returns the records of a JSON Lines file, a JSON list, or a JSON object keyed by id.

    Args:
        kind: the dataclass.
        path: the file.
        shown: what messages call it; else its path.
        strict: whether a record may have no other keys.
        usual: values of keys that a record leaves out.

    Raises:
        InputError: the file is missing, holds no record, or one is malformed.
    """
    shown = shown or str(path)
    records = tuple(
        read_object(kind, _rename_keys(data, usual) if isinstance(data, dict) else data, where, strict=strict)
        for data, where in _records(read_text(path, shown), shown, lines=path.name.endswith(".jsonl"))
    )
    if not records:
        raise InputError(f"{shown} is empty.", hint="Give at least one record.")
    return records


def _rename_keys(data: dict[str, Any], usual: dict[str, Any]) -> dict[str, Any]:
    """Returns a record with the keys that ours have where the release's have others, or other kinds of value."""
    read = {**usual, **data}
    id = read.get("id", read.pop("question_id", None))
    if type(id) is int:
        id = str(id)
    if id is not None:
        read["id"] = id
    return {**read, "captions": [read["captions"]]} if isinstance(read.get("captions"), str) else read


def _records(text: str, shown: str, *, lines: bool) -> Iterator[tuple[Any, str]]:
    if lines:
        yield from ((parse_json(line, shown, number), f"{shown}, line {number}") for number, line in read_lines(text))
        return
    data = parse_json(text, shown)
    if isinstance(data, dict):
        for key, value in data.items():
            for entry in value if isinstance(value, list) else (value,):
                yield ({**entry, "id": key} if isinstance(entry, dict) else entry), f"{shown}, id {key}"
    elif isinstance(data, list):
        yield from ((value, f"{shown}, record {number}") for number, value in enumerate(data, 1))
    else:
        raise InputError(f"{shown}: expected a JSON object or list, found {type(data).__name__}.")
