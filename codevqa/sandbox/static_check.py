"""The static check: what the type checker is shown, and which of its findings count.

A finding counts only when the program is sure to fail if it gets there. A wrong annotation never stops a program, and
a value that *may* be None is usually not, so neither is reported.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Collection
from typing import Any

from ..core.errors import ProgramError, ProgramSyntaxError, ProgramTypeError, nearest
from ..primitives import CONSTANTS, PrimitiveSet
from .program_tree import bound_names, parse, part_places, syntax_tree
from .rewrite import Rewritten
from .stand_ins import TYPES

CHECKED_AS = "program"
"""File name the program has in the checker's eyes."""

SHOWN = 3
"""How many findings an error reports."""

_CERTAIN = {
    "call-non-callable",
    "index-out-of-bounds",
    "invalid-argument-type",
    "missing-argument",
    "no-matching-overload",
    "not-iterable",
    "not-subscriptable",
    "parameter-already-assigned",
    "too-many-positional-arguments",
    "unknown-argument",
    "unresolved-attribute",
    "unresolved-import",
    "unresolved-reference",
    "unsupported-operator",
}
_UNPACKING = re.compile(r"(Not enough|Too many) values to unpack")
# A union, or a choice of literals: some of its members may well be fine.
_UNION = re.compile(r" \| |in union |Literal\[[^\]]*, ")
# A choice of texts is a text, whichever it is.
_TEXTS = re.compile(r'Literal\[("[^"]*"(, )?)+\]')
# Of a union, only the member that does not fit is named.
_MEMBER = re.compile(r'subscript object of type `(?:int|float|bool|None|Literal\[[^"])|type `None` is not')

# Builtins that programs have and the checker has not heard of.
_BUILTINS = """\
from typing import Any, TypeVar, overload
from collections import Counter
vqa_T = TypeVar("vqa_T")
@overload
def vqa_free(value: Counter[Any]) -> Counter[Any]: ...
@overload
def vqa_free(value: list[Any]) -> list[Any]: ...
@overload
def vqa_free(value: dict[Any, Any]) -> dict[Any, Any]: ...
@overload
def vqa_free(value: set[Any]) -> set[Any]: ...
@overload
def vqa_free(value: vqa_T) -> vqa_T: ...
vqa_Any: Any
def vqa_any(value: object) -> Any: ...
def map(function: Any, *iterables: Any, strict: bool = False) -> list[Any]: ...
def filter(function: Any, iterable: Any) -> list[Any]: ...
def format(value: object, spec: str = "") -> str: ...
def getattr(o: object, name: str, default: Any = None) -> Any: ...
def hasattr(o: object, name: str) -> bool: ...
def setattr(o: object, name: str, value: Any) -> None: ...
class ImportError(Exception): ...
class ModuleNotFoundError(ImportError): ...
class PermissionError(OSError): ...
class FileNotFoundError(OSError): ...
class UnboundLocalError(NameError): ...
"""
_GIVEN = {"img": "Image", "images": "list[Image]", **dict.fromkeys(CONSTANTS, "int")}
"""The annotation of every global a program is given."""
PREFIX = "".join(f"{name} = vqa_given_{name}\n" for name in _GIVEN)
"""Put before a program that is checked. Assigned here, the globals have a type that the program may change, which
declared names have not. None of the ``vqa_given_`` names exists at run time: should the check pass, execution stops at
the first of these lines."""


_CHANGING = frozenset(("add", "append", "extend", "insert", "setdefault", "update"))
_TYPING = ("collections.abc", "typing", "typing_extensions")


def checker_view(program: Rewritten) -> Rewritten:
    """Returns a program as the checker is shown it.

    The checker trusts annotations, and guesses what a container holds from its first values. Python does neither. So
    annotations are taken out. Calls of ``vqa_free`` and ``vqa_any`` hide what may turn out to be of another kind.
    """
    tree = parse(program.source)
    if tree is None:
        return program
    for node in ast.walk(tree):
        if isinstance(node, ast.expr | ast.stmt):
            node.lineno = program.line(node.lineno, node.col_offset)
    try:
        tree = ast.fix_missing_locations(_CheckerView(tree).visit(tree))
        text = ast.unparse(tree)
        return Rewritten(text, program.needs, tuple(sorted(part_places(syntax_tree(text), tree))))
    except (RecursionError, SyntaxError, ValueError):  # too deep, or a number with too many digits
        return program


