"""What is asked of many pictures at once: which of them, how they group, how sets compare; and their index."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar, Unpack

from ..batching.call_cache import Memory, Usage
from ..collections.collection import Collection, Pictures, ProgressListener
from ..core.answer import Answer
from ..core.answer_words import DONT_KNOW
from ..core.errors import InputError, ProgramError
from ..core.settings import Settings
from ..core.trace import ImageRef, Program
from ..models.protocols import SimilarityRequest
from .prepared_question import Engine, checked_question, keep_on_disk
from .question_run import answer_request
from .request import AskOptions, RunOptions, run_request

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


def program_for(form: str, words: str, settings: Settings) -> str:
    """Returns :data:`SELECT`, which picks pictures, or :data:`GROUP`, which asks about each, with its words.

    Raises:
        QuestionError: the words are empty or too many.
    """
    return form.format(repr(checked_question(words, settings)))


def group_pictures(answer: Answer, strict: bool) -> Groups:
    """Returns the pictures of an answer of :data:`GROUP` by the answer about each.

    Args:
        answer: it, or an answer that was declined.
        strict: whether pictures that the models do not know get no answer.
    """
    outside = {ref.index for warning in answer.warnings for ref in warning.images} if strict else set()
    answers = [DONT_KNOW] * len(answer.sources) if answer.declined else answer.value
    groups: dict[str, list[ImageRef]] = {}
    for number, text in enumerate(answers, 1):
        groups.setdefault(DONT_KNOW if number in outside else text, []).append(ImageRef(number))
    rows = [Group(text, tuple(pictures)) for text, pictures in groups.items()]
    return Groups(tuple(sorted(rows, key=lambda row: -len(row.pictures))), answer)


def compare_sets(
    ask: Callable[..., Answer], run: Callable[..., Answer], sets: Sequence[Pictures], question: str, options: AskOptions
) -> tuple[Answer, ...]:
    """Asks about the first set, and runs the program that was written for it on the others.

    Args:
        ask, run: as :meth:`codevqa.CodeVQA.ask` and :meth:`codevqa.CodeVQA.run`.
        sets: the sets of pictures.
        question: asked about each.
        options: for each.

    Raises:
        InputError: there are fewer than two sets.
    """
    if len(sets) < 2:
        raise InputError("One set of pictures cannot be compared.", hint="Give two or more.")
    ask_options: AskOptions = {"form": "set", **options}
    answers = [ask(sets[0], question, **ask_options)]
    program = None if answers[0].fallback else answers[0].program
    running: Any = {name: value for name, value in ask_options.items() if name in RunOptions.__annotations__}
    for pictures in sets[1:]:
        try:
            if program is None:  # a set that was declined or read without a program; so are the others
                answers.append(ask(pictures, question, **ask_options))
            else:
                answers.append(run(pictures, program, question=question, **running))
        except ProgramError as error:  # what the others say stands
            if error.answer is None:
                raise
            answers.append(error.answer)
    return tuple(answers)


async def index_collection(engine: Engine, collection: Collection, progress: ProgressListener | None) -> None:
    """Computes what models keep of the pictures of a collection, and writes it to disk, however it ends."""
    pictures = await asyncio.to_thread(collection.open)
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


class SetQuestions(ABC):
    """What can be asked of many pictures, beside questions: which of them, how they group, how sets compare."""

    engine: Engine
    settings: Settings

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
        return group_pictures(self._run_for(images, GROUP, question, options), self.settings.strict_domain)

    def _run_for(self, images: Pictures, form: str, words: str, options: RunOptions) -> Answer:
        request = run_request(images, program_for(form, words, self.settings), words, {"form": "set", **options})
        return self._wait(answer_request(self.engine, replace(request, own=False)))

    def compare(self, sets: Sequence[Pictures], question: str, **options: Unpack[AskOptions]) -> tuple[Answer, ...]:
        """Asks one question about several sets: one program is written for the first, and run on each.

        Returns:
            An answer for each set. One whose program failed has its ``error`` and no text.

        Raises:
            InputError: there are fewer than two sets.
            CodeVQAError: as :meth:`ask`.
        """
        return compare_sets(self.ask, self.run, sets, question, options)

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
