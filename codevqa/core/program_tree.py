"""Reading programs as trees, with bounds and without running any of them."""

from __future__ import annotations

import ast
import threading
import warnings
from typing import Any

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
