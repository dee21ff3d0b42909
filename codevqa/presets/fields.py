"""Settings by dotted name, such as ``query.captions``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from difflib import get_close_matches
from typing import Any, get_type_hints

from ..core.settings import Limits, QuerySettings, Settings, WriterSettings
from ..core.validation import checked

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


KINDS: Mapping[str, Any] = {
    table.table + name: kind
    for table in (Settings, WriterSettings, QuerySettings, Limits)
    for name, kind in get_type_hints(table, include_extras=True).items()
}
"""The annotation of each setting under its dotted name."""


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


def meant(name: str, value: object, kind: Any) -> Any:
    """Returns a value as a field of that annotation takes it: 2 as 2.0, "none" as None, a text of a command line as 2.

    Raises:
        InputError: it is out of range, or of another kind.
    """
    return checked(name, None if value == NONE else value, kind, written=isinstance(value, Text))


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
