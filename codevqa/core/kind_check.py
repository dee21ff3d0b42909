"""Data that somebody else wrote, held against the annotations of the dataclasses that it became."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal, get_args, get_origin, get_type_hints

__all__ = ["check_kind"]


@cache
def _hints(kind: type) -> Mapping[str, Any]:
    return get_type_hints(kind, localns={"ImageSource": Any})  # which is no part of the JSON


def check_kind(value: Any, kind: Any, where: str) -> None:
    """Holds data that was read against the annotations of what it became, all the way down.

    Args:
        value: the data: dataclasses, tuples, dicts, texts, numbers.
        kind: what it should be.
        where: what it is, for the message.

    Raises:
        TypeError: it is of another kind.
    """
    origin, given = get_origin(kind), get_args(kind)
    if kind is Any:
        return
    if dataclasses.is_dataclass(kind) and type(value) is kind:
        for name, hint in _hints(kind).items():  # type: ignore[arg-type]
            check_kind(getattr(value, name), hint, name)
    elif origin is tuple and type(value) is tuple and (given[-1] is ... or len(given) == len(value)):
        for place, item in enumerate(value):
            check_kind(item, given[0 if given[-1] is ... else place], where)
    elif origin is Mapping and type(value) is dict:
        for key, item in value.items():
            check_kind(key, given[0], where)
            check_kind(item, given[1], where)
    elif origin is types.UnionType and value is not None:
        check_kind(value, given[0], where)  # the other is None
    elif not (origin is types.UnionType or (origin is Literal and value in given) or type(value) is kind):
        raise TypeError(f"{where} is {value!r:.40}")