class _CheckerView(ast.NodeTransformer):
    """Makes a program what the checker is shown."""

    def __init__(self, tree: ast.AST) -> None:
        self._changed: set[str] = set()
        """Names of containers that the program changes."""
        self._shared: set[str] = set()
        """Names that functions assign for others."""
        self._read: set[ast.AST] = set()
        """Values that are read where they are written, and nowhere else."""
        self._fields: set[ast.AST] = set()
        """What stands in classes."""
        self._again: set[str] = set()
        """Names that are assigned more than once."""
        assigned: set[str] = set()
        changed: set[str] = set()
        for node in ast.walk(tree):
            match node:
                case ast.Global(shared) | ast.Nonlocal(shared):
                    self._shared.update(shared)
                case ast.Assign() | ast.AnnAssign():
                    names = {name for target in _targets(node) for name in bound_names(target)}
                    self._again |= names & assigned
                    assigned |= names
                case ast.AugAssign(target=ast.Name(name)):
                    self._changed.add(name)
                case ast.For(iter=value) | ast.comprehension(iter=value):
                    self._read.add(value)
                case ast.Call(func=ast.Attribute(attr="join"), args=args):
                    self._read.update(args)
                case ast.ClassDef(body=body):
                    self._fields.update(body)
                case ast.Subscript(ctx=ast.Store()):
                    changed.add(_root(node))
                case ast.Attribute(attr=method) if method in _CHANGING:
                    changed.add(_root(node))
        self._all = not changed <= assigned
        """Whether it changes a container that may have other names."""
        self._changed |= changed

    def visit(self, node: ast.AST) -> Any:
        """Returns what takes the place of a node."""
        stands_for = self._strip_annotations(node)
        if stands_for is not node:
            return self.visit(ast.copy_location(stands_for, node))
        self.generic_visit(node)
        match node:
            case ast.Module(body=body) if "images" in self._changed:
                freed = _call_at("vqa_free", ast.Name("images", ast.Load()))
                body.insert(0, ast.Assign([ast.Name("images", ast.Store())], freed))
            case ast.arguments():
                node.defaults = [_call_at("vqa_any", default) for default in node.defaults]
                node.kw_defaults = [default and _call_at("vqa_any", default) for default in node.kw_defaults]
            case ast.Assign() | ast.NamedExpr():
                for target in _targets(node):
                    node.value = self._value(target, node.value)
            case ast.IfExp():
                node.body, node.orelse = _start(node.body), _start(node.orelse)
            case ast.Dict() | ast.Set() | ast.List(ctx=ast.Load()) if node not in self._read:
                return _call_at("vqa_free", node)
        return node

    def _strip_annotations(self, node: ast.AST) -> ast.AST:
        """Returns a node without annotations, and without what is imported for them."""
        match node:
            case ast.arg():
                node.annotation = None
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                node.returns = None
            case ast.AnnAssign() if node in self._fields:  # a dataclass has them by their annotations
                node.annotation = ast.Name("vqa_Any", ast.Load())
                node.value = node.value and _call_at("vqa_any", node.value)
            case ast.AnnAssign():
                return ast.Assign([node.target], node.value) if node.value else ast.Pass()
            case ast.ImportFrom(module="__future__"):
                return ast.Pass()
            case ast.ImportFrom(module=module) if module in _TYPING:
                nothing = _call_at("vqa_any", ast.copy_location(ast.Constant(None), node))
                return ast.Assign([ast.Name(each.asname or each.name, ast.Store()) for each in node.names], nothing)
        return node

    def _value(self, target: ast.expr, value: ast.expr) -> ast.expr:
        """Returns what is assigned to a target."""
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            value.elts = list(map(self._value, target.elts, value.elts))
            return value
        if isinstance(value, ast.Starred):
            return value
        names = {_root(target), *bound_names(target)}
        grows = isinstance(value, ast.Tuple) and names & (self._again | self._changed)
        if grows or names & self._shared:
            return _call_at("vqa_any", value)
        if not isinstance(target, ast.Name) or target.id in self._again:
            value = _start(value)
        return _call_at("vqa_free", value) if self._all or names & self._changed else value


