"""Programs as the interpreter can run them: forms that it lacks become calls of :mod:`.stand_ins`.

The tree of the program is changed and written down again, with the place that each of its parts had, so that errors and
calls keep their lines. A program without any of the forms is not even parsed. Forms that would cost too much are left,
and :mod:`.error_mapping` says what to write instead.
"""

from __future__ import annotations

import ast
import bisect
import collections
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

from ..core.program_tree import parse, syntax_tree
from ..primitives import PrimitiveSet
from .stand_ins import MODULES, STAND_INS

_KINDS = (str, list, dict, set, tuple, frozenset, int, float)
_METHODS = frozenset(
    name for kind in (*_KINDS, collections.deque) for name in dir(kind) if not name.startswith("_")
) | {"findall", "fullmatch", "group", "groups", "match", "most_common", "search"}
_KIND_NAMES = frozenset(kind.__name__ for kind in _KINDS)
_LAZY = frozenset(("map", "filter", "zip", "enumerate", "reversed"))
_WORDS = (
    *("def ", "del ", "lambda", "round(", ".sort(", "yield"),
    *MODULES,
    *(f"{name}." for name in _KIND_NAMES),
)
_KEYS = re.compile(r"(?:set|dict|Counter|fromkeys)\(|\{(?!\w+\})")
_NAMED = re.compile(r"\.\s*(\w+)\b(?!\s*\()")
_ASSIGNED = re.compile(rf"(?:=|return)\s*(?:(?:{'|'.join(_LAZY)})\(|\()")
_CALLED_LATER = (ast.Assign, ast.Call, ast.Dict, ast.List, ast.NamedExpr, ast.Return, ast.Tuple, ast.keyword)
"""Where a method that is named is meant, not a call that was forgotten."""
_KEPT = (ast.AnnAssign, ast.Assign, ast.Lambda, ast.NamedExpr, ast.Return)
"""Where a one-shot iterator is kept, so that it may be asked twice."""


@dataclass(frozen=True)
class Rewritten:
    """A program as the interpreter runs it."""

    source: str
    needs: tuple[str, ...] = ()
    """Names of stand-ins that must have been run."""
    places: tuple[tuple[int, int, int], ...] = ()
    """Line and column of each part, and the line it had in the program; empty where the program is as it was."""

    @property
    def keyed(self) -> bool:
        """Whether it may keep pictures as keys."""
        return "pictures" in self.needs

    @property
    def before(self) -> str:
        """What must have been run."""
        return "".join(STAND_INS[name] for name in self.needs)

    def line(self, line: int, column: int) -> int:
        """Returns the line that a place had in the program.

        Args:
            line: from 1.
            column: from 0.
        """
        found = bisect.bisect_right(self.places, (line, column, 1 << 60))
        return self.places[found - 1][2] if found else line


