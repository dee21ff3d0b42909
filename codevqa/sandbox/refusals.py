"""Forms that the interpreter would run otherwise than CPython: a program with one is refused before its first call."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator, Mapping

from ..core.errors import ProgramSyntaxError

LAZY = frozenset(("map", "filter", "zip", "enumerate", "reversed"))
"""Builtins that work through their argument at once here, as generator expressions do."""
_PURE = frozenset(("abs", "bool", "chr", "float", "int", "len", "ord", "repr", "round", "str", "tuple"))
_KINDS = frozenset(("str", "dict", "list", "set", "int", "float", "tuple"))
_CONSUMERS = frozenset(
    ("all", "any", "dict", "deque", "frozenset", "list", "max", "min", "next", "print", "set", "sorted", "sum", "tuple")
) | {"Counter", "OrderedDict", "extend", "join", "update", "reduce", "fsum", "prod"}
"""Functions and methods that come to the end of what they are passed."""
_MUTATORS = frozenset(
    ("add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem", "popleft", "remove")
) | {"reverse", "setdefault", "sort", "update"}
_DUNDERS = frozenset((
    "__add__", "__call__", "__contains__", "__enter__", "__eq__", "__exit__", "__getitem__", "__hash__", "__init__",
    "__iter__", "__mul__", "__next__", "__radd__", "__repr__", "__setitem__", "__str__", "__sub__",
))  # fmt: skip
_MODULES = {
    "operator": "Write a lambda.",
    "statistics": "Write sum(xs) / len(xs), sorted(xs)[len(xs) // 2], or max(xs, key=xs.count).",
    "string": "Write the characters, or use str.isalpha and the like.",
}
_PLAIN = "Write plain functions and methods."
_AS_LIST = "Write a list: [...] or list(...)."
_COPY = "Loop over a copy: list(...)."
Parents = Mapping[ast.AST, ast.AST]


def refuse(node: ast.AST, what: str, hint: str) -> ProgramSyntaxError:
    """Returns the error of a program that has such a form."""
    return ProgramSyntaxError(f"programs cannot use {what}.", line=getattr(node, "lineno", None), hint=hint)


def refuse_forms(parents: Parents, bound: set[str]) -> None:
    """Looks for such forms.

    Raises:
        ProgramSyntaxError: there is one.
    """
    own = {node.name: node for node in parents if isinstance(node, ast.FunctionDef)}
    texts = "args" in {node.attr for node in parents if isinstance(node, ast.Attribute)}
    for node in parents:
        match node:
            case ast.FunctionDef(name) if _is_special(name) and name not in _DUNDERS:
                raise refuse(node, f"the method {name}", _PLAIN)
            case ast.ClassDef() if any(_class_names(node)):
                raise refuse(node, "special names in a class", _PLAIN)
            case ast.Delete():
                raise refuse(node, "'del'", "Write x.pop(key), or give the name another value.")
            case ast.Import() | ast.ImportFrom() if name := _module(node):
                raise refuse(node, f"the module {name}", _MODULES[name])
            case ast.Call(ast.Name(name), args) if name.endswith(("Error", "Exception")) and name not in bound:
                plain = len(args) < 2 and not any(isinstance(argument, ast.Starred) for argument in args)
                if not plain or (args and not is_text(args[0]) and (texts or name == "KeyError")):
                    raise refuse(node, f"{name} with other arguments than one text", "Raise ValueError(f'...').")
            case ast.Compare(left, ops, others) if any(isinstance(op, ast.Is | ast.IsNot) for op in ops):
                _refuse_identity(node, [left, *others])
            case ast.GeneratorExp() | ast.Call(ast.Name("map" | "filter" | "zip" | "enumerate" | "reversed")):
                if isinstance(node, ast.GeneratorExp) or (
                    isinstance(node.func, ast.Name) and node.func.id not in bound
                ):
                    _refuse_kept(node, parents, bound, own)
            case ast.For() if _may_change(node, parents, own):
                raise refuse(node, "enumerate, zip and the like over what the loop changes", _COPY)


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _module(node: ast.Import | ast.ImportFrom) -> str:
    """Returns the module of :data:`_MODULES` that is imported; empty text where none is."""
    names = [node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
    return next((name for name in names if name in _MODULES), None) or ""


def _name(node: ast.AST) -> str:
    """Returns the name of what is called; empty text where it has none."""
    return node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""


def _class_names(node: ast.ClassDef) -> Iterator[str]:
    for part in node.body:
        for target in part.targets if isinstance(part, ast.Assign) else ():
            if isinstance(target, ast.Name) and _is_special(target.id):
                yield target.id


def is_text(node: ast.expr) -> bool:
    """Whether an expression is sure to be a text."""
    match node:
        case ast.Constant(str()) | ast.JoinedStr() | ast.Call(ast.Name("str")):
            return True
        case ast.BinOp(left, ast.Add() | ast.Mod(), right):
            return is_text(left) or (isinstance(node.op, ast.Add) and is_text(right))
    return False


def _refuse_identity(node: ast.Compare, sides: list[ast.expr]) -> None:
    if is_singular(sides[-1]) or (is_singular(sides[0]) and len(sides) == 2):
        return
    if len(sides) > 2:
        raise refuse(node, "'is' in a chain", "Write two comparisons with 'and'.")
    if any(isinstance(side, ast.Constant | ast.Tuple | ast.JoinedStr | ast.BinOp) for side in sides):
        raise refuse(node, "'is' for texts and numbers", "Write ==.")


def is_singular(node: ast.expr) -> bool:
    """Whether an expression is None, True or False."""
    return isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, bool))


def is_plain_function(node: ast.expr, bound: set[str]) -> bool:
    """Whether a function that is named has no effects."""
    match node:
        case ast.Constant(None):
            return True
        case ast.Name(name):
            return name in _PURE - bound
        case ast.Attribute(ast.Name(kind), _):
            return kind in _KINDS - bound
        case ast.Attribute(_, "get"):
            return True
        case ast.Lambda(_, body):
            return not has_effects(body, bound)
    return False


def has_effects(node: ast.AST, bound: set[str]) -> bool:
    """Whether an expression may call a primitive, change something or say anything."""
    for part in ast.walk(node):
        match part:
            case ast.NamedExpr():
                return True
            case ast.Call(ast.Name(name)) if name not in _PURE - bound:
                return True
            case ast.Call(ast.Attribute(_, name)) if name in _MUTATORS or name in bound:
                return True
            case ast.Call(func) if not isinstance(func, ast.Name | ast.Attribute):
                return True
    return False


def _refuse_kept(node: ast.AST, parents: Parents, bound: set[str], own: Mapping[str, ast.FunctionDef]) -> None:
    """Refuses what gives its values one by one, where a program could tell that it gives them all at once."""
    what = "a generator expression" if isinstance(node, ast.GeneratorExp) else ""
    parent = parents[node]
    asked = isinstance(node, ast.GeneratorExp)
    if isinstance(node, ast.Call):
        what = f"{_name(node)}()"
        asked = _name(node) in ("map", "filter") and not (node.args and is_plain_function(node.args[0], bound))
    if isinstance(parent, ast.Starred):
        parent = parents[parent]
        if isinstance(parent, ast.List | ast.Tuple | ast.Set):
            return
    match parent:
        case ast.For(_, iterator) | ast.comprehension(_, iterator) if iterator is node and not asked:
            return
        case ast.Assign([ast.Tuple() | ast.List()]):
            return
        case ast.Call(ast.Name(name) | ast.Attribute(_, name), args, keywords) if name in _CONSUMERS and (
            name not in own
            and node in [argument.value if isinstance(argument, ast.Starred) else argument for argument in args]
        ):
            function = next((keyword.value for keyword in keywords if keyword.arg == "key"), None)
            late = name in ("max", "min") and function is not None and not is_plain_function(function, bound)
            if not (late and (asked if not isinstance(node, ast.GeneratorExp) else has_effects(node, bound))):
                return
        case ast.Call(ast.Name(name)) if name in LAZY - bound and not asked:
            return
    raise refuse(node, f"{what} here", _AS_LIST)


def _may_change(loop: ast.For, parents: Parents, own: Mapping[str, ast.FunctionDef]) -> bool:
    """Whether a loop may change what it goes through by way of :data:`LAZY`."""
    match loop.iter:
        case ast.Call(ast.Name(name), args) if name in LAZY and any(
            not isinstance(argument, ast.Call) for argument in args
        ):
            pass
        case _:
            return False
    inside = [part for statement in loop.body for part in ast.walk(statement)]
    called = {part.func.id for part in inside if isinstance(part, ast.Call) and isinstance(part.func, ast.Name)}
    called |= {part.func.attr for part in inside if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute)}
    passed = False
    if called & own.keys():
        everywhere = [part for function in own.values() for part in ast.walk(function)]
        names = {
            parameter.arg
            for function in own.values()
            for parameter in ast.walk(function.args)
            if isinstance(parameter, ast.arg)
        }
        passed = not names.isdisjoint(_changed_names(everywhere))
        inside += everywhere
    match loop.iter, loop.target:
        case ast.Call(ast.Name("enumerate")), ast.Tuple([ast.Name(place), *_]):
            names = set(_changed_names(inside, (place,)))
        case _:
            names = set(_changed_names(inside))
    for _ in range(2):
        for part in parents:
            match part:
                case ast.Assign([*targets], value):
                    aliases = {target.id for target in targets if isinstance(target, ast.Name)}
                    aliases |= {other.id for other in ast.walk(value) if isinstance(other, ast.Name)}
                    same = len(targets) > 1 or isinstance(value, ast.Name | ast.Subscript | ast.IfExp | ast.BoolOp)
                    names |= aliases if same and not names.isdisjoint(aliases) else set()
    return passed or any(isinstance(part, ast.Name) and part.id in names for part in ast.walk(loop.iter))


def _changed_names(parts: list[ast.AST], places: Container[str] = ()) -> Iterator[str]:
    """Yields the names of what is changed in place, elsewhere than at some places."""
    for part in parts:
        whole: ast.AST | None = None
        match part:
            case ast.Call(ast.Attribute(value, name)) if name in _MUTATORS:
                whole = value
            case ast.AugAssign(target):
                whole = target
            case ast.Subscript(value, place, ast.Store() | ast.Del()) if not (
                isinstance(place, ast.Name) and place.id in places and isinstance(part.ctx, ast.Store)
            ):
                whole = value
        while isinstance(whole, ast.Attribute | ast.Subscript):
            whole = whole.value
        if isinstance(whole, ast.Name):
            yield whole.id


def is_plain(node: ast.expr) -> bool:
    """Whether an expression is sure to be a number, a text or a list."""
    match node:
        case ast.Constant() | ast.JoinedStr() | ast.Compare() | ast.List() | ast.ListComp():
            return True
        case ast.Call(ast.Name("abs" | "float" | "int" | "len" | "round" | "str" | "sum")):
            return True
        case ast.IfExp(_, one, other):
            return is_plain(one) and is_plain(other)
    return False
