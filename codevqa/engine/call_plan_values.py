"""What can be known of a program's expressions before it runs, and the calls they make on the way.

Part of :mod:`codevqa.engine.call_plan`.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ..primitives.kinds import Image
from ..primitives.signature import CONSTANTS
from ..primitives.visual import opened, opened_set

__all__ = ["MAX_ITEMS", "UNKNOWN", "EnoughError", "Planned", "Values", "added", "is_scalar"]

MAX_STEPS = 4000
"""Nodes visited at most."""
MAX_DEPTH = 60
"""Nesting of expressions followed at most."""
MAX_ITEMS = 64
"""Turns of one loop followed at most."""

UNKNOWN: Any = object()
"""Stands for a value that cannot be told."""

_SCALARS = (str, int, float, bool, type(None))
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "enumerate": lambda *given: list(enumerate(*given)),
    "len": len,
    "list": lambda *given: list(*given),
    "range": lambda *given: list(range(*given)[:MAX_ITEMS]),
    "reversed": lambda items: list(reversed(items)),
    "str": str,
    "tuple": lambda *given: tuple(*given),
    "zip": lambda *given: list(zip(*given, strict=False)),
}
_COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


@dataclass(frozen=True)
class Planned:
    """A call that a program will make, or may."""

    name: str
    args: tuple[object, ...]
    kwargs: Mapping[str, object]
    certain: bool
    """Whether it is made unless the program fails before."""


class EnoughError(Exception):
    """The program is too much to follow; what was found stands."""


class Values:
    """Evaluates expressions as far as they are known, noting each call of a wanted primitive in ``found``.

    ``certain`` says whether the expression is evaluated unless the program fails before.
    """

    def __init__(self, images: Sequence[Image], wanted: Collection[str]) -> None:
        self.images = images
        self.wanted = wanted
        self.found: list[Planned] = []
        self.env: dict[str, Any] = {**CONSTANTS, "images": list(images)}
        if len(images) == 1:
            self.env["img"] = images[0]
        self._steps = 0
        self._depth = 0

    def value(self, node: ast.expr, certain: bool) -> Any:
        """Returns the value of an expression, or :data:`UNKNOWN`."""
        self.step()
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise EnoughError
        try:
            handler: _Handler = _HANDLERS.get(type(node), Values._other)
            return handler(self, node, certain)
        finally:
            self._depth -= 1

    def step(self) -> None:
        """Counts one node visited."""
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise EnoughError

    def bind(self, target: ast.expr, held: Any) -> None:
        """Assigns a value to a target."""
        match target:
            case ast.Name(name):
                self.env[name] = held
            case ast.Tuple(parts) | ast.List(parts):
                known = isinstance(held, list | tuple | str) and len(held) == len(parts)
                plain = known and not any(isinstance(part, ast.Starred) for part in parts)
                for place, part in enumerate(parts):
                    self.bind(part, held[place] if plain else UNKNOWN)
            case ast.Starred(value):
                self.bind(value, UNKNOWN)
            case ast.Subscript(value) | ast.Attribute(value):
                self._changed(value)
            case _:
                pass

    def _changed(self, node: ast.expr) -> None:
        """Takes note that an object is changed in place."""
        if isinstance(node, ast.Name) and isinstance(self.env.get(node.id), list):
            self.env[node.id] = UNKNOWN

    def _constant(self, node: ast.Constant, certain: bool) -> Any:
        return node.value if is_scalar(node.value) else UNKNOWN

    def _name(self, node: ast.Name, certain: bool) -> Any:
        return self.env.get(node.id, UNKNOWN)

    def _display(self, node: ast.List | ast.Tuple, certain: bool) -> Any:
        held = [self.value(part, certain) for part in node.elts]
        if any(isinstance(part, ast.Starred) for part in node.elts):
            return UNKNOWN
        return held if isinstance(node, ast.List) else tuple(held)

    def _subscript(self, node: ast.Subscript, certain: bool) -> Any:
        held, place = self.value(node.value, certain), self.value(node.slice, certain)
        if isinstance(held, list | tuple | str) and isinstance(place, int | slice):
            try:
                return held[place]
            except (IndexError, TypeError, ValueError):
                return UNKNOWN
        return UNKNOWN

    def _slice(self, node: ast.Slice, certain: bool) -> Any:
        ends = [None if end is None else self.value(end, certain) for end in (node.lower, node.upper, node.step)]
        return UNKNOWN if any(end is UNKNOWN for end in ends) else slice(*ends)

    def _binary(self, node: ast.BinOp, certain: bool) -> Any:
        return added(node.op, self.value(node.left, certain), self.value(node.right, certain))

    def _unary(self, node: ast.UnaryOp, certain: bool) -> Any:
        held = self.value(node.operand, certain)
        if held is UNKNOWN:
            return UNKNOWN
        if isinstance(node.op, ast.Not):
            return not held
        return -held if isinstance(node.op, ast.USub) and type(held) in (int, float) else UNKNOWN

    def _either(self, node: ast.BoolOp, certain: bool) -> Any:
        sure = True
        held: Any = UNKNOWN
        for part in node.values:
            held = self.value(part, certain and sure)
            if held is UNKNOWN:
                sure = False
            elif bool(held) is isinstance(node.op, ast.Or):
                break
        return held if sure else UNKNOWN

    def _compare(self, node: ast.Compare, certain: bool) -> Any:
        held = [self.value(node.left, certain), self.value(node.comparators[0], certain)]
        for other in node.comparators[1:]:
            self.value(other, False)
        known = _COMPARISONS.get(type(node.ops[0]))
        if known is None or len(node.ops) > 1 or not all(map(is_scalar, held)):
            return UNKNOWN
        try:
            return known(*held)
        except TypeError:
            return UNKNOWN

    def _choice(self, node: ast.IfExp, certain: bool) -> Any:
        held = self.value(node.test, certain)
        if held is not UNKNOWN:
            return self.value(node.body if held else node.orelse, certain)
        self.value(node.body, False)
        self.value(node.orelse, False)
        return UNKNOWN

    def _walrus(self, node: ast.NamedExpr, certain: bool) -> Any:
        held = self.value(node.value, certain)
        self.bind(node.target, held)
        return held

    def _lambda(self, node: ast.Lambda, certain: bool) -> Any:
        return UNKNOWN  # nobody has called it yet

    def _other(self, node: ast.expr, certain: bool) -> Any:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.value(child, certain)
        return UNKNOWN

    def _joined(self, node: ast.JoinedStr, certain: bool) -> Any:
        texts: list[Any] = []
        for part in node.values:
            match part:
                case ast.FormattedValue(value, -1, None):
                    held = self.value(value, certain)
                    texts.append(str(held) if type(held) in (str, int, bool) else UNKNOWN)
                case ast.Constant(str() as text):
                    texts.append(text)
                case _:
                    self.value(part, certain)
                    texts.append(UNKNOWN)
        return UNKNOWN if any(text is UNKNOWN for text in texts) else "".join(texts)

    # -- calls -------------------------------------------------------------------------------------------------------

    def _call(self, node: ast.Call, certain: bool) -> Any:
        function = node.func
        if isinstance(function, ast.Attribute):
            self.value(function.value, certain)
        elif not isinstance(function, ast.Name):
            self.value(function, certain)
        args = tuple(self.value(one, certain) for one in node.args)
        kwargs = {one.arg or "": self.value(one.value, certain) for one in node.keywords}
        if isinstance(function, ast.Attribute):
            self._changed(function.value)
        unsure = any(map(_unsure, (*args, *kwargs.values()))) or "" in kwargs
        if not isinstance(function, ast.Name) or function.id in self.env or unsure:
            return UNKNOWN
        if function.id in self.wanted:
            self.found.append(Planned(function.id, args, kwargs, certain))
            return UNKNOWN
        return UNKNOWN if kwargs else self._known(function.id, args)

    def _known(self, name: str, args: tuple[Any, ...]) -> Any:
        """Returns what a function that needs no model returns."""
        try:
            if name == "open_image":
                return opened(self.images, *args)
            if name == "open_images":
                return opened_set(self.images, *args)
            return _FUNCTIONS[name](*args) if name in _FUNCTIONS else UNKNOWN
        except (TypeError, ValueError, LookupError, OverflowError):
            return UNKNOWN

    # -- comprehensions ----------------------------------------------------------------------------------------------

    def _list(self, node: ast.ListComp | ast.GeneratorExp, certain: bool) -> Any:
        # The sandbox runs a generator expression to its end at once, as if it were a list.
        return self._comprehension(node.generators, [node.elt], certain)

    def _set(self, node: ast.SetComp, certain: bool) -> Any:
        self._comprehension(node.generators, [node.elt], certain)
        return UNKNOWN

    def _dict(self, node: ast.DictComp, certain: bool) -> Any:
        self._comprehension(node.generators, [node.key, node.value], certain)
        return UNKNOWN

    def _comprehension(self, generators: Sequence[ast.comprehension], parts: Sequence[ast.expr], certain: bool) -> Any:
        before = dict(self.env)
        results: list[Any] = []
        known = self._generate(list(generators), parts, certain, results)
        for generator in generators:  # a comprehension's variables are its own; what := binds is not
            for one in ast.walk(generator.target):
                if isinstance(one, ast.Name):
                    self.env.pop(one.id, None)
                    if one.id in before:
                        self.env[one.id] = before[one.id]
        return results if known else UNKNOWN

    def _generate(
        self, generators: list[ast.comprehension], parts: Sequence[ast.expr], certain: bool, results: list[Any]
    ) -> bool:
        """Runs the loops of a comprehension; returns whether all that it gives is known to be in ``results``."""
        if not generators:
            results += [self.value(part, certain) for part in parts]
            return True
        first, *rest = generators
        items = self.value(first.iter, certain)
        if not isinstance(items, list | tuple | str):
            self.bind(first.target, UNKNOWN)
            for test in first.ifs:
                self.value(test, False)
            self._generate(rest, parts, False, [])
            return False
        known = True
        for item in list(items)[:MAX_ITEMS]:
            self.bind(first.target, item)
            sure = True
            for test in first.ifs:
                held = self.value(test, certain and sure)
                if held is UNKNOWN:
                    sure = known = False
                elif not held:
                    break
            else:
                known = self._generate(rest, parts, certain and sure, results) and known
        return known


_Handler: TypeAlias = Callable[[Values, Any, bool], Any]
_HANDLERS: Mapping[type[ast.expr], _Handler] = {
    ast.Constant: Values._constant,
    ast.Name: Values._name,
    ast.List: Values._display,
    ast.Tuple: Values._display,
    ast.Subscript: Values._subscript,
    ast.Slice: Values._slice,
    ast.BinOp: Values._binary,
    ast.UnaryOp: Values._unary,
    ast.BoolOp: Values._either,
    ast.Compare: Values._compare,
    ast.IfExp: Values._choice,
    ast.NamedExpr: Values._walrus,
    ast.Lambda: Values._lambda,
    ast.JoinedStr: Values._joined,
    ast.Call: Values._call,
    ast.ListComp: Values._list,
    ast.GeneratorExp: Values._list,
    ast.SetComp: Values._set,
    ast.DictComp: Values._dict,
}


def is_scalar(held: Any) -> bool:
    """Whether a value is known and no list, tuple or picture."""
    return isinstance(held, _SCALARS)


def added(op: ast.operator, left: Any, right: Any) -> Any:
    """Returns the sum or difference of two values where it is small and known."""
    kinds = (type(left), type(right))
    if kinds == (int, int) and isinstance(op, ast.Add | ast.Sub) and max(abs(left), abs(right)) < 1 << 60:
        return left + right if isinstance(op, ast.Add) else left - right
    if isinstance(op, ast.Add) and kinds in ((str, str), (list, list), (tuple, tuple)):
        return left + right if len(left) + len(right) <= 1000 else UNKNOWN
    return UNKNOWN


def _unsure(held: Any) -> bool:
    if isinstance(held, list | tuple):
        return any(map(_unsure, held))
    return held is UNKNOWN
