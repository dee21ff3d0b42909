"""CodeVQA: from pictures and a question to an answer.

Reads like the paper: the writer asks a language model for a program; the sandbox checks it and runs it; each primitive
it calls is answered by batched models; a program that fails is repaired once, and then plain few-shot PnP-VQA answers
in its place, marked as a fallback.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, TypeAlias

from .ahead import Ahead, Early
from .errors import CodeVQAError, ErrorRecord, InputError, ProgramError, ProgramRuntimeError, QuestionError, record
from .images import ImageSource, Picture, load_pictures
from .loop import LoopThread
from .models.base import Models
from .plan import plan
from .pnpvqa import PnPVQA, Reading
from .primitives.context import CallContext
from .primitives.kinds import Image
from .primitives.signature import Primitive, PrimitiveSet
from .primitives.visual import VISUAL, find_object
from .program import Answer, Call, Form, ImageRef, Plain, Program, Trace
from .sandbox import Sandbox
from .services import Services, Usage
from .settings import Settings
from .values import answer_text, plain
from .writer import Writer

__all__ = ["CodeVQA", "Question"]

Method: TypeAlias = Literal["codevqa", "pnpvqa"]


@dataclass(frozen=True)
class Question:
    """One question for :meth:`CodeVQA.ask_many`."""

    images: ImageSource | Sequence[ImageSource]
    text: str
    form: Form | None = None
    """None: one image is a question about an image, several are a set."""


@dataclass
class _Run:
    """What one question has done so far."""

    question: str
    form: Form
    images: tuple[Image, ...]
    started: float = field(default_factory=time.perf_counter)
    calls: list[Call] = field(default_factory=list)
    attempts: list[tuple[Program, ErrorRecord]] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage.begin)
    pnpvqa: PnPVQA = field(kw_only=True)
    ahead: Ahead | None = None


@dataclass(frozen=True)
class _Result:
    """What a program left, as text and as plain data."""

    text: str
    value: Plain
    printed: str


class CodeVQA:
    """Answers questions about pictures by writing and running programs.

    Args:
        writer: writes the programs; holds the language model, the prompt sets and the retriever.
        models: the models behind the primitives.
        settings: every number of the method.
        primitives: primitives of your own, made with :func:`codevqa.primitive`, offered beside the visual ones.

    One engine serves many threads and tasks at once; their calls share batches. Close it, or use it in a ``with``
    block, to end its worker processes.
    """

    def __init__(
        self, writer: Writer, models: Models, settings: Settings = Settings(), *, primitives: Iterable[Primitive] = ()
    ) -> None:
        own = ([find_object] if models.detector else []) + list(primitives)
        self.writer = writer.with_extra(own)
        self.models = models
        self.settings = settings
        self.primitives: PrimitiveSet = VISUAL.extend(own)
        self._loop = LoopThread("codevqa")
        self._sandbox = Sandbox(self.primitives, settings.limits, workers=settings.workers)
        self._services = Services(
            models,
            writer.language_model,
            max_batch=settings.max_batch,
            max_wait=settings.batch_wait,
            remember=settings.remember,
        )
        self._pnpvqa = PnPVQA(self._services, self.writer.prompts, settings.query, writer.retriever, settings.seed)
        self._pure = frozenset(item.name for item in self.primitives if item.ahead)
        self._slots = asyncio.Semaphore(settings.workers)

    @classmethod
    def from_preset(
        cls,
        name: str = "mini",
        *,
        prompts: str | None = None,
        settings: Settings | None = None,
        primitives: Iterable[Primitive] = (),
        language_model: str | None = None,
        matcher: str | None = None,
        captioner: str | None = None,
        retriever: str | None = None,
    ) -> CodeVQA:
        """Builds an engine from a named preset: ``mini`` (embedded, offline), ``base`` or ``large``.

        Args:
            name: the preset; ``codevqa models`` lists them.
            prompts: prompt set in place of the preset's, such as ``nlvr2``.
            settings: numbers in place of the preset's.
            primitives: primitives of your own.
            language_model: in place of the preset's, e.g. ``openai-chat:gpt-4.1-mini`` or ``transformers:FOLDER``.
            matcher: in place of the preset's, e.g. ``blip:Salesforce/blip-itm-large-coco``.
            captioner: in place of the preset's.
            retriever: in place of the preset's, e.g. ``sentence:all-MiniLM-L6-v2``.

        Raises:
            UnknownNameError: no such preset, prompt set or back end.
            ModelNotFoundError: a checkpoint is not here and cannot be fetched.
        """
        from .models.registry import build

        parts = {
            "language_model": language_model,
            "matcher": matcher,
            "captioner": captioner,
            "retriever": retriever,
        }
        writer, models, used = build(name, prompts=prompts, settings=settings, parts=parts)
        return cls(writer, models, used, primitives=primitives)

    # -- asking ------------------------------------------------------------------------------------------------------

    def ask(
        self,
        images: ImageSource | Sequence[ImageSource],
        question: str,
        *,
        form: Form | None = None,
        method: Method = "codevqa",
        seed: int | None = None,
    ) -> Answer:
        """Answers a question about one picture or several.

        Args:
            images: a path, encoded bytes or PIL image, or a list of them.
            question: a question, or a statement to be judged (yes or no).
            form: ``image`` or ``set``; None decides by the number of images.
            method: ``codevqa``, or ``pnpvqa`` for the baseline without a program.
            seed: seed of patch and caption sampling for this question alone; None takes the settings'.

        Returns:
            The answer with program and trace. A program that failed is marked: ``fallback`` and ``error``.

        Raises:
            ImageError: a picture cannot be used.
            QuestionError: the question is empty or too long.
            ModelError: a model failed; ServerError when a model server is down.
        """
        return self._loop.run(self._ask(images, question, form, method, seed))

    async def ask_async(
        self,
        images: ImageSource | Sequence[ImageSource],
        question: str,
        *,
        form: Form | None = None,
        method: Method = "codevqa",
        seed: int | None = None,
    ) -> Answer:
        """Async twin of :meth:`ask`; call it from any event loop."""
        return await self._loop.wait(self._ask(images, question, form, method, seed))

    def ask_many(self, questions: Iterable[Question], *, method: Method = "codevqa") -> list[Answer]:
        """Answers many questions at once, sharing batches; the answers come in the order of the questions.

        A question that cannot be answered at all gives an answer with empty ``text`` and its ``error`` set, so that
        one bad picture loses nothing.
        """
        return self._loop.run(self._ask_many(questions, method))

    async def ask_many_async(self, questions: Iterable[Question], *, method: Method = "codevqa") -> list[Answer]:
        """Async twin of :meth:`ask_many`."""
        return await self._loop.wait(self._ask_many(questions, method))

    def run(self, program: Program | str, images: ImageSource | Sequence[ImageSource], *, question: str = "") -> Answer:
        """Runs a program that a user wrote or edited. Nothing falls back.

        Args:
            program: the program, or its source. It may leave out the line that opens the images: ``img`` and
                ``images`` are there already.
            images: as for :meth:`ask`.
            question: kept with the answer; ``get_pos`` may use it.

        Raises:
            ProgramError: the program does not parse, does not check, or fails while running.
            ImageError: a picture cannot be used.
            ModelError: a model failed.
        """
        return self._loop.run(self._run_program(program, images, question))

    async def run_async(
        self, program: Program | str, images: ImageSource | Sequence[ImageSource], *, question: str = ""
    ) -> Answer:
        """Async twin of :meth:`run`."""
        return await self._loop.wait(self._run_program(program, images, question))

    def prompt(self, question: str, *, form: Form = "image") -> str:
        """Returns exactly what the language model would see for a question."""
        from .writer import prompt_text

        request, _ = self.writer.request(self._checked(question), form)
        return prompt_text(request.prompt)

    def close(self) -> None:
        """Ends worker processes and threads. Safe to call twice."""
        if self._loop.closed:
            return
        self._loop.run(self._sandbox.aclose())
        self._services.close()
        self._loop.close()

    def __enter__(self) -> CodeVQA:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    # -- one question ------------------------------------------------------------------------------------------------

    async def _ask(
        self,
        sources: ImageSource | Sequence[ImageSource],
        text: str,
        form: Form | None,
        method: Method,
        seed: int | None = None,
    ) -> Answer:
        with self._services.question():
            return await self._answered(await self._begin(sources, self._checked(text), form, seed), method)

    async def _answered(self, run: _Run, method: Method) -> Answer:
        if method == "pnpvqa":
            reading = await self._read(run)
            return self._answer(run, None, text=reading.text, value=reading.text, method=method, baseline=reading)
        program = await self.writer.write(run.question, run.form, self._services.write)
        try:
            program, result = await self._execute(program, run)
        except ProgramError as error:
            # Never a quiet default: plain few-shot PnP-VQA answers in the program's place, and the answer says so.
            reading, failed = await self._read(run), run.attempts[-1][0]
            return self._answer(
                run,
                failed,
                text=reading.text,
                value=reading.text,
                baseline=reading,
                fallback=True,
                error=error.record(),
            )
        return self._answer(run, program, text=result.text, value=result.value, printed=result.printed)

    async def _ask_many(self, questions: Iterable[Question], method: Method) -> list[Answer]:
        async def one(question: Question) -> Answer:
            async with self._slots:
                try:
                    return await self._ask(question.images, question.text, question.form, method)
                except CodeVQAError as error:
                    return Answer(question.text, "", None, Trace(), method=method, error=error.record())

        return list(await asyncio.gather(*map(one, questions)))

    async def _execute(self, program: Program, run: _Run) -> tuple[Program, _Result]:
        """Checks and runs a program; one that fails the check goes back to the writer first."""
        repairs_left = self.writer.settings.repairs
        while True:
            try:
                await self._sandbox.check(program.source)
                return program, await self._interpret(program, run)
            except ProgramError as error:
                run.attempts.append((program, error.record()))
                if run.calls or not repairs_left:  # what ran already has cost its model calls: do not start over
                    raise
                repairs_left -= 1
                program = await self.writer.repair(program, error, self._services.write)

    async def _interpret(self, program: Program, run: _Run) -> _Result:
        async def host(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], line: int | None) -> object:
            return await self._call(run, name, args, kwargs, line)

        run.ahead = self._begin_ahead(program, run)
        try:
            outcome = await self._sandbox.run(program.source, host, images=run.images)
        finally:
            run.ahead.close()
        return _Result(answer_text(outcome.value), plain(outcome.value), outcome.printed)

    def _begin_ahead(self, program: Program, run: _Run) -> Ahead:
        """Begins the calls that the program is going to make, as far as its source tells."""
        ahead = Ahead(self.primitives, lambda: self._context(run))
        if self.settings.ahead:
            planned = plan(program.source, run.images, self._pure)
            chosen = [one for one in planned if one.certain or self.settings.ahead_likely]
            if len(chosen) > 1:  # a single call has nothing to share a batch with
                ahead.begin(chosen)
        return ahead

    def _context(self, run: _Run) -> CallContext:
        return CallContext(run.question, run.form, run.images, self._services, run.pnpvqa, self.settings)

    async def _call(
        self, run: _Run, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], line: int | None
    ) -> object:
        """Answers one call of a primitive and keeps it in the trace."""
        started = time.perf_counter()
        context = self._context(run)
        early: Early | None = None
        arguments: dict[str, object] = {}
        value: object = None
        failure: ErrorRecord | None = None
        try:
            arguments = self.primitives.bind(name, args, kwargs)
            early = run.ahead.take(name, arguments) if run.ahead else None
            value = await (early.task if early else self.primitives.get(name).call(context, arguments))
            return value
        except (CodeVQAError, TypeError, ValueError, LookupError) as error:  # the last three a program may catch
            failure = record(error)
            raise
        except Exception as error:
            failure = record(error)
            raise ProgramRuntimeError(f"{name}() failed: {failure.type}: {failure.message}", line=line) from error
        finally:
            shown = {key: plain(item) for key, item in arguments.items()}
            seconds = time.perf_counter() - started
            if early:
                run.usage.tokens += early.usage.tokens
            evidence = tuple((early.context if early else context).evidence)
            # A program waits for each call, so they end in the order they began.
            run.calls.append(Call(len(run.calls) + 1, name, shown, plain(value), seconds, line, evidence, failure))

    async def _read(self, run: _Run) -> Reading:
        """Answers the whole question from captions: the baseline, and the fallback."""
        pictures = [(ImageRef(image.index), image.picture) for image in run.images]
        return await run.pnpvqa.answer(pictures, run.question, run.form, run.form)

    async def _run_program(
        self, program: Program | str, sources: ImageSource | Sequence[ImageSource], question: str
    ) -> Answer:
        if isinstance(program, str):
            program = Program(program, question)
        with self._services.question():
            run = await self._begin(sources, question or program.question, "set" if program.form == "set" else None)
            await self._sandbox.check(program.source)
            result = await self._interpret(program, run)
        return self._answer(run, program, text=result.text, value=result.value, printed=result.printed)

    # -- small parts -------------------------------------------------------------------------------------------------

    async def _begin(
        self,
        sources: ImageSource | Sequence[ImageSource],
        question: str,
        form: Form | None,
        seed: int | None = None,
    ) -> _Run:
        pictures: tuple[Picture, ...] = await asyncio.to_thread(load_pictures, sources)
        if form is None:
            form = "image" if len(pictures) == 1 else "set"
        if form == "image" and len(pictures) != 1:
            raise InputError(f"A question about an image needs one image, not {len(pictures)}.", hint="Use form='set'.")
        self.writer.prompts_for(form)  # says so now if no prompt set serves this form
        images = tuple(Image(number, picture) for number, picture in enumerate(pictures, 1))
        seed = self.settings.seed if seed is None else seed
        return _Run(question, form, images, pnpvqa=self._pnpvqa.with_seed(seed))

    def _checked(self, question: str) -> str:
        question = " ".join(question.split())
        if not question:
            raise QuestionError("The question is empty.", hint="Ask something about the picture.")
        if len(question) > self.settings.max_question:
            raise QuestionError(
                f"The question has {len(question):,} characters.", hint=f"The limit is {self.settings.max_question:,}."
            )
        return question

    def _answer(
        self, run: _Run, program: Program | None, *, printed: str = "", baseline: Reading | None = None, **fields: Any
    ) -> Answer:
        read = (baseline.evidence,) if baseline else ()
        trace = Trace(tuple(run.calls), printed, tuple(run.attempts), read)
        seconds = time.perf_counter() - run.started
        return Answer(
            run.question,
            program=program,
            trace=trace,
            seconds=seconds,
            models=self.model_names,
            tokens=run.usage.tokens,
            **fields,
        )

    @property
    def model_names(self) -> dict[str, str]:
        """Model ids by role."""
        names = {
            "writer": self.writer.language_model.name,
            "reader": self.models.reader.name,
            "matcher": self.models.matcher.name,
            "captioner": self.models.captioner.name,
        }
        if self.models.detector:
            names["detector"] = self.models.detector.name
        if self.writer.retriever:
            names["retriever"] = self.writer.retriever.name
        return names
