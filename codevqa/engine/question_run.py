"""The course of one question, from pictures and words to an answer.

Reads like the paper: the writer asks a language model for a program; the sandbox checks it and runs it; each primitive
it calls is answered by batched models; a program that fails is repaired once, and then plain few-shot PnP-VQA answers
in its place, marked as a fallback. A program that the user wrote takes the same course from the check on, and nothing
answers in its place.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from ..batching.call_cache import Memory, Usage
from ..batching.model_services import Services
from ..core.answer import Answer, Call, Form, ImageRef, Plain, Program, Trace
from ..core.errors import (
    CodeVQAError,
    ErrorRecord,
    InputError,
    ProgramError,
    ProgramRuntimeError,
    QuestionError,
    record,
)
from ..core.events import Answered, CallBegan, CallEnded, Failed, Rejected, Tell, Wrote
from ..core.images import ImageSource, Picture, each, load_pictures
from ..core.settings import Settings
from ..primitives.context import CallContext
from ..primitives.kinds import Image
from ..primitives.pnpvqa import PnPVQA, Reading
from ..primitives.signature import PrimitiveSet
from ..sandbox.sandbox import Sandbox
from ..writing.writer import Writer
from .answer_text import answer_text, plain
from .call_plan import plan
from .prefetch import Ahead, Early

__all__ = ["Asked", "Means", "Method", "answer", "checked"]

Method: TypeAlias = Literal["codevqa", "pnpvqa"]


@dataclass(frozen=True)
class Asked:
    """What a user wants: a question answered, or a program of their own run."""

    images: ImageSource | Sequence[ImageSource]
    question: str
    form: Form | None = None
    method: Method = "codevqa"
    seed: int | None = None
    shots: int | None = None
    memory: Memory | None = None
    program: Program | None = None
    """The user's program; None has one written."""


@dataclass(frozen=True)
class Means:
    """What an engine answers questions with."""

    writer: Writer
    settings: Settings
    primitives: PrimitiveSet
    pure: frozenset[str]
    """Primitives whose calls may begin ahead."""
    sandbox: Sandbox
    services: Services
    pnpvqa: PnPVQA
    models: Mapping[str, str]
    """Model ids by role."""


async def answer(means: Means, asked: Asked, tell: Tell | None = None) -> Answer:
    """Answers one question, or runs one program; everything an engine does goes through here.

    Args:
        means: the engine's.
        asked: what is wanted.
        tell: told of every step; None where nobody watches.

    Raises:
        CodeVQAError: it cannot be answered; told as well. A ProgramError carries what was done until then.
    """
    asking = _Asking(means, asked, tell)
    with means.services.question(asked.memory):
        try:
            found = await asking.finish()
        except CodeVQAError as error:
            done = asking.broken_off(error)
            if isinstance(error, ProgramError):
                error.answer = done
            if tell is not None:
                tell(Failed(error.record(), done))
            raise
    if tell is not None:
        tell(Answered(found))
    return found


def checked(question: str, longest: int) -> str:
    """Returns a question on one line.

    Raises:
        QuestionError: it is empty or too long.
    """
    question = " ".join(question.split())
    if not question:
        raise QuestionError("The question is empty.", hint="Ask something about the picture.")
    if len(question) > longest:
        raise QuestionError(f"The question has {len(question):,} characters.", hint=f"The limit is {longest:,}.")
    return question


