"""Which calls a program will make, read off its source: a pure function from a program and its pictures to calls.

A small abstract interpreter walks the program once. It follows what it can know, the question's pictures and constants,
through assignments, loops, comprehensions and branches, and notes every call of a wanted primitive on the way, as
certain or only likely. A wrong guess costs a call made in vain and nothing else, so it models neither errors nor
aliases.
"""

from __future__ import annotations

import ast
import contextlib
import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from ..primitives.kinds import Image
from ..sandbox.program_shape import MARK, marked, parse
from .call_plan_values import MAX_ITEMS, UNKNOWN, EnoughError, Planned, Values, added, is_scalar

__all__ = ["Planned", "plan"]

_Way: TypeAlias = Literal["on", "continue", "break", "exit"]
_Ways: TypeAlias = frozenset[_Way]
_ON: _Ways = frozenset(("on",))
_BREAK: _Ways = frozenset(("break",))
_EXIT: _Ways = frozenset(("exit",))


def plan(source: str, images: Sequence[Image], wanted: Collection[str]) -> list[Planned]:
    """Returns the calls of wanted primitives whose arguments can be told before the program runs, in its order.

    Programs that differ in nothing but texts passed straight to these primitives make the same calls with other texts:
    only the first of them is walked.

    Args:
        source: the program.
        images: the question's pictures.
        wanted: names of primitives.
    """
    known = marked(source, wanted)
    if known is None:
        return _walked(source, images, wanted)
    like, texts = known
    return [
        Planned(
            one.name,
            tuple(_filled(held, images, texts) for held in one.args),
            {name: _filled(held, images, texts) for name, held in one.kwargs.items()},
            one.certain,
        )
        for one in _like(like, len(images), frozenset(wanted))
    ]


@functools.lru_cache(maxsize=1024)
def _like(source: str, images: int, wanted: frozenset[str]) -> list[Planned]:
    nobody: Any = None  # pixels are never looked at
    return _walked(source, [Image(number, nobody) for number in range(1, images + 1)], wanted)


def _filled(held: Any, images: Sequence[Image], texts: Sequence[str]) -> Any:
    if isinstance(held, Image):
        return images[held.index - 1]
    if isinstance(held, list | tuple):
        return type(held)(_filled(item, images, texts) for item in held)
    return texts[int(held[len(MARK) :])] if isinstance(held, str) and held.startswith(MARK) else held


def _walked(source: str, images: Sequence[Image], wanted: Collection[str]) -> list[Planned]:
    tree = parse(source)
    if tree is None:
        return []
    walk = _Walk(images, wanted)
    with contextlib.suppress(EnoughError):
        walk.block(tree.body, True)
    return walk.found


