"""One program run many times over in one session of a worker, each time with other answers to its calls.

A call that was made before is answered inside the interpreter: each costs one exchange with the worker, however many
runs there are. A run may change the answer to one call alone.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

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
Result = TypeVar("Result")
_CALL = """
vqa_known = {}


def vqa_call(name, args, rest, repr=repr, isinstance=isinstance, list=list, len=len):
    key = repr((name, args, rest))
    if key not in vqa_known:
        vqa_known[key] = len(vqa_known), vqa_ask(name, args, rest)
    number, column = vqa_known[key]
    found = column[vqa_other if number == vqa_changed else vqa_world]
    return found[:] if isinstance(found, list) else found
"""
_FORGET = "try: raise ValueError\nexcept ValueError as {}: pass\n"
"""Takes its value from a name: the interpreter has no ``del``."""


@dataclass(frozen=True)
class AskedCall:
    """A call that a program made in some run."""

    about: tuple[str, ...]
    """The primitive, and what of its texts the program's source has: what it asks, of whatever picture."""
    args: tuple[Any, ...]
    """All arguments, those by name too."""
    values: Sequence[object]
    """Its answer in each world."""


class ManyRuns:
    """One program and all its runs: see :meth:`Sandbox.run_in_worlds`."""

    def __init__(
        self, source: str, ask: Ask, images: Sequence[Image], primitives: PrimitiveSet, limits: Limits
    ) -> None:
        program = rewrite(source, primitives)
        self._ask = ask
        self._source = source
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
        self.asked: list[AskedCall] = []
        """The calls so far, each once."""
        self.spent = False
        """Whether its time is over. Then it runs no more."""
        self._end = 0.0
        self._session: MontySession | None = None

    def study(self, opening: MontySession, wall: Wall | None, work: Callable[[ManyRuns], Result]) -> Result:
        """Returns what is found out with :meth:`run`; blocks."""
        found: list[Result] = []
        with contextlib.suppress(monty.MontyError, RuntimeError), opening as session:
            if wall is not None:
                wall.shut(session.worker_pid)
            session.feed_run(self._before, inputs=self._inputs)
            self._session, self._end = session, time.perf_counter() + self._limits.seconds
            found.append(work(self))
        self._session, self.spent = None, True
        return found[0] if found else work(self)

    def run(self, world: int, changed: int = -1, other: int = 0) -> Plain:
        """Returns what it leaves in a world, where the answer to one call may be that of another world.

        None where it fails. All runs together may take as long as one on pictures.
        """
        if self.spent or self._session is None:
            return None
        try:
            return self._outcome(self._session, {"vqa_world": world, "vqa_changed": changed, "vqa_other": other})
        except (monty.MontyError, RuntimeError):
            self.spent = True
            return None
        finally:
            self.spent = self.spent or time.perf_counter() > self._end

    def _outcome(self, session: MontySession, chosen: dict[str, int]) -> Plain:
        inputs = {**self._inputs, **chosen, "vqa_ask": vqa_ask}
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
            values = list(self._ask(name, args, rest))
            texts = [one for one in (*args, *rest.values()) if isinstance(one, str) and one in self._source]
            self.asked.append(AskedCall((name, *texts), (*args, *rest.values()), values))
            return {"return_value": self._handles.enter(values)}
        except (TypeError, ValueError, LookupError) as error:
            return raised(error)


def vqa_ask() -> None:
    """Stands for what asks the host: the interpreter takes its name and nothing else of it."""
