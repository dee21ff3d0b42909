"""What an engine is asked at once: many questions, or something about each of many pictures; and their index."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Coroutine, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from ..batching.call_cache import Memory, Usage
from ..collections.collection import Collection, Pictures, ProgressListener, freeze_pictures, picture_file
from ..core.answer import Answer
from ..core.answer_words import DONT_KNOW
from ..core.errors import CodeVQAError, InputError, ProgramError
from ..core.images import load_pictures
from ..core.settings import Settings
from ..core.table import Table
from ..core.trace import ImageRef, Method, Program, Trace
from ..models.protocols import SimilarityRequest
from ..presets.identity import identity_of
from .many import Begin, Progress, QuestionLike, as_request, check, follow_progress, stream, stream_async, text_of
from .prepared_question import Engine, checked_question, keep_on_disk
from .question_run import answer_request
from .request import AskOptions, Errors, Request, RunOptions, run_request
from .tables import NO_BUDGET, Budget, Questions, TableRun, parse_questions
from .tables import Progress as TableProgress

if TYPE_CHECKING:
    from ..presets.configuration import Configuration

Result = TypeVar("Result")

CHUNK = 64
"""Pictures that are indexed at a time."""


@dataclass(frozen=True)
class Group:
    """Pictures of which a question has one answer."""

    answer: str
    """Empty where the models said nothing."""
    pictures: tuple[ImageRef, ...]


@dataclass(frozen=True)
class Groups:
    """Pictures by what was answered about each."""

    rows: tuple[Group, ...]
    """The largest first."""
    answer: Answer
    """With the program, its trace and its cost."""

    def __iter__(self) -> Iterator[Group]:
        return iter(self.rows)

    def _repr_html_(self) -> str:
        from ..pages.answer_page import with_pictures
        from ..pages.render import notebook_html

        return with_pictures(self.answer, lambda pictures: notebook_html("groups", pictures, self.rows))


SELECT, GROUP = (
    'answer = select(images, {}) or "none"',
    """\
def ask(img):
    try:
        return query(img, {})
    except ValueError:
        return ""
