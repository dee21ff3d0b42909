"""Which calls a program is going to make, read off its source: from a program and its pictures to calls.

A small abstract interpreter walks the program once. It follows pictures, texts, numbers and lists of these through
assignments, ``for`` loops and comprehensions, and notes every call of a wanted primitive that is made unless the
program fails before. A wrong guess costs a call made in vain and nothing else, so it models neither errors nor aliases
nor what methods change, and it ends where it does not know how to go on. It follows what the programs in our prompts
do; of Python's functions that is ``enumerate``.

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
from typing import Any

from ..core.program_tree import parse
from ..primitives.kinds import Image
from ..primitives.signature import CONSTANTS
from ..primitives.visual import opened, opened_set

MAX_STEPS = 4000
"""Nodes visited at most, and items of lists made."""
STEPS_EACH = 60
"""How many more for each picture."""
MAX_TEXT = 1000
"""Longest text followed that is put together, in characters."""

UNKNOWN: Any = object()
"""Stands for a value that cannot be told."""

_SURE_PARTS: Mapping[type[ast.expr], int] = {ast.BoolOp: 1, ast.Compare: 2, ast.IfExp: 1, ast.Lambda: 0}
"""How many parts of an expression are computed whatever they hold; all where nothing is said."""


@dataclass(frozen=True)
class PlannedCall:
    """A call that a program makes unless it fails before."""

    name: str
    args: tuple[object, ...]
    kwargs: Mapping[str, object]


def plan_calls(source: str, images: Sequence[Image], wanted: Collection[str]) -> list[PlannedCall]:
    """Returns the calls of wanted primitives whose arguments can be told before the program runs, in its order."""
    tree = parse(source)
    if tree is None:
        return []
    walk = _Walk(images, wanted)
    with contextlib.suppress(_EnoughError, RecursionError):
        walk.block(tree.body)
    return walk.found


class _EnoughError(Exception):
    """The program cannot be followed further; what was found stands."""


class _Walk:
    """One walk through what a program is sure to reach."""

    def __init__(self, images: Sequence[Image], wanted: Collection[str]) -> None:
        self.wanted = wanted
        self.found: list[PlannedCall] = []
        self.left = MAX_STEPS + STEPS_EACH * len(images)
        self.functions: dict[str, Callable[..., Any]] = {
            "enumerate": lambda *given: list(enumerate(*given)),
            "open_image": partial(opened, images),
            "open_images": partial(opened_set, images),
        }
        self.variables: dict[str, Any] = {**CONSTANTS, "images": list(images)}
        if len(images) == 1:
            self.variables["img"] = images[0]

    def block(self, body: Sequence[ast.stmt]) -> bool:
        """Follows statements up to where it is not sure that the next is reached; returns whether it was their end."""
        for node in body:
            self._step()
            match node:
                case ast.Expr(value):
                    self.value(value)
                case ast.Assign(targets, value):
                    held = self.value(value)
                    for target in targets:
                        self._bind(target, held)
                case ast.AugAssign(target, _, value):
                    self.value(value)
                    self._bind(target, UNKNOWN)
                case ast.If(test):
                    self.value(test)
                    if not self._passed(node):
                        return False
                case ast.For(_, items, _, []):
                    self._loop(node, self.value(items))
                case ast.Break() | ast.Continue():
                    return False
                case _:
                    raise _EnoughError
        return True

    def _loop(self, loop: ast.For, items: Any) -> None:
        if not isinstance(items, list | tuple):
            self._passed(loop)
            return
        for item in items:
            self._bind(loop.target, item)
            if not self.block(loop.body):
                self._passed(loop)
                return

    def _passed(self, statement: ast.If | ast.For) -> bool:
        """Forgets what a statement may assign whose parts may not run; returns whether what comes next is reached."""
        reached = True
        for node in ast.walk(statement):
            self._step()
            match node:
                case ast.Break() | ast.Continue():
                    reached = False
                case ast.Name(name, ast.Store()) | ast.Subscript(ast.Name(name), _, ast.Store()):
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
                return held if isinstance(held, int | str) else UNKNOWN
            case ast.Call():
                return self._call(node)
            case ast.List(parts) | ast.Tuple(parts):
                return [self.value(part) for part in parts]
            case ast.Subscript(whole, place):
                return self._returned(operator.getitem, self.value(whole), self.value(place))
            case ast.Slice(lower, upper, step):
                return slice(*(end and self.value(end) for end in (lower, upper, step)))
            case ast.JoinedStr(parts):
                return self._returned(_joined, [self.value(part) for part in parts])
            case ast.FormattedValue(inner, -1, None):
                return self.value(inner)
            case ast.ListComp(part, loops) | ast.GeneratorExp(part, loops) | ast.SetComp(part, loops):
                # The sandbox runs a generator expression to its end at once, as if it were a list.
                self._comprehension(part, loops)
            case ast.DictComp(key, part, loops):
                self._comprehension(ast.Tuple([key, part]), loops)
            case _:
                parts = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
                sure = _SURE_PARTS.get(type(node), len(parts))
                for child in parts[:sure]:
                    self.value(child)
        return UNKNOWN

    def _call(self, node: ast.Call) -> Any:
        if not isinstance(node.func, ast.Name):
            self.value(node.func)
        args = tuple(self.value(one) for one in node.args)
        kwargs = {one.arg or "": self.value(one.value) for one in node.keywords}
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name in self.variables:
            return UNKNOWN  # the program's own
        if name in self.wanted and all(map(self._known, (*args, *kwargs.values()))):
            self.found.append(PlannedCall(name, args, kwargs))
        return self._returned(self.functions[name], *args) if name in self.functions and not kwargs else UNKNOWN

    def _known(self, value: Any) -> bool:
        """Whether a value can be told, and what it holds where it is a list."""
        if not isinstance(value, list | tuple):
            return value is not UNKNOWN
        self._step(len(value))
        return not any(isinstance(item, list | tuple) or item is UNKNOWN for item in value)

    def _comprehension(self, part: ast.expr, loops: Sequence[ast.comprehension]) -> None:
        """Follows a comprehension as the loops that it stands for, with variables of its own."""
        body: list[ast.stmt] = [ast.Expr(part)]
        for loop in reversed(loops):
            for test in reversed(loop.ifs):
                body = [ast.If(test, body, [])]
            body = [ast.For(loop.target, loop.iter, body, [])]
        self._step(len(self.variables))
        before, self.variables = self.variables, dict(self.variables)
        self.block(body)
        self.variables = before

    def _step(self, count: int = 1) -> None:
        self.left -= count
        if self.left < 0:
            raise _EnoughError

    def _returned(self, function: Callable[..., Any], *args: Any) -> Any:
        """Returns what a function of the language returns."""
        try:
            found = function(*args)
        except (TypeError, ValueError, LookupError, OverflowError):
            return UNKNOWN
        if isinstance(found, list | tuple):
            self._step(len(found))
        return found


def _joined(parts: Sequence[Any]) -> Any:
    text = "".join(map(str, parts)) if all(type(part) in (int, str) for part in parts) else ""
    return text if 0 < len(text) <= MAX_TEXT else UNKNOWN
