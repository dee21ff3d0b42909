"""Reading programs as trees, with bounds and without running any of them; and the shape that their types depend on."""

from __future__ import annotations

import ast
import builtins
import threading
import warnings
from collections.abc import Collection, Iterator
from itertools import chain
from typing import Any

from ..primitives.signature import CONSTANTS

_NAME = "<program of codevqa>"
# A model's odd backslash is no news to the user. The filter is for this name alone and stays: to set filters aside for
# a moment (warnings.catch_warnings) is not safe where other threads do so too.
warnings.filterwarnings("ignore", module=_NAME)

MAX_SOURCE = 8192
"""Longest program that is looked at, in characters."""
_one_at_a_time = threading.Lock()


def syntax_tree(source: str, mode: str = "exec") -> Any:
    """Returns what ``ast.parse`` does, in one thread at a time.

    In CPython 3.11 threads that parse at once share a count of how deep they are; one of them then fails, rarely
    (https://github.com/python/cpython/issues/106905).
    """
    with _one_at_a_time:
        return ast.parse(source, _NAME, mode)


def compile_error(tree: ast.Module) -> SyntaxError | None:
    """Returns what Python's compiler says against a program that parses: a name both global and a parameter, say."""
    try:
        with _one_at_a_time:
            compile(tree, _NAME, "exec", dont_inherit=True)
    except SyntaxError as error:
        return error
    return None


def parse(source: str) -> ast.Module | None:
    """Returns the tree of a program; None where it is too long or does not parse."""
    if len(source) > MAX_SOURCE:
        return None
    try:
        tree: ast.Module = syntax_tree(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return tree


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
    if not {*map(type, nodes)}.isdisjoint(_SCOPES):
        for node in nodes:
            stored |= {getattr(node, written, "") or "" for written in ("arg", "asname", "name", "rest")}
    elif "_" not in {name[:1] for name in stored}:
        free, numbers = stored - _KEPT - set(primitives), dict[str, str]()
        for node in names:
            if node.id in free:
                node.id = numbers.setdefault(node.id, f"_v{len(numbers)}")
    if not stored.isdisjoint(primitives):
        return None  # what it calls may be its own
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in primitives:
            for argument in [*node.args, *(keyword.value for keyword in node.keywords)]:
                _blank(argument)
    try:
        return ast.unparse(tree)
    except (RecursionError, ValueError):  # too deep, or a number with too many digits
        return None


def _blank(node: ast.expr) -> None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        node.value = "text"
    elif isinstance(node, ast.JoinedStr):
        for part in node.values:
            _blank(part)


def part_places(new: ast.AST, old: ast.AST) -> Iterator[tuple[int, int, int]]:
    """Yields where each part of a program stands, and the line that it had."""
    waiting = [(new, old)]
    for part, was in waiting:
        if isinstance(part, ast.expr | ast.stmt) and isinstance(was, ast.expr | ast.stmt):
            yield part.lineno, part.col_offset, was.lineno
        if not isinstance(part, ast.JoinedStr):  # what is within has no sure place before Python 3.12
            waiting += zip(ast.iter_child_nodes(part), ast.iter_child_nodes(was), strict=False)


def bound_names(tree: ast.AST) -> set[str]:
    """Returns every name that the program gives a meaning of its own."""
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(name, ast.Store() | ast.Del()) | ast.arg(name) | ast.ClassDef(name) | ast.FunctionDef(name):
                names.add(name)
            case ast.alias(name, other):
                names.add(other or name.split(".")[0])
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                names.add(name)
    return names


def parse_at(text: str, node: ast.AST) -> list[ast.stmt]:
    """Returns statements that stand where a node stood."""
    statements: list[ast.stmt] = syntax_tree(text).body
    for part in chain.from_iterable(map(ast.walk, statements)):
        ast.copy_location(part, node)
    return statements
