"""CodeVQA: the engine as users meet it. The course of a question, step by step, is in :mod:`.question_run`."""

from __future__ import annotations

import weakref
from collections.abc import Coroutine, Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from inspect import signature
from types import TracebackType
from typing import TYPE_CHECKING, Any, Never, TypeVar, Unpack

from ..batching.model_services import ModelServices
from ..collections.collection import Pictures
from ..core.answer import Answer
from ..core.errors import SetupError
from ..core.events import EventListener
from ..core.loop_thread import LoopThread, check_process
from ..core.settings import Settings
from ..core.trace import Form, Program
from ..models.protocols import Models, prompt_text
from ..primitives.eyes import Eyesight
from ..primitives.pnpvqa import PnPVQA
from ..primitives.signature import Primitive, PrimitiveSet
from ..primitives.visual import servable_names
from ..sandbox.sandbox import Sandbox
from ..sandbox.workers import Pools
from ..writing.writer import Writer
from .many import AnswerSlots
from .prepared_question import Engine, checked_question
from .question_run import answer_request
from .request import AskOptions, Request, RunOptions, ask_request, check_names, check_options, run_request
from .sets import ManyQuestions
from .watch import Watch

if TYPE_CHECKING:
    from ..presets.configuration import Configuration


Result = TypeVar("Result")


