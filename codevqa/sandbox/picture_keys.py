"""Whether a program keeps pictures as keys of a dict or in a set, which handles of the interpreter cannot be."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..primitives import PrimitiveSet

__all__ = ["has_picture_keys"]

_HASHING = frozenset(("Counter", "OrderedDict", "add", "dict", "frozenset", "fromkeys", "get", "set", "setdefault"))
_PASSING = frozenset(("filter", "list", "reversed", "sorted", "tuple"))
_HASHES = (ast.Call, ast.Dict, ast.DictComp, ast.Set, ast.SetComp, ast.Subscript)
_BINDS = (ast.Assign, ast.For, ast.NamedExpr, ast.comprehension)
_ROUNDS = 3
"""How often names are looked for that hold what other names hold."""


def has_picture_keys(tree: ast.AST, primitives: PrimitiveSet) -> bool:
    """Says whether some picture of a program may have to be hashed; a wrong guess costs a little time only."""
    nodes = list(ast.walk(tree))
    hashed = [
        one
        for node in nodes
        if isinstance(node, _HASHES)
        for one in _hashed(node)
        if not isinstance(one, ast.Constant | ast.JoinedStr)
    ]
    if not hashed:
        return False
    nodes = [node for node in nodes if isinstance(node, _BINDS)]
    look = _Look(frozenset(one.name for one in primitives if "Image" in one.returns))
    for _ in range(_ROUNDS):
        for node in nodes:
            look.learn(node)
    return any(map(look.holds, hashed))


def _hashed(node: ast.AST) -> Iterator[ast.expr]:
    """Yields the expressions whose values a node hashes, or may."""
    match node:
        case ast.Dict(keys):
            yield from (key for key in keys if key is not None)
        case ast.Set(items):
            yield from items
        case ast.DictComp(item) | ast.SetComp(item):
            yield item
        case ast.Subscript(_, place):
            yield place
        case ast.Call(ast.Name(name) | ast.Attribute(attr=name), args) if name in _HASHING:
            yield from args


class _Look:
    def __init__(self, giving: frozenset[str]) -> None:
        self._giving = giving
        self._names = {"img", "images"}
        """Names that hold a picture, or several."""

    def learn(self, node: ast.AST) -> None:
        match node:
            case ast.For(target, items) | ast.comprehension(target, items):
                self._bind(target, items)
            case ast.Assign([target], value) | ast.NamedExpr(target, value):
                self._bind(target, value)

    def _bind(self, target: ast.expr, value: ast.expr) -> None:
        match target, value:
            case ast.Tuple([_, inner]), ast.Call(ast.Name("enumerate"), [items, *_]):
                self._bind(inner, items)
            case ast.Tuple(parts), ast.Call(ast.Name("zip"), items):
                for part, item in zip(parts, items, strict=False):
                    self._bind(part, item)
            case ast.Name(name), _ if self.holds(value):
                self._names.add(name)
            case ast.Tuple(parts) | ast.List(parts), _ if self.holds(value):
                self._names |= {part.id for part in parts if isinstance(part, ast.Name)}

    def holds(self, node: ast.expr) -> bool:
        """Whether a value is, or holds, a picture."""
        match node:
            case ast.Name(name):
                return name in self._names
            case ast.Subscript(inner) | ast.Starred(inner) | ast.ListComp(inner) | ast.GeneratorExp(inner):
                return self.holds(inner)
            case ast.SetComp(inner):
                return self.holds(inner)
            case ast.List(parts) | ast.Tuple(parts):
                return any(map(self.holds, parts))
            case ast.IfExp(_, one, other) | ast.BinOp(one, _, other):
                return self.holds(one) or self.holds(other)
            case ast.Call(ast.Name(name), args):
                passing = name in _PASSING or name in ("enumerate", "max", "min", "next", "zip")
                return name in self._giving or (passing and any(map(self.holds, args)))
        return False
