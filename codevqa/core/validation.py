"""What pydantic finds wrong with a value, as an error of one line that names it and says what is allowed."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from .errors import InputError, nearest

STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
"""A text stands for no number, and true for no 1."""
_SHOULD = "Input should be "
"""How pydantic begins most of what it says."""


def checked(name: str, value: object, kind: Any, *, written: bool = False) -> Any:
    """Returns a value as an annotation takes it: 2 as 2.0 for a float, and where it is ``written`` "2" as 2, too.

    Raises:
        InputError: the annotation does not take it.
    """
    try:
        if written and isinstance(value, str):
            return _adapter(kind).validate_strings(value)
        return _adapter(kind).validate_python(value)
    except ValidationError as error:
        raise InputError(f"{name} {_told(error.errors(include_url=False))}") from None


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind, config=STRICT)


def input_error(error: ValidationError, kind: type, table: str = "") -> InputError:
    """Returns the first mistake in the fields of a dataclass; ``table`` stands before their names."""
    first, *others = error.errors(include_url=False)
    if not first["loc"]:
        return InputError(f"{table.rstrip('.')} must be {kind.__name__}, not {first['input']!r:.60}.")
    name = f"{table}{first['loc'][0]}"
    if first["type"] == "unexpected_keyword_argument":
        return InputError(f"No field {name}.", hint=nearest(str(first["loc"][0]), kind.__annotations__))
    if first["type"] == "missing":
        return InputError(f"{name} is missing.")
    if first["type"] == "value_error":
        return InputError(f"{name} {first['ctx']['error']}.")
    return InputError(f"{name} {_told([first, *(one for one in others if one['loc'][0] == first['loc'][0])])}")


def _told(mistakes: Iterable[ErrorDetails]) -> str:
    """Returns in pydantic's words what a value must be; of a union, each thing that it may be."""
    first, *others = mistakes
    told = list(dict.fromkeys(one["msg"].partition(", unable to")[0] for one in (first, *others)))
    if all(one.startswith(_SHOULD) for one in told):
        return f"must be {' or '.join(one.removeprefix(_SHOULD) for one in told)}, not {first['input']!r:.60}."
    return f"cannot be {first['input']!r:.60}: {' or '.join(told)}."