answer = [ask(img) for img in images]""",
)


async def index_collection(engine: Engine, collection: Collection, progress: ProgressListener | None) -> None:
    """Computes what models keep of the pictures of a collection, and writes it to disk, however it ends."""
    pictures = await asyncio.to_thread(lambda: load_pictures(freeze_pictures(collection)))
    models = engine.models
    # What is remembered would not be computed, and so not be kept.
    with keep_on_disk(models, pictures), Usage(memory=Memory(0)).counting():
        for start in range(0, len(pictures), CHUNK):
            chunk, ahead = pictures[start : start + CHUNK], pictures[start + CHUNK : start + 2 * CHUNK]
            if models.domain is not None:
                await asyncio.to_thread(models.domain.check, chunk, "")
            if models.matcher is not None:
                if hasattr(models.matcher, "expect"):  # it reads the next pictures while it computes these
                    await asyncio.to_thread(models.matcher.expect, ahead)
                await engine.services.similarity.many([SimilarityRequest(picture, "a picture") for picture in chunk])
            if progress is not None:
                progress(start + len(chunk), len(pictures))


class ManyQuestions(ABC):
    """What an engine is asked at once: many questions; which of many pictures, how they group, how sets compare."""

    engine: Engine
    settings: Settings
    configuration: Configuration | None
    """What it was made from, where it was made from one."""

    @property
    def model_names(self) -> dict[str, str]:
        """Model ids by role."""
        return self.engine.model_names

    @abstractmethod
    def ask(self, images: Pictures, question: str, **options: Unpack[AskOptions]) -> Answer:
        """Answers a question; see :meth:`codevqa.CodeVQA.ask`."""

    @abstractmethod
    def run(
        self, images: Pictures, program: Program | str, *, question: str = "", **options: Unpack[RunOptions]
    ) -> Answer:
        """Runs a program; see :meth:`codevqa.CodeVQA.run`."""

    @abstractmethod
    def _wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Returns what work gives that is done in the engine's thread."""

    @abstractmethod
    def _submit(self, work: Coroutine[Any, Any, Answer]) -> Future[Answer]:
        """Begins work in the engine's thread."""

    def ask_many(
        self,
        questions: Iterable[QuestionLike],
        *,
        method: Method = "codevqa",
        errors: Errors = "return",
        progress: Progress = False,
    ) -> list[Answer]:
        """Answers many questions at once, sharing batches; the answers come in the order of the questions.

        Args:
            questions: each a :class:`Question`, or images and text as a pair.
            method: for all of them.
            errors: ``return`` gives a question that cannot be answered at all an answer with empty ``text`` and its
                ``error`` set, so that one bad picture loses nothing; ``raise`` ends with the first of them.
            progress: True shows a bar on standard error; or a function of how many are answered, and of how many.

        Raises:
            InputError: these are no questions.
            CodeVQAError: with ``raise``, what a question failed of.
        """
        answer_of = {}
        answers = self.ask_stream(questions, method=method, errors=errors)
        with follow_progress(progress, questions) as one_more, closing(answers):
            for place, answer in answers:
                answer_of[place] = answer
                one_more()
        return [answer_of[place] for place in range(len(answer_of))]

    def ask_stream(
        self, questions: Iterable[QuestionLike], *, method: Method = "codevqa", errors: Errors = "return"
    ) -> Generator[tuple[int, Answer]]:
        """Answers many questions as :meth:`ask_many` does, and yields each answer when it is there.

        Yields:
            The question's place, from 0 on, and its answer. Questions are taken when there is room for them, so they
            may come from a generator without end; leaving the loop ends what is under way.
        """
        check(questions, method, errors)
        # One waits behind each that is answered, so that no worker does.
        return stream(self._beginning(method, errors), questions, 2 * self.settings.workers)

    def ask_stream_async(
        self, questions: Iterable[QuestionLike], *, method: Method = "codevqa", errors: Errors = "return"
    ) -> AsyncGenerator[tuple[int, Answer]]:
        """Async twin of :meth:`ask_stream`."""
        check(questions, method, errors)
        return stream_async(self._beginning(method, errors), questions, 2 * self.settings.workers)

    def _beginning(self, method: Method, errors: Errors) -> Begin:
        async def answer_question(text: str, request: Request | InputError) -> Answer:
            async with self.engine.workers.free_for(request):
                try:
                    if isinstance(request, InputError):
                        raise request
                    return await answer_request(self.engine, request, errors=errors)
                except CodeVQAError as error:
                    if errors == "raise":
                        raise
                    return Answer(text, "", None, Trace(), method=method, error=error.record())

        return lambda asked: self._submit(answer_question(text_of(asked), as_request(asked, method)))

    def select(self, images: Pictures, description: str, **options: Unpack[RunOptions]) -> Answer:
        """Picks the pictures that show something: runs ``answer = select(images, description)``.

        Returns:
            The answer. Its :attr:`~codevqa.Answer.selections` tell the pictures, the surest first, and their doubt; its
            text is "none" where there is none, and "I don't know" where the models know the words or the pictures not.

        Raises:
            QuestionError: the description is empty or too long.
            CodeVQAError: as :meth:`run`.
        """
        return self._run_for(images, SELECT, description, options)

    def group(self, images: Pictures, question: str, **options: Unpack[RunOptions]) -> Groups:
        """Asks each picture a question, and groups them by its answer.

        Raises:
            QuestionError: the question is empty or too long.
            CodeVQAError: as :meth:`run`.
        """
        answer = self._run_for(images, GROUP, question, options)
        warnings = answer.warnings if self.settings.strict_domain else ()  # then they get no answer
        outside = {ref.index for warning in warnings for ref in warning.images}
        groups: dict[str, list[ImageRef]] = {}
        for number, text in enumerate([DONT_KNOW] * len(answer.sources) if answer.declined else answer.value, 1):
            groups.setdefault(DONT_KNOW if number in outside else text, []).append(ImageRef(number))
        rows = [Group(text, tuple(pictures)) for text, pictures in groups.items()]
        return Groups(tuple(sorted(rows, key=lambda row: -len(row.pictures))), answer)

    def _run_for(self, images: Pictures, form: str, words: str, options: RunOptions) -> Answer:
        program = form.format(repr(checked_question(words, self.settings)))
        request = run_request(images, program, words, {"form": "set", **options})
        return self._wait(answer_request(self.engine, replace(request, own=False)))

    def table(
        self,
        pictures: Pictures,
        questions: Questions,
        *,
        budget: Budget = NO_BUDGET,
        fresh: bool = False,
        progress: TableProgress | None = None,
    ) -> Table:
        """Asks each of many pictures several questions: a program is written once for each, and run on each picture.

        The answers about a :class:`~codevqa.Collection` are kept on disk at once, where the engine was made from a
        preset: the same table goes on where it was interrupted, and asks nothing twice.

        Args:
            pictures: a collection, or any pictures.
            questions: by the names of their columns, such as ``{"dogs": "How many dogs are there?"}``. A question may
                end in its choices (``What is the weather? =sunny,rain``), and be a :class:`~codevqa.Program`.
            budget: no further picture is begun beyond it; the rows of those that are left have fewer cells.
            fresh: whether all is asked anew.
            progress: told how far it is.

        Raises:
            InputError: a question cannot be asked, or the collection not be opened.
            ServerError: a server is down; what was finished is kept.
        """
        identity = "" if self.configuration is None else identity_of(self.configuration)
        run = TableRun(pictures, parse_questions(questions), identity, fresh=fresh or self.settings.fresh)
        if run.missing:
            run.run(self, budget, progress)
        return run.table(picture_file)

    def compare(self, sets: Sequence[Pictures], question: str, **options: Unpack[AskOptions]) -> tuple[Answer, ...]:
        """Asks one question about several sets: one program is written for the first, and run on each.

        Returns:
            An answer for each set. One whose program failed has its ``error`` and no text.

        Raises:
            InputError: there are fewer than two sets.
            CodeVQAError: as :meth:`ask`.
        """
        if not isinstance(sets, list | tuple) or len(sets) < 2:
            hint = "Give a list of two or more: [codevqa.Collection(PATH), codevqa.Collection(OTHER)]."
            raise InputError("One set of pictures cannot be compared.", hint=hint)
        ask_options: AskOptions = {"form": "set", **options}
        answers = [self.ask(sets[0], question, **ask_options)]
        program = None if answers[0].fallback else answers[0].program
        running: Any = {name: value for name, value in ask_options.items() if name in RunOptions.__annotations__}
        for pictures in sets[1:]:
            try:
                if program is None:  # a set that was declined or read without a program; so are the others
                    answers.append(self.ask(pictures, question, **ask_options))
                else:
                    answers.append(self.run(pictures, program, question=question, **running))
            except ProgramError as error:  # what the others say stands
                if error.answer is None:
                    raise
                answers.append(error.answer)
        return tuple(answers)

    def index(self, collection: Collection, progress: ProgressListener | None = None) -> None:
        """Computes ahead what the matcher keeps of a collection's pictures. Questions then begin at once.

        What is done stays on disk, also where this is interrupted.

        Args:
            collection: its pictures.
            progress: told how many are done, of how many; in the engine's thread.

        Raises:
            InputError: the collection has no picture that can be read.
            ImageError: a picture changed meanwhile.
            ModelError: the matcher failed.
        """
        self._wait(index_collection(self.engine, collection, progress))
