"""Tells programs that decompose a question from those that merely pass it on to one ``query``."""

from __future__ import annotations

import ast
import builtins
import re

__all__ = ["is_plain_pass"]

_OPENERS = frozenset(("open_image", "open_images"))
_BUILTINS = frozenset(dir(builtins))
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
    own = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    calls = [node for node in nodes if isinstance(node, ast.Call) and _primitive(node.func, own)]
    if len(calls) != 1 or ast.unparse(calls[0].func) not in ("query", "visual_query"):
        return False
    asked = calls[0].args[1:2] + [one.value for one in calls[0].keywords if one.arg == "question"]
    return len(asked) == 1 and _letters(_text(asked[0], nodes)) == wanted


def _primitive(function: ast.expr, own: set[str]) -> bool:
    return isinstance(function, ast.Name) and function.id not in _OPENERS | _BUILTINS | own


def _text(node: ast.expr, nodes: list[ast.AST]) -> str:
    """Returns the text an expression is known to be; empty where it is not known."""
    if isinstance(node, ast.Name):
        given = [one for one in nodes if isinstance(one, ast.Name) and one.id == node.id]
        if sum(isinstance(one.ctx, ast.Store) for one in given) != 1:
            return ""
        values = [one.value for one in nodes if isinstance(one, ast.Assign) and _names(one) == [node.id]]
        return _text(values[0], []) if values else ""
    if isinstance(node, ast.JoinedStr) and all(isinstance(part, ast.Constant) for part in node.values):
        return "".join(str(part.value) for part in node.values if isinstance(part, ast.Constant))
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _names(assignment: ast.Assign) -> list[str]:
    return [target.id for target in assignment.targets if isinstance(target, ast.Name)]


def _letters(text: str) -> str:
    return _OTHER.sub(" ", text.lower()).strip()
