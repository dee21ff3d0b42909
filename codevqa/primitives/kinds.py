"""The types a primitive may take and return, and the strict check of values against them.

A value that comes out of a program is not trusted: it is compared with the declared type exactly (no subclass, no
duck), and everything with a size is bounded.
"""

from __future__ import annotations

import math
import types
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Union, get_args, get_origin

import numpy as np

from ..collections.collection import MAX_COLLECTION
from ..core.images import Picture
from ..core.text import NO_TEXT
from ..core.trace import ImageRef

MAX_TEXT = 1000
"""Longest text a program may pass to a primitive, in characters."""
MAX_RESULT_TEXT = 64_000
"""Longest text a primitive may return."""
MAX_ITEMS = 1000
"""Longest list a program may pass to a primitive, unless it is one of images."""
MAX_INT = 2**63
"""Whole numbers a program passes to a primitive are smaller than this in magnitude."""

_SUPPORTED = "Use str, int, float, bool, Image, list[...], tuple[...] or Optional[...]."


@dataclass(frozen=True)
class Image:
    """A picture, as a program sees it: ``width`` and ``height`` in pixels, nothing else."""

    index: int
    """Which of the question's pictures it is, from 1."""
    picture: Picture = field(repr=False, compare=False)
    """The pixels; for the primitives alone, invisible to programs."""
    part: tuple[int, int, int, int] | None = None
    """Which part of that picture it is: left, top, right and bottom in its pixels; None is all of it."""

    @property
    def width(self) -> int:
        """Width in pixels."""
        return self.picture.size[0]

    @property
    def height(self) -> int:
        """Height in pixels."""
        return self.picture.size[1]

    @property
    def ref(self) -> ImageRef:
        """What stands for it in a trace."""
        return ImageRef(self.index, self.part)

    def within(self, part: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
        """Returns a part of this image as one of the question's picture."""
        if self.part is None:
            return part
        left, top, right, bottom = self.part  # of which this may be a smaller copy
        across, down = (right - left) / self.width, (bottom - top) / self.height
        first, last = (left + int(part[0] * across), top + int(part[1] * down)), (part[2] * across, part[3] * down)
        return *first, max(first[0] + 1, left + round(last[0])), max(first[1] + 1, top + round(last[1]))


@dataclass(frozen=True)
class Kind:
    """One supported annotation, and the check of values against it."""

    text: str
    """How it is written in the API reference, the stubs and messages."""
    type: Any = field(repr=False, compare=False)
    """The exact type of a value."""
    inner: tuple[Kind, ...] = field(default=(), repr=False, compare=False)
    """Of all items of a list, or of each of a tuple."""
    optional: bool = field(default=False, repr=False, compare=False)
    """Whether None is taken as well."""
    listed: Kind | None = field(default=None, repr=False, compare=False)
    """The kind of a list that is taken as well, and not shown."""

    @property
    def stub_text(self) -> str:
        """What the stubs declare: all that is taken."""
        return f"{self.text} | {self.listed.text}" if self.listed else self.text

    def accept(self, value: object, where: str, max_text: int) -> object:
        """Returns a value of this kind, an int widened to float where that is declared. ``where`` begins messages.

        Raises:
            TypeError: it is of another type.
            ValueError: it is of the type, and out of bounds.
        """
        if value is None and self.optional:
            return None
        if self.listed is not None and type(value) is list:
            return self.listed.accept(value, where, max_text)
        if self.type is float and type(value) is int:
            return float(_check_bounds(value, where, max_text))  # type: ignore[arg-type]
        if type(value) is not self.type:
            raise TypeError(f"{where} must be {self.text.removesuffix(' | None')}, not {describe(value)}")
        if self.type not in (list, tuple):
            return _check_bounds(value, where, max_text)
        items: list[object] = list(value)  # type: ignore[call-overload]
        most = MAX_COLLECTION if self.inner[0].type is Image else MAX_ITEMS
        if len(items) > most:
            raise ValueError(f"{where} has {len(items):,} items; the limit is {most:,}")
        inner = self.inner * len(items) if self.type is list else self.inner
        if len(inner) != len(items):
            raise TypeError(f"{where} must be {self.text}, not a tuple of {len(items)}")
        pairs = zip(inner, items, strict=True)
        return self.type(kind.accept(item, f"{where}[{i}]", max_text) for i, (kind, item) in enumerate(pairs))


_SIMPLE: dict[Any, Kind] = {kind: Kind(kind.__name__, kind) for kind in (str, int, float, bool, Image)}


def parse_kind(annotation: object, where: str) -> Kind:
    """Returns the kind that a resolved annotation stands for.

    ``Annotated[Image | list[Image], Image]`` takes both and is shown as ``Image``.

    Raises:
        TypeError: the annotation is not among the supported ones.
    """
    simple = _SIMPLE.get(annotation) if isinstance(annotation, type) and get_origin(annotation) is None else None
    if simple is not None:
        return simple
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        taken, shown = arguments[0], arguments[1]
        listed = types.GenericAlias(list, shown)
        if set(get_args(taken)) == {shown, listed}:
            return replace(parse_kind(shown, where), listed=parse_kind(listed, where))
        return parse_kind(taken, where)
    if origin is list and len(arguments) == 1:
        inner = parse_kind(arguments[0], where)
        return Kind(f"list[{inner.text}]", list, (inner,))
    if origin is tuple and arguments and Ellipsis not in arguments and arguments != ((),):
        inners = tuple(parse_kind(argument, where) for argument in arguments)
        return Kind(f"tuple[{', '.join(kind.text for kind in inners)}]", tuple, inners)
    if origin in (Union, types.UnionType) and len(arguments) == 2 and type(None) in arguments:
        inner = parse_kind(next(argument for argument in arguments if argument is not type(None)), where)
        return replace(inner, text=f"{inner.text} | None", optional=True)
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


def _check_bounds(value: object, where: str, max_text: int) -> object:
    """Returns a value that is no list and no tuple.

    Raises:
        ValueError: it is out of bounds.
    """
    if type(value) is str:
        if len(value) > max_text:
            raise ValueError(f"{where} is {len(value):,} characters long; the limit is {max_text:,}")
        if NO_TEXT.search(value):
            raise ValueError(f"{where} contains a character that no text has (NUL or half a surrogate pair)")
    elif type(value) is int and abs(value) >= MAX_INT:
        raise ValueError(f"{where} is too large a number")
    elif type(value) is float and not math.isfinite(value):
        raise ValueError(f"{where} must be a finite number, not {value}")
    return value
