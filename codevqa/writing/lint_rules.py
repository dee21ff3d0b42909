"""What can be read off a program's text: answers used as truth values, comparisons that never hold, idle imports."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from .lint_outcomes import is_yes_no

__all__ = ["Fault", "faults", "is_single_query"]

_TEXT_METHODS = {"capitalize", "lower", "lstrip", "replace", "rstrip", "strip", "title", "upper"}
_PASSES = 8
"""Looks at a program at most: each follows texts through one assignment more that stands before what it takes."""
_ITERATES = {"iter", "list", "reversed", "set", "sorted", "tuple"}


@dataclass(frozen=True)
class Fault:
    """One thing wrong with a program."""

    rule: str
    line: int
    message: str


def is_single_query(tree: ast.Module, question: str) -> bool:
    """Says whether a program hands its whole question to one call of ``query``, by either of its names."""
    if len(tree.body) != 1 or not isinstance(tree.body[0], ast.Assign):
        return False
    call = tree.body[0].value
    if not (isinstance(call, ast.Call) and ast.unparse(call.func) in ("query", "visual_query")):
        return False
    whole_picture = bool(call.args) and isinstance(call.args[0], ast.Name)
    asked = [arg.value for arg in call.args[1:] if isinstance(arg, ast.Constant)]
    return whole_picture or asked == [question]


def faults(tree: ast.Module, textual: Collection[str], primitives: Collection[str]) -> Iterator[Fault]:
    """Yields what is wrong with a program.

    Args:
        tree: the program.
        textual: names of the primitives that return text.
        primitives: names of all primitives the program may call.
    """
    yield from _imports(tree)
    yield from _openings(tree, primitives)
    answers = _Answers(tree, textual)
    yield from answers.truths()
    yield from answers.comparisons()


def _imports(tree: ast.Module) -> Iterator[Fault]:
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                name = (alias.asname or alias.name).split(".")[0]
                if name not in used:
                    yield Fault("import", node.lineno, f"{name} is imported and never used")


def _openings(tree: ast.Module, primitives: Collection[str]) -> Iterator[Fault]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _OPENERS & {*primitives}:
            yield Fault("opening", node.lineno, f"{node.func.id} is called; the prompt writes that line itself")


_OPENERS = {"open_image", "open_images"}


class _Answers:
    """Where the text that primitives return goes in a program, whatever the order of its statements."""

    def __init__(self, tree: ast.Module, textual: Collection[str]) -> None:
        self._tree = tree
        self._textual = textual
        self._texts: set[str] = set()
        """Variables that hold such a text."""
        self._groups: set[str] = set()
        """Variables that hold a list, set or dict of them."""
        self._bound: dict[str, list[ast.expr]] = {}
        """What is assigned to each plain name."""
        nodes = list(ast.walk(tree))
        for node in nodes:
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        self._bound.setdefault(target.id, []).append(node.value)
        size = -1
        for _ in range(_PASSES):
            if size == (size := len(self._texts) + len(self._groups)):
                break
            for node in nodes:
                self._follow(node)

    def truths(self) -> Iterator[Fault]:
        """Finds answers used as truth values: "no" is as true as "yes"."""
        tested = [node for test in self._tests() for node in self._truth_of(test)]
        found = {(node.lineno, node.col_offset): node for node in [*tested, *self._called()]}
        for (line, _), node in sorted(found.items()):
            shown = "a text" if self._is_text(node) else "texts"
            yield Fault("truth", line, f'{ast.unparse(node)}: {shown}, and "no" counts as true: compare with "yes"')

    def comparisons(self) -> Iterator[Fault]:
        """Finds comparisons of answers with something no answer is."""
        for node in ast.walk(self._tree):
            if not isinstance(node, ast.Compare):
                continue
            sides = [node.left, *node.comparators]
            for left, operator, right in zip(sides, node.ops, sides[1:], strict=False):
                if isinstance(operator, ast.Eq | ast.NotEq):
                    yield from self._never_equal(left, right)
                    yield from self._never_equal(right, left)
                elif isinstance(operator, ast.In | ast.NotIn) and isinstance(right, ast.List | ast.Tuple | ast.Set):
                    for item in right.elts:
                        yield from self._never_equal(left, item)

    def _never_equal(self, answer: ast.expr, other: ast.expr) -> Iterator[Fault]:
        if not self._is_text(answer) or not isinstance(other, ast.Constant):
            return
        shown, value = ast.unparse(answer), other.value
        if not isinstance(value, str):
            yield Fault("comparison", answer.lineno, f"{shown} is a text and never equals {value!r}")
        elif value != value.strip().lower() or not value:
            yield Fault("comparison", answer.lineno, f"answers are lower case: {shown} never equals {value!r}")
        elif value not in ("yes", "no") and is_yes_no(self._question(answer)):
            yield Fault("comparison", answer.lineno, f"{shown} is yes or no and never equals {value!r}")

    def _question(self, node: ast.expr) -> str:
        """Returns how the question of a call of a primitive begins, or the call bound to a name; empty if unknown."""
        if isinstance(node, ast.Name):
            bound = self._bound.get(node.id, [])
            return self._question(bound[0]) if len(bound) == 1 and isinstance(bound[0], ast.Call) else ""
        if not isinstance(node, ast.Call):
            return ""
        for value in reversed([*node.args, *(keyword.value for keyword in node.keywords)]):
            if isinstance(value, ast.JoinedStr):
                parts = (part.value if isinstance(part, ast.Constant) else "it" for part in value.values)
                return "".join(str(part) for part in parts)
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                return value.value
        return ""

    def _tests(self) -> Iterator[ast.expr]:
        for node in ast.walk(self._tree):
            if isinstance(node, ast.If | ast.IfExp | ast.While | ast.Assert):
                yield node.test
            elif isinstance(node, ast.comprehension):
                yield from node.ifs
            elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
                yield node.operand
            elif isinstance(node, ast.BoolOp):
                yield from node.values[:-1]

    def _called(self) -> Iterator[ast.expr]:
        for node in ast.walk(self._tree):
            match node:
                case ast.Call(func=ast.Name(id="bool"), args=[value]):
                    yield from self._truth_of(value)
                case ast.Call(func=ast.Name(id="any" | "all"), args=[group]) if self._is_group(group):
                    yield group

    def _truth_of(self, test: ast.expr) -> Iterator[ast.expr]:
        if isinstance(test, ast.BoolOp):
            for value in test.values:
                yield from self._truth_of(value)
        elif self._is_text(test):
            yield test

    def _is_text(self, node: ast.expr) -> bool:
        match node:
            case ast.Name(id=name):
                return name in self._texts
            case ast.Call(func=ast.Name(id=name)):
                return name in self._textual
            case ast.Call(func=ast.Attribute(value=value, attr=method)):
                return method in _TEXT_METHODS and self._is_text(value)
            case ast.IfExp(body=body, orelse=orelse):
                return self._is_text(body) or self._is_text(orelse)
            case ast.BoolOp(values=values):
                return any(map(self._is_text, values))
            case ast.NamedExpr(value=value):
                return self._is_text(value)
            case ast.Subscript(value=value):
                return self._is_group(value)
        return False

    def _is_group(self, node: ast.expr) -> bool:
        match node:
            case ast.Name(id=name):
                return name in self._groups
            case ast.ListComp(elt=item) | ast.SetComp(elt=item) | ast.GeneratorExp(elt=item):
                return self._is_text(item)
            case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
                return any(map(self._is_text, items))
            case ast.Dict(values=values):
                return any(map(self._is_text, values))
            case ast.Call(func=ast.Name(id=name), args=[value]):
                return name in _ITERATES and self._is_group(value)
            case ast.Call(func=ast.Attribute(value=value, attr="values")):
                return self._is_group(value)
        return False

    def _follow(self, node: ast.AST) -> None:
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._bind(target, value)
            case ast.NamedExpr(target=target, value=value) | ast.AnnAssign(target=target, value=ast.expr() as value):
                self._bind(target, value)
            case (
                ast.For(target=ast.Name(id=name), iter=group) | ast.comprehension(target=ast.Name(id=name), iter=group)
            ):
                if self._is_group(group):
                    self._texts.add(name)
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append" | "add"), args=[value]):
                if self._is_text(value):
                    self._groups.add(name)

    def _bind(self, target: ast.expr, value: ast.expr) -> None:
        match target:
            case ast.Name(id=name):
                if self._is_text(value):
                    self._texts.add(name)
                if self._is_group(value):
                    self._groups.add(name)
            case ast.Subscript(value=ast.Name(id=name)):
                if self._is_text(value):
                    self._groups.add(name)
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(targets):
                    for one, item in zip(targets, value.elts, strict=True):
                        self._bind(one, item)
                elif self._is_group(value):
                    self._texts.update(one.id for one in targets if isinstance(one, ast.Name))
