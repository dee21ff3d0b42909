"""Settings by dotted name, such as ``query.captions``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from difflib import get_close_matches
from typing import Any

from ..core.errors import InputError
from ..core.given_files import parse_toml
from ..core.settings import Settings
from ..core.validation import checked

__all__ = ["NONE", "Text", "changed", "flat", "nearest", "option", "setting", "written"]

NONE = "none"
"""What stands for None, which TOML cannot write."""


class Text(str):
    """A value as it stands on a command line, to be read as its field wants it."""

    __slots__ = ()


def flat(data: Any, before: str = "") -> dict[str, Any]:
    """Returns the values of a dataclass under dotted names."""
    found: dict[str, Any] = {}
    for one in fields(data):
        value = getattr(data, one.name)
        found |= flat(value, f"{before}{one.name}.") if is_dataclass(value) else {before + one.name: value}
    return found


def changed(settings: Settings, values: Mapping[str, Any]) -> Settings:
    """Returns settings with other values under dotted names.

    Raises:
        InputError: a value that its field cannot have.
    """
    tables: dict[str, dict[str, Any]] = {"": {}}
    for name, value in values.items():
        table, _, field = name.rpartition(".")
        tables.setdefault(table, {})[field] = value
    own = tables.pop("")
    return replace(settings, **own, **{name: replace(getattr(settings, name), **mine) for name, mine in tables.items()})


def setting(name: str, value: object) -> Any:
    """Returns a value as a setting takes it: 2 as 2.0, "none" as None, a text of digits as 2.

    Raises:
        InputError: it is out of range, or of another kind.
    """
    return _meant(value, lambda one: flat(changed(Settings(), {name: one}))[name])


def option(name: str, value: object, kind: Any) -> Any:
    """Returns a value as an option of that annotation takes it.

    Raises:
        InputError: it is of another kind.
    """
    return _meant(value, lambda one: checked(name, one, kind))


def nearest(name: str, known: Iterable[str]) -> str:
    """Returns a hint with the name that was probably meant."""
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
    text = NONE if value is None else str(value)
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _meant(value: object, take: Callable[[object], Any]) -> Any:
    """Returns what a field takes a value for: a text of the command line is a value of TOML, or stands for itself."""
    meant = [None if value == NONE else str(value) if isinstance(value, Text) else value]
    if isinstance(value, Text):
        with suppress(InputError, ValueError):  # not TOML, or more than one value
            (read,) = parse_toml(f"value = {value}", "value").values()
            meant.insert(0, read)
    for one in meant[:-1]:
        with suppress(InputError):
            return take(one)
    return take(meant[-1])
