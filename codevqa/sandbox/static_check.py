"""The static check: what the type checker is shown, and which of its findings count.

A finding counts only when the program is sure to fail if it gets there. A wrong annotation never stops a program, and
a value that *may* be None is usually not, so neither is reported.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection

from ..core.errors import ProgramError, ProgramSyntaxError, ProgramTypeError, nearest
from ..core.program_tree import parse
from ..primitives import CONSTANTS, PrimitiveSet
from .rewrite import Rewritten, bound_names
from .stand_ins import TYPES

CHECKED_AS = "program"
"""File name the program has in the checker's eyes."""

SHOWN = 3
"""How many findings an error reports."""

_CERTAIN = {
    "call-non-callable",
    "index-out-of-bounds",
    "invalid-argument-type",
    "missing-argument",
    "no-matching-overload",
    "not-iterable",
    "not-subscriptable",
    "parameter-already-assigned",
    "too-many-positional-arguments",
    "unknown-argument",
    "unresolved-attribute",
    "unresolved-import",
    "unresolved-reference",
    "unsupported-operator",
}
_UNPACKING = re.compile(r"(Not enough|Too many) values to unpack")
# A union, or a choice of literals: some of its members may well be fine.
_UNION = re.compile(r" \| |in union |Literal\[[^\]]*, ")
# What a list or a dict holds is only guessed from its first values, and one of several kinds is named as if all were.
_HELD = re.compile(r"bound method `(?:dict|list|set|Mutable\w+)\.|subscript object of type `(?:int|float|bool|None)`")

# Builtins that programs have and the checker has not heard of.
_BUILTINS = """\
from typing import Any
def map(function: Any, *iterables: Any, strict: bool = False) -> list[Any]: ...
def filter(function: Any, iterable: Any) -> list[Any]: ...
def format(value: object, spec: str = "") -> str: ...
def getattr(o: object, name: str, default: Any = None) -> Any: ...
def hasattr(o: object, name: str) -> bool: ...
def setattr(o: object, name: str, value: Any) -> None: ...
class ImportError(Exception): ...
class ModuleNotFoundError(ImportError): ...
class PermissionError(OSError): ...
class FileNotFoundError(OSError): ...
class UnboundLocalError(NameError): ...
"""
_GIVEN = {"img": "Image", "images": "list[Image]", **dict.fromkeys(CONSTANTS, "int")}
"""The annotation of every global a program is given."""
PREFIX = "".join(f"{name} = given_{name}\n" for name in _GIVEN)
"""Put before a program that is checked. Assigned here, the globals have a type that the program may change, which
declared names have not. None of the ``given_`` names exists at run time: should the check pass, execution stops at the
first of these lines."""


def declared(source: str, primitives: PrimitiveSet) -> tuple[str, str]:
    """Returns the declarations the checker knows beside the program's own, and what is put before the program."""
    tree = parse(source)
    # A program may well call a number of its own "count".
    own = {*bound_names(tree)}.intersection(primitives.names) if tree is not None else set()
    others = primitives.subset(name for name in primitives.names if name not in own)
    known = _BUILTINS + TYPES + others.stubs({f"given_{name}": kind for name, kind in _GIVEN.items()})
    known += "".join(f"def given_{primitives.get(name).stub}: ...\n" for name in sorted(own))
    return known, PREFIX + "".join(f"{name} = given_{name}\n" for name in sorted(own))


def finding(report: str, program: Rewritten, offset: int, names: Collection[str] = ()) -> ProgramError | None:
    """Turns the checker's JSON report into an error.

    Args:
        report: The diagnostics as JSON.
        program: The program.
        offset: Number of lines that were put before it.
        names: What programs may call, to name the nearest where a name is unknown.

    Returns:
        None when nothing in the report is certain to fail.
    """
    last = program.source.count("\n") + 1
    found: list[tuple[int, str, str]] = []
    for item in json.loads(report):
        code, message = str(item["code"]), str(item["message"])
        row, column = int(item["location"]["row"]), int(item["location"]["column"])
        line = program.line(min(max(row - offset, 1), last), column - 1)
        if item["severity"] == "error" and _counts(code, message):
            found.append((line, code, message))
    if not found:
        return None
    found.sort(key=lambda each: (each[1] != "invalid-syntax", each[0]))
    line, code, message = found[0]
    if code == "invalid-syntax":
        return ProgramSyntaxError(_clean(message), line=line)
    unknown = re.match(r"Name `(\w+)`", message) if code == "unresolved-reference" else None
    hint = nearest(unknown[1], names) if unknown else ""
    others = dict.fromkeys(f"line {other}: {_clean(text)}" for other, _, text in found[1:])
    told = "; ".join([_clean(message), *list(others)[: SHOWN - 1]])
    return ProgramTypeError(f"{told}." if hint else told, line=line, hint=hint)


def _counts(code: str, message: str) -> bool:
    if code == "invalid-syntax":
        return True
    if code == "invalid-assignment":
        return _UNPACKING.search(message) is not None
    if code not in _CERTAIN or _HELD.search(message):
        return False
    # In "Expected `A | B`, found `C`" only what was found may be uncertain.
    return _UNION.search(message.rsplit("found `", 1)[-1]) is None


def _clean(message: str) -> str:
    text = " ".join(message.split()).replace("`", "'").replace("given_", "").removesuffix(".")
    return text if len(text) <= 300 else text[:297] + "..."
