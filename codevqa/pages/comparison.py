"""Comparisons of positions in a program, such as ``x1 < x2``: which points they compare, and what they say.

Read off the program and the values that its calls gave. Nothing is run: a name counts where the program sets it once,
from a position, from one of its coordinates, or from numbers.
"""

from __future__ import annotations

import ast
import math
import operator
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias, TypeVar

from ..core.errors import ErrorRecord
from ..core.images import Picture
from ..core.trace import Call, ImageRef
from ..primitives.signature import CONSTANTS, GRID
from ..sandbox.program_tree import parse
from .heat import spot
from .pictures import picture_view

MOST = 8
"""Comparisons of one program that are shown."""
SIDE = 480
"""Longest side of the picture, in pixels."""
LABEL = 44
"""Width of a name on the picture, in percent of it."""
EDGE = 30
"""How near to an edge a name may not fit, in percent of the picture."""
MOST_NAME = 60
"""Characters of a name that are shown on the picture."""

T = TypeVar("T")
_SAID: Mapping[type[ast.cmpop], tuple[str, Callable[[float, float], bool]]] = {
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
}
_SUMS: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


@dataclass(frozen=True)
class Side:
    """One side of a comparison."""

    source: str
    """As the program writes it."""
    value: float
    point: tuple[float, float] | None = None
    """The position whose coordinate it is; None for a plain number."""
    name: str = ""
    """What was looked for there."""


@dataclass(frozen=True)
class Comparison:
    """Coordinates of one picture that a program compares, two or more with what stands between them."""

    line: int
    axis: int
    """0 for x, 1 for y."""
    sides: tuple[Side, ...]
    source: str
    """As the program writes it."""
    values: str
    """The same in numbers."""
    holds: bool
    image: ImageRef


def comparisons(source: str, calls: Sequence[Call], error: ErrorRecord | None = None) -> tuple[Comparison, ...]:
    """Returns the comparisons of positions in a program, those above the line where it failed."""
    positions = [call for call in calls if call.name == "get_pos" and _position(call)]
    tree = parse(source) if positions else None
    if tree is None:
        return ()
    try:
        reading = _NameValues(tree, positions)
        last = error.line if error and error.line is not None else math.inf
        skipped = set(reading.unreached_nodes(tree))
        nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Compare) and node not in skipped]
        nodes.sort(key=lambda node: (node.lineno, node.col_offset))
        read = [reading.comparison(node) for node in nodes if node.lineno <= last]
    except RecursionError:
        return ()
    return tuple(
        {(comparison.line, comparison.source): comparison for comparison in read if comparison is not None}.values()
    )[:MOST]


_Held: TypeAlias = Call | tuple[Call, int] | float
"""What a name stands for: a position, one of its coordinates with its axis, or a number."""