class _Asking:
    """One question on its way, and what it has done so far."""

    def __init__(self, means: Means, asked: Asked, tell: Tell | None) -> None:
        self.means = means
        self.asked = asked
        self.tell = tell
        self.started = time.perf_counter()
        self.usage = Usage.begin()
        self.question = asked.question
        self.form: Form = "image"
        self.images: tuple[Image, ...] = ()
        self.pnpvqa = means.pnpvqa
        self.program: Program | None = None
        self.calls: list[Call] = []
        self.attempts: list[tuple[Program, ErrorRecord]] = []
        self.ahead: Ahead | None = None

    async def finish(self) -> Answer:
        """Answers; the steps in order."""
        await self._prepare()
        if self.asked.program is None and self.asked.method == "pnpvqa":
            return self._read_answer(await self._read(), method="pnpvqa")
        try:
            return await self._execute(self.asked.program or await self._write())
        except ProgramError as error:
            if self.asked.program is not None:
                raise
            # Never a quiet default: plain few-shot PnP-VQA answers in the program's place, and the answer says so.
            return self._read_answer(await self._read(), program=self.program, fallback=True, error=error.record())

    def broken_off(self, error: CodeVQAError) -> Answer | None:
        """Returns what was done until an error ended it; None where nothing had begun."""
        if not self.images:
            return None
        return self._answer(self.program, text="", method=self.asked.method, error=error.record())

    # -- steps -------------------------------------------------------------------------------------------------------

    async def _prepare(self) -> None:
        """Checks the question and reads the pictures."""
        asked, means = self.asked, self.means
        if asked.program is None or asked.question.strip():  # a program of the user's needs none
            self.question = checked(asked.question, means.settings.max_question)
        given = each(asked.images)
        decoded = all(isinstance(one, Picture) for one in given)  # then no thread is needed
        pictures = load_pictures(given) if decoded else await asyncio.to_thread(load_pictures, given)
        self.form = asked.form or ("image" if len(pictures) == 1 else "set")
        if self.form == "image" and len(pictures) != 1:
            raise InputError(f"A question about an image needs one image, not {len(pictures)}.", hint="Use form='set'.")
        means.writer.prompts_for(self.form)  # says so now if no prompt set serves this form
        self.images = tuple(Image(number, picture) for number, picture in enumerate(pictures, 1))
        self.pnpvqa = means.pnpvqa.with_seed(means.settings.seed if asked.seed is None else asked.seed)

    async def _write(self) -> Program:
        means = self.means
        return await means.writer.write(
            self.question, self.form, means.services.write, shots=self.asked.shots, tell=self.tell
        )

    async def _execute(self, program: Program) -> Answer:
        """Checks and runs a program; one that the model wrote and that fails the check goes back to it first."""
        means = self.means
        repairs_left = means.writer.settings.repairs if self.asked.program is None else 0
        while True:
            self.program = program
            if self.tell is not None:
                self.tell(Wrote(program))
            try:
                await means.sandbox.check(program.source)
                return await self._interpret(program)
            except ProgramError as error:
                self.attempts.append((program, error.record()))
                # What ran already has cost its model calls: do not start over.
                again = repairs_left > 0 and not self.calls
                if self.tell is not None:
                    last: Literal["fallback", "nothing"] = "fallback" if self.asked.program is None else "nothing"
                    self.tell(Rejected(program, error.record(), "repair" if again else last))
                if not again:
                    raise
                repairs_left -= 1
                program = await means.writer.repair(program, error, means.services.write, tell=self.tell)

    async def _interpret(self, program: Program) -> Answer:
        self.ahead = self._begin_ahead(program)
        try:
            outcome = await self.means.sandbox.run(program.source, self._call, images=self.images)
        finally:
            self.ahead.close()
        return self._answer(
            program, text=answer_text(outcome.value), value=plain(outcome.value), printed=outcome.printed
        )

    def _begin_ahead(self, program: Program) -> Ahead:
        """Begins the calls that the program is going to make, as far as its source tells."""
        settings = self.means.settings
        ahead = Ahead(self.means.primitives, self._context)
        if settings.ahead:
            planned = plan(program.source, self.images, self.means.pure)
            chosen = [one for one in planned if one.certain or settings.ahead_likely]
            if len(chosen) > 1:  # a single call has nothing to share a batch with
                ahead.begin(chosen)
        return ahead

    def _context(self) -> CallContext:
        means = self.means
        return CallContext(self.question, self.form, self.images, means.services, self.pnpvqa, means.settings)

    async def _call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], line: int | None) -> object:
        """Answers one call of a primitive and keeps it in the trace."""
        primitives = self.means.primitives
        started = time.perf_counter()
        early: Early | None = None
        context, usage = self._context(), Usage()
        arguments: dict[str, object] = {}
        wrong: Exception | None = None
        try:
            arguments = primitives.bind(name, args, kwargs)
        except (TypeError, ValueError, LookupError) as error:
            wrong = error
        # A program waits for each call, so they end in the order they began.
        index, shown = len(self.calls) + 1, {key: plain(item) for key, item in arguments.items()}
        if self.tell is not None:
            self.tell(CallBegan(index, name, shown, line))
        value: object = None
        failure: ErrorRecord | None = None
        try:
            if wrong is not None:
                raise wrong
            early = self.ahead.take(name, arguments) if self.ahead else None
            if early is not None:
                context, usage = early.context, early.usage
                value = await early.task
            else:
                with usage.counting():
                    value = await primitives.get(name).call(context, arguments)
            return value
        except (CodeVQAError, TypeError, ValueError, LookupError) as error:  # the last three a program may catch
            failure = record(error)
            raise
        except asyncio.CancelledError:
            failure = ErrorRecord("CancelledError", "the program was ended while it waited for this call", line)
            raise
        except Exception as error:
            failure = record(error)
            raise ProgramRuntimeError(f"{name}() failed: {failure.type}: {failure.message}", line=line) from error
        finally:
            self.usage.add(usage)
            call = Call(
                index,
                name,
                shown,
                plain(value),
                time.perf_counter() - started,
                line,
                tuple(context.evidence),
                failure,
                remembered=0 < usage.calls == usage.remembered,
            )
            self.calls.append(call)
            if self.tell is not None:
                self.tell(CallEnded(call))

    async def _read(self) -> Reading:
        """Answers the whole question from captions: the baseline, and the fallback."""
        pictures = [(ImageRef(image.index), image.picture) for image in self.images]
        return await self.pnpvqa.answer(pictures, self.question, self.form, self.form)

    # -- the answer --------------------------------------------------------------------------------------------------

    def _read_answer(self, reading: Reading, *, program: Program | None = None, **fields: Any) -> Answer:
        return self._answer(program, text=reading.text, value=reading.text, baseline=(reading.evidence,), **fields)

    def _answer(
        self, program: Program | None, *, text: str, value: Plain = None, printed: str = "", **fields: Any
    ) -> Answer:
        read = fields.pop("baseline", ())
        return Answer(
            self.question,
            text,
            program,
            Trace(tuple(self.calls), printed, tuple(self.attempts), read),
            value,
            seconds=time.perf_counter() - self.started,
            models=dict(self.means.models),
            tokens=self.usage.tokens,
            sources=each(self.asked.images),
            **fields,
        )
