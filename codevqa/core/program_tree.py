"""Reading programs as trees, with bounds and without running any of them."""

from __future__ import annotations

import ast
import warnings

__all__ = ["parse"]

MAX_SOURCE = 8192
"""Longest program that is looked at, in characters."""


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
