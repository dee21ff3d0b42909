"""Programs as the interpreter can run them: forms that it lacks become calls of :mod:`.stand_ins`.

The text of the program is edited where the forms stand, so that errors and calls keep their lines. A program without
any of them is not even parsed. Forms that would cost too much are left, and :mod:`.error_mapping` says what to write
instead.
"""

from __future__ import annotations

import ast
import collections
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from ..core.program_tree import parse
from ..primitives import PrimitiveSet
from .stand_ins import MODULES, STAND_INS

_KINDS = (str, list, dict, set, tuple, frozenset, int, float)
_METHODS = frozenset(
    name for kind in (*_KINDS, collections.deque) for name in dir(kind) if not name.startswith("_")
) | {"findall", "fullmatch", "group", "groups", "match", "most_common", "search"}
_KIND_NAMES = frozenset(kind.__name__ for kind in _KINDS)
_LAZY = frozenset(("map", "filter", "zip", "enumerate", "reversed"))
_WORDS = (
    *("OrderedDict", "callable", "def ", "del ", "lambda", "maketrans", "round(", ".sort(", "translate", "yield"),
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
    lines: tuple[int, ...] = ()
    """The line that each line had in the program; empty where all have kept theirs."""

    @property
    def keyed(self) -> bool:
        """Whether it may keep pictures as keys."""
        return "pictures" in self.needs

    @property
    def before(self) -> str:
        """What must have been run."""
        return "".join(STAND_INS[name] for name in self.needs)

    def line(self, number: int) -> int:
        """Returns the line that a line had in the program."""
        return self.lines[min(number, len(self.lines)) - 1] if self.lines and number > 0 else number


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
        keyed = keyed and primitives is not None and bound.isdisjoint(primitives.names)
        edits = _Edits(source, tree, bound, frozenset(primitives.names if keyed and primitives else ()))
        edits.walk(tree)
        text, lines = edits.applied()
    except (RecursionError, SyntaxError, ValueError):  # too deep, or a number with too many digits
        return Rewritten(source)
    needs = (*sorted(edits.needs), *(("pictures",) if keyed else ()))
    return Rewritten(text, needs, lines if lines != tuple(range(1, len(lines) + 1)) else ())


def _has_forms(source: str) -> bool:
    """Whether a text may have a form to be rewritten; most have none, and are not looked at further."""
    return (
        any(word in source for word in _WORDS)
        or not _METHODS.isdisjoint(_NAMED.findall(source))
        or _ASSIGNED.search(source) is not None
    )


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


class _Edits:
    """Edits of one text, collected in one walk over its tree."""

    def __init__(self, source: str, tree: ast.AST, bound: set[str], primitives: frozenset[str]) -> None:
        self.needs: set[str] = set()
        self._bound = bound
        self._primitives = primitives
        self._text = source.encode()
        self._starts = [0, *(found.end() for found in re.finditer(b"\n", self._text))]
        self._edits: list[tuple[int, int, int, int, bytes]] = []
        self._functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}

    # -- the text ----------------------------------------------------------------------------------------------------

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self._starts[node.lineno - 1] + node.col_offset, self._starts[node.end_lineno - 1] + node.end_col_offset

    def _replace(self, start: int, end: int, text: str) -> None:
        self._edits.append((start, 1, len(self._edits), end, text.encode()))

    def _wrap(self, start: int, end: int, before: str, after: str) -> None:
        # What ends at a place comes before what begins there, and the inner of two that end there before the outer.
        self._replace(start, start, before)
        self._edits.append((end, 0, -len(self._edits), end, after.encode()))

    def _around(self, node: ast.expr, before: str, after: str = ")") -> None:
        self._wrap(*self._span(node), before, after)

    def applied(self) -> tuple[str, tuple[int, ...]]:
        """Returns the edited text, and the line that each of its lines had."""
        parts: list[bytes] = []
        lines, line, at = [1], 1, 0
        for start, _, _, end, text in sorted(self._edits):
            for part, new in ((self._text[at:start], False), (text, True), (self._text[start:end], None)):
                for _ in range(part.count(b"\n")):
                    line += new is not True
                    if new is not None:
                        lines.append(line)
                if new is not None:
                    parts.append(part)
            at = end
        rest = self._text[at:]
        lines += range(line + 1, line + 1 + rest.count(b"\n"))
        return b"".join([*parts, rest]).decode(), tuple(lines)

    # -- the forms ---------------------------------------------------------------------------------------------------

    def walk(self, node: ast.AST, parent: ast.AST | None = None, inside: ast.AST | None = None) -> None:
        """Notes the edits of a node and all that is in it; ``inside`` is the function or class around it."""
        match node:
            case ast.Import() | ast.ImportFrom() if self._import(node):
                return
            case ast.Delete() if self._delete(node):
                return
            case ast.JoinedStr():
                self._joined(node)
                return  # what is within has no sure place in the text before Python 3.12
            case ast.FunctionDef() if not isinstance(inside, ast.ClassDef):
                self._generator(node)
            case ast.Attribute(ctx=ast.Load()):
                self._attribute(node, parent)
            case ast.Call():
                self._call(node)
            case ast.Name(name, ast.Load()) if name in self._primitives and not _is_called(node, parent):
                self._replace(*self._span(node), f"(lambda *a, **k: vqa_in({name}(*vqa_out(a), **vqa_out(k))))")
            case ast.Name("callable", ast.Load()) if "callable" not in self._bound:
                self.needs.add("callable")
        if self._is_kept(node, parent):
            start, end = self._span(node)  # type: ignore[arg-type]
            if isinstance(node, ast.GeneratorExp):
                self._wrap(start + 1, end - 1, "iter([", "])")
            else:
                self._wrap(start, end, "iter(", ")")
        around = node if isinstance(node, ast.FunctionDef | ast.Lambda | ast.ClassDef) else inside
        for child in ast.iter_child_nodes(node):
            self.walk(child, node, around)

    def _inner(self, node: ast.expr) -> str:
        """Returns an expression rewritten, as text in one line."""
        text = ast.unparse(node)
        tree = ast.parse(text, mode="eval")
        edits = _Edits(text, tree, self._bound, self._primitives)
        edits._functions = self._functions
        edits.walk(tree)
        self.needs |= edits.needs
        return edits.applied()[0]

    def _import(self, node: ast.Import | ast.ImportFrom) -> bool:
        kept, said = [], []
        for one in node.names:
            name = one.asname or one.name
            module = one.name if isinstance(node, ast.Import) else node.module or ""
            if isinstance(node, ast.ImportFrom) and (module, one.name) == ("collections", "OrderedDict"):
                said.append(f"{name} = dict")
            elif isinstance(node, ast.Import) and module in MODULES:
                said.append(f"{name} = vqa_{module}")
                self.needs.add(module)
            elif isinstance(node, ast.ImportFrom) and one.name in MODULES.get(module, "").split():
                said.append(f"{name} = vqa_{module}.{one.name}")
                self.needs.add(module)
            else:
                kept.append(one)
        if said:
            node.names = kept
            self._replace(*self._span(node), "; ".join([*([ast.unparse(node)] if kept else []), *said]))
        return bool(said)

    def _delete(self, node: ast.Delete) -> bool:
        """Deletes by calls; a name as ``except`` does, which needs a line of its own."""
        start, end = self._span(node)
        begin = self._starts[node.lineno - 1]
        indent, rest = self._text[begin:start], self._text[end:].split(b"\n", 1)[0].strip()
        alone = not indent.strip() and (not rest or rest.startswith(b"#"))
        said: list[str] = []
        targets = list(chain.from_iterable(one.elts if isinstance(one, ast.Tuple) else [one] for one in node.targets))
        for target in targets:
            match target:
                case ast.Subscript(whole, ast.Slice(lower, upper, step)):
                    ends = ", ".join(self._inner(one) if one else "None" for one in (lower, upper, step))
                    said.append(f"vqa_del({self._inner(whole)}, slice({ends}))")
                case ast.Subscript(whole, place):
                    said.append(f"vqa_del({self._inner(whole)}, {self._inner(place)})")
                case ast.Name(name) if alone:
                    said.append(f"try: {name}; raise ValueError\nexcept ValueError as {name}: pass")
                case _:
                    return False
        if any(isinstance(target, ast.Subscript) for target in targets):
            self.needs.add("del")
        between = "\n" if alone else "; "
        self._replace(start, end, between.join(said).replace("\n", "\n" + indent.decode()))
        return True

    def _joined(self, node: ast.JoinedStr) -> None:
        start, end = self._span(node)
        if not (self._primitives or _has_forms(self._text[start:end].decode())):
            return
        changed = False
        for part in _fields(node):
            text = self._inner(part.value)
            if text != ast.unparse(part.value):
                part.value, changed = ast.parse(text, mode="eval").body, True
        if changed:
            self._replace(start, end, f"({ast.unparse(node)})")

    def _generator(self, node: ast.FunctionDef) -> None:
        """Has a generator run to its end at once; one whose ``yield`` has a value is left."""
        found = [(part, parent) for part, parent in _own(node) if isinstance(part, ast.Yield | ast.YieldFrom)]
        if not found or not all(isinstance(parent, ast.Expr) for _, parent in found):
            return
        self.needs.add("generator")
        start = self._starts[node.lineno - 1] + node.col_offset
        self._replace(start, start, "@vqa_generator\n" + " " * node.col_offset)
        for part, _ in found:
            begin, end = self._span(part)
            word = re.compile(rb"yield(\s+from\b)?").match(self._text, begin)
            assert word is not None
            self._replace(begin, word.end(), "vqa_yields((" if word.group(1) else "vqa_yield((")
            self._edits.append((end, 0, -len(self._edits), end, b"))" if part.value else b"None))"))

    def _attribute(self, node: ast.Attribute, parent: ast.AST | None) -> None:
        kind = isinstance(node.value, ast.Name) and node.value.id in _KIND_NAMES - self._bound
        if isinstance(node.value, ast.Name) and (node.value.id, node.attr) == ("collections", "OrderedDict"):
            self._replace(*self._span(node), "dict")
        elif kind and node.attr == "maketrans":
            self.needs.add("translate")
            self._replace(*self._span(node), "vqa_maketrans")
        elif node.attr not in _METHODS or node.attr == "fromkeys":
            return
        elif kind if _is_called(node, parent) else isinstance(parent, _CALLED_LATER):
            self._detach(node)

    def _detach(self, node: ast.Attribute) -> None:
        start, end = self._span(node)
        named = re.compile(rb"\.\s*\w+\Z").search(self._text[:end], self._span(node.value)[1])
        if named is not None:
            self.needs.add("method")
            self._replace(start, start, "vqa_method(")
            self._replace(named.start(), end, f", {node.attr!r}, lambda o, /, *a, **k: o.{node.attr}(*a, **k))")

    def _call(self, node: ast.Call) -> None:
        keywords = {one.arg for one in node.keywords}
        match node.func:
            case ast.Attribute(attr="sort" | "translate" as name) if name != "sort" or "key" in keywords:
                place = self._span(node.func.value)[1]
                opened = re.compile(rb"[)\s]*(\.\s*\w+\s*\()").match(self._text, place)
                if opened is not None and (node.args or node.keywords):
                    self.needs.add(name)
                    start = self._span(node)[0]
                    self._replace(start, start, f"vqa_{name}(")
                    self._replace(*opened.span(1), ", ")
            case ast.Name("round") if "round" not in self._bound and len(node.args) + len(keywords) > 1:
                self.needs.add("round")
            case ast.Name(name) if name in self._primitives:
                self._around(node, "vqa_in(")
                for given in [*node.args, *(one.value for one in node.keywords)]:
                    given = given.value if isinstance(given, ast.Starred) else given
                    if not isinstance(given, ast.Constant | ast.JoinedStr | ast.GeneratorExp):
                        self._around(given, "vqa_out(")

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


def _is_called(node: ast.AST, parent: ast.AST | None) -> bool:
    return isinstance(parent, ast.Call) and parent.func is node


def _fields(node: ast.JoinedStr) -> Iterator[ast.FormattedValue]:
    """Yields the fields of a formatted text, and of their formats, but none of texts within them."""
    for part in node.values:
        if isinstance(part, ast.FormattedValue):
            yield part
            if isinstance(part.format_spec, ast.JoinedStr):
                yield from _fields(part.format_spec)


def _own(function: ast.FunctionDef) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Yields what is in a function and in none within it, each with what it stands in."""
    waiting: list[tuple[ast.AST, ast.AST]] = [(one, function) for one in function.body]
    while waiting:
        node, parent = waiting.pop()
        yield node, parent
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            waiting += [(child, node) for child in ast.iter_child_nodes(node)]
