"""Settings by dotted name, such as ``query.captions``: what there is, and what each may be, as annotations say it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from difflib import get_close_matches
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from ..core.errors import InputError
from ..core.given_files import parse_toml

__all__ = ["NONE", "Text", "changed", "fit", "flat", "hints", "nearest", "readings", "written"]

_Data = TypeVar("_Data")
NONE = "none"
"""What stands for None, which TOML cannot write."""
_WORDS: Mapping[Any, str] = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


class Text(str):
    """A value as it stands on a command line, to be read as its field wants it."""

    __slots__ = ()


def hints(kind: type, before: str = "") -> dict[str, Any]:
    """Returns the annotation of each field of a dataclass, those of dataclasses in it under dotted names."""
    found: dict[str, Any] = {}
    for name, hint in get_type_hints(kind).items():
        found |= hints(hint, f"{before}{name}.") if is_dataclass(hint) else {before + name: hint}  # type: ignore[arg-type]
    return found


def flat(data: Any, before: str = "") -> dict[str, Any]:
    """Returns the values of a dataclass under dotted names."""
    found: dict[str, Any] = {}
    for one in fields(data):
        value = getattr(data, one.name)
        found |= flat(value, f"{before}{one.name}.") if is_dataclass(value) else {before + one.name: value}
    return found


def changed(data: _Data, values: Mapping[str, Any]) -> _Data:
    """Returns a dataclass with other values under dotted names."""
    mine: dict[str, Any] = {}
    inner: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        head, dot, rest = name.partition(".")
        if dot:
            inner.setdefault(head, {})[rest] = value
        else:
            mine[head] = value
    mine |= {head: changed(getattr(data, head), rest) for head, rest in inner.items()}
    return replace(data, **mine)  # type: ignore[type-var]


def fit(name: str, value: object, hint: Any) -> Any:
    """Returns a value as an annotation wants it: 2 as 2.0, "none" as None, a text of digits as 2.

    Raises:
        InputError: it is of another kind, or none of the values there are.
    """
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    for candidate in readings(value):
        if NoneType in kinds and (candidate is None or candidate == NONE):
            return None
        for kind in kinds:
            fitting = _as(candidate, kind)
            if fitting is not None:
                return fitting
    shown = f"{str(value)[:60]!r}" if isinstance(value, str) else str(value)[:60]
    listed = [str(one).lower() if isinstance(one, bool) else str(one) for one in _listed(kinds)]
    if listed:
        raise InputError(f"{name} cannot be {shown}.", hint=f"There are: {', '.join(listed)}.")
    raise InputError(f"{name} cannot be {shown}: it takes {_wanted(kinds)}.")


def nearest(name: str, known: Iterable[str]) -> str:
    """Returns a hint with the name that was probably meant; empty where none is near."""
    names = list(known)
    # A field is often given without its table: "captions" for "query.captions".
    inner = [one for one in names if one.rpartition(".")[2] == name.rpartition(".")[2]]
    found = inner or get_close_matches(name, names, n=1)
    return f"Did you mean {found[0]}?" if found else "'codevqa config' prints all there are."


def written(value: object) -> str:
    """Returns a value as TOML writes it; None as "none"."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    text = "none" if value is None else str(value)
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def readings(value: object) -> tuple[object, ...]:
    """Returns what a value may mean: a text of the command line is a value of TOML, or stands for itself."""
    if not isinstance(value, Text):
        return (value,)
    try:
        (read,) = parse_toml(f"value = {value}", "value").values()
    except (InputError, ValueError):  # not TOML, or more than one value
        return (str(value),)
    return (read, str(value))


def _as(value: object, kind: Any) -> Any:
    """Returns a value as one kind, or None where it is of another."""
    origin, given = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if origin is Literal:
        return value if any(value == one and type(value) is type(one) for one in given) else None
    if isinstance(value, bool) or kind is bool:
        return value if kind is type(value) else None
    if kind is float and isinstance(value, int | float):
        return float(value) if math.isfinite(value) else None
    kind = origin or kind
    return value if isinstance(kind, type) and isinstance(value, kind) else None


def _listed(kinds: Iterable[Any]) -> list[Any]:
    """Returns all values there are, where they can be listed."""
    found: list[Any] = []
    for kind in kinds:
        if get_origin(kind) is Literal:
            found += get_args(kind)
        elif kind is bool:
            found += [True, False]
        elif kind is NoneType:
            found.append(NONE)
        else:
            return []
    return found


def _wanted(kinds: Iterable[Any]) -> str:
    """Returns in words what a field takes."""
    words = [_WORDS[kind] for kind in kinds if kind in _WORDS]
    words += [f"{one!r}" for kind in kinds if get_origin(kind) is Literal for one in get_args(kind)]
    return " or ".join([*words, *([NONE] if NoneType in kinds else [])])