class _Walk(Values):
    """Walks statements; each method returns the ways in which control may leave what it walked."""

    def block(self, body: Sequence[ast.stmt], certain: bool) -> _Ways:
        ways = _ON
        for node in body:
            if "on" not in ways:
                break
            self.step()
            handler = _STATEMENTS.get(type(node), _Walk._unfollowed)
            ways = (ways - _ON) | handler(self, node, certain and ways == _ON)
        return ways

    def _expression(self, node: ast.Expr, certain: bool) -> _Ways:
        self.value(node.value, certain)
        return _ON

    def _assign(self, node: ast.Assign, certain: bool) -> _Ways:
        held = self.value(node.value, certain)
        for target in node.targets:
            self.bind(target, held)
        return _ON

    def _annotated(self, node: ast.AnnAssign, certain: bool) -> _Ways:
        if node.value is not None:
            self.bind(node.target, self.value(node.value, certain))
        return _ON

    def _augmented(self, node: ast.AugAssign, certain: bool) -> _Ways:
        right = self.value(node.value, certain)
        left = self.env.get(node.target.id, UNKNOWN) if isinstance(node.target, ast.Name) else UNKNOWN
        self.bind(node.target, added(node.op, left, right))
        return _ON

    def _if(self, node: ast.If, certain: bool) -> _Ways:
        test = self.value(node.test, certain)
        if test is not UNKNOWN:
            return self.block(node.body if test else node.orelse, certain)
        before = dict(self.env)
        ways = self.block(node.body, False)
        after, self.env = self.env, before
        ways |= self.block(node.orelse, False)
        for name in after.keys() | self.env.keys():
            mine, other = self.env.get(name, UNKNOWN), after.get(name, UNKNOWN)
            # What neither branch assigned is the same object still.
            same = mine is other or (is_scalar(mine) and type(mine) is type(other) and mine == other)
            self.env[name] = mine if same else UNKNOWN
        return ways

    def _for(self, node: ast.For, certain: bool) -> _Ways:
        items = self.value(node.iter, certain)
        if not isinstance(items, list | tuple | str):
            self.bind(node.target, UNKNOWN)
            ways = self.block(node.body, False)
            self._forget(node.body)
            return _ON | (ways & _EXIT)
        left: _Ways = frozenset()
        for item in list(items)[:MAX_ITEMS]:
            self.bind(node.target, item)
            ways = self.block(node.body, certain and not left)
            left |= ways & (_BREAK | _EXIT)
            if not ways - left:  # it never comes to the next turn
                return (left & _EXIT) | (_ON if "break" in left else frozenset())
        ways = self.block(node.orelse, certain and not left)
        return ways | (left & _EXIT) | (_ON if "break" in left else frozenset())

    def _while(self, node: ast.While, certain: bool) -> _Ways:
        test = self.value(node.test, certain)
        if test is not UNKNOWN and not test:
            return _ON
        ways = self.block(node.body, certain and test is not UNKNOWN)  # the first turn; later ones may differ
        self._forget(node.body)
        return _ON | (ways & _EXIT)

    def _try(self, node: ast.Try, certain: bool) -> _Ways:
        ways = self.block([*node.body, *node.orelse], certain)
        self._forget(node.handlers)
        return (ways - _ON) | self.block(node.finalbody, certain) if node.finalbody else ways | _ON

    def _with(self, node: ast.With, certain: bool) -> _Ways:
        for item in node.items:
            self.value(item.context_expr, certain)
            if item.optional_vars is not None:
                self.bind(item.optional_vars, UNKNOWN)
        return self.block(node.body, certain)

    def _return(self, node: ast.Return, certain: bool) -> _Ways:
        if node.value is not None:
            self.value(node.value, certain)
        return _EXIT

    def _raise(self, node: ast.Raise, certain: bool) -> _Ways:
        return _EXIT

    def _break(self, node: ast.Break, certain: bool) -> _Ways:
        return _BREAK

    def _continue(self, node: ast.Continue, certain: bool) -> _Ways:
        return frozenset(("continue",))

    def _assert(self, node: ast.Assert, certain: bool) -> _Ways:
        self.value(node.test, certain)
        return _ON

    def _unfollowed(self, node: ast.stmt, certain: bool) -> _Ways:
        self._forget([node])
        return _ON

    def _forget(self, nodes: Sequence[ast.AST]) -> None:
        """Marks every name that these nodes may bind as unknown."""
        for node in nodes:
            for one in ast.walk(node):
                self.step()
                match one:
                    case ast.Name(name, ast.Store() | ast.Del()):
                        self.env[name] = UNKNOWN
                    case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                        self.env[name] = UNKNOWN
                    case ast.alias(name, renamed):
                        self.env[renamed or name.partition(".")[0]] = UNKNOWN
                    case _:
                        pass


_STATEMENTS: Mapping[type[ast.stmt], Callable[[_Walk, Any, bool], _Ways]] = {
    ast.Expr: _Walk._expression,
    ast.Assign: _Walk._assign,
    ast.AnnAssign: _Walk._annotated,
    ast.AugAssign: _Walk._augmented,
    ast.If: _Walk._if,
    ast.For: _Walk._for,
    ast.While: _Walk._while,
    ast.Try: _Walk._try,
    ast.With: _Walk._with,
    ast.Return: _Walk._return,
    ast.Raise: _Walk._raise,
    ast.Break: _Walk._break,
    ast.Continue: _Walk._continue,
    ast.Assert: _Walk._assert,
}
