"""A question made ready: checked, its pictures read, and what it asks told apart from what the models cannot know."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..batching.call_cache import Usage
from ..batching.model_services import ModelServices
from ..collections.collection import StoredPicture
from ..core.answer import Answer
from ..core.answer_words import DONT_KNOW
from ..core.errors import EmptyReadingError, InputError, QuestionError
from ..core.images import Picture, load_pictures
from ..core.question_kind import QuestionKind, question_kind
from ..core.settings import Settings
from ..core.text import join_lines
from ..core.trace import Cost, DomainWarning, Form, ImageRef, Program, Trace
from ..models.domain import Domain
from ..models.protocols import Models
from ..primitives.context import CallContext
from ..primitives.eyes import Eyesight
from ..primitives.kinds import Image
from ..primitives.parts import Reading
from ..primitives.pnpvqa import PnPVQA
from ..sandbox.sandbox import Sandbox
from ..writing.writer import Writer
from .many import AnswerSlots
from .request import Request, check_method, read_pictures

if TYPE_CHECKING:
    from ..presets.configuration import Configuration


@dataclass(frozen=True)
class Engine:
    """What answers questions. It holds models and workers, and is the same for all questions."""

    writer: Writer
    models: Models
    settings: Settings
    services: ModelServices
    """The models, with batches and memory."""
    sandbox: Sandbox
    pnpvqa: PnPVQA
    eyes: Eyesight | None
    """Answers in the place of captions; None without a vision-language model."""
    workers: AnswerSlots

    @property
    def model_names(self) -> dict[str, str]:
        """Model ids by role."""
        models = self.models
        roles = {
            "writer": self.writer.language_model,
            "reader": models.reader,
            "matcher": models.matcher,
            "captioner": models.captioner,
            "eyes": models.eyes,
            "detector": models.detector,
            "retriever": self.writer.retriever,
        }
        return {role: model.name for role, model in roles.items() if model is not None}


@dataclass(frozen=True)
class PreparedQuestion:
    """A question that is ready to be answered."""

    engine: Engine
    request: Request
    typed: str
    """The question on one line, as the user wrote it."""
    question: str
    """The question as models are asked it: words may be respelt."""
    form: Form
    images: tuple[Image, ...]
    """The pictures that count. They keep their numbers where others were left out."""
    warnings: tuple[DomainWarning, ...]
    pnpvqa: PnPVQA

    @property
    def strict(self) -> bool:
        """Whether the models are asked of what they know only."""
        return self.engine.settings.strict_domain and not is_own_program(self.request)

    @property
    def writer(self) -> Writer:
        """Writes programs for as many pictures as these."""
        writer = self.engine.writer
        return writer.for_large_sets if len(self.images) > self.engine.settings.sets.large else writer

    @property
    def kind(self) -> QuestionKind:
        """What the question wants."""
        return question_kind(self.question, statements=self.engine.writer.prompts_for(self.form).statements)

    def context(self, program: Program) -> CallContext:
        """Returns the surroundings of one call that a program makes of a primitive."""
        engine = self.engine
        only = engine.settings.query.wording == "release"
        knowledge = engine.writer.prompts_for(self.form).knowledge_of(program.examples, only=only)
        outside = {ref.index for warning in self.warnings for ref in warning.images} if self.strict else ()
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

    async def read(self, parts: int | None = None) -> Reading:
        """Answers the whole question without a program: the baselines, and the fallback.

        Args:
            parts: in how many parts a large set is read at most; None sets no bound.

        Raises:
            PromptTooLongError: the model has no room for the pictures, not even in so many parts.
            EmptyReadingError: the model wrote nothing.
        """
        pictures = [(ImageRef(image.index), image.picture) for image in self.images]
        eyes = None if self.request.method == "pnpvqa" else self.engine.eyes
        reading = await (eyes or self.pnpvqa).answer(pictures, self.question, self.form, self.form, parts=parts)
        if not reading.text and self.engine.settings.answers != "release":
            times = "" if eyes else f" {self.engine.settings.query.attempts} times"
            raise EmptyReadingError(f"The reading model gave an empty answer{times}.")
        return reading

    def within_domain(self) -> PreparedQuestion:
        """Returns the question as the models can know it: without the few pictures that look otherwise, and respelt.

        The warnings say what was done.
        """
        domain = self.engine.models.domain
        if not self.warnings or domain is None:
            return self
        question = domain.respell(self.question)
        messages: dict[str, Callable[[DomainWarning], str]] = {
            "picture": lambda warning: f"Left out: {warning.message}",
            "spelling": lambda warning: f"{warning.message} The question was asked as: {question}",
        }
        outside = {ref.index for warning in self.warnings for ref in warning.images}
        return replace(
            self,
            question=question,
            images=tuple(image for image in self.images if image.index not in outside),
            warnings=tuple(replace(warning, message=messages[warning.kind](warning)) for warning in self.warnings),
        )


def is_own_program(request: Request) -> bool:
    """Whether the user brings the program: it is run whatever the models know. A model's is held to its question."""
    program = request.program
    return program is not None and request.own and not program.prompt


