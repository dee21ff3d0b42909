"""Values of programs as JSON and back.

Where plain JSON cannot say what a value was (a tuple, a dict with keys that are not text, a number that is not finite),
a key that ends in ``_exact`` beside it can.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from .trace import ImageRef, TraceValue, json_number, number

MAX_DEPTH = 100
"""Values nested deeper are no value of a program's: nothing is read that could not be written again."""


def value_keys(name: str, value: TraceValue) -> dict[str, Any]:
    """Returns the readable form under ``name``, and the exact one beside it where the readable one says less."""
    shown, exact = _json_value(value), _tag_types(value)
    return {name: shown} if _tag_types(_read_json_value(shown)) == exact else {name: shown, f"{name}_exact": exact}


def read_value(name: str, data: Mapping[str, Any]) -> dict[str, TraceValue]:
    """Returns the value that :func:`value_keys` wrote under ``name``."""
    exact = data.get(f"{name}_exact")
    return {name: _read_json_value(data[name]) if exact is None else _read_tagged(exact)}


def _json_value(value: TraceValue) -> Any:
    if isinstance(value, ImageRef):
        return {"image": value.json}
    if isinstance(value, list | tuple):
        return [_json_value(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _json_value(item) for key, item in value.items()}
    return json_number(value) if isinstance(value, float) else value


def _read_json_value(value: Any, depth: int = 0) -> TraceValue:
    if depth > MAX_DEPTH:
        raise ValueError("a value is nested too deeply")
    if isinstance(value, list):
        return [_read_json_value(item, depth + 1) for item in value]
    if isinstance(value, dict):
        if value.keys() == {"image"} and type(value["image"]) in (int, list):
            with suppress(ValueError):
                return ImageRef.read(value["image"])
        return {key: _read_json_value(item, depth + 1) for key, item in value.items()}
    return number(value) if isinstance(value, float) else value


def _tag_types(value: TraceValue) -> list[Any]:
    """Returns a value as ``[type, content]`` all the way down; equal only for values equal in type too."""
    if isinstance(value, ImageRef):
        return ["image", value.json]
    if isinstance(value, list | tuple):
        return ["tuple" if isinstance(value, tuple) else "list", [_tag_types(item) for item in value]]
    if isinstance(value, dict):
        return ["dict", [[_tag_types(key), _tag_types(item)] for key, item in value.items()]]
    return [type(value).__name__, str(value) if isinstance(value, float) else value]


def _read_tagged(tagged: Sequence[Any], depth: int = 0) -> TraceValue:
    kind, content = tagged
    if depth > MAX_DEPTH:
        raise ValueError("a value is nested too deeply")
    if kind in ("list", "tuple"):
        items = [_read_tagged(item, depth + 1) for item in content]
        return tuple(items) if kind == "tuple" else items
    if kind == "dict":
        return {_read_tagged(key, depth + 1): _read_tagged(item, depth + 1) for key, item in content}
    if kind == "float":
        return number(content)
    if kind == "image":
        return ImageRef.read(content)
    if type(content).__name__ != kind:
        raise ValueError(f"{content!r:.40} cannot be of the type {kind!r:.40}")
    return content
