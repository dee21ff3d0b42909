"""One program run many times over in one session of a worker, each time with other answers to its calls.

A call that was made before is answered inside the interpreter: each costs one exchange with the worker, however many
runs there are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import pydantic_monty as monty

from ..core.errors import ProgramAnswerError
from ..core.program_tree import parse
from ..core.settings import Limits
from ..primitives import Image, PrimitiveSet
from .boundary import Handles, Plain, answer_value
from .prelude import PRELUDE, READ, READ_KEYED
from .rewrite import bound_names, rewrite
from .run import given, raised, refused

if TYPE_CHECKING:
    from pydantic_monty import MontySession

__all__ = ["Ask", "run_in_worlds"]

Ask: TypeAlias = Callable[[str, "tuple[Any, ...]", "dict[str, Any]"], Sequence[object]]
"""Answers one call of a primitive, by a value for each world. A TypeError, ValueError or LookupError is raised inside
the program."""
_CALL = """
vqa_known = {}


def vqa_call(name, args, rest, repr=repr, isinstance=isinstance, list=list):
    key = repr((name, args, rest))
    if key not in vqa_known:
        vqa_known[key] = vqa_ask(name, args, rest)
    found = vqa_known[key][vqa_world]
    return found[:] if isinstance(found, list) else found
"""
_FORGET = "try: raise ValueError\nexcept ValueError as {}: pass\n"
"""Takes its value from a name: the interpreter has no ``del``."""


def run_in_worlds(
    session: MontySession,
    source: str,
    ask: Ask,
    images: Sequence[Image],
    worlds: int,
    primitives: PrimitiveSet,
    limits: Limits,
) -> list[Plain]:
    """Runs a program in every world; blocks. All runs together have the time of one.

    Args:
        session: entered, and fed nothing yet.
        source: the program.
        ask: answers its calls.
        images: the question's pictures.
        worlds: how many there are.
        primitives: what it may call.
        limits: what it may use.

    Returns:
        What it left in ``answer`` in each world; None where it failed.
    """
    program = rewrite(source, primitives)
    handles = Handles()
    inputs = given(handles, images, PrimitiveSet(()))
    tree = parse(program.source)
    own = sorted({*bound_names(tree), "answer"}.difference(inputs)) if tree is not None else []
    first = [_FORGET.format(name) for name in own]
    first += [f"{name} = vqa_in({name})\n" for name in inputs if program.keyed]
    first += [f"{name} = lambda *args, **rest: vqa_call({name!r}, args, rest)\n" for name in primitives.names]
    text = f"{''.join(first)}{program.source}\n{READ_KEYED if program.keyed else READ}"
    session.feed_run(f"{PRELUDE}{program.before}{_CALL}", inputs=inputs)

    def outcome(world: int) -> Plain:
        known = {**inputs, "vqa_world": world, "vqa_ask": vqa_ask}
        state = session.feed_start(text, inputs=known, print_callback=monty.CollectString(limits.output_bytes))
        while not isinstance(state, monty.MontyComplete):
            if not isinstance(state, monty.FunctionSnapshot) or state.function_name != vqa_ask.__name__:
                state = refused(state)
                continue
            try:
                reply: Any = {"return_value": handles.enter(list(ask(*state.args)))}
            except (TypeError, ValueError, LookupError) as error:
                reply = raised(error)
            state = state.resume(reply)
        wrong, left = state.output if isinstance(state.output, tuple) else ("", None)
        return None if wrong else answer_value(left)

    outcomes: list[Plain] = [None] * worlds
    end = time.perf_counter() + limits.seconds
    for world in range(worlds):
        if time.perf_counter() < end:
            try:
                outcomes[world] = outcome(world)
            except (monty.MontyRuntimeError, monty.MontySyntaxError, ProgramAnswerError):
                continue
    return outcomes


def vqa_ask() -> None:
    """Stands for what asks the host: the interpreter takes its name and nothing else of it."""
