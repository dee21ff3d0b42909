"""The grammar that programs are held to: the Python of programs with the calls of some primitives, in a prompt's form.

Its texts parse, call nothing but the primitives, and the builtins and methods it knows, give primitives the right
number of arguments, and assign ``answer`` somewhere. What it cannot know is which names have been assigned before, and
of which type they are.
"""

from __future__ import annotations

import functools
import inspect
import logging
import re
from collections.abc import Iterator
from typing import Any, Literal

from ..core.errors import SetupError
from ..models.grammar import Grammar
from ..primitives.signature import Parameter, Primitive, PrimitiveSet
from .grammar_python import BUILTINS, Rule, calls, expressions, names, statements

__all__ = ["grammar_for", "program_grammar"]

_log = logging.getLogger(__name__)


def grammar_for(
    constrained: bool | Literal["auto"],
    model: Any,
    primitives: PrimitiveSet,
    opening: str,
    stop: str,
    *,
    chat: bool,
) -> Grammar | None:
    """Returns what the model is to be held to; None for nothing.

    Args:
        constrained: the writer's setting.
        model: the language model; whether it can, its attribute ``constrains`` says.
        primitives: what programs may call.
        opening: the line that opens a picture, or a set of them, in the prompt.
        stop: the stop string of the prompt.
        chat: whether the prompt is made of turns.

    Raises:
        SetupError: programs have to be constrained, and the model cannot.
    """
    if constrained is False:
        return None
    if getattr(model, "constrains", False):
        return program_grammar(primitives, opening, stop, chat=chat)
    name = str(getattr(model, "name", type(model).__name__))
    if constrained != "auto":
        raise SetupError(
            f"{name} cannot be held to a grammar, and WriterSettings.constrained asks for it.",
            hint="Install codevqa[constrained] for a local model, give OpenAILM(grammar=...) for a server, or set it to"
            ' "auto".',
        )
    _say_once(name)
    return None


@functools.cache
def _say_once(name: str) -> None:
    _log.warning("%s cannot be held to a grammar: it writes programs without.", name)


def program_grammar(primitives: PrimitiveSet, opening: str, stop: str, *, chat: bool) -> Grammar:
    """Returns the grammar of what a language model makes of a program prompt.

    In completion form that is the rest of the comment line, which is empty, the line that opens the picture, and the
    program; it may go on with the stop string, which ends it. In chat form it is a block of Python between fences,
    with that line or without.

    Args:
        primitives: what programs may call.
        opening: the line that opens a picture, or a set of them, with any number.
        stop: the stop string of completion prompts: a line end, and how the next example begins.
        chat: whether the prompt is made of turns.
    """
    return _program_grammar(tuple(primitives), opening, stop, chat)


@functools.lru_cache(maxsize=64)
def _program_grammar(primitives: tuple[Primitive, ...], opening: str, stop: str, chat: bool) -> Grammar:
    rules: list[Rule]
    if chat:
        rules = [("program", r'"```python\n" body_0 "\n```"')]
    else:
        numbered = " [0-9]{1,4} ".join(map(_quoted, re.split(r"\d+", opening)))
        rules = [
            ("program", r'"\n" OPENING LINE_0 body_0 END?'),
            ("OPENING", numbered),
            ("END", f'"\\n"{{1,2}} ({_quoted(stop.removeprefix(chr(10)))})?'),
        ]
    rules += [*statements(), *expressions(), *calls(), *_arguments(primitives)]
    for number, primitive in enumerate(primitives):
        rules += _call(number, primitive)
    rules += names({*BUILTINS, *(primitive.name for primitive in primitives)})
    return Grammar(tuple(rules))


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _arguments(primitives: tuple[Primitive, ...]) -> Iterator[Rule]:
    """Returns the rules of ``primitive``, a call of one, and of what is given as a picture or a text."""
    # A set without primitives calls none: a name stands for what can be written anyway.
    yield "primitive", " | ".join(f"call_{number}" for number in range(len(primitives))) or "NAME"
    shown = [f"call_{number}" for number, one in enumerate(primitives) if "Image" in one.returns]
    yield "picture", 'picture_one (" if " test " else " picture)?'
    yield "picture_one", f'({" | ".join(["NAME", *shown])} | "(" expr ")") index*'
    yield "words", 'words_one (" + " words_one)* (" if " test " else " words)?'
    said = [f"call_{number}" for number, one in enumerate(primitives) if "str" in one.returns]
    ways = ["NAME", "TEXT", "formatted", '("str(" expr | ("max(" | "min(") exprs) ")"', '"(" expr ")"', *said]
    yield "words_one", f"({' | '.join(ways)}) (index | method)*"


def _call(number: int, primitive: Primitive) -> Iterator[Rule]:
    """Returns the rules of a call: arguments by place, then by name, in the order of the signature.

    Each rule but the first holds the arguments from one parameter on, of which there is at least one, by what has come
    before: ``none``, ``placed`` ones, ``named`` ones, or nothing, since optional ones were ``passed`` over.
    """
    parameters = primitive.parameters
    yield f"call_{number}", f'"{primitive.name}(" {_rest(number, parameters, 0, "none")} ")"'
    for place, parameter in enumerate(parameters):
        kind = {"Image": "picture", "str": "words"}.get(parameter.annotation, "expr")
        for before in ("none", "placed", "named", "passed"):
            comma = '", " ' if before in ("placed", "named") else ""
            ways = [f'{comma}"{parameter.name}=" {kind} {_rest(number, parameters, place + 1, "named")}']
            if before in ("none", "placed"):
                ways.append(f"{comma}{kind} {_rest(number, parameters, place + 1, 'placed')}")
            if _optional(parameter) and place + 1 < len(parameters):
                ways.append(f"given_{number}_{place + 1}_{'named' if comma else 'passed'}")
            yield f"given_{number}_{place}_{before}", " | ".join(ways)


def _rest(number: int, parameters: tuple[Parameter, ...], place: int, before: str) -> str:
    """Returns a body for the arguments from a place on, which may be none where all are optional."""
    rest = parameters[place:]
    return f"given_{number}_{place}_{before}{'?' if all(map(_optional, rest)) else ''}" if rest else ""


def _optional(parameter: Parameter) -> bool:
    return parameter.default is not inspect.Parameter.empty
