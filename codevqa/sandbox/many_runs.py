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
from .rewrite import bound_names, rewrite
from .run import given, raised, refused
from .stand_ins import PRELUDE, READ, READ_KEYED
from .wall import Wall

if TYPE_CHECKING:
    from pydantic_monty import MontySession

Ask: TypeAlias = Callable[[str, "tuple[Any, ...]", "dict[str, Any]"], Sequence[object]]
"""Answers one call of a primitive, by a value for each world. A TypeError, ValueError or LookupError is raised inside
the program."""
PATIENCE = 5
"""How many times the limit of one run all runs may take."""
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


class ManyRuns:
    """One program and all its runs: see :meth:`Sandbox.run_in_worlds`."""

    def __init__(
        self, source: str, ask: Ask, images: Sequence[Image], primitives: PrimitiveSet, limits: Limits
    ) -> None:
        program = rewrite(source, primitives)
        self._ask = ask
        self._names = primitives.names
        self._limits = limits
        self._handles = Handles()
        self._inputs = given(self._handles, images, PrimitiveSet(()))
        self._before = f"{PRELUDE}{program.before}{_CALL}"
        tree = parse(program.source)
        own = {*bound_names(tree), "answer"}.difference(self._inputs) if tree is not None else ()
        first = [_FORGET.format(name) for name in sorted(own)]
        first += [f"{name} = vqa_in({name})\n" for name in self._inputs if program.keyed]
        first += [f"{name} = lambda *args, **rest: vqa_call({name!r}, args, rest)\n" for name in primitives.names]
        self._text = f"{''.join(first)}{program.source}\n{READ_KEYED if program.keyed else READ}"

    def outcomes(self, opening: MontySession, wall: Wall | None, worlds: int) -> list[Plain]:
        """Runs it in every world; blocks. One that reaches its time limit once would do so again: it runs no more."""
        found: list[Plain] = [None] * worlds
        end = time.perf_counter() + PATIENCE * self._limits.seconds
        try:
            with opening as session:
                if wall is not None:
                    wall.shut(session.worker_pid)
                session.feed_run(self._before, inputs=self._inputs)
                for world in range(worlds):
                    begun = time.perf_counter()
                    found[world] = self._outcome(session, world)
                    if time.perf_counter() > min(end, begun + self._limits.seconds):
                        break
        except (monty.MontyError, RuntimeError):
            pass
        return found

    def _outcome(self, session: MontySession, world: int) -> Plain:
        inputs = {**self._inputs, "vqa_world": world, "vqa_ask": vqa_ask}
        printed = monty.CollectString(self._limits.output_bytes)
        try:
            state = session.feed_start(self._text, inputs=inputs, print_callback=printed)
            while not isinstance(state, monty.MontyComplete):
                if isinstance(state, monty.FunctionSnapshot) and state.function_name == vqa_ask.__name__:
                    state = state.resume(self._reply(state.args))
                else:
                    state = refused(state)
            wrong, left = state.output if isinstance(state.output, tuple) else ("", None)
            return None if wrong else answer_value(left)
        except (monty.MontyRuntimeError, monty.MontySyntaxError, ProgramAnswerError):
            return None

    def _reply(self, given: tuple[Any, ...]) -> Any:
        try:
            name, args, rest = given  # of the program's own making, if it likes
            if name not in self._names:
                raise LookupError("there is no such primitive")
            return {"return_value": self._handles.enter(list(self._ask(name, args, rest)))}
        except (TypeError, ValueError, LookupError) as error:
            return raised(error)


def vqa_ask() -> None:
    """Stands for what asks the host: the interpreter takes its name and nothing else of it."""
