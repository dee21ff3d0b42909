"""The course of one question, from pictures and words to an answer.

Reads like the paper: the writer asks a language model for a program; the sandbox checks it and runs it; each primitive
it calls is answered by batched models. A program that fails before its first call is repaired once; else plain few-shot
PnP-VQA answers in its place, marked as a fallback. A program that the user wrote takes the same course from the check
on, and nothing answers in its place. Where there is a vision-language model, that is what answers in place of captions.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from ..batching.call_cache import Usage
from ..core.answer import Answer
from ..core.answer_words import DONT_KNOW
from ..core.collection import StoredPicture
from ..core.errors import (
    CodeVQAError,
    EmptyReadingError,
    EngineClosedError,
    ErrorRecord,
    ImageError,
    InputError,
    InternalError,
    ModelError,
    ProgramAnswerError,
    ProgramError,
    UnsetAnswerError,
)
from ..core.events import Answered, Event, Failed, Rejected, Tell, Wrote
from ..core.images import Picture, load_pictures
from ..core.question_kind import QuestionKind, question_kind
from ..core.trace import REFUSED, Cost, DomainWarning, Draft, Evidence, Fault, Form, ImageRef, Plain, Program, Trace
from ..models.base import Models
from ..primitives.context import CallContext
from ..primitives.kinds import Image
from ..primitives.parts import Reading
from ..writing.choice import write_best
from ..writing.replies import why_empty
from ..writing.trial import Trial, try_out
from ..writing.writer import Writer
from .answer_text import answer_text, fitted_answer, plain, release_text
from .call_plan import CallPlan
from .confidence import sure_enough
from .program_calls import ProgramCalls
from .question_check import checked_question, outside, unanswerable
from .request import Errors, Request, check_method, check_options

if TYPE_CHECKING:
    from .codevqa import CodeVQA

_log = logging.getLogger(__name__)
FALLBACK_PARTS = 10
"""Parts in which a set is read at most where a program failed: captions of a large one would take hours."""


async def answer_request(
    engine: CodeVQA, request: Request, tell: Tell | None = None, *, errors: Errors = "raise"
) -> Answer:
    """Answers one question, or runs one program; everything an engine does goes through here.

    Args:
        engine: answers it.
        request: what is wanted.
        tell: told of every step; None where nobody watches.
        errors: whether a question that cannot be answered is raised, or what was done until then, with its ``error``.

    Raises:
        CodeVQAError: it cannot be answered; told as well. A ProgramError carries what was done until then.
    """
    run = QuestionRun(engine, request, tell)
    try:
        check_options(request)
        with engine.services.question(), run.usage.counting(), keeping(engine.models, request.images):
            answer = await run.finish()
    except (asyncio.CancelledError, GeneratorExit):
        raise
    except BaseException as error:
        known = error if isinstance(error, CodeVQAError) else _mistake(error, request)
        done = run.broken_off(known)
        for failed in (known, known.__cause__):  # a fallback that fails has a program's error as its cause
            if isinstance(failed, ProgramError):
                failed.answer = done
        run.tell(Failed(known.record(), done))
        if errors == "return" and done is not None:
            return done
        if known is error:
            raise
        raise known from error
    run.tell(Answered(answer))
    return answer


@contextmanager
def keeping(models: Models, images: Sequence[object]) -> Iterator[None]:
    """Keeps on disk what a question learnt about the pictures of a collection, however it ends."""
    try:
        yield
    finally:
        stored = next((one for one in images if isinstance(one, StoredPicture)), None)
        if stored is not None:
            stored.keep_notes()
            for model in vars(models).values():
                if hasattr(model, "keep_features"):
                    model.keep_features()


def _mistake(error: BaseException, request: Request) -> CodeVQAError:
    """Returns what a caller is told of an error that is none of ours."""
    if "cannot schedule new futures after" in str(error):  # Python is ending, and its executors take no more work
        return EngineClosedError()
    _log.error("A question failed: %r", request.question, exc_info=error)
    name = type(error).__name__
    return InternalError(f"codevqa made a mistake: {name}.", hint="The log has it: please report it.")


class QuestionRun:
    """One question on its way, and what it has done so far."""

    def __init__(self, engine: CodeVQA, request: Request, listener: Tell | None) -> None:
        self.engine = engine
        self.request = request
        self.listener = listener
        self.started = time.perf_counter()
        self.usage = Usage(memory=request.memory)
        self.question = self.typed = request.question
        self.form: Form = "image"
        self.images: tuple[Image, ...] = ()
        self.warnings: tuple[DomainWarning, ...] = ()
        self.pnpvqa = engine.pnpvqa
        self.program: Program | None = None
        self.calls = self._new_calls()
        self.program_seconds = 0.0
        self.attempts: list[tuple[Program, ErrorRecord]] = []
        self.programs: tuple[Program, ...] = ()
        self.drafts: tuple[Draft, ...] = ()
        """What each of the programs is worth, where several were written."""
        self.fault: Fault | None = None
        """Why the program is doubted."""

    async def finish(self) -> Answer:
        """Answers; the steps in order."""
        await self._prepare()
        if self._strict and unanswerable(self.warnings, len(self.images)):
            return self._answer(DONT_KNOW)
        if self._strict and self.request.program is None:
            self._adapt()
        if self.request.program is None and self.request.method != "codevqa":
            return self._read_answer(await self._read())
        try:
            program = self.request.program or await self._write()
            answer = await (self._agreed() if self._several else self._execute(program))
            return sure_enough(answer, self.engine.settings.abstain_below)
        except ProgramError as error:
            if self.request.program is not None:
                raise
            # Never a quiet default: the whole question is answered without a program, and the answer says so.
            try:
                reading = await self._read(FALLBACK_PARTS)
            except ModelError as failure:  # of which a program cut short may be another sign
                raise failure.after(error) from error
            return replace(self._read_answer(reading), fallback=True, error=error.record())

    def broken_off(self, error: CodeVQAError) -> Answer | None:
        """Returns what was done until an error ended it; None where nothing had begun."""
        if not self.images:
            return None
        printed = error.printed if isinstance(error, ProgramError) else ""
        return replace(self._answer("", printed=printed), error=error.record())

    def tell(self, event: Event) -> None:
        """Tells the listener, if there is one."""
        if self.listener is not None:
            self.listener(event)

    # -- steps -------------------------------------------------------------------------------------------------------

    async def _prepare(self) -> None:
        """Checks the question and reads the pictures."""
        request, engine = self.request, self.engine
        check_method(request.method, engine.models.methods)
        if request.program is None or request.question != "":  # a program of the user's needs none
            self.question = self.typed = checked_question(request.question, engine.settings)
        decoded = all(isinstance(one, Picture) for one in request.images)  # then no thread is needed
        pictures = load_pictures(request.images) if decoded else await asyncio.to_thread(load_pictures, request.images)
        self.form = request.form or ("image" if len(pictures) == 1 else "set")
        if self.form == "image" and len(pictures) != 1:
            raise InputError(f"A question about an image needs one image, not {len(pictures)}.", hint="Use form='set'.")
        engine.writer.prompts_for(self.form)  # says so now if no prompt set serves this form
        self.images = tuple(Image(number, picture) for number, picture in enumerate(pictures, 1))
        if engine.models.domain is not None:
            words = "" if self._own else self.question  # of which a program need not take any
            self.warnings = await outside(engine.models.domain, engine.services, pictures, words, engine.settings)
        seed, sets = engine.settings.seed if request.seed is None else request.seed, engine.settings.sets
        self.pnpvqa = engine.pnpvqa.with_seed(seed, witness=sets.witness and len(pictures) > sets.large)

    def _adapt(self) -> None:
        """Asks of what the models know: without the few pictures that look otherwise, and with words as they know them.

        Pictures keep their numbers, and the warnings say what was done.
        """
        messages: dict[str, Callable[[DomainWarning], str]] = {
            "picture": lambda warning: f"Left out: {warning.message}",
            "spelling": lambda warning: f"{warning.message} The question was asked as: {self.question}",
        }
        if self.warnings and (domain := self.engine.models.domain) is not None:
            outside = {ref.index for warning in self.warnings for ref in warning.images}
            self.images = tuple(image for image in self.images if image.index not in outside)
            self.question = domain.respelt(self.question)
            self.warnings = tuple(replace(each, message=messages[each.kind](each)) for each in self.warnings)

    @property
    def _own(self) -> bool:
        """Whether the user brings the program: it is run all the same. One that a model wrote is held to its words."""
        program = self.request.program
        return program is not None and self.request.own and not program.prompt

    @property
    def _strict(self) -> bool:
        return self.engine.settings.strict_domain and not self._own

    @property
    def _writer(self) -> Writer:
        """Writes for pictures as many as these."""
        writer = self.engine.writer
        return writer.for_large_sets if len(self.images) > self.engine.settings.sets.large else writer

    async def _write(self) -> Program:
        writer, generate, shots = self._writer, self.engine.services.write, self.request.shots
        self._embed_ahead(writer)
        await writer.prepare(self.question, self.form, self.engine.services.embed.many)
        most = max(writer.drafts, self.engine.settings.agree)
        if most == 1 and not writer.settings.refuse:
            return await writer.write(self.question, self.form, generate, shots=shots, tell=self.listener)
        self.programs, drafts = await write_best(
            writer, self.question, self.form, generate, self._try_out, most=most, shots=shots, tell=self.listener
        )
        self.drafts = drafts if len(drafts) > 1 else ()  # one alone was not chosen
        program, self.fault = next(
            (one, draft.fault) for one, draft in zip(self.programs, drafts, strict=True) if draft.chosen
        )
        return program

    def _embed_ahead(self, writer: Writer) -> None:
        """Embeds the questions that wait for a worker in one batch with this one, unless this one was among such.

        A retriever takes hundreds of sentences in little more time than one.
        """
        services = self.engine.services
        if not services.embed.remembers(writer.sentences([self.question], self.form)):
            services.embed_ahead(writer.sentences(self.engine.workers.take_fresh(self.form), self.form))

    async def _try_out(self, programs: Sequence[str]) -> list[Trial]:
        """Runs programs in random worlds, where their answers are held to the question as real ones are."""
        fit, refuse = self._writer.settings.fit, self._writer.settings.refuse

        def said(value: Plain) -> str:
            return fitted_answer(value, self.question, self._kind) if fit else answer_text(value)

        # They see of pictures how many there are and how large: a statement about other pictures goes the same way.
        shown = tuple((image.index, image.picture.size) for image in self.images)
        sandbox, seed = self.engine.sandbox, self.engine.settings.seed
        trials = await sandbox.once(
            (*programs, self.question, self.form, shown), lambda: try_out(programs, sandbox, self.images, said, seed)
        )
        return trials if refuse else [replace(trial, fault=None) for trial in trials]

    async def _execute(self, program: Program) -> Answer:
        """Checks and runs a program; one that the model wrote and that fails before its first call goes back once."""
        engine = self.engine
        written = self.request.program is None
        repairs_left = engine.writer.settings.repairs if written else 0
        while True:
            self.program = program
            self.tell(Wrote(program))
            try:
                nothing = why_empty(program.completion) if written and not program.source.strip() else ""
                if nothing:
                    raise UnsetAnswerError(nothing)
                return await self._interpret(program)
            except ProgramError as error:
                self.attempts.append((program, error.record()))
                # What ran has cost its model calls, and few programs that fail then come back right. One whose answer
                # is of another kind is told so, and what it asked is remembered.
                again = repairs_left > 0 and (not self.calls.made or isinstance(error, ProgramAnswerError))
                instead: Literal["others", "fallback"] = "others" if self._several else "fallback"
                self.tell(Rejected(program, error.record(), "repair" if again else instead if written else "nothing"))
                if not again:
                    raise
                repairs_left -= 1
                self.calls = self._new_calls()
                program = await self._writer.repair(program, error, engine.services.write, tell=self.listener)
                if self._writer.settings.refuse:
                    self.fault = (await self._try_out([program.source]))[0].fault

    @property
    def _several(self) -> bool:
        """Whether several programs are to run on the pictures."""
        return bool(self.drafts) and self.engine.settings.agree > 1

    async def _agreed(self) -> Answer:
        """Runs several drafts on the pictures; the answer that most of them give is taken.

        Raises:
            ProgramError: none of them answered; why the first failed.
        """
        settings, drafts = self.engine.settings, self.drafts
        sound = [place for place, draft in enumerate(drafts) if draft.fault not in REFUSED]
        order = sound or list(range(len(drafts)))
        order.sort(key=lambda place: (not drafts[place].chosen, -drafts[place].agreement))
        tried: dict[str, tuple[Answer | ProgramError, ProgramCalls]] = {}
        for program in (self.programs[place] for place in order[: settings.agree]):
            spent = sum(len(calls.made) for _, calls in tried.values())
            if program.source in tried or (tried and spent >= settings.limits.about(len(self.images)).calls):
                continue
            try:
                outcome: Answer | ProgramError = await (self._quietly(program) if tried else self._execute(program))
            except ProgramError as error:
                outcome = error
            tried[program.source] = outcome, self.calls
        sources = {place: self.programs[place].source for place in order[: settings.agree]}
        outcomes = {place: tried[source][0] for place, source in sources.items() if source in tried}
        said = {place: outcome for place, outcome in outcomes.items() if isinstance(outcome, Answer)}
        if not said:
            self.program, self.calls = self.attempts[-1][0], tried[sources[order[0]]][1]
            raise next(outcome for outcome in outcomes.values() if isinstance(outcome, ProgramError))
        votes = Counter(answer.text for answer in said.values())
        winner = max(said, key=lambda place: votes[said[place].text])  # the first of those with most
        self.program, self.calls, self.fault = said[winner].program, tried[sources[winner]][1], drafts[winner].fault
        self.drafts = tuple(
            replace(draft, chosen=place == winner, answer=said[place].text if place in said else None)
            for place, draft in enumerate(drafts)
        )
        return self._answer(said[winner].text, value=said[winner].value, printed=said[winner].trace.printed)

    async def _quietly(self, program: Program) -> Answer:
        """Checks and runs a program, and tells nobody."""
        self.program, self.calls = program, self._new_calls(lambda _: None)
        return await self._interpret(program)

    async def _interpret(self, program: Program) -> Answer:
        """Checks and runs a program; the calls that its source tells of begin at once, to share batches."""
        engine = self.engine
        release = engine.settings.answers == "release"  # which needs no answer
        with suppress(*(UnsetAnswerError,) if release else ()):
            await engine.sandbox.check(program.source)
        if engine.settings.ahead:
            wanted = {item.name for item in engine.writer.primitives if item.ahead}
            self.calls.begin_ahead(CallPlan(program.source, self.images, wanted))
        try:
            outcome = await engine.sandbox.run(program.source, self.calls, images=self.images)
            self.program_seconds += outcome.seconds
        except ProgramError as error:
            self.program_seconds += error.seconds
            if not (isinstance(error, UnsetAnswerError) and release):
                raise
            return self._answer("no")
        finally:
            self.calls.close()
        if release:
            return self._answer(release_text(outcome.value), value=plain(outcome.value), printed=outcome.printed)
        # A program that a model wrote is held to its question wherever it runs: on the next set, too.
        fit = engine.writer.settings.fit and (self.request.program is None or bool(program.prompt))
        value = outcome.value
        text = fitted_answer(value, self.question, self._kind) if fit and self.question else answer_text(value)
        return self._answer(text, value=plain(outcome.value), printed=outcome.printed)

    @property
    def _kind(self) -> QuestionKind:
        """What the question wants."""
        return question_kind(self.question, statements=self.engine.writer.prompts_for(self.form).statements)

    def _new_calls(self, tell: Tell | None = None) -> ProgramCalls:
        return ProgramCalls(self.engine.writer.primitives, self._context, self.usage, tell or self.tell)

    def _context(self) -> CallContext:
        engine = self.engine
        shown = self.program.examples if self.program is not None else ()
        only = engine.settings.query.wording == "release"
        knowledge = engine.writer.prompts_for(self.form).knowledge_of(shown, only=only)
        outside = {ref.index for each in self.warnings for ref in each.images} if self._strict else ()
        return CallContext(
            self.question,
            self.form,
            self.images,
            engine.services,
            self.pnpvqa,
            engine.settings,
            engine.eyes,
            knowledge,
            self.request.corrections,
            frozenset(outside),
        )

    async def _read(self, parts: int | None = None) -> Reading:
        """Answers the whole question without a program: the baselines, and the fallback.

        Raises:
            PromptTooLongError: the model has no room for the pictures, not even in so many parts.
            EmptyReadingError: the model said nothing, which tells nobody anything.
        """
        pictures = [(ImageRef(image.index), image.picture) for image in self.images]
        eyes = None if self.request.method == "pnpvqa" else self.engine.eyes
        reading = await (eyes or self.pnpvqa).answer(pictures, self.question, self.form, self.form, parts=parts)
        if not reading.text and self.engine.settings.answers != "release":
            times = "" if eyes else f" {self.engine.settings.query.attempts} times"
            raise EmptyReadingError(f"The reading model gave an empty answer{times}.")
        return reading

    # -- the answer --------------------------------------------------------------------------------------------------

    def _doubts(self) -> Iterator[DomainWarning]:
        """Yields why the program that answers is not to be relied on: none was written that could be."""
        if self.fault in REFUSED:
            yield DomainWarning("unsure", f"Do not rely on this answer: in random worlds, {REFUSED[self.fault]}.")

    def _read_answer(self, reading: Reading) -> Answer:
        return self._answer(reading.text, value=reading.text, baseline=reading.evidence)

    def _answer(
        self, text: str, *, value: Plain = None, printed: str = "", baseline: tuple[Evidence, ...] = ()
    ) -> Answer:
        usage = self.usage
        return Answer(
            self.typed,
            text,
            self.program,
            Trace(tuple(self.calls.made), printed, tuple(self.attempts), baseline, self.drafts),
            value,
            self.request.method,
            seconds=time.perf_counter() - self.started,
            models=dict(self.engine.model_names),
            tokens=usage.tokens,
            cost=Cost(
                usage.seconds,
                self.program_seconds,
                usage.prompt_tokens,
                usage.completion_tokens,
                dict(sorted(usage.kinds.items())),
                usage.estimated_tokens,
            ),
            warnings=self.warnings if baseline else (*self.warnings, *self._doubts()),
            sources=tuple(given for given in self.request.images if not isinstance(given, ImageError)),
        )
