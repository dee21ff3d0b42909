"""Programs as the interpreter can run them: methods that are named and not called, as in ``key=counts.get``.

The interpreter knows methods only where they are called. Where one is named, the text of the program is edited to a
call of ``vqa_method`` (:mod:`.prelude`), so that errors and calls keep their lines. Few programs name a method, and all
others are not even parsed.
"""

from __future__ import annotations

import ast
import collections
import re
from collections.abc import Collection, Iterator

from ..core.program_tree import parse

__all__ = ["rewrite"]

_KINDS = {kind.__name__: kind for kind in (str, list, dict, set, tuple, frozenset, int, float)}
_METHODS = frozenset(
    name for kind in (*_KINDS.values(), collections.deque) for name in dir(kind) if not name.startswith("_")
) | {"findall", "fullmatch", "group", "groups", "match", "most_common", "search"}
_NAMED = re.compile(r"\.\s*(\w+)\b(?!\s*\()")
_OF_KIND = re.compile(rf"\b(?:{'|'.join(_KINDS)})\s*\.")
_CALLED_LATER = (ast.Assign, ast.Call, ast.Dict, ast.List, ast.NamedExpr, ast.Return, ast.Tuple, ast.keyword)
"""Where a method that is named is meant, not a call that was forgotten."""


def rewrite(source: str) -> str:
    """Returns a program as the interpreter can run it, each line in its place; one that does not parse as it is."""
    if _METHODS.isdisjoint(_NAMED.findall(source)) and not _OF_KIND.search(source):
        return source
    tree = parse(source)
    if tree is None:
        return source
    try:
        named = {child for node in ast.walk(tree) for child in ast.iter_child_nodes(node) if _is_named(child, node)}
        text = source.encode()
        starts = [0, *(found.end() for found in re.finditer(b"\n", text))]
        for node in reversed(list(_outermost(tree, named))):
            assert node.end_lineno is not None and node.end_col_offset is not None
            start = starts[node.lineno - 1] + node.col_offset
            end = starts[node.end_lineno - 1] + node.end_col_offset
            new = ast.unparse(_Named(named).visit(node)).encode()
            text = b"".join([text[:start], b"(", new, b"\n" * text.count(b"\n", start, end), b")", text[end:]])
    except (RecursionError, ValueError):  # too deep, or a number with too many digits
        return source
    return text.decode()


def _is_named(node: ast.AST, parent: ast.AST) -> bool:
    """Whether a node is a method where the interpreter does not know it."""
    if not (isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and node.attr in _METHODS):
        return False
    if isinstance(parent, ast.Call) and parent.func is node:
        return isinstance(node.value, ast.Name) and node.value.id in _KINDS and node.attr != "fromkeys"
    return isinstance(parent, _CALLED_LATER)


def _outermost(tree: ast.AST, named: Collection[ast.AST]) -> Iterator[ast.expr]:
    """Yields the expressions to be replaced, in order, and none within another."""
    for node in ast.iter_child_nodes(tree):
        # What is within a formatted text has no sure place before Python 3.12.
        whole = isinstance(node, ast.JoinedStr) and any(part in named for part in ast.walk(node))
        if isinstance(node, ast.expr) and (whole or node in named):
            yield node
        else:
            yield from _outermost(node, named)


class _Named(ast.NodeTransformer):
    """Turns methods that are named into calls of ``vqa_method``."""

    def __init__(self, named: Collection[ast.AST]) -> None:
        self._named = named

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        self.generic_visit(node)
        if node not in self._named:
            return node
        call = f"lambda o, /, *a, **k: o.{node.attr}(*a, **k)"
        new = ast.parse(f"vqa_method({ast.unparse(node.value)}, {node.attr!r}, {call})", mode="eval")
        return new.body