class CodeVQA(ManyQuestions):
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
        if models.eyes is None and not models.reads:
            raise SetupError(
                "Nothing here can answer a question about a picture.",
                hint="Give Models a matcher and a captioner (BLIP), or eyes (a vision-language model).",
            )
        self.writer = writer.with_extra(primitives, servable_names(models))
        self.models = models
        self.settings = settings
        self.configuration: Configuration | None = None
        """What it was made from, where it was made from one."""
        self.primitives: PrimitiveSet = self.writer.primitives
        services = ModelServices(
            models,
            writer.language_model,
            max_batch=settings.max_batch,
            max_wait=settings.batch_wait,
            retriever=writer.retriever,
            remember=settings.remember,
        )
        sandbox = Sandbox(self.primitives, settings.limits, workers=settings.workers)
        self.engine = Engine(
            self.writer,
            models,
            settings,
            services,
            sandbox,
            PnPVQA(services, self.writer.prompts, settings.query, writer.retriever, settings.seed),
            Eyesight(services, self.writer.prompts, settings.query) if models.eyes else None,
            AnswerSlots(settings.workers),
        )
        """What answers questions."""
        # The thread lives until it is told to end: what it holds must not hold this engine, as primitives may.
        self.own_parts: list[object] = []
        """What is closed with the engine, such as models that were loaded for it."""
        self._loop = LoopThread("codevqa", partial(_close_parts, sandbox.pools, services, self.own_parts))
        weakref.finalize(self, self._loop.end).atexit = False

    @classmethod
    def from_preset(
        cls,
        name: str = "mini",
        *,
        prompts: str | None = None,
        settings: Settings | None = None,
        primitives: Iterable[Primitive] = (),
        model: str | None = None,
        language_model: str | None = None,
        matcher: str | None = None,
        captioner: str | None = None,
        retriever: str | None = None,
        detector: str | None = None,
        eyes: str | None = None,
        sets: Mapping[str, object] = {},
        **unknown: Never,
    ) -> CodeVQA:
        """Builds an engine from a preset, such as ``mini`` (embedded, offline), or from a file of one's own.

        Args:
            name: the preset; ``codevqa models`` lists them. Or a TOML file, such as ``codevqa config`` prints.
            prompts: prompt set in place of the preset's, such as ``nlvr2``.
            settings: numbers in place of the preset's.
            primitives: primitives of your own.
            model: a vision-language model on a server, which writes the programs and looks at pictures, as ``--model``.
            language_model: in place of the preset's, e.g. ``openai-chat:gpt-4.1-mini`` or ``transformers:FOLDER``.
            matcher: in place of the preset's, e.g. ``blip:Salesforce/blip-itm-large-coco``, or of LAVIS's own files
                ``blip:https://HOST/FILE.pth#sha256=HEX``.
            captioner: in place of the preset's.
            retriever: in place of the preset's, e.g. ``sentence:all-MiniLM-L6-v2``.
            detector: in place of the preset's, if it has one, e.g. ``zero-shot:IDEA-Research/grounding-dino-base``.
            eyes: a vision-language model that answers in the place of captions, e.g. ``openai:Qwen3-VL-8B`` (a server)
                or ``transformers:FOLDER``.
            sets: single values under dotted names, as for ``codevqa --set``: ``{"query.captions": 3, "matcher.dtype":
                "float32"}``.

        Raises:
            UnknownNameError: no such preset, prompt set or back end.
            InputError: no such field or option, or a value that it cannot have.
            ModelNotFoundError: a checkpoint is not here and cannot be fetched.
        """
        from ..presets.configuration import Layer, configure, server_parts

        check_names("from_preset()", unknown, [*signature(cls.from_preset).parameters][:-1])
        choices = {
            "prompts": prompts,
            "language_model": language_model,
            "matcher": matcher,
            "captioner": captioner,
            "retriever": retriever,
            "detector": detector,
            "eyes": eyes,
        }
        both = {} if model is None else server_parts(model)
        values = {**both, **{field: value for field, value in choices.items() if value is not None}, **sets}
        configuration = configure(name, [Layer("given", values)], settings=settings)
        return cls.from_configuration(configuration, primitives=primitives)

    @classmethod
    def from_configuration(cls, configuration: Configuration, *, primitives: Iterable[Primitive] = ()) -> CodeVQA:
        """Builds an engine from a configuration (:func:`codevqa.presets.configuration.configure`).

        Raises:
            UnknownNameError: no such prompt set.
            ModelNotFoundError: a checkpoint is not here and cannot be fetched.
        """
        from ..presets.assembly import build

        writer, models, here = build(configuration)
        engine = cls(writer, models, here.settings, primitives=primitives)
        engine.configuration = here
        engine.own_parts += [writer.language_model, writer.retriever, *vars(models).values()]
        return engine

    # -- asking ------------------------------------------------------------------------------------------------------

    def ask(self, images: Pictures, question: str, **options: Unpack[AskOptions]) -> Answer:
        """Answers a question about one picture or several.

        Args:
            images: a path, encoded bytes, a PIL image or a NumPy array, or a list of them. PIL images and arrays are
                copied before this returns or waits: they may change at once.
            question: a question, or a statement to be judged (yes or no).
            options: ``form``, ``method``, ``seed``, ``shots``, ``memory``, ``corrections``; see
                :class:`~codevqa.engine.request.AskOptions`.

        Returns:
            The answer with program and trace. A program that failed is marked: ``fallback`` and ``error``.

        Raises:
            ImageError: a picture cannot be used.
            QuestionError: the question is empty or too long.
            InputError: there are fewer examples than ``shots``.
            ModelError: a model failed; ServerError when a model server is down.
        """
        return self._wait(answer_request(self.engine, ask_request(images, question, options)))

    def ask_async(self, images: Pictures, question: str, **options: Unpack[AskOptions]) -> Coroutine[Any, Any, Answer]:
        """Async twin of :meth:`ask`; call it from any event loop."""
        return self._answer(ask_request(images, question, options))

    def watch(self, images: Pictures, question: str, **options: Unpack[AskOptions]) -> Watch:
        """Answers a question as :meth:`ask` does, and tells every step of it while it is made.

        Returns:
            What happens, to iterate over (:mod:`codevqa.core.events`). It never raises what :meth:`ask` raises: that
            is its last event, ``Failed``.
        """
        return self._watch(ask_request(images, question, options))

    # -- programs of the user's --------------------------------------------------------------------------------------

    def run(
        self,
        images: Pictures,
        program: Program | str,
        *,
        question: str = "",
        **options: Unpack[RunOptions],
    ) -> Answer:
        """Runs a program that a user wrote or edited. Nothing falls back.

        Args:
            images: as for :meth:`ask`.
            program: the program, or its source. It may leave out the line that opens the images: ``img`` and
                ``images`` are there already.
            question: kept with the answer; ``get_pos`` may use it.
            options: ``form``, ``seed``, ``memory``, ``corrections``; see
                :class:`~codevqa.engine.request.RunOptions`.

        Raises:
            ProgramError: the program does not parse, does not check, or fails while running. Its ``answer`` has an
                empty text and the trace of all that ran until then.
            QuestionError: the question is too long.
            ImageError: a picture cannot be used.
            ModelError: a model failed.
        """
        return self._wait(answer_request(self.engine, run_request(images, program, question, options)))

    def run_async(
        self,
        images: Pictures,
        program: Program | str,
        *,
        question: str = "",
        **options: Unpack[RunOptions],
    ) -> Coroutine[Any, Any, Answer]:
        """Async twin of :meth:`run`."""
        return self._answer(run_request(images, program, question, options))

    def watch_run(
        self,
        images: Pictures,
        program: Program | str,
        *,
        question: str = "",
        **options: Unpack[RunOptions],
    ) -> Watch:
        """Runs a program as :meth:`run` does, and tells every step of it; see :meth:`watch`.

        A program that fails ends with ``Failed``, which holds the calls that ran until then.
        """
        return self._watch(run_request(images, program, question, options))

    def _wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Returns what work gives that is done in the engine's thread."""
        return self._loop.run(work)

    def _submit(self, work: Coroutine[Any, Any, Answer]) -> Future[Answer]:
        """Begins work in the engine's thread."""
        return self._loop.submit(work)

    async def _answer(self, request: Request) -> Answer:
        return await self._loop.wait(answer_request(self.engine, request))

    def _watch(self, request: Request) -> Watch:
        async def answer(tell: EventListener) -> Answer:
            return await answer_request(self.engine, request, tell)  # and keeps this engine while it is under way

        return Watch(lambda tell: self._loop.submit(answer(tell)))

    # -- the rest ----------------------------------------------------------------------------------------------------

    def prompt(self, question: str, *, form: Form = "image", shots: int | None = None) -> str:
        """Returns exactly what the language model would see for a question."""
        check_process()
        check_options(Request((), question, form=form, shots=shots))
        request, _ = self.writer.request(checked_question(question, self.settings), form, shots)
        return prompt_text(request.prompt)

    def close(self) -> None:
        """Ends worker processes and threads. Questions under way fail with an ``EngineClosedError``.

        Any thread may close an engine, any number of times; each waits until it is closed. A primitive may close the
        engine that runs it, which then closes when the primitive has returned.
        """
        self._loop.close()

    def __enter__(self) -> CodeVQA:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        models = ", ".join(f"{role} {name}" for role, name in self.model_names.items())
        preset = f" {self.configuration.preset}" if self.configuration else ""
        return f"<CodeVQA{preset}: {models}{', closed' if self._loop.closed else ''}>"


async def _close_parts(pools: Pools, services: ModelServices, own_parts: Iterable[object]) -> None:
    """Ends workers, the models' threads, and what models that were loaded for the engine have running."""
    await pools.aclose()
    services.close()
    for part in {id(part): part for part in own_parts}.values():
        if hasattr(part, "close"):
            part.close()
