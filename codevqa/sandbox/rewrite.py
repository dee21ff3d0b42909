"""Programs as the interpreter can run them: forms that it lacks become calls of :mod:`.stand_ins`.

The tree of the program is changed and written down again, with the place that each of its parts had, so that errors and
calls keep their lines. Forms that would cost too much are refused (:mod:`.refusals`).
"""

from __future__ import annotations

import ast
import bisect
import collections
from dataclasses import dataclass
from typing import Any

from ..core.errors import ProgramSyntaxError
from ..primitives import PrimitiveSet
from .program_tree import bound_names, compile_error, parse, parse_at, part_places, syntax_tree
from .refusals import Parents, is_plain, is_plain_function, is_singular, is_text, refuse, refuse_forms
from .stand_ins import STAND_INS

_KINDS = (str, list, dict, set, tuple, frozenset, int, float)
_METHODS = frozenset(
    name for kind in (*_KINDS, collections.deque) for name in dir(kind) if not name.startswith("_")
) | {"findall", "fullmatch", "group", "groups", "match", "most_common", "search"}
_KIND_NAMES = frozenset(kind.__name__ for kind in _KINDS)
_KEYED = frozenset(("Counter", "dict", "fromkeys", "set"))
"""What makes something that has keys, beside a display."""
_DISPLAYS = (ast.Dict, ast.DictComp, ast.Set, ast.SetComp)
_SCOPED = (ast.Global, ast.NamedExpr, ast.Nonlocal)
_CALLED_LATER = (ast.Assign, ast.Call, ast.Dict, ast.List, ast.NamedExpr, ast.Return, ast.Tuple, ast.keyword)
"""Where a method that is named is meant, not a call that was forgotten."""


@dataclass(frozen=True)
class Rewritten:
    """A program as the interpreter runs it."""

    source: str
    needs: tuple[str, ...] = ()
    """Names of stand-ins that must have been run."""
    places: tuple[tuple[int, int, int], ...] = ()
    """Line and column of each part, and the line it had in the program; empty where the program is as it was."""

    @property
    def has_picture_keys(self) -> bool:
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
        count = bisect.bisect_right(self.places, (line, column, 1 << 60))
        return self.places[count - 1][2] if count else line


def rewrite(source: str, primitives: PrimitiveSet | None = None) -> Rewritten:
    """Returns a program as the interpreter can run it.

    Args:
        source: the program; one that does not parse stays as it is.
        primitives: what it may call, where it is going to run; nothing for the static check, which needs to see the
            calls of primitives as they are.

    Raises:
        ProgramSyntaxError: it has a form that would mean something else than in Python.
    """
    tree = parse(source)
    if tree is None:
        return Rewritten(source)
    try:
        parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        bound = bound_names(tree)
        calls = [node.func for node in parents if isinstance(node, ast.Call)]
        called = {function.id for function in calls if isinstance(function, ast.Name)}
        makers = called | {function.attr for function in calls if isinstance(function, ast.Attribute)}
        names = frozenset(primitives.names if primitives is not None else ())
        # Any dict or set may have pictures as keys, which handles of the interpreter cannot be. A variable "count" is
        # no primitive.
        kinds = {type(node) for node in parents}
        keyed = not makers.isdisjoint(_KEYED) or not kinds.isdisjoint(_DISPLAYS)
        keyed = keyed and primitives is not None and bound.isdisjoint(names & called)
        forms = _Forms(parents, bound, names - bound if keyed else frozenset(), runs=primitives is not None)
        refuse_forms(parents, bound)
        wrong = None if kinds.isdisjoint(_SCOPED) else compile_error(tree)
        if wrong is not None:
            raise ProgramSyntaxError(f"{wrong.msg}.", line=wrong.lineno)
        tree = ast.fix_missing_locations(forms.visit(tree))
        needs = (*sorted(forms.needs), *(("pictures",) if keyed else ()))
        if not forms.changed:
            return Rewritten(source, needs)
        text = ast.unparse(tree)
        return Rewritten(text, needs, tuple(sorted(part_places(syntax_tree(text), tree))))
    except (RecursionError, SyntaxError, ValueError):  # too deep, or a number with too many digits
        return Rewritten(source)


