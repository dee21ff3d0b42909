"""The one mend of a program: its last value is the answer where it names none.

Small language models end a program with the call that makes the answer and stop there. Annotators' programs never do,
so nothing else can be meant.
"""

from __future__ import annotations

import ast
import re

from ..core.program_tree import parse

__all__ = ["with_answer"]


def with_answer(source: str) -> str:
    """Returns a program that never names ``answer`` with its last call's value as the answer; else the same.

    Args:
        source: the program; hostile input, which is parsed within bounds.

    >>> print(with_answer('cup = query(img, "Is there a cup?")'))
    cup = query(img, "Is there a cup?")
    answer = cup
    """
    tree = None if re.search(r"\banswer\b", source) else parse(source)
    match tree.body[-1:] if tree is not None else []:
        case [ast.Assign(targets=[ast.Name(name)], value=value)] if any(
            isinstance(part, ast.Call) for part in ast.walk(value)
        ):
            return f"{source}\nanswer = {name}"
        case [ast.Expr(ast.Call(ast.Name(name))) as last] if name != "print" and last.col_offset == 0:
            lines = source.split("\n")
            lines[last.lineno - 1] = f"answer = {lines[last.lineno - 1]}"
            return "\n".join(lines)
    return source
