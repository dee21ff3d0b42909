"""Tells programs that decompose a question from those that merely pass it on to one ``query``."""

from __future__ import annotations

import ast
import builtins
import re

__all__ = ["is_plain_pass"]

_BESIDE = frozenset(("open_image", "open_images", *dir(builtins)))
"""Functions that ask no model."""
_OTHER = re.compile(r"[\W_]+")


def is_plain_pass(program: str, question: str) -> bool:
    """Says whether a program's only call of a primitive is ``query`` with the whole question.

    Opening images, Python's own functions, methods and the program's own functions are no primitives. Case, spaces
    and punctuation of the question do not matter; the text may be a constant, or a name given a constant once.
    What the program makes of the answer, and whether it asks in a loop, is not looked at.

    Args:
        program: its source; one that does not parse passes nothing on.
        question: as the program was asked it.
    """
    wanted = _letters(question)
    if not wanted or wanted not in _letters(program):  # far cheaper than parsing, and true of few programs
        return False
    try:
        tree = ast.parse(program)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    nodes = list(ast.walk(tree))
    beside = _BESIDE | {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
    calls = [
        node
        for node in nodes
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id not in beside
    ]
    if len(calls) != 1 or ast.unparse(calls[0].func) not in ("query", "visual_query"):
        return False
    asked = calls[0].args[1:2] + [one.value for one in calls[0].keywords if one.arg == "question"]
    return len(asked) == 1 and _letters(_text(asked[0], nodes)) == wanted


def _text(node: ast.expr, nodes: list[ast.AST]) -> str:
    """Returns the text an expression is known to be; empty where it is not known."""
    if isinstance(node, ast.Name):
        given = [one.value for one in nodes if isinstance(one, ast.Assign) and node.id in map(ast.unparse, one.targets)]
        return _text(given[0], []) if len(given) == 1 else ""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _letters(text: str) -> str:
    return _OTHER.sub(" ", text.lower()).strip()