class _Forms(ast.NodeTransformer):
    """Replaces the forms of one program."""

    def __init__(self, parents: Parents, bound: set[str], primitives: frozenset[str], *, runs: bool) -> None:
        self.needs: set[str] = set()
        self.changed = False
        self.parents = parents
        self._bound = bound
        self._primitives = primitives
        self._runs = runs
        self._searches = 0
        self._before: list[ast.stmt] = []
        """What the statement at hand needs before it."""

    def visit(self, node: ast.AST) -> Any:
        """Returns what takes the place of a node."""
        if isinstance(node, ast.stmt):
            outer, self._before = self._before, []
        new = super().visit(node)
        if isinstance(node, ast.stmt):
            new = [*self._before, *(new if isinstance(new, list) else [new])] if self._before else new
            self._before = outer
        if new is not node:
            self.changed = True
            for statement in new if isinstance(new, list) else [new]:
                ast.copy_location(statement, node) if not hasattr(statement, "lineno") else None
        return new

    def visit_Compare(self, node: ast.Compare) -> Any:
        """Rewrites ``is``: pictures are compared by their handles."""
        self.generic_visit(node)
        sides = [node.left, *node.comparators]
        if not self._runs or not isinstance(node.ops[0], ast.Is | ast.IsNot) or any(map(is_singular, sides)):
            return node
        self.needs.add("is")
        same = _call("vqa_is", *sides)
        return same if isinstance(node.ops[0], ast.Is) else ast.UnaryOp(ast.Not(), same)

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        """Rewrites ``+=`` and the like: sets and lists change in place, as in Python."""
        self.generic_visit(node)
        signs = (ast.Add, ast.Mult, ast.BitOr, ast.BitAnd, ast.BitXor, ast.Sub)
        if (
            not self._runs
            or not isinstance(node.op, signs)
            or (is_plain(node.value) and not isinstance(node.op, ast.Mult))
        ):
            return node
        if any(isinstance(part, ast.Call) for part in ast.walk(node.target)):
            return node
        self.needs.add("in_place")
        now = ast.parse(ast.unparse(node.target), mode="eval").body
        if isinstance(node.op, ast.Add):
            node.value = _call("vqa_added", now, node.value)
            self.changed = True
            return node
        return ast.Assign([node.target], _call("vqa_in_place", now, ast.BinOp(now, node.op, node.value)))

    def _end_search(self, node: ast.Call, name: str, generator: ast.expr) -> Any:
        """Moves a search through a generator expression into a function that returns at the first hit."""
        self.generic_visit(generator)
        node.args[1:] = [self.visit(argument) for argument in node.args[1:]]
        if isinstance(generator, ast.Call):  # map or filter
            function, items = generator.args
            item = ast.Name("vqa_item", ast.Load())
            kept = item if is_singular(function) else ast.Call(function, [item], [])
            mapped = isinstance(generator.func, ast.Name) and generator.func.id == "map"
            part = ast.comprehension(ast.Name("vqa_item", ast.Store()), items, [] if mapped else [kept], 0)
            generator = ast.copy_location(ast.GeneratorExp(kept if mapped else item, [part]), generator)
        assert isinstance(generator, ast.GeneratorExp)
        value = generator.elt
        self._searches += 1
        search = f"vqa_search{self._searches}"
        ends: dict[str, tuple[list[ast.stmt], str]] = {
            "any": ([ast.If(value, parse_at("return True", node), [])], "return False"),
            "all": ([ast.If(value, parse_at("pass", node), parse_at("return False", node))], "return True"),
            "next": ([ast.Return(ast.List([value], ast.Load()))], "return []"),
            "sum": (
                [
                    ast.Assign([ast.Name("vqa_value", ast.Store())], value),
                    *parse_at("0 + vqa_value\nvqa_values.append(vqa_value)", node),
                ],
                "return vqa_values",
            ),
        }
        body, end = ends[name]
        items = generator.generators[0].iter
        generator.generators[0].iter = ast.Name("vqa_items", ast.Load())
        for part in reversed(generator.generators):
            for test in reversed(part.ifs):
                body = [ast.If(test, body, [])]
            body = [ast.For(part.target, part.iter, body, [])]
        outer, scope = self._around(node)
        own = {part.id for each in generator.generators for part in ast.walk(each.target) if isinstance(part, ast.Name)}
        passed = sorted(outer - own)
        walrus = sorted({part.target.id for part in ast.walk(generator) if isinstance(part, ast.NamedExpr)})
        text = f"def {search}({', '.join(['vqa_items', *passed])}):\n vqa_values = []\n {end}"
        if walrus:
            inside = list(ast.walk(scope))
            globals_ = {name for part in inside if isinstance(part, ast.Global) for name in part.names}
            others = {name for part in inside if isinstance(part, ast.Nonlocal) for name in part.names}
            shared = isinstance(scope, ast.FunctionDef) and not globals_.issuperset(walrus)
            if isinstance(scope, ast.Lambda | ast.ClassDef) or (shared and not globals_.isdisjoint(walrus)):
                raise refuse(node, "':=' here", "Write a function with a for loop.")
            text = text.replace("\n", f"\n {'nonlocal' if shared else 'global'} {', '.join(walrus)}\n", 1)
            if shared and not others.issuperset(walrus):
                text = f"if False:\n {' = '.join(walrus)} = None\n{text}"
        lines = parse_at(text, node)
        function_node = lines[-1]
        assert isinstance(function_node, ast.FunctionDef)
        function_node.body[-1:-1] = body
        self._before += lines
        arguments = [items, *(ast.Name(variable, ast.Load()) for variable in passed)]
        if name == "next":
            self.needs.add("first")
            return _call("vqa_first", ast.Name(search, ast.Load()), ast.Tuple(arguments, ast.Load()), *node.args[1:])
        call = _call(search, *arguments)
        return call if name != "sum" else _call("sum", call)

    def _around(self, node: ast.AST) -> tuple[set[str], ast.AST]:
        """Returns the names that comprehensions and lambdas around an expression bind, and the scope it is in."""
        names: set[str] = set()
        scope: ast.AST | None = None
        child: ast.AST = node
        while True:
            parent = self.parents[child]
            match parent:
                case ast.Lambda():
                    names |= {parameter.arg for parameter in ast.walk(parent.args) if isinstance(parameter, ast.arg)}
                    scope = scope or parent
                case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                    parts = parent.generators
                    if isinstance(child, ast.comprehension):
                        parts = parts[: parts.index(child) + (node not in ast.walk(child.iter))]
                    for part in parts:
                        names |= {target.id for target in ast.walk(part.target) if isinstance(target, ast.Name)}
                case ast.FunctionDef() | ast.ClassDef() | ast.Module():
                    return names, scope or parent
            child = parent

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        """Turns a method that is named here and called later into a function."""
        parent = self.parents[node]
        of_kind = isinstance(node.value, ast.Name) and node.value.id in _KIND_NAMES
        self.generic_visit(node)
        if not isinstance(node.ctx, ast.Load) or node.attr not in _METHODS or node.attr == "fromkeys":
            return node
        if not (of_kind if _is_called(node, parent) else isinstance(parent, _CALLED_LATER)):
            return node
        self.needs.add("method")
        (called,) = parse_at(f"lambda o, /, *a, **k: o.{node.attr}(*a, **k)", node)
        assert isinstance(called, ast.Expr)
        return _call("vqa_method", node.value, ast.Constant(node.attr), called.value)

    def visit_Call(self, node: ast.Call) -> Any:
        """Rewrites ``sort`` with a key, and calls of primitives with pictures that may be keys."""
        keywords = {keyword.arg for keyword in node.keywords}
        match node.func:
            case ast.Attribute(whole, "sort") if "key" in keywords:
                self.needs.add("sort")
                node.func, node.args = ast.Name("vqa_sort", ast.Load()), [whole, *node.args]
                self.changed = True
            case ast.Name("round") if "round" not in self._bound and len(node.args) + len(keywords) > 1:
                self.needs.add("round")
            case ast.Name("any" | "all" | "next" | "sum" as name) if (
                self._runs and name not in self._bound and node.args and self._is_search(name, node)
            ):
                return self._end_search(node, name, node.args[0])
            case ast.Name(name) if name.endswith(("Error", "Exception")) and name not in self._bound:
                self.generic_visit(node)
                if node.args and not is_text(node.args[0]):
                    node.args[0] = _call("str", node.args[0])
                    self.changed = True
                return node
            case ast.Name(name) if name in self._primitives:
                self.generic_visit(node)
                node.args = list(map(_out, node.args))
                for keyword in node.keywords:
                    keyword.value = _out(keyword.value)
                return _call("vqa_in", node)
        return self.generic_visit(node)

    def _is_search(self, name: str, node: ast.Call) -> bool:
        match node.args[0]:
            case ast.GeneratorExp(value):
                return name != "sum" or (len(node.args) == 1 and not is_plain(value))
            case ast.Call(ast.Name("map" | "filter"), [function, _]):
                return name != "sum" and not is_plain_function(function, self._bound)
        return False

    def visit_Name(self, node: ast.Name) -> Any:
        """Wraps a primitive that is passed on, not called: it takes pictures that may be keys, too."""
        if node.id == "round" and "round" not in self._bound and not _is_called(node, self.parents[node]):
            self.needs.add("round")
        if node.id in self._primitives and not _is_called(node, self.parents[node]):
            (function,) = parse_at(f"lambda *a, **k: vqa_in({node.id}(*vqa_out(a), **vqa_out(k)))", node)
            return function.value if isinstance(function, ast.Expr) else node
        return node


def _is_called(node: ast.AST, parent: ast.AST) -> bool:
    return isinstance(parent, ast.Call) and parent.func is node


def _call(name: str, *args: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), list(args), [])


def _out(expression: ast.expr) -> ast.expr:
    """Returns an argument of a primitive with handles for pictures, where it may hold some."""
    if isinstance(expression, ast.Starred):
        return ast.Starred(_out(expression.value), ast.Load())
    return expression if isinstance(expression, ast.Constant | ast.JoinedStr) else _call("vqa_out", expression)
