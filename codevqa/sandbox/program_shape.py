"""Reading programs as trees, without running any of them: parsing with bounds, and the shape of a program."""

from __future__ import annotations

import ast
import builtins
import functools
import re
import warnings
from collections.abc import Collection, Sequence

from ..primitives.signature import CONSTANTS

__all__ = ["MARK", "code", "marked", "outline", "parse", "shape"]

MAX_SOURCE = 8192
"""Longest program that is looked at, in characters."""

MARK = "\ue000"
"""Begins a mark, which stands for a text; of the characters that nobody uses."""

_KEPT = frozenset(dir(builtins)) | {"Any", "Image", "answer", "images", "img", *CONSTANTS}
"""Names that mean something to the static check."""
_SCOPES = (
    ast.AnnAssign,
    ast.AsyncFunctionDef,
    ast.ClassDef,
    ast.ExceptHandler,
    ast.FunctionDef,
    ast.Global,
    ast.Import,
    ast.ImportFrom,
    ast.Lambda,
    ast.Match,
    ast.Nonlocal,
)
"""Where names are also written other than as plain variables."""


def parse(source: str) -> ast.Module | None:
    """Returns the tree of a program; None where it is too long or does not parse."""
    if len(source) > MAX_SOURCE:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a model's odd backslash is no news to whoever runs us
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def shape(source: str, primitives: Collection[str]) -> str | None:
    """Returns the program with what the types in it cannot depend on made the same for all.

    Texts passed straight to a primitive, which takes any, become one; variables are numbered in the order they appear;
    comments and layout are gone. A program whose shape has nothing wrong with its types has nothing wrong with them
    either: so thousands of programs are checked by checking a few. (Where something is wrong, the program itself has to
    be looked at, for the words of the message.)

    Args:
        source: the program.
        primitives: names of the primitives it may call.

    Returns:
        The shape as source; None where there is none, e.g. because the program does not parse.
    """
    tree = parse(source)
    if tree is None:
        return None
    nodes = list(ast.walk(tree))
    names = [node for node in nodes if isinstance(node, ast.Name)]
    stored = {node.id for node in names if not isinstance(node.ctx, ast.Load)}
    if any(isinstance(node, _SCOPES) for node in nodes):
        for node in nodes:
            stored |= {getattr(node, written, "") or "" for written in ("arg", "asname", "name", "rest")}
    elif not any(name.startswith("_") for name in stored):
        _number(names, stored - _KEPT - set(primitives))
    if not stored.isdisjoint(primitives):
        return None  # what it calls may be its own
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in primitives:
            for given in [*node.args, *(keyword.value for keyword in node.keywords)]:
                _blank(given)
    try:
        return ast.unparse(tree)
    except RecursionError:
        return None


def outline(source: str, primitives: Collection[str]) -> str | None:
    """Returns the program with the plain texts passed straight to a primitive left out, without parsing it.

    Programs of one outline have one :func:`shape`, or none, and it is told twenty times as fast. It looks at characters
    alone, so it gives up on whatever is not certain to be what it seems: between double quotes there is text, and
    outside of them there is none, where no other quote, no backslash and no comment occurs.

    Args:
        source: the program.
        primitives: names of the primitives it may call.

    Returns:
        The outline, which is no program; None where there is none.
    """
    parts = _parted(source)
    if parts is None:
        return None
    around, texts = parts
    for place in _passed(around, primitives):
        texts[place] = ""
    return "\0".join(around) + "\0\0" + "\0".join(texts)  # no program holds a NUL


def marked(source: str, primitives: Collection[str]) -> tuple[str, list[str]] | None:
    """Returns the program with numbered marks in place of the plain texts passed straight to a primitive, and those.

    Args:
        source: the program.
        primitives: names of the primitives it may call.

    Returns:
        A program that is the same for all of one :func:`outline`; None where there is no outline.
    """
    parts = None if MARK in source else _parted(source)
    if parts is None:
        return None
    around, texts = parts
    passed = []
    for place in _passed(around, primitives):
        passed.append(texts[place])
        texts[place] = f"{MARK}{len(passed) - 1}"
    return "".join(f'{before}"{text}"' for before, text in zip(around, texts, strict=False)) + around[-1], passed


def code(source: str) -> str:
    """Returns a program without what is certain to be plain text in it; it is no program any more."""
    parts = _parted(source)
    return source if parts is None else '""'.join(parts[0])


def _parted(source: str) -> tuple[list[str], list[str]] | None:
    """Returns what stands around the texts of a program, and the texts; None where that is not certain."""
    if len(source) > MAX_SOURCE:
        return None
    parts = source.split('"')
    around, texts = parts[::2], parts[1::2]
    if len(around) == len(texts) or _UNCERTAIN.search("\0".join(around)) or '""' in source:
        return None
    if any("\\" in text or "\n" in text for text in texts):
        return None
    return around, texts


def _passed(around: Sequence[str], primitives: Collection[str]) -> list[int]:
    """Returns the places of the texts that are passed straight to a primitive."""
    opened = _opened(tuple(primitives))
    return [
        place for place, before in enumerate(around[:-1]) if around[place + 1].startswith(")") and opened.search(before)
    ]


_UNCERTAIN = re.compile(r"['#\\]|\w\0")
"""What makes it uncertain where texts begin: another quote, a comment, an escape, a prefix."""


@functools.cache
def _opened(primitives: tuple[str, ...]) -> re.Pattern[str]:
    # After an attribute's dot there is none of these.
    return re.compile(rf"(?:= |[(\[])(?:{'|'.join(primitives)})\((?:\w+, )?\Z")


def _number(names: Sequence[ast.Name], free: Collection[str]) -> None:
    renamed: dict[str, str] = {}
    for node in names:
        if node.id in free:
            node.id = renamed.setdefault(node.id, f"_v{len(renamed)}")


def _blank(node: ast.expr) -> None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        node.value = "text"
    elif isinstance(node, ast.JoinedStr):
        for part in node.values:
            _blank(part)
