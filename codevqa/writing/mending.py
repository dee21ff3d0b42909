"""Small mends of programs whose meaning is plain though they do not say it.

Small language models end a program with the call that makes the answer, begin with the only answer it can give, or take
a position for one of its two numbers. What is meant is told by the program alone, so it is put right without asking the
model again; whatever is less plain goes back to it as an error (:mod:`.program_checks`).
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..core.program_tree import parse

__all__ = ["mended"]

_OTHER = {"yes": "no", "no": "yes"}
_PLACE = {"x": 0, "y": 1}


@dataclass(frozen=True)
class _Edit:
    """What takes the place of a part of one line, counted in bytes as :mod:`ast` does."""

    line: int
    start: int
    end: int
    text: str


def mended(source: str) -> str:
    """Returns a program in which what it plainly means is said; the same where nothing is to be mended.

    Args:
        source: the program; hostile input, which is parsed within bounds and walked once a mend.

    >>> print(mended('cup = query(img, "Is there a cup?")'))
    cup = query(img, "Is there a cup?")
    answer = cup
    >>> mended('cup_y, cup_x = get_pos(img, "cup")\\nanswer = cup_y')
    'cup_x, cup_y = get_pos(img, "cup")\\nanswer = cup_y'
    """
    tree = parse(source)
    if tree is None:
        return source
    lines = source.split("\n")
    edits = {(edit.line, edit.start): edit for mend in (_one_answer, _positions) for edit in mend(tree)}
    for place in sorted(edits, reverse=True):
        edit = edits[place]
        line = lines[edit.line - 1].encode()
        lines[edit.line - 1] = (line[: edit.start] + edit.text.encode() + line[edit.end :]).decode()
    return _with_answer("\n".join(lines), tree)


def _with_answer(source: str, tree: ast.Module) -> str:
    """Takes what the last line calls for the answer of a program that never sets one."""
    if re.search(r"\banswer\b", source):
        return source
    match tree.body[-1:]:
        case [ast.Assign(targets=[ast.Name(name)], value=value)] if any(
            isinstance(part, ast.Call) for part in ast.walk(value)
        ):
            return f"{source}\nanswer = {name}"
        case [ast.Expr(ast.Call(ast.Name(name))) as last] if name != "print" and last.col_offset == 0:
            lines = source.split("\n")
            lines[last.lineno - 1] = f"answer = {lines[last.lineno - 1]}"
            return "\n".join(lines)
    return source


def _one_answer(tree: ast.Module) -> Iterator[_Edit]:
    """A program that begins with ``answer = "yes"`` and can but say yes again meant to begin with no."""
    given = [node for node in ast.walk(tree) if isinstance(node, ast.Assign) and _names(node) == ["answer"]]
    said = {node.value.value if isinstance(node.value, ast.Constant) else None for node in given}
    bound = sum(isinstance(node, ast.Name) and node.id == "answer" for node in ast.walk(tree))
    outer = [node for node in tree.body if isinstance(node, ast.Assign) and _names(node) == ["answer"]]
    # Nothing else may read or change it, and the others have to hang on a condition.
    if len(outer) != 1 or len(given) < 2 or bound != len(given) or outer[0].lineno > min(n.lineno for n in given):
        return
    value = outer[0].value
    for word, other in _OTHER.items():
        if said == {word}:
            yield _Edit(value.lineno, value.col_offset, value.end_col_offset or 0, f'"{other}"')


def _positions(tree: ast.Module) -> Iterator[_Edit]:
    """A name that ends in x or y takes that number of a position, where it is used as a number."""
    nodes = list(ast.walk(tree))
    loads = Counter(node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load))
    numbers = Counter(part.id for node in nodes for part in _operands(node) if isinstance(part, ast.Name))

    def number_of(value: ast.expr, name: str) -> Iterator[_Edit]:
        if _axis(name) and _is_position(value) and numbers[name] == loads[name] > 0:
            end = value.end_col_offset or 0
            yield _Edit(value.end_lineno or value.lineno, end, end, f"[{_PLACE[_axis(name)]}]")

    for node in nodes:
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=[ast.Name() as one, ast.Name() as two])], value=value):
                axes = _axis(one.id), _axis(two.id)
                if _is_position(value) and axes == ("y", "x"):
                    for name, other in ((one, two), (two, one)):
                        yield _Edit(name.lineno, name.col_offset, name.end_col_offset or 0, other.id)
                elif isinstance(value, ast.Tuple) and len(value.elts) == 2:
                    yield from number_of(value.elts[0], one.id)
                    yield from number_of(value.elts[1], two.id)
            case ast.Assign(targets=[ast.Name(name)], value=value):
                yield from number_of(value, name)


def _operands(node: ast.AST) -> Sequence[ast.expr]:
    """What a comparison or a sum is made of."""
    match node:
        case ast.Compare(left=left, comparators=others):
            return (left, *others)
        case ast.BinOp(left=left, right=right):
            return (left, right)
    return ()


def _is_position(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "get_pos"


def _axis(name: str) -> str:
    found = re.search(r"(?:^|_)([xy])$", name)
    return found.group(1) if found else ""


def _names(node: ast.Assign) -> list[str]:
    return [target.id for target in node.targets if isinstance(target, ast.Name)]
