"""What crosses the boundary of the sandbox, in both directions.

Inwards, images become opaque handles. Outwards, a value is compared with a closed list of exact types and copied, with
bounds on depth, count and length, before anything else looks at it: it may be deep, shared a billion times over, or a
stand-in for an object of the program.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeAlias

import pydantic_monty as monty
from pydantic_monty import ClassInstance, ClassType

from ..core.errors import ProgramAnswerError
from ..core.text import NO_TEXT
from ..primitives import CONSTANTS, PrimitiveSet
from ..primitives.kinds import Image, describe

if TYPE_CHECKING:
    from pydantic_monty import FunctionSnapshot, SyncSnapshot

    Suspended: TypeAlias = FunctionSnapshot | monty.NameLookupSnapshot | monty.FutureSnapshot

ProgramValue: TypeAlias = Any
"""None, bool, int, float, str, Image, and lists, tuples and dicts of these."""

MAX_DEPTH = 20
MAX_VALUES = 50_000
"""Values in one answer: a few of each picture of the largest set."""
MAX_TEXT = 512 << 10
MAX_BITS = 1024
_ATOMS = frozenset((bool, int, float, str, type(None)))
"""Types of values that cross as they are."""

IMAGE_TYPE = ClassType(Image)
"""The class Image as programs see it: for annotations and isinstance, not to be called."""


class _Handle(ClassInstance):
    """An image as the program holds it."""

    serial: int = 0

    def get_eager_attrs(self) -> dict[str, Any]:
        # The interpreter compares handles by these, so two pictures of one size must differ in something.
        return {
            "index": self.value.index,
            "width": self.value.width,
            "height": self.value.height,
            "number": self.serial,
        }


class Handles:
    """The images one run has given its program, each under one handle."""

    def __init__(self) -> None:
        self._by_id: dict[int, _Handle] = {}
        self._numbers: dict[Image, int] = {}

    def enter(self, value: object, depth: int = 0) -> object:
        """Returns a host value as the program receives it.

        Raises:
            TypeError: it is not plain data and not an image.
        """
        if depth > MAX_DEPTH:
            raise TypeError("a value is nested too deeply for a program")
        kind = type(value)
        if kind in _ATOMS:
            return value
        if isinstance(value, Image):
            handle = self._by_id.get(id(value))
            if handle is None:
                handle = _Handle(value, class_type=IMAGE_TYPE if kind is Image else None)
                handle.serial = self._numbers.setdefault(value, len(self._numbers) + 1)  # equal images are equal
                self._by_id[id(value)] = handle
            return handle
        if isinstance(value, list):
            if _ATOMS.issuperset(map(type, value)):
                return list(value)
            return [self.enter(item, depth + 1) for item in value]
        if isinstance(value, tuple):
            if _ATOMS.issuperset(map(type, value)):
                return tuple(value)
            return tuple(self.enter(item, depth + 1) for item in value)
        raise TypeError(f"a program cannot hold a {describe(value)}")


def answer_value(value: object) -> ProgramValue:
    """Returns a copy of what a program left in ``answer``.

    Raises:
        ProgramAnswerError: it is not plain data or an image, or it is out of bounds.
    """
    values = letters = 0

    def copy_value(value: Any, depth: int) -> ProgramValue:
        nonlocal values, letters
        values += 1
        if values > MAX_VALUES:
            raise ProgramAnswerError(f"answer holds more than {MAX_VALUES:,} values.")
        if depth > MAX_DEPTH:
            raise ProgramAnswerError(f"answer is nested more than {MAX_DEPTH} deep.")
        kind = type(value)
        if kind in (list, tuple):
            return kind([copy_value(item, depth + 1) for item in value])
        if kind is dict:
            return {copy_value(key, depth + 1): copy_value(item, depth + 1) for key, item in value.items()}
        if kind is int and value.bit_length() > MAX_BITS:
            raise ProgramAnswerError("answer holds a number too large to write down.")
        if kind is float and not math.isfinite(value):
            raise ProgramAnswerError(f"answer holds {value}, which is not a number.")
        if kind is str:
            letters += len(value)
            if letters > MAX_TEXT:
                raise ProgramAnswerError(f"answer holds more than {MAX_TEXT:,} characters.")
            # No text has these: a file or a terminal would refuse them.
            return NO_TEXT.sub("\ufffd", value)
        if value is not None and kind not in (bool, int, float, Image):
            raise ProgramAnswerError(f"answer holds a {describe(value)}, which is not plain data.")
        return value

    return copy_value(value, 0)


_NOTHING = (lambda: None).__code__
"""Of functions that stand for primitives: the interpreter takes their names and nothing else."""


def program_globals(handles: Handles, images: Sequence[Image], primitives: PrimitiveSet) -> dict[str, object]:
    """Returns the globals of a program."""
    entered = [handles.enter(image) for image in images]
    inputs: dict[str, object] = {"Image": IMAGE_TYPE, **CONSTANTS, "images": entered}
    if len(entered) == 1:
        inputs["img"] = entered[0]
    inputs.update({name: FunctionType(_NOTHING, {}, name) for name in primitives.names})
    return inputs


def interpreter_error(error: Exception) -> Any:
    """Returns a TypeError, ValueError or LookupError as the interpreter raises it where a primitive was called."""
    # Under its plain name: a program has no use for subclasses, and they may hold anything.
    kinds = ((TypeError, "TypeError"), (ValueError, "ValueError"), (LookupError, "LookupError"))
    kind = next(text for real, text in kinds if isinstance(error, real))
    # A long one would look like too much memory, and half a surrogate pair does not cross.
    message = str(error.args[0] if error.args else error)[:500]
    return {"exc_type": kind, "message": message.encode(errors="replace").decode()}


def resume_refused(state: Suspended) -> SyncSnapshot:
    """Goes on from where a program asked for what it cannot have."""
    if isinstance(state, monty.NameLookupSnapshot):
        return state.resume()  # NameError, or AttributeError on a handle
    if isinstance(state, monty.FutureSnapshot):
        return state.resume({})
    if state.is_os_function:
        return state.resume_not_handled()
    name = str(state.function_name)
    if state.object_id is None:
        return state.resume({"exc_type": "NameError", "message": f"name {name!r} is not defined"})
    if name == "__call__":
        return state.resume({"exc_type": "TypeError", "message": "a program cannot make an Image"})
    return state.resume({"exc_type": "AttributeError", "message": f"'Image' object has no attribute {name!r}"})