def _targets(node: ast.Assign | ast.AnnAssign | ast.NamedExpr) -> list[ast.expr]:
    return node.targets if isinstance(node, ast.Assign) else [node.target]


def _start(value: ast.expr) -> ast.expr:
    """Returns a value; of unknown type where it may stand for one of another kind, as None does."""
    match value:
        case ast.Constant(str(text)) if text:
            return value
        case ast.Constant() | ast.UnaryOp() | ast.Call(ast.Name("float" | "int")):
            return _call_at("vqa_any", value)
    return value


def _call_at(name: str, value: ast.expr) -> ast.expr:
    return ast.copy_location(ast.Call(ast.Name(name, ast.Load()), [value], []), value)


def _root(node: ast.expr) -> str:
    """Returns the name that an expression begins with; empty text where it does not."""
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def checker_declarations(source: str, primitives: PrimitiveSet) -> tuple[str, str]:
    """Returns the declarations the checker knows beside the program's own, and what is put before the program."""
    tree = parse(source)
    # A program may well call a number of its own "count".
    own = {*bound_names(tree)}.intersection(primitives.names) if tree is not None else set()
    others = primitives.subset(name for name in primitives.names if name not in own)
    known = _BUILTINS + TYPES + others.stubs({f"vqa_given_{name}": kind for name, kind in _GIVEN.items()})
    known += "".join(f"def vqa_given_{primitives.get(name).stub}: ...\n" for name in sorted(own))
    return known, PREFIX + "".join(f"{name} = vqa_given_{name}\n" for name in sorted(own))


def finding(report: str, program: Rewritten, offset: int, names: Collection[str] = ()) -> ProgramError | None:
    """Turns the checker's JSON report into an error.

    Args:
        report: The diagnostics as JSON.
        program: The program.
        offset: Number of lines that were put before it.
        names: What programs may call, to name the nearest where a name is unknown.

    Returns:
        None when nothing in the report is certain to fail.
    """
    last = program.source.count("\n") + 1
    findings: list[tuple[int, str, str]] = []
    for item in json.loads(report):
        code, message = str(item["code"]), str(item["message"])
        row, column = int(item["location"]["row"]), int(item["location"]["column"])
        line = program.line(min(max(row - offset, 1), last), column - 1)
        if item["severity"] == "error" and _is_certain(code, message):
            findings.append((line, code, message))
    if not findings:
        return None
    findings.sort(key=lambda each: (each[1] != "invalid-syntax", each[0]))
    line, code, message = findings[0]
    if code == "invalid-syntax":
        return ProgramSyntaxError(_clean_message(message), line=line)
    unknown = re.match(r"Name `(\w+)`", message) if code == "unresolved-reference" else None
    hint = nearest(unknown[1], names) if unknown else ""
    others = dict.fromkeys(f"line {other}: {_clean_message(text)}" for other, _, text in findings[1:])
    message_text = "; ".join([_clean_message(message), *list(others)[: SHOWN - 1]])
    return ProgramTypeError(f"{message_text}." if hint else message_text, line=line, hint=hint)


def _is_certain(code: str, message: str) -> bool:
    if code == "invalid-syntax":
        return True
    if code == "invalid-assignment":
        return _UNPACKING.search(message) is not None
    if code not in _CERTAIN or _MEMBER.search(message):
        return False
    # In "Expected `A | B`, found `C`" only what was found may be uncertain.
    return _UNION.search(_TEXTS.sub("str", message.rsplit("found `", 1)[-1])) is None


def _clean_message(message: str) -> str:
    text = " ".join(message.split()).replace("`", "'").replace("vqa_given_", "").removesuffix(".")
    return text if len(text) <= 300 else text[:297] + "..."
