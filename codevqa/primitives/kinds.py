"""The types a primitive may take and return, and the strict check of values against them.

A value that comes out of a program is not trusted: it is compared with the declared type exactly (no subclass, no
duck), and everything with a size is bounded.
"""

from __future__ import annotations

import math
import re
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, Union, get_args, get_origin

import numpy as np

from ..core.images import Picture

MAX_TEXT = 1000
"""Longest text a program may pass to a primitive, in characters."""
MAX_RESULT_TEXT = 64_000
"""Longest text a primitive may return."""
MAX_ITEMS = 1000
"""Longest list a program may pass to a primitive."""
MAX_INT = 2**63
"""Whole numbers a program passes to a primitive are smaller than this in magnitude."""

_NO_TEXT = re.compile("[\0\ud800-\udfff]")
_SUPPORTED = "Use str, int, float, bool, Image, list[...], tuple[...] or Optional[...]."


@dataclass(frozen=True)
class Image:
    """A picture, as a program sees it: ``width`` and ``height`` in pixels, nothing else."""

    index: int
    """Which of the question's pictures it is, from 1."""
    picture: Picture = field(repr=False, compare=False)
    """The pixels; for the primitives alone, invisible to programs."""

    @property
    def width(self) -> int:
        """Width in pixels."""
        return self.picture.pixels.width

    @property
    def height(self) -> int:
        """Height in pixels."""
        return self.picture.pixels.height


Accept = Callable[[object, str, int], object]


@dataclass(frozen=True)
class Kind:
    """One supported annotation."""

    text: str
    """How it is written in the API reference, the stubs and messages."""
    accept: Accept = field(repr=False, compare=False)
    """``accept(value, where, max_text)`` returns the value, an int widened to float where declared, or raises
    TypeError or ValueError beginning with ``where``."""
    taken: str = ""
    """What the stubs declare, where that is more than the reference says."""


def parse_kind(annotation: object, where: str) -> Kind:
    """Returns the kind that an annotation stands for.

    Args:
        annotation: A resolved annotation, e.g. ``list[Image]``; ``Annotated[Image | list[Image], Image]`` takes both
            and is shown as ``Image``.
        where: What is annotated, for the message.

    Raises:
        TypeError: the annotation is not among the supported ones.
    """
    simple = _SIMPLE.get(annotation) if isinstance(annotation, type) and get_origin(annotation) is None else None
    if simple is not None:
        return simple
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        taken, shown = arguments[0], arguments[1]
        listed = [one for one in get_args(taken) if one != shown and get_origin(one) is list]
        if len(listed) == 1 and len(get_args(taken)) == 2 and shown in get_args(taken):
            return _or_list(parse_kind(shown, where), parse_kind(listed[0], where))
        return parse_kind(taken, where)
    if origin is list and len(arguments) == 1:
        inner = parse_kind(arguments[0], where)
        return _each(list, inner, f"list[{inner.text}]")
    if origin is tuple and arguments and arguments != ((),):
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            inner = parse_kind(arguments[0], where)
            return _each(tuple, inner, f"tuple[{inner.text}, ...]")
        return _tuple_of([parse_kind(argument, where) for argument in arguments])
    if origin in (Union, types.UnionType) and len(arguments) == 2 and type(None) in arguments:
        return _optional(parse_kind(next(one for one in arguments if one is not type(None)), where))
    shown = getattr(annotation, "__qualname__", None) if origin is None else None
    raise TypeError(f"{where}: the annotation {shown or annotation!s} is not supported. {_SUPPORTED}")


def describe(value: object) -> str:
    """Names the type of a value for a message, without running any code of the value."""
    return "None" if value is None else type(value).__name__


def without_numpy(value: object) -> object:
    """Returns a result with Python's own numbers and texts for NumPy's, which programs and JSON do not take."""
    if isinstance(value, np.generic):
        return value.item()
    if type(value) in (list, tuple):
        return type(value)(map(without_numpy, value))  # type: ignore[call-arg, call-overload]
    return value


def _wrong(where: str, expected: str, value: object) -> TypeError:
    return TypeError(f"{where} must be {expected}, not {describe(value)}")


def _text(value: object, where: str, max_text: int) -> object:
    if type(value) is not str:
        raise _wrong(where, "str", value)
    if len(value) > max_text:
        raise ValueError(f"{where} is {len(value):,} characters long; the limit is {max_text:,}")
    if (not value.isascii() or "\0" in value) and _NO_TEXT.search(value):
        raise ValueError(f"{where} contains a character that no text has (NUL or half a surrogate pair)")
    return value


def _whole(value: object, where: str, max_text: int) -> object:
    if type(value) is not int:
        raise _wrong(where, "int", value)
    if abs(value) >= MAX_INT:
        raise ValueError(f"{where} is too large a number")
    return value


def _real(value: object, where: str, max_text: int) -> object:
    if type(value) is int:
        return float(_whole(value, where, max_text))  # type: ignore[arg-type]
    if type(value) is not float:
        raise _wrong(where, "float", value)
    if not math.isfinite(value):
        raise ValueError(f"{where} must be a finite number, not {value}")
    return value


def _exactly(kind: type) -> Accept:
    def accept(value: object, where: str, max_text: int) -> object:
        if type(value) is not kind:
            raise _wrong(where, kind.__name__, value)
        return value

    return accept


_SIMPLE: dict[Any, Kind] = {
    str: Kind("str", _text),
    int: Kind("int", _whole),
    float: Kind("float", _real),
    bool: Kind("bool", _exactly(bool)),
    Image: Kind("Image", _exactly(Image)),
}


def _items(value: object, where: str, kind: type[list[Any]] | type[tuple[Any, ...]], text: str) -> list[object]:
    if type(value) is not kind:
        raise _wrong(where, text, value)
    items: list[object] = list(value)
    if len(items) > MAX_ITEMS:
        raise ValueError(f"{where} has {len(items):,} items; the limit is {MAX_ITEMS:,}")
    return items


def _each(kind: type[list[Any]] | type[tuple[Any, ...]], inner: Kind, text: str) -> Kind:
    """Returns the kind of a list, or of a tuple of any length."""

    def accept(value: object, where: str, max_text: int) -> object:
        items = enumerate(_items(value, where, kind, text))
        return kind([inner.accept(item, f"{where}[{i}]", max_text) for i, item in items])

    return Kind(text, accept)


def _tuple_of(inners: list[Kind]) -> Kind:
    text = f"tuple[{', '.join(inner.text for inner in inners)}]"

    def accept(value: object, where: str, max_text: int) -> object:
        items = _items(value, where, tuple, text)
        if len(items) != len(inners):
            raise TypeError(f"{where} must be {text}, not a tuple of {len(items)}")
        pairs = zip(inners, items, strict=True)
        return tuple(inner.accept(item, f"{where}[{i}]", max_text) for i, (inner, item) in enumerate(pairs))

    return Kind(text, accept)


def _optional(inner: Kind) -> Kind:
    def accept(value: object, where: str, max_text: int) -> object:
        return None if value is None else inner.accept(value, where, max_text)

    return Kind(f"{inner.text} | None", accept)


def _or_list(shown: Kind, listed: Kind) -> Kind:
    """Returns a kind that is shown as one and takes a list as well."""

    def accept(value: object, where: str, max_text: int) -> object:
        return (listed if type(value) is list else shown).accept(value, where, max_text)

    return Kind(shown.text, accept, f"{shown.text} | {listed.text}")