def rewrite(source: str, primitives: PrimitiveSet | None = None) -> Rewritten:
    """Returns a program as the interpreter can run it.

    Args:
        source: the program; one that does not parse stays as it is.
        primitives: what it may call, where it is going to run; nothing for the static check, which needs to see the
            calls of primitives as they are.
    """
    # Any dict or set may have pictures as keys, which handles of the interpreter cannot be.
    keyed = primitives is not None and _KEYS.search(source) is not None
    tree = parse(source) if keyed or _has_forms(source) else None
    if tree is None:
        return Rewritten(source)
    try:
        bound = set(bound_names(tree))
        names = frozenset(primitives.names if keyed and primitives is not None else ())
        called = {
            node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        keyed = keyed and bound.isdisjoint(names & called)  # a variable "count" is no primitive
        forms = _Forms(tree, bound, names - bound if keyed else frozenset())
        tree = ast.fix_missing_locations(forms.visit(tree))
        needs = (*sorted(forms.needs), *(("pictures",) if keyed else ()))
        if not forms.changed:
            return Rewritten(source, needs)
        text = ast.unparse(tree)
        return Rewritten(text, needs, tuple(sorted(_places(syntax_tree(text), tree))))
    except (RecursionError, SyntaxError, ValueError):  # too deep, or a number with too many digits
        return Rewritten(source)


def _has_forms(source: str) -> bool:
    """Whether a text may have a form to be rewritten; most have none, and are not looked at further."""
    return (
        any(word in source for word in _WORDS)
        or not _METHODS.isdisjoint(_NAMED.findall(source))
        or _ASSIGNED.search(source) is not None
    )


def _places(new: ast.AST, old: ast.AST) -> Iterator[tuple[int, int, int]]:
    """Yields where each part of a program stands, and the line that it had."""
    waiting = [(new, old)]
    for one, was in waiting:
        if isinstance(one, ast.expr | ast.stmt) and isinstance(was, ast.expr | ast.stmt):
            yield one.lineno, one.col_offset, was.lineno
        if not isinstance(one, ast.JoinedStr):  # what is within has no sure place before Python 3.12
            waiting += zip(ast.iter_child_nodes(one), ast.iter_child_nodes(was), strict=False)


def bound_names(tree: ast.AST) -> Iterator[str]:
    """Yields every name that the program gives a meaning of its own."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(name, ast.Store() | ast.Del()) | ast.arg(name) | ast.ClassDef(name) | ast.FunctionDef(name):
                yield name
            case ast.alias(name, other):
                yield other or name.split(".")[0]
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                yield name


class _Forms(ast.NodeTransformer):
    """Replaces the forms of one program."""

    def __init__(self, tree: ast.AST, bound: set[str], primitives: frozenset[str]) -> None:
        self.needs: set[str] = set()
        self.changed = False
        self._bound = bound
        self._primitives = primitives
        self._parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        self._functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        self._yields: set[ast.AST] = set()

    def visit(self, node: ast.AST) -> Any:
        """Returns what takes the place of a node."""
        kept = self._is_kept(node, self._parents.get(node))
        new = super().visit(node)
        if kept:
            new = ast.ListComp(node.elt, node.generators) if isinstance(node, ast.GeneratorExp) else new
            new = _call("iter", new)
        if new is not node:
            self.changed = True
            for one in new if isinstance(new, list) else [new]:
                ast.copy_location(one, node)
        return new

    def visit_Import(self, node: ast.Import) -> Any:
        """Gives modules that the interpreter lacks their stand-ins."""
        return self._import(node, {one: f"vqa_{one.name}" for one in node.names if one.name in MODULES})

    def visit_ImportFrom(self, node: ast.ImportFrom) -> Any:
        """Does the same for what is in them."""
        there = MODULES.get(node.module or "", "").split()
        return self._import(node, {one: f"vqa_{node.module}.{one.name}" for one in node.names if one.name in there})

    def _import(self, node: ast.Import | ast.ImportFrom, found: dict[ast.alias, str]) -> Any:
        if not found:
            return node
        self.needs.update(stand_in.removeprefix("vqa_").partition(".")[0] for stand_in in found.values())
        said = [f"{one.asname or one.name} = {stand_in}" for one, stand_in in found.items()]
        node.names = [one for one in node.names if one not in found]
        return [*([node] if node.names else []), *_written("\n".join(said), node)]

    def visit_Delete(self, node: ast.Delete) -> Any:
        """Deletes by calls; a name as ``except`` does."""
        said: list[ast.stmt] = []
        for target in chain.from_iterable(one.elts if isinstance(one, ast.Tuple) else [one] for one in node.targets):
            match target:
                case ast.Subscript(whole, place):
                    if isinstance(place, ast.Slice):
                        ends = (place.lower, place.upper, place.step)
                        place = _call("slice", *(end or ast.Constant(None) for end in ends))
                    self.needs.add("del")
                    said.append(ast.Expr(_call("vqa_del", self.visit(whole), self.visit(place))))
                case ast.Name(name):
                    said += _written(f"try:\n {name}\n raise ValueError\nexcept ValueError as {name}:\n pass", node)
                case _:
                    return node
        return said

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        """Has a generator run to its end at once; one whose ``yield`` has a value is left."""
        found = [one for one in _own(node) if isinstance(one, ast.Yield | ast.YieldFrom)]
        alone = all(isinstance(self._parents[one], ast.Expr) for one in found)
        if found and alone and not isinstance(self._parents[node], ast.ClassDef):
            self.needs.add("generator")
            self._yields.update(found)
            node.decorator_list.append(ast.Name("vqa_generator", ast.Load()))
            self.changed = True
        return self.generic_visit(node)

    def visit_Yield(self, node: ast.Yield | ast.YieldFrom) -> Any:
        """Keeps what a generator gives."""
        self.generic_visit(node)
        name = "vqa_yields" if isinstance(node, ast.YieldFrom) else "vqa_yield"
        return _call(name, node.value or ast.Constant(None)) if node in self._yields else node

    visit_YieldFrom = visit_Yield

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        """Has methods that are named and called later be functions."""
        parent = self._parents[node]
        of_kind = isinstance(node.value, ast.Name) and node.value.id in _KIND_NAMES - self._bound
        self.generic_visit(node)
        if not isinstance(node.ctx, ast.Load) or node.attr not in _METHODS or node.attr == "fromkeys":
            return node
        if not (of_kind if _is_called(node, parent) else isinstance(parent, _CALLED_LATER)):
            return node
        self.needs.add("method")
        (called,) = _written(f"lambda o, /, *a, **k: o.{node.attr}(*a, **k)", node)
        assert isinstance(called, ast.Expr)
        return _call("vqa_method", node.value, ast.Constant(node.attr), called.value)

    def visit_Call(self, node: ast.Call) -> Any:
        """Has ``sort`` call its key from here, and primitives take pictures that can be keys."""
        keywords = {one.arg for one in node.keywords}
        match node.func:
            case ast.Attribute(whole, "sort") if "key" in keywords:
                self.needs.add("sort")
                node.func, node.args = ast.Name("vqa_sort", ast.Load()), [whole, *node.args]
                self.changed = True
            case ast.Name("round") if "round" not in self._bound and len(node.args) + len(keywords) > 1:
                self.needs.add("round")
            case ast.Name(name) if name in self._primitives:
                self.generic_visit(node)
                node.args = list(map(_out, node.args))
                for one in node.keywords:
                    one.value = _out(one.value)
                return _call("vqa_in", node)
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> Any:
        """Has a primitive that is not called here take such pictures too."""
        if node.id in self._primitives and not _is_called(node, self._parents[node]):
            (function,) = _written(f"lambda *a, **k: vqa_in({node.id}(*vqa_out(a), **vqa_out(k)))", node)
            return function.value if isinstance(function, ast.Expr) else node
        return node

    def _is_kept(self, node: ast.AST, parent: ast.AST | None) -> bool:
        """Whether something gives its values once only, and may be asked twice."""
        match node:
            case ast.GeneratorExp():
                pass
            case ast.Call(ast.Name(name)) if name in _LAZY - self._bound:
                pass
            case _:
                return False
        if "iter" in self._bound:
            return False
        match parent:
            case ast.Call(ast.Name(name)):
                return name in self._functions and parent.func is not node
            case ast.Assign(targets=[ast.Name("answer")]):
                return False  # lists do as well
            case ast.Assign(targets=targets):
                return all(isinstance(target, ast.Name) for target in targets)
        return isinstance(parent, _KEPT)


def _is_called(node: ast.AST, parent: ast.AST) -> bool:
    return isinstance(parent, ast.Call) and parent.func is node


def _call(name: str, *args: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), list(args), [])


def _out(given: ast.expr) -> ast.expr:
    """Returns an argument of a primitive with handles for pictures, where it may hold some."""
    if isinstance(given, ast.Starred):
        return ast.Starred(_out(given.value), ast.Load())
    return given if isinstance(given, ast.Constant | ast.JoinedStr) else _call("vqa_out", given)


def _written(text: str, node: ast.AST) -> list[ast.stmt]:
    """Returns statements that stand where a node stood."""
    found: list[ast.stmt] = syntax_tree(text).body
    for part in chain.from_iterable(map(ast.walk, found)):
        ast.copy_location(part, node)
    return found


def _own(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """Yields what is in a function and in none within it."""
    waiting: list[ast.AST] = [*function.body]
    for node in waiting:
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            waiting += ast.iter_child_nodes(node)
