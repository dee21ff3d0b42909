"""Mends a program that works out its answer but never sets ``answer``."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Sequence

from ..sandbox.program_tree import parse


def program_names(tree: ast.AST) -> tuple[set[str], set[str]]:
    """Returns the names that a program reads and those that it binds, without those that it is given."""
    reads: set[str] = set()
    binds: set[str] = {"img", "images"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            (reads if isinstance(node.ctx, ast.Load) else binds).add(node.id)
        elif isinstance(node, ast.FunctionDef):
            binds.add(node.name)
        elif isinstance(node, ast.arg):
            binds.add(node.arg)
    return reads - {"img", "images"}, binds - ({"img", "images"} - reads)


def _outside_functions(tree: ast.AST) -> list[ast.AST]:
    """Returns the nodes of a program that are in no function."""
    nodes: list[ast.AST] = [tree]
    for node in nodes:
        if not isinstance(node, ast.FunctionDef | ast.Lambda):
            nodes.extend(ast.iter_child_nodes(node))
    return nodes


@functools.lru_cache(maxsize=256)
def sets_answer(source: str) -> bool:
    """Returns whether a program sets ``answer`` outside of its functions."""
    tree = parse(source)
    names = [node for node in _outside_functions(tree) if isinstance(node, ast.Name)] if tree is not None else []
    return "answer" in {name.id for name in names if isinstance(name.ctx, ast.Store)}


_MAIN = re.compile(r"""^if __name__ == ["']__main__["']:""", re.M)


def with_answer(source: str) -> str:
    """Returns a program that never sets ``answer`` with its last value as the answer; else the same.

    The last value is that of the last line, of what is printed, or of the only function, which is then called. This is
    the one mend of a program.

    Args:
        source: the program; hostile input, which is parsed within bounds.

    >>> print(with_answer('cup = query(img, "Is there a cup?")'))
    cup = query(img, "Is there a cup?")
    answer = cup
    """
    plain = _MAIN.sub("if True:", source)
    tree = parse(plain)
    if tree is None or not tree.body:
        return source
    if sets_answer(plain):
        return plain
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    body = tree.body
    while isinstance(body[-1], ast.If) and not body[-1].orelse and isinstance(body[-1].test, ast.Constant):
        body = body[-1].body
    last = body[-1]
    outside = list(_outside_functions(tree))
    prints = [
        (node, shown) for node in outside if isinstance(node, ast.stmt) and (shown := _printed_value(node)) is not None
    ]
    match last:
        case ast.Expr(ast.Call(ast.Name(name))) if name not in ("print", "final_answer"):
            changes: list[tuple[ast.stmt, str]] = [(last, f"answer = {_source_text(plain, last)}")]
            function = functions.get(name)
            if function is not None and not _returns(function):
                value = _printed_value(function.body[-1])
                if value is None:
                    return source
                changes.append((function.body[-1], f"return {_source_text(plain, value)}"))
            return _replace_statements(plain, changes)
        case ast.Return(ast.expr() as value) if sum(isinstance(node, ast.Return) for node in outside) == 1:
            return _replace_statements(plain, [(last, f"answer = {_source_text(plain, value)}")])
    if prints and not isinstance(last, ast.Assign):
        return _replace_statements(plain, [(node, f"answer = {_source_text(plain, value)}") for node, value in prints])
    result = _last_name(body)
    if result and any(isinstance(node, ast.Call) for node in outside):
        return _replace_statements(
            plain, [(last, f"{_source_text(plain, last)}\n{' ' * last.col_offset}answer = {result}")]
        )
    called = {name for own, function in functions.items() for name in program_names(function)[0] if name != own}
    uncalled = [function for own, function in functions.items() if own not in called]
    if len(uncalled) == 1 and all(isinstance(node, ast.FunctionDef | ast.Assign) for node in tree.body):
        (function,) = uncalled
        needed = function.args.args[: len(function.args.args) - len(function.args.defaults)]
        if _returns(function) and len(needed) < 2:
            arguments = "".join("images" if parameter.arg.endswith("s") else "img" for parameter in needed)
            return f"{plain}\nanswer = {function.name}({arguments})"
    return source


@functools.lru_cache(maxsize=4)
def _lines(source: str) -> tuple[bytes, ...]:
    return tuple(line.encode("utf-8", "surrogatepass") for line in source.split("\n"))


def _source_text(source: str, node: ast.stmt | ast.expr) -> str:
    """Returns the text of a part of a program; ast.get_source_segment() splits the whole program each time."""
    lines = list(_lines(source)[node.lineno - 1 : node.end_lineno])
    lines[-1] = lines[-1][: node.end_col_offset]
    return b"\n".join([lines[0][node.col_offset :], *lines[1:]]).decode("utf-8", "surrogatepass")


def _last_name(body: Sequence[ast.stmt]) -> str:
    """Returns the name that a program binds last; empty where that may not have been bound when it ends."""
    last = body[-1]
    match last:
        case ast.Assign(targets=[ast.Name(name)]) | ast.AugAssign(target=ast.Name(name)):
            return name
        case ast.If() | ast.For():
            bound = [node for node in ast.walk(last) if isinstance(node, ast.Assign | ast.AugAssign)]
            target = max(bound, key=lambda node: node.lineno, default=None)
            names = target.targets if isinstance(target, ast.Assign) else [target.target] if target else []
            before = {
                name
                for statement in body[:-1]
                if isinstance(statement, ast.Assign)
                for name in program_names(statement)[1]
            }
            both = isinstance(last, ast.If) and last.orelse and _last_name(last.body) == _last_name(last.orelse) != ""
            match names:
                case [ast.Name(name)] if name in before or both:
                    return name
    return ""


def _returns(function: ast.FunctionDef) -> bool:
    return any(isinstance(node, ast.Return) and node.value is not None for node in ast.walk(function))


def _printed_value(statement: ast.AST) -> ast.expr | None:
    """Returns the value that a statement prints, without the words around it."""
    match statement:
        case ast.Expr(ast.Call(ast.Name("print" | "final_answer"), [*_, value])):
            parts = (
                [part for part in value.values if isinstance(part, ast.FormattedValue)]
                if isinstance(value, ast.JoinedStr)
                else []
            )
            return parts[0].value if len(parts) == 1 else value
    return None


def _replace_statements(source: str, changes: Sequence[tuple[ast.stmt, str]]) -> str:
    """Returns a program with other text in place of some of its statements."""
    lines = list(_lines(source))
    for node, text in sorted(changes, key=lambda change: -change[0].lineno):
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        tail = lines[last][node.end_col_offset :]
        lines[first : last + 1] = [lines[first][: node.col_offset] + text.encode("utf-8", "surrogatepass") + tail]
    return b"\n".join(lines).decode("utf-8", "surrogatepass")
