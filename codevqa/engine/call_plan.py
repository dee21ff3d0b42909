"""Which calls a program is going to make, read off its source: from a program and its pictures to calls.

A small abstract interpreter walks the program. It follows pictures, texts, numbers and lists of these through
assignments, ``for`` loops and comprehensions, and notes every call of a wanted primitive that is made unless the
program fails before. Where the results of calls are known, it follows what the program makes of them, too: so the
second question about each of fifty pictures is asked of all at once, as the first was. A wrong guess costs a call made
in vain and nothing else, so it models neither errors nor aliases nor what methods change, and it ends where it does not
know how to go on. It follows what the programs in our prompts do.

It reads what anybody may have written, on the event loop, so its work is bounded however a program is made: every node
visited and every item copied counts, texts have a limit, and no value is looked into deeper than its items, for a list
of lists may hold more than could ever be walked.
"""

from __future__ import annotations

import ast
import contextlib
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias

from ..primitives.kinds import Image
from ..primitives.signature import CONSTANTS
from ..primitives.visual import find_image, find_images
from ..sandbox.program_tree import parse

MAX_STEPS = 4000
"""Nodes visited at most, and items of lists made."""
STEPS_EACH = 60
"""How many more for each picture."""
MAX_TEXT = 1000
"""Longest text followed that is put together, in characters."""

UNKNOWN: Any = object()
"""Stands for a value that cannot be told."""

_SIGNS: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda item, whole: item in whole,
    ast.NotIn: lambda item, whole: item not in whole,
}
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "enumerate": lambda *items: list(enumerate(*items)),
    "int": lambda text: int(text),
    "len": len,
}
_METHODS = frozenset(("endswith", "lower", "split", "startswith", "strip"))
"""Methods of texts that are followed."""
_CHANGING = frozenset(("append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"))
"""Methods that change a list."""
_PLAIN = (str, int, float)


@dataclass(frozen=True)
class PlannedCall:
    """A call that a program makes unless it fails before."""

    name: str
    args: tuple[object, ...]
    kwargs: Mapping[str, object]


Results: TypeAlias = Callable[[PlannedCall], Any]
"""Returns what a call returned, or :data:`UNKNOWN`."""
Exit: TypeAlias = Literal["end", "break", "continue", "unsure"]
"""How a block of statements is left; after ``unsure`` nobody knows what comes next."""


class CallPlan:
    """The calls that a program is going to make.

    Args:
        source: the program.
        images: the question's pictures.
        wanted: names of the primitives whose calls are planned.
    """

    def __init__(self, source: str, images: Sequence[Image], wanted: Collection[str]) -> None:
        self._tree = parse(source)
        self._images = images
        self._wanted = wanted

    def calls(self, results: Results = lambda call: UNKNOWN) -> list[PlannedCall]:
        """Returns the calls of wanted primitives whose arguments can be told, in the program's order.

        Args:
            results: tells what calls returned, as far as that is known.
        """
        if self._tree is None:
            return []
        walk = _Walk(self._images, self._wanted, results)
        with contextlib.suppress(_EnoughError, RecursionError):
            walk.block(self._tree.body)
        return walk.planned


class _Item(ast.Expr):
    """The part of a comprehension that gives its items, and those that it gave on the walk."""

    def __init__(self, value: ast.expr) -> None:
        super().__init__(value)
        self.items: list[Any] = []


class _EnoughError(Exception):
    """The program cannot be followed further; what was found stands."""