class _NameValues:
    """What the names of a program stand for."""

    def __init__(self, tree: ast.Module, calls: Sequence[Call]) -> None:
        on_line = Counter(call.line for call in calls)
        self._calls = {call.line: call for call in calls if on_line[call.line] == 1}
        nodes = list(ast.walk(tree))
        self._set = Counter(
            name_node.id
            for name_node in nodes
            if isinstance(name_node, ast.Name) and isinstance(name_node.ctx, ast.Store)
        )
        self._names: dict[str, _Held] = {
            name: float(value) for name, value in CONSTANTS.items() if name not in self._set
        }
        for node in sorted(
            (assignment for assignment in nodes if isinstance(assignment, ast.Assign)),
            key=lambda assignment: assignment.lineno,
        ):
            held = self._value(node.value)
            match node.targets:
                case [ast.Name(name)] if held is not None and self._set[name] == 1:
                    self._names[name] = held
                case [ast.Tuple([ast.Name(x), ast.Name(y)])] if isinstance(held, Call):
                    self._names |= {name: (held, axis) for axis, name in enumerate((x, y)) if self._set[name] == 1}

    def _value(self, node: ast.expr) -> _Held | None:
        match node:
            case ast.Name(name):
                return self._names.get(name)
            case ast.Constant(int() | float() as number) if abs(number) < 1e6:
                return float(number)
            case ast.Call(ast.Name("get_pos")):
                return self._calls.get(node.lineno)
            case ast.Subscript(whole, ast.Constant(place)) if place in (0, 1):
                held = self._value(whole)
                return (held, 1 if place else 0) if isinstance(held, Call) else None
            case ast.BinOp(left, sign, right) if type(sign) in _SUMS:
                left_value, other = self._value(left), self._value(right)
                with suppress(ZeroDivisionError):
                    if isinstance(left_value, float) and isinstance(other, float):
                        return _SUMS[type(sign)](left_value, other)
        return None

    def comparison(self, node: ast.Compare) -> Comparison | None:
        """Returns what a comparison says; None where it compares anything but coordinates of one picture."""
        parts = [node.left, *node.comparators]
        signs = [_SAID[type(sign)] for sign in node.ops if type(sign) in _SAID]
        sides: list[Side] = []
        about: set[tuple[ImageRef | None, int]] = set()
        for part in parts:
            match self._value(part):
                case (Call() as call, int() as axis):
                    about.add((_first(call, ImageRef), axis))
                    x, y = call.value
                    sides.append(Side(ast.unparse(part), (x, y)[axis], (x, y), _first(call, str) or ""))
                case float() as number:
                    sides.append(Side(ast.unparse(part), number))
        if len(sides) != len(parts) or len(signs) != len(node.ops) or len(about) != 1:
            return None
        image, axis = about.pop()
        if image is None:
            return None
        holds = all(
            says(first.value, other.value) for (_, says), (first, other) in zip(signs, pairwise(sides), strict=True)
        )
        values = " ".join(f"{side.value:g} {sign}" for side, (sign, _) in zip(sides, [*signs, ("", None)], strict=True))
        return Comparison(node.lineno, axis, tuple(sides), ast.unparse(node), values.rstrip(), holds, image)

    def unreached_nodes(self, tree: ast.Module) -> Iterator[ast.AST]:
        """Yields what a program did not come to, as far as comparisons that can be told decided it."""
        for node in ast.walk(tree):
            passed: Sequence[ast.AST] = ()
            match node:
                case ast.BoolOp(sign, values):
                    ends = [self._holds(value) is isinstance(sign, ast.Or) for value in values]
                    passed = values[ends.index(True) + 1 :] if any(ends) else ()
                case ast.If(test, body, other) if (holds := self._holds(test)) is not None:
                    passed = other if holds else body
                case ast.IfExp(test, one, two) if (holds := self._holds(test)) is not None:
                    passed = [two if holds else one]
            for part in passed:
                yield from ast.walk(part)

    def _holds(self, node: ast.expr) -> bool | None:
        compared = self.comparison(node) if isinstance(node, ast.Compare) else None
        return compared.holds if compared else None


def _position(call: Call) -> bool:
    """Whether a call gave a point."""
    value = call.value
    return (
        isinstance(value, list | tuple)
        and len(value) == 2
        and all(type(coordinate) in (int, float) for coordinate in value)
    )


def _first(call: Call, kind: type[T]) -> T | None:
    """Returns a call's first argument of a kind."""
    return next((value for value in call.arguments.values() if isinstance(value, kind)), None)


# -- on the picture ----------------------------------------------------------------------------------------------------


def comparison_view(comparison: Comparison, pictures: Sequence[Picture]) -> dict[str, Any]:
    """Returns what a template shows of one comparison: its points on their picture, places in percent of it.

    The name of the lowest point stands below it, so that two names do not meet.
    """
    points = {side.point: side for side in comparison.sides if side.point is not None}
    view = picture_view(comparison.image, pictures, SIDE)
    names = " and ".join(f"“{side.name}”" for side in points.values())
    lowest = min(points, key=lambda point: point[1]) if len(points) > 1 else None
    across = [100 * side.value / GRID for side in comparison.sides]
    marks: list[dict[str, Any]] = []
    for point, side in points.items():
        x, top = spot(point)
        left = min(max(x - LABEL / 2, 0.0), 100.0 - LABEL)
        name = side.name if len(side.name) <= MOST_NAME else f"{side.name[: MOST_NAME - 1]}…"
        places = {"spot": (x, top), "left": round(left, 2), "top": top, "below": point == lowest}
        marks.append({"name": name, "coordinate": f"{side.source} = {side.value:g}", **places})
    return {
        "words": _words(comparison),
        "lines": [round(place if comparison.axis == 0 else 100 - place, 2) for place in across if 0 <= place <= 100],
        "marks": marks,
        "over": any(mark["top"] < EDGE and not mark["below"] for mark in marks),
        "under": any(mark["top"] > 100 - EDGE and mark["below"] for mark in marks),
        "picture": view._replace(alt=f"Positions of {names} in {view.alt}") if view.uri else view,
        "label": view.alt,
    }


def _words(comparison: Comparison) -> str:
    first, other, *more = comparison.sides
    if more or first.point is None or other.point is None:
        return ""
    if first.value == other.value:
        return f"“{first.name}” and “{other.name}” are level."
    less, greater = ("farther left", "farther right") if comparison.axis == 0 else ("lower", "higher")
    return f"“{first.name}” is {less if first.value < other.value else greater} than “{other.name}”."
