"""What a program's text shows to be wrong with it as an answer to its question, before any model is asked.

The sandbox's static check finds what is certain to fail. These find what runs and is wrong: a program about another
picture or other things than the question's, a constant of another kind than the answer wanted, a path that leaves no
answer, a describing word that was dropped, the wrong one of two pictures, another thing than the colour that was asked
for. Each is a rule that can be switched off (:class:`~.WriterSettings`).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from ..core.errors import ProgramAnswerError
from ..core.program_tree import parse
from ..core.question_kind import QuestionKind, question_kind
from .lint_rules import faults

__all__ = ["DECISIVE", "RULES", "Rule", "check_program"]

RULES = ("picture", "subject", "primitive", "kind", "path", "attribute", "truth", "side", "asked")
"""Names of the rules, in the order they are tried."""
DECISIVE = frozenset({"picture", "subject", "primitive"})
"""Those that no right program breaks: a mended one that does is not run."""

Rule = str
_ATTRIBUTES_TEXT = """
red orange yellow green blue purple violet pink brown black white gray grey golden silver beige tan dark small
tiny little medium large big huge tall short long wide narrow round square rectangular wooden metal metallic
plastic glass leather striped spotted plaid empty full open closed young old
"""
_ATTRIBUTES = frozenset(_ATTRIBUTES_TEXT.split())
_STOP_TEXT = """
a an the is are was were be been do does did has have had can could will would should there this that these
those it its of in on at to from by with and or not no any some all both each every either neither one two
three four five six seven eight nine ten image images picture pictures photo photos scene left right top
bottom side what which who whom whose where when why how many much than more less fewer most least same
different true you see kind type name color colour shape size made other another only exactly total number
"""
_STOP = frozenset(_STOP_TEXT.split())
_ANYTHING = frozenset(("item", "obje", "thin"))


_SIDE = re.compile(
    r"\b(?:left|right)(?:-hand)? (?:image|picture|photo)\b|\b(?:image|picture|photo) (?:on|to|at) the (?:left|right)\b",
    re.IGNORECASE,
)
_ASKED = re.compile(r"\b(?:what|which) (?:is the )?(colou?r|size|shape)\b")
_STEM = 4
"""Letters of a word that are compared."""


@dataclass(frozen=True)
class _Text:
    """A program and the question it is to answer."""

    tree: ast.Module
    question: str
    kind: QuestionKind
    number: int
    """Of its own picture, counted with those of the examples."""
    textual: Collection[str]
    primitives: Collection[str]


def check_program(
    source: str,
    question: str,
    number: int,
    *,
    rules: Collection[Rule] = RULES,
    textual: Collection[str] = ("query",),
    primitives: Collection[str] = ("query", "get_pos", "find_matching_image"),
) -> None:
    """Checks a program against its question.

    Args:
        source: the program; one that does not parse, is nested too deep or very long is left to the sandbox. It is
            hostile input, read on the event loop: every rule walks it a bounded number of times.
        question: the question.
        number: the number that the prompt gave its picture, after those of the examples.
        rules: which of :data:`RULES` are applied.
        textual: names of the primitives that return text.
        primitives: names of all.

    Raises:
        ProgramAnswerError: it breaks a rule; one line that a language model can act on.
    """
    tree = parse(source)
    if tree is None:
        return
    try:
        text = _Text(tree, question, question_kind(question), number, textual, primitives)
        found = next((fault for rule in RULES if rule in rules for fault in _CHECKS[rule](text)), None)
    except RecursionError:
        return
    if found is not None:
        line, message = found
        raise ProgramAnswerError(message, line=line)


def _pictures(text: _Text) -> Iterator[tuple[int, str]]:
    for node in ast.walk(text.tree):
        match node:
            case ast.Call(func=ast.Name(id="open_image" | "open_images"), args=[ast.Constant(value=str(name))]):
                found = re.search(r"\d+", name)
                if found and found.group().lstrip("0") != str(text.number):
                    yield node.lineno, f"{name} is the picture of an example, not of this question"


def _subject(text: _Text) -> Iterator[tuple[int, str]]:
    wanted = _stems(text.question)
    said = " ".join(_strings(text.tree))
    # Whatever a program asks about may be an "item".
    if len(wanted) >= 2 and said and not wanted & _stems(said) and not wanted & _ANYTHING:
        yield 1, f"it asks about none of the things in the question: {text.question}"


def _primitives(text: _Text) -> Iterator[tuple[int, str]]:
    for node in ast.walk(text.tree):
        if isinstance(node, ast.FunctionDef) and node.name in text.primitives:
            yield node.lineno, f"{node.name} is there already: call it, do not define it"


def _kind(text: _Text) -> Iterator[tuple[int, str]]:
    if text.kind.kind == "open":
        return
    for node in ast.walk(text.tree):
        match node:
            case ast.Assign(targets=[ast.Name(id="answer")], value=value):
                for constant in _results(value):
                    said = constant.value
                    if isinstance(said, str) and (wrong := text.kind.misfit(said)) and said not in ("True", "False"):
                        yield node.lineno, wrong


def _results(value: ast.expr) -> Iterator[ast.Constant]:
    match value:
        case ast.Constant():
            yield value
        case ast.IfExp(body=body, orelse=orelse):
            yield from _results(body)
            yield from _results(orelse)


def _path(text: _Text) -> Iterator[tuple[int, str]]:
    if not _always(text.tree.body) and any(_binds(node) for node in ast.walk(text.tree)):
        yield 1, "answer is not set on every path: begin with a value for it, or end with else"


def _always(body: Sequence[ast.stmt]) -> bool:
    """Says whether statements leave ``answer`` set whichever way they go."""
    for node in body:
        match node:
            case ast.If(body=then, orelse=other) if other and _always(then) and _always(other):
                return True
            case ast.With(body=inner) | ast.Try(finalbody=inner) if _always(inner):
                return True
            case ast.Try(body=inner, handlers=handlers) if _always(inner) and all(_always(h.body) for h in handlers):
                return True
            case ast.For(orelse=other) | ast.While(orelse=other) if _always(other):
                return True
            case ast.Raise():
                return True
            case _ if not isinstance(node, ast.If | ast.For | ast.While | ast.Try | ast.FunctionDef) and any(
                _binds(part) for part in ast.walk(node)
            ):
                return True
    return False


def _binds(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "answer" and isinstance(node.ctx, ast.Store)


def _attributes(text: _Text) -> Iterator[tuple[int, str]]:
    # A choice may well be decided without its words, and a colour asked for is not one that describes.
    words = re.sub(r"[^a-z ]", " ", text.question.lower()).split()
    named = {word for choice in text.kind.choices for word in choice.split()}
    said = set(re.findall(r"[a-z]+", " ".join(_strings(text.tree)).lower()))
    things = set(map(_stem, said))
    lost: list[str] = []
    thing = ""  # what the words before it describe; of a thing that is never asked about they may be left out
    for word in reversed(words):
        if word not in _ATTRIBUTES:
            thing = word
        elif _stem(thing) in things and word not in said and word not in named:
            lost.insert(0, word)
    if lost and said:
        yield 1, f'the question says "{lost[0]}" and the program never does: keep it with the thing it describes'


def _truths(text: _Text) -> Iterator[tuple[int, str]]:
    for fault in faults(text.tree, text.textual, ()):
        if fault.rule in ("truth", "comparison"):
            yield fault.line, fault.message


def _sides(text: _Text) -> Iterator[tuple[int, str]]:
    side = _SIDE.search(text.question)
    nodes = list(ast.walk(text.tree))
    if side is None or not any(isinstance(node, ast.Name) and node.id == "images" for node in nodes):
        return
    for node in nodes:
        match node:
            case (
                ast.Subscript(value=ast.Name(id="images"))
                | ast.Assign(targets=[ast.Tuple() | ast.List()], value=ast.Name(id="images"))
            ):
                return
            case ast.Call(func=ast.Name(id="enumerate" | "zip"), args=[ast.Name(id="images"), *_]):
                return
    left = "left" in side.group().lower()
    yield 1, f"the question is about the {side.group()}, which is images[{0 if left else 1}]: look at that one"


def _asked(text: _Text) -> Iterator[tuple[int, str]]:
    asked = _ASKED.search(text.question.lower())
    if asked is None or text.kind.kind != "open":
        return
    for node in ast.walk(text.tree):
        match node:
            case ast.Assign(
                targets=[ast.Name(id="answer")], value=ast.Call(func=ast.Name(id="query" | "visual_query")) as call
            ):
                said = " ".join(_strings(call)).lower().replace("colour", "color")
                if said and asked.group(1).replace("colour", "color") not in said:
                    yield node.lineno, f"the question asks for a {asked.group(1)}, and this for something else"


def _strings(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _stem(word: str) -> str:
    return word.rstrip("s")[:_STEM]


def _stems(text: str) -> set[str]:
    """Returns how the content words of a text begin: endings differ between a question and what is asked for it."""
    return {_stem(word) for word in re.findall(r"[a-z]+", text.lower()) if word not in _STOP and len(word) > 1}


_CHECKS = {
    "picture": _pictures,
    "subject": _subject,
    "primitive": _primitives,
    "kind": _kind,
    "path": _path,
    "attribute": _attributes,
    "truth": _truths,
    "side": _sides,
    "asked": _asked,
}