class _Walk:
    """One walk through what a program is sure to reach."""

    def __init__(self, images: Sequence[Image], wanted: Collection[str], results: Results) -> None:
        self.wanted = wanted
        self.results = results
        self.planned: list[PlannedCall] = []
        self.left = MAX_STEPS + STEPS_EACH * len(images)
        self.functions: dict[str, Callable[..., Any]] = {
            **_FUNCTIONS,
            "open_image": partial(find_image, images),
            "open_images": partial(find_images, images),
        }
        self.variables: dict[str, Any] = {**CONSTANTS, "images": list(images)}
        if len(images) == 1:
            self.variables["img"] = images[0]

    def block(self, body: Sequence[ast.stmt]) -> Exit:
        """Follows statements up to where it is not sure that the next is reached; returns how they are left."""
        for node in body:
            self._step()
            left = self._statement(node)
            if left != "end":
                return left
        return "end"

    def _statement(self, node: ast.stmt) -> Exit:
        match node:
            case _Item(value):
                node.items.append(self.value(value))
            case ast.Expr(value):
                self.value(value)
            case ast.Assign(targets, value):
                held = self.value(value)
                for target in targets:
                    self._bind(target, held)
            case ast.AugAssign(target, _, value):
                self.value(value)
                self._bind(target, UNKNOWN)
            case ast.If(test, then, otherwise):
                held = self.value(test)
                if held is not UNKNOWN:
                    return self.block(then if held else otherwise)
                return "end" if self._skip_statement(node) else "unsure"
            case ast.For(_, items, _, []):
                self._loop(node, self.value(items))
            case ast.Break() | ast.Continue():
                return "break" if isinstance(node, ast.Break) else "continue"
            case ast.Pass():
                pass
            case _:
                raise _EnoughError
        return "end"

    def _loop(self, loop: ast.For, items: Any) -> None:
        if not isinstance(items, list | tuple):
            self._skip_statement(loop)
            return
        for item in items:
            self._bind(loop.target, item)
            match self.block(loop.body):
                case "break":
                    return
                case "unsure":
                    self._skip_statement(loop)
                    return

    def _skip_statement(self, statement: ast.If | ast.For) -> bool:
        """Forgets what a statement may assign whose parts may not run; returns whether what comes next is reached."""
        reached = True
        for node in ast.walk(statement):
            self._step()
            match node:
                case _Item():
                    node.items.append(UNKNOWN)
                case ast.Break() | ast.Continue():
                    reached = False
                case ast.Name(name, ast.Store()) | ast.Subscript(ast.Name(name), _, ast.Store()):
                    self.variables[name] = UNKNOWN
                case ast.Attribute(ast.Name(name), method) if method in _CHANGING:
                    self.variables[name] = UNKNOWN
                case ast.If() | ast.For() | ast.Assign() | ast.AugAssign() | ast.Expr() | ast.Pass():
                    pass
                case ast.stmt():
                    raise _EnoughError
        return reached

    def _bind(self, target: ast.expr, held: Any) -> None:
        self._step()
        match target:
            case ast.Name(name):
                self.variables[name] = held
            case ast.Tuple(parts) | ast.List(parts):
                known = isinstance(held, list | tuple) and len(held) == len(parts)
                for place, part in enumerate(parts):
                    self._bind(part, held[place] if known else UNKNOWN)
            case ast.Subscript(ast.Name(name)) | ast.Starred(ast.Name(name)):
                self.variables[name] = UNKNOWN

    def value(self, node: ast.expr) -> Any:
        """Follows an expression; returns its value, or :data:`UNKNOWN`."""
        self._step()
        match node:
            case ast.Name(name):
                return self.variables.get(name, UNKNOWN)
            case ast.Constant(held):
                return held if isinstance(held, int | float | str) else UNKNOWN
            case ast.Call():
                return self._call(node)
            case ast.List(parts) | ast.Tuple(parts):
                return [self.value(part) for part in parts]
            case ast.Subscript(whole, place):
                return self._apply(operator.getitem, self.value(whole), self.value(place))
            case ast.Slice(lower, upper, step):
                return slice(*(end and self.value(end) for end in (lower, upper, step)))
            case ast.JoinedStr(parts):
                return self._apply(_join_text, [self.value(part) for part in parts])
            case ast.FormattedValue(inner, -1, None):
                return self.value(inner)
            case ast.ListComp() | ast.GeneratorExp() | ast.SetComp() | ast.DictComp():
                return self._comprehension(node)
            case ast.Compare() | ast.UnaryOp(ast.Not()) | ast.BoolOp() | ast.IfExp():
                return self._decide(node)
            case _:
                parts = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
                for child in [] if isinstance(node, ast.Lambda) else parts:
                    self.value(child)
        return UNKNOWN

    def _call(self, node: ast.Call) -> Any:
        whole = UNKNOWN
        if isinstance(node.func, ast.Attribute):
            whole = self.value(node.func.value)
        elif not isinstance(node.func, ast.Name):
            self.value(node.func)
        args = tuple([self.value(argument) for argument in node.args])
        kwargs = {keyword.arg or "": self.value(keyword.value) for keyword in node.keywords}
        match node.func:
            case ast.Attribute(_, "append") if isinstance(whole, list) and len(args) == 1:
                self._step()
                whole.append(args[0])
            case ast.Attribute(ast.Name(name), method) if method in _CHANGING:
                self.variables[name] = UNKNOWN
            case ast.Attribute(_, method) if method in _METHODS and isinstance(whole, str):
                return self._apply(getattr(whole, method), *args)
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name in self.variables:
            return UNKNOWN  # the program's own
        if name in self.wanted and all(map(self._is_known, (*args, *kwargs.values()))):
            planned = PlannedCall(name, args, kwargs)
            self.planned.append(planned)
            return self.results(planned)
        return self._apply(self.functions[name], *args) if name in self.functions and not kwargs else UNKNOWN

    def _is_known(self, value: Any) -> bool:
        """Whether a value can be told, and what it holds where it is a list."""
        if not isinstance(value, list | tuple):
            return value is not UNKNOWN
        self._step(len(value))
        return not any(isinstance(item, list | tuple) or item is UNKNOWN for item in value)

    def _decide(self, node: ast.Compare | ast.UnaryOp | ast.BoolOp | ast.IfExp) -> Any:
        """Follows an expression that decides; of what may not be computed, nothing is followed."""
        match node:
            case ast.Compare(left, [sign], [right]):
                return self._compare(type(sign), self.value(left), self.value(right))
            case ast.Compare(left, _, [right, *_]):
                self.value(left)
                self.value(right)
            case ast.UnaryOp(_, inner):
                return self._apply(operator.not_, self.value(inner))
            case ast.BoolOp(joint, parts):
                for part in parts:
                    held = self.value(part)
                    if held is UNKNOWN or bool(held) is isinstance(joint, ast.Or):
                        break
                return held
            case ast.IfExp(test, then, otherwise):
                held = self.value(test)
                return UNKNOWN if held is UNKNOWN else self.value(then if held else otherwise)
        return UNKNOWN

    def _compare(self, sign: type[ast.cmpop], left: Any, right: Any) -> Any:
        """Returns what a comparison says of texts and numbers, and of lists of them."""
        listed = isinstance(right, list | tuple) and sign in (ast.In, ast.NotIn)
        if sign not in _SIGNS or not isinstance(left, _PLAIN):
            return UNKNOWN
        known = self._is_known(right) if listed else isinstance(right, _PLAIN)
        return self._apply(_SIGNS[sign], left, right) if known else UNKNOWN

    def _comprehension(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp) -> Any:
        """Follows a comprehension as the loops that it stands for, with variables of its own; returns its items."""
        item = _Item(ast.Tuple([node.key, node.value]) if isinstance(node, ast.DictComp) else node.elt)
        body: list[ast.stmt] = [item]
        for loop in reversed(node.generators):
            for test in reversed(loop.ifs):
                body = [ast.If(test, body, [])]
            body = [ast.For(loop.target, loop.iter, body, [])]
        self._step(len(self.variables))
        before, self.variables = self.variables, dict(self.variables)
        self.block(body)
        self.variables = before
        known = isinstance(node, ast.ListComp) and not any(held is UNKNOWN for held in item.items)
        return item.items if known else UNKNOWN

    def _step(self, count: int = 1) -> None:
        self.left -= count
        if self.left < 0:
            raise _EnoughError

    def _apply(self, function: Callable[..., Any], *args: Any) -> Any:
        """Returns what a function of the language returns."""
        if any(argument is UNKNOWN for argument in args):
            return UNKNOWN
        try:
            result = function(*args)
        except (TypeError, ValueError, LookupError, OverflowError):
            return UNKNOWN
        if isinstance(result, list | tuple):
            self._step(len(result))
        return result


def _join_text(parts: Sequence[Any]) -> Any:
    text = "".join(map(str, parts)) if all(type(part) in (int, str) for part in parts) else ""
    return text if 0 < len(text) <= MAX_TEXT else UNKNOWN
