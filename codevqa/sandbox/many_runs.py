"""One program run many times over in one session of a worker, each time with other answers to its calls.

The program stands in a loop over its runs, so that many cost one exchange with the worker. A call that was made before
is answered inside the interpreter: each costs one more, however many runs there are. A run may change the answer to one
call alone.
"""

from __future__ import annotations

import ast
import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import pydantic_monty as monty

from ..core.errors import ProgramAnswerError
from ..core.settings import Limits
from ..primitives import Image, PrimitiveSet
from .boundary import Handles, ProgramValue, answer_value, interpreter_error, program_globals, resume_refused
from .program_tree import bound_names, compile_error, parse
from .rewrite import rewrite
from .stand_ins import PRELUDE, READ, READ_KEYED
from .workers import WorkerConfinement

if TYPE_CHECKING:
    from pydantic_monty import MontySession

Ask: TypeAlias = Callable[[str, "tuple[Any, ...]", "dict[str, Any]"], Sequence[object]]
"""Answers one call of a primitive, by a value for each world. A TypeError, ValueError or LookupError is raised inside
the program."""
OneRun: TypeAlias = tuple[int, int, int]
"""The world, the number of the call whose answer is changed, -1 for none, and the world that it is taken from."""
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
_LOOP = """
vqa_left = []
for vqa_world, vqa_changed, vqa_other in vqa_runs:
    vqa_left.append(None)
    try:
        {body}
    except BaseException:
        pass
vqa_left
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
        keyed = program.has_picture_keys
        self._ask = ask
        self._source = source
        self._names = primitives.names
        self._limits = limits
        self._handles = Handles()
        inputs = program_globals(self._handles, images, PrimitiveSet(()))
        self._inputs = {**inputs, **{f"vqa_{name}": value for name, value in inputs.items()}, "vqa_ask": vqa_ask}
        meant = {name: f"vqa_in(vqa_{name})" if keyed else f"vqa_{name}" for name in inputs}
        meant["images"] += "[:]"  # each run has its own: a program may change it
        meant |= {name: f"lambda *args, **rest: vqa_call({name!r}, args, rest)" for name in primitives.names}
        text = "".join([f"{name} = {value}\n" for name, value in meant.items()])
        self._before = f"{PRELUDE}{program.before}{_CALL}vqa_left = []\n{text}"
        tree = parse(program.source)
        own = {*bound_names(tree), "answer"} if tree is not None else {*meant}
        first = [_FORGET.format(name) for name in sorted(own - {*meant})]
        first += [f"{name} = {meant[name]}\n" for name in meant if name in own | {"images"}]
        alone = _alone(program.source, tree)
        *lines, value = (READ_KEYED if keyed else READ).splitlines()
        body = "\n".join(("".join(first) + alone, *lines, f"vqa_left[-1] = {value}"))
        self._text = _LOOP.format(body=body.replace("\n", "\n" + " " * 8))
        self.asked: list[AskedCall] = []
        """The calls so far, each once."""
        self.spent = not alone
        """Whether its time is over, or it is no program. Then it runs no more."""
        self._end = 0.0
        self._session: MontySession | None = None

    def study(
        self, opening: MontySession, wall: WorkerConfinement | None, work: Callable[[ManyRuns], Result]
    ) -> Result:
        """Returns what is found out with :meth:`run_all`; blocks."""
        results: list[Result] = []
        with contextlib.suppress(monty.MontyError, RuntimeError), opening as session:
            if wall is not None:
                wall.shut(session.worker_pid)
            session.feed_run(self._before, inputs=self._inputs)
            self._session, self._end = session, time.perf_counter() + self._limits.seconds
            results.append(work(self))
        self._session, self.spent = None, True
        return results[0] if results else work(self)

    def run_all(self, runs: Sequence[OneRun]) -> list[ProgramValue]:
        """Returns what it leaves in each run, None where it fails.

        All runs together may take as long as one on pictures.
        """
        values: list[ProgramValue] = []
        known: dict[tuple[type, object], ProgramValue] = {}

        def value_of(left: object) -> ProgramValue:
            answer = left[1] if isinstance(left, tuple) and len(left) == 2 and left[0] == "" else None
            if type(answer) not in (str, bool, int):
                return _read_left(left)
            key = type(answer), answer  # many worlds leave the same
            if key not in known:
                known[key] = _read_left(left)
            return known[key]

        while len(values) < len(runs) and self._session is not None and not self.spent:
            left: list[object] = []
            with contextlib.suppress(monty.MontyError, RuntimeError):
                left = self._run_session(self._session, runs[len(values) :])
            values += map(value_of, left)
            self.spent = not left or time.perf_counter() > self._end
        return (values + [None] * len(runs))[: len(runs)]

    def _run_session(self, session: MontySession, runs: Sequence[OneRun]) -> list[object]:
        """Returns what it leaves in each run up to one that ends them all, as too much memory does."""
        printed = monty.CollectString(self._limits.output_bytes * len(runs))
        try:
            state = session.feed_start(self._text, inputs={"vqa_runs": list(runs)}, print_callback=printed)
            while not isinstance(state, monty.MontyComplete):
                if isinstance(state, monty.FunctionSnapshot) and state.function_name == vqa_ask.__name__:
                    state = state.resume(self._reply(state.args))
                else:
                    state = resume_refused(state)
            left = state.output
        except (monty.MontyRuntimeError, monty.MontySyntaxError):
            left = session.feed_run("vqa_left")
        return left if isinstance(left, list) else []

    def _reply(self, arguments: tuple[Any, ...]) -> Any:
        try:
            name, args, rest = arguments  # of the program's own making, if it likes
            if name not in self._names:
                raise LookupError("there is no such primitive")
            values = list(self._ask(name, args, rest))
            texts = [text for text in (*args, *rest.values()) if isinstance(text, str) and text in self._source]
            self.asked.append(AskedCall((name, *texts), (*args, *rest.values()), values))
            return {"return_value": self._handles.enter(values)}
        except (TypeError, ValueError, LookupError) as error:
            return interpreter_error(error)


def _read_left(left: object) -> ProgramValue:
    wrong, answer = left if isinstance(left, tuple) and len(left) == 2 else ("", None)
    try:
        return None if wrong else answer_value(answer)
    except ProgramAnswerError:
        return None


def _alone(source: str, tree: ast.Module | None) -> str:
    """Returns a program that may be indented; nothing where it is none by itself: in a loop "break" would be."""
    try:
        if tree is None or compile_error(tree) is None:
            return ast.unparse(tree) if tree is not None else source
    except (RecursionError, ValueError):
        return source  # the interpreter may know better
    return ""


def vqa_ask() -> None:
    """Stands for what asks the host: the interpreter takes its name and nothing else of it."""
