"""Reading programs as trees, with bounds and without running any of them."""

from __future__ import annotations

import ast
import warnings

_NAME = "<program of codevqa>"
# A model's odd backslash is no news to the user. The filter is for this name alone and stays: to set filters aside for
# a moment (warnings.catch_warnings) is not safe where other threads do so too.
warnings.filterwarnings("ignore", module=_NAME)

MAX_SOURCE = 8192
"""Longest program that is looked at, in characters."""


def parse(source: str) -> ast.Module | None:
    """Returns the tree of a program; None where it is too long or does not parse."""
    if len(source) > MAX_SOURCE:
        return None
    try:
        return ast.parse(source, _NAME)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
