"""What pydantic finds wrong with a value, as an error of one line that names it and says what is allowed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from .errors import InputError

__all__ = ["STRICT", "checked", "input_error"]

STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
"""A text stands for no number, and true for no 1."""


def checked(name: str, value: object, kind: Any) -> Any:
    """Returns a value as an annotation takes it: 2 as 2.0 for a float.

    Raises:
        InputError: the annotation does not take it.
    """
    adapter = _adapter(kind)
    try:
        return adapter.validate_python(value)
    except ValidationError:
        raise InputError(f"{name} must be {_allowed(adapter.json_schema())}, not {value!r:.60}.") from None


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind, config=STRICT)


def input_error(error: ValidationError, kind: type, table: str = "") -> InputError:
    """Returns the first mistake in the fields of a dataclass; ``table`` stands before their names."""
    first = error.errors(include_url=False)[0]
    if not first["loc"]:
        return InputError(f"{table.rstrip('.')} must be {kind.__name__}, not {first['input']!r:.60}.")
    properties = TypeAdapter(kind).json_schema()["properties"]
    place = first["loc"][0]
    name = list(properties)[place] if isinstance(place, int) else place
    if name not in properties:
        return InputError(f"No field {table}{name}.")
    if first["type"] in ("missing", "value_error"):
        return InputError(f"{table}{name} {'is missing' if first['type'] == 'missing' else first['ctx']['error']}.")
    return InputError(f"{table}{name} must be {_allowed(properties[name])}, not {first['input']!r:.60}.")


def _allowed(schema: Mapping[str, Any]) -> str:
    """Returns in words what a JSON schema allows."""
    *others, last = dict.fromkeys(word for one in schema.get("anyOf", [schema]) for word in _words(one))
    return f"{', '.join(others)} or {last}" if others else last


def _words(schema: Mapping[str, Any]) -> Iterator[str]:
    kind = schema.get("type")
    if "enum" in schema or "const" in schema:
        yield from schema.get("enum", [schema.get("const")])
    elif kind in ("integer", "number"):
        yield f"a {'whole ' if kind == 'integer' else ''}number{_range(schema)}"
    elif kind == "boolean":
        yield from ("true", "false")
    else:
        named = schema.get("$ref", "").rpartition("/")[2]
        listed = "a list of texts" if schema.get("items", {}).get("type") == "string" else "a list"
        filled = " that is not empty" if "pattern" in schema or "minItems" in schema else ""
        words = {"string": f"a text{filled}", "null": "none", "array": f"{listed}{filled}"}
        yield words.get(kind or "", named or "another value")


def _range(schema: Mapping[str, Any]) -> str:
    if "maximum" in schema:
        return f" from {schema['minimum']:g} to {schema['maximum']:g}"
    if "minimum" in schema:
        return f" of at least {schema['minimum']:g}"
    return f" above {schema['exclusiveMinimum']:g}" if "exclusiveMinimum" in schema else ""