async def prepare(engine: Engine, request: Request) -> PreparedQuestion:
    """Checks a question and reads its pictures.

    Raises:
        QuestionError: it is empty or too long.
        ImageError: a picture cannot be read.
        InputError: the number of pictures does not fit the form.
        SetupError: the models cannot do what the method needs.
    """
    settings, question = engine.settings, request.question
    check_method(request.method, engine.models.methods)
    if request.program is None or question != "":  # a program of the user's needs none
        question = checked_question(question, settings)
    decoded = all(isinstance(image, Picture) for image in request.images)  # then no thread is needed
    pictures = load_pictures(request.images) if decoded else await asyncio.to_thread(read_pictures, request)
    form = request.form or ("image" if len(pictures) == 1 else "set")
    if form == "image" and len(pictures) != 1:
        raise InputError(f"A question about an image needs one image, not {len(pictures)}.", hint="Use form='set'.")
    engine.writer.prompts_for(form)  # says so now if no prompt set serves this form
    warnings: tuple[DomainWarning, ...] = ()
    if engine.models.domain is not None:
        words = "" if is_own_program(request) else question  # the program of a user need not follow the question
        warnings = await domain_warnings(engine.models.domain, engine.services, pictures, words, settings)
    seed = settings.seed if request.seed is None else request.seed
    witness = settings.sets.witness and (request.many or len(pictures) > settings.sets.large)
    pnpvqa = engine.pnpvqa
    if witness or seed != settings.seed:
        pnpvqa = pnpvqa.with_seed(seed, witness=witness)
    images = tuple(Image(number, picture) for number, picture in enumerate(pictures, 1))
    return PreparedQuestion(engine, request, question, question, form, images, warnings, pnpvqa)


def checked_question(question: str, settings: Settings) -> str:
    """Returns a question on one line; several spaces stay several only where prompts are to be the release's.

    Raises:
        QuestionError: it is empty, too long, or no text that can be written down.
    """
    if not isinstance(question, str):
        raise QuestionError(f"A question is a text, not {type(question).__name__}.", hint="Pictures come first.")
    as_it_is = "release" in (settings.writer.wording, settings.query.wording)
    question = join_lines(question) if as_it_is else " ".join(question.split())
    if not question.isascii() and any("\ud800" <= letter <= "\udfff" for letter in question):
        raise QuestionError("The question contains half a surrogate pair, which no text has.", hint="Type it again.")
    if not question:
        raise QuestionError("The question is empty.", hint="Ask something about the picture.")
    if len(question) > settings.max_question:
        limit = f"The limit is {settings.max_question:,}."
        raise QuestionError(f"The question has {len(question):,} characters.", hint=limit)
    return question


async def domain_warnings(
    domain: Domain, services: ModelServices, pictures: Sequence[Picture], words: str, settings: Settings
) -> tuple[DomainWarning, ...]:
    """Says what of a question lies outside of what the models know.

    The matcher looks at the pictures where words and statistics tell nothing. It looks at no large set, in which few
    pictures are looked at otherwise.
    """
    warnings = await asyncio.to_thread(domain.check, pictures, words)
    looks = domain.seen is not None and services.summarises and len(pictures) <= settings.sets.large
    if not looks or unanswerable(warnings, len(pictures)):
        return warnings
    with Usage().counting():  # as with the pictures' statistics, nobody is charged
        summaries = await services.summary.many(pictures)
    others = [number for number, summary in enumerate(summaries, 1) if domain.is_of_another_kind(summary)]
    return await asyncio.to_thread(domain.check, pictures, words, others) if others else warnings


def unanswerable(warnings: tuple[DomainWarning, ...], count: int) -> bool:
    """Whether warnings say that the models cannot know the answer; a word spelt wrongly does not.

    Nor do a few of the pictures, less than half: these are left out, and the warning names them.

    Args:
        warnings: what lies outside.
        count: how many pictures there are.
    """
    grave = [warning for warning in warnings if warning.kind != "spelling"]
    return any(warning.kind == "words" or 2 * len(warning.images) >= count for warning in grave)


def answer_without_models(configuration: Configuration, request: Request) -> Answer | None:
    """Answers a question that lies outside of what a configuration's models know; loads none of them.

    Returns:
        The answer, or None where the models are to be asked.

    Raises:
        InputError: the question or a picture cannot be used.
    """
    from ..presets.assembly import domain_of, names_of

    started = time.perf_counter()
    domain = domain_of(configuration) if configuration.settings.strict_domain else None
    if domain is None:
        return None
    question = checked_question(request.question, configuration.settings)
    pictures = load_pictures(request.images)
    warnings = domain.check(pictures, question)
    if not unanswerable(warnings, len(pictures)):
        return None
    return Answer(
        question,
        DONT_KNOW,
        None,
        Trace(),
        method=request.method,
        seconds=time.perf_counter() - started,
        models=names_of(configuration),
        cost=Cost(),
        warnings=warnings,
        sources=tuple(pictures),
    )


@contextmanager
def keep_on_disk(models: Models, images: Sequence[object]) -> Iterator[None]:
    """Keeps on disk what a question learnt about the pictures of a collection, however it ends."""
    try:
        yield
    finally:
        stored = next((image for image in images if isinstance(image, StoredPicture)), None)
        if stored is not None:
            stored.memory.save()
            for model in vars(models).values():
                if hasattr(model, "keep_features"):
                    model.keep_features()
