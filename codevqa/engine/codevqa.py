"""CodeVQA: the engine as users meet it. The course of a question, step by step, is in :mod:`.question_run`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Unpack, get_args

from ..batching.model_services import ModelServices
from ..core.answer import Answer
from ..core.errors import CodeVQAError, InputError
from ..core.images import ImageSource
from ..core.loop_thread import LoopThread
from ..core.settings import Settings
from ..core.trace import Form, Method, Program, Trace
from ..models.base import Models, chats, prompt_text
from ..primitives.pnpvqa import PnPVQA
from ..primitives.signature import Primitive, PrimitiveSet
from ..primitives.visual import VISUAL, find_object
from ..sandbox.sandbox import Sandbox
from ..writing.writer import Writer
from .question_run import EngineParts, answer_request, checked_question
from .request import AskOptions, Request, RunOptions, check_options
from .watch import Watch

__all__ = ["CodeVQA", "Method", "Question"]


_MANY = "ask_many() takes a list of Question, and a method: 'codevqa' or 'pnpvqa'."


@dataclass(frozen=True)
class Question:
    """One question for :meth:`CodeVQA.ask_many`."""

    images: ImageSource | Sequence[ImageSource]
    text: str
    form: Form | None = None
    """None: one image is a question about an image, several are a set."""


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
        self._services = ModelServices(
            models,
            writer.language_model,
            max_batch=settings.max_batch,
            max_wait=settings.batch_wait,
            remember=settings.remember,
        )
        self._parts = EngineParts(
            self.writer,
            settings,
            self.primitives,
            frozenset(item.name for item in self.primitives if item.ahead),
            Sandbox(self.primitives, settings.limits, workers=settings.workers),
            self._services,
            PnPVQA(
                self._services,
                self.writer.prompts,
                settings.query,
                writer.retriever,
                settings.seed,
                chat=chats(models.reader, only=True),
            ),
            self.model_names,
        )
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
        from ..presets.assembly import build

        parts = {
            "language_model": language_model,
            "matcher": matcher,
            "captioner": captioner,
            "retriever": retriever,
        }
        writer, models, used = build(name, prompts=prompts, settings=settings, parts=parts)
        return cls(writer, models, used, primitives=primitives)

    # -- asking ------------------------------------------------------------------------------------------------------

    def ask(self, images: ImageSource | Sequence[ImageSource], question: str, **options: Unpack[AskOptions]) -> Answer:
        """Answers a question about one picture or several.

        Args:
            images: a path, encoded bytes or PIL image, or a list of them.
            question: a question, or a statement to be judged (yes or no).
            options: ``form``, ``method``, ``seed``, ``shots``, ``memory``; see
                :class:`~codevqa.engine.request.AskOptions`.

        Returns:
            The answer with program and trace. A program that failed is marked: ``fallback`` and ``error``.

        Raises:
            ImageError: a picture cannot be used.
            QuestionError: the question is empty or too long.
            InputError: there are fewer examples than ``shots``.
            ModelError: a model failed; ServerError when a model server is down.
        """
        return self._loop.run(answer_request(self._parts, Request(images, question, **options)))

    async def ask_async(
        self, images: ImageSource | Sequence[ImageSource], question: str, **options: Unpack[AskOptions]
    ) -> Answer:
        """Async twin of :meth:`ask`; call it from any event loop."""
        return await self._loop.wait(answer_request(self._parts, Request(images, question, **options)))

    def watch(self, images: ImageSource | Sequence[ImageSource], question: str, **options: Unpack[AskOptions]) -> Watch:
        """Answers a question as :meth:`ask` does, and tells every step of it while it is made.

        Returns:
            What happens, to iterate over (:mod:`codevqa.core.events`). It never raises what :meth:`ask` raises: that
            is its last event, ``Failed``.
        """
        return self._watch(Request(images, question, **options))

    def ask_many(self, questions: Iterable[Question], *, method: Method = "codevqa") -> list[Answer]:
        """Answers many questions at once, sharing batches; the answers come in the order of the questions.

        A question that cannot be answered at all gives an answer with empty ``text`` and its ``error`` set, so that
        one bad picture loses nothing.

        Raises:
            InputError: these are no questions.
        """
        return self._loop.run(self._ask_many(questions, method))

    async def ask_many_async(self, questions: Iterable[Question], *, method: Method = "codevqa") -> list[Answer]:
        """Async twin of :meth:`ask_many`."""
        return await self._loop.wait(self._ask_many(questions, method))

    async def _ask_many(self, questions: Iterable[Question], method: Method) -> list[Answer]:
        async def one(question: Question) -> Answer:
            async with self._slots:
                try:
                    if not isinstance(question, Question):
                        raise InputError(f"A {type(question).__name__} is no Question.", hint=_MANY)
                    request = Request(question.images, question.text, question.form, method)
                    return await answer_request(self._parts, request)
                except CodeVQAError as error:
                    text = str(getattr(question, "text", ""))
                    return Answer(text, "", None, Trace(), method=method, error=error.record())

        if method not in get_args(Method) or not isinstance(questions, Iterable):
            raise InputError("There are no questions to answer.", hint=_MANY)
        return list(await asyncio.gather(*map(one, questions)))

    # -- programs of the user's --------------------------------------------------------------------------------------

    def run(
        self,
        program: Program | str,
        images: ImageSource | Sequence[ImageSource],
        *,
        question: str = "",
        **options: Unpack[RunOptions],
    ) -> Answer:
        """Runs a program that a user wrote or edited. Nothing falls back.

        Args:
            program: the program, or its source. It may leave out the line that opens the images: ``img`` and
                ``images`` are there already.
            images: as for :meth:`ask`.
            question: kept with the answer; ``get_pos`` may use it.
            options: ``form``, ``seed``, ``memory``; see :class:`~codevqa.engine.request.RunOptions`.

        Raises:
            ProgramError: the program does not parse, does not check, or fails while running. Its ``answer`` has an
                empty text and the trace of all that ran until then.
            QuestionError: the question is too long.
            ImageError: a picture cannot be used.
            ModelError: a model failed.
        """
        return self._loop.run(answer_request(self._parts, _run_request(program, images, question, options)))

    async def run_async(
        self,
        program: Program | str,
        images: ImageSource | Sequence[ImageSource],
        *,
        question: str = "",
        **options: Unpack[RunOptions],
    ) -> Answer:
        """Async twin of :meth:`run`."""
        return await self._loop.wait(answer_request(self._parts, _run_request(program, images, question, options)))

    def watch_run(
        self,
        program: Program | str,
        images: ImageSource | Sequence[ImageSource],
        *,
        question: str = "",
        **options: Unpack[RunOptions],
    ) -> Watch:
        """Runs a program as :meth:`run` does, and tells every step of it; see :meth:`watch`.

        A program that fails ends with ``Failed``, which holds the calls that ran until then.
        """
        return self._watch(_run_request(program, images, question, options))

    def _watch(self, request: Request) -> Watch:
        return Watch(lambda tell: self._loop.submit(answer_request(self._parts, request, tell)))

    # -- the rest ----------------------------------------------------------------------------------------------------

    def prompt(self, question: str, *, form: Form = "image", shots: int | None = None) -> str:
        """Returns exactly what the language model would see for a question."""
        check_options(Request((), question, form=form, shots=shots))
        request, _ = self.writer.request(checked_question(question, self.settings.max_question), form, shots)
        return prompt_text(request.prompt)

    def close(self) -> None:
        """Ends worker processes and threads. Safe to call twice."""
        if self._loop.closed:
            return
        self._loop.run(self._parts.sandbox.aclose())
        self._services.close()
        self._loop.close()

    def __enter__(self) -> CodeVQA:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

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


def _run_request(
    program: Program | str, images: ImageSource | Sequence[ImageSource], question: str, options: RunOptions
) -> Request:
    """Returns what is wanted where the user brings the program."""
    if isinstance(program, str):
        program = Program(program, question)
    elif not isinstance(program, Program):
        raise InputError(f"A program is a text or a Program, not {type(program).__name__}.")
    request = Request(images, question or program.question, program=program, **options)
    return replace(request, form="set") if request.form is None and program.form == "set" else request
