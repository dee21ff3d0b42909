"""What is asked of many pictures at once: which of them, how they group, how sets compare; and their index."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..batching.call_cache import Memory, Usage
from ..core.answer import Answer
from ..core.answer_words import DONT_KNOW
from ..core.collection import Collection, Pictures, Tell
from ..core.errors import InputError, ProgramError
from ..core.trace import ImageRef
from ..models.base import SimilarityRequest
from .prepared_question import checked_question, keep_on_disk
from .request import AskOptions, RunOptions

if TYPE_CHECKING:
    from .codevqa import CodeVQA

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


def program_for(engine: CodeVQA, form: str, words: str) -> str:
    """Returns :data:`SELECT`, which picks pictures, or :data:`GROUP`, which asks about each, with its words.

    Raises:
        QuestionError: the words are empty or too many.
    """
    return form.format(repr(checked_question(words, engine.settings)))


def grouped(answer: Answer, strict: bool) -> Groups:
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


def compare(vqa: CodeVQA, sets: Sequence[Pictures], question: str, options: AskOptions) -> tuple[Answer, ...]:
    """Asks about the first set, and runs the program that was written for it on the others.

    Raises:
        InputError: there are fewer than two sets.
    """
    if len(sets) < 2:
        raise InputError("One set of pictures cannot be compared.", hint="Give two or more.")
    ask_options: AskOptions = {"form": "set", **options}
    answers = [vqa.ask(sets[0], question, **ask_options)]
    program = None if answers[0].fallback else answers[0].program
    running: Any = {name: value for name, value in ask_options.items() if name in RunOptions.__annotations__}
    for pictures in sets[1:]:
        try:
            if program is None:  # a set that was declined or read without a program; so are the others
                answers.append(vqa.ask(pictures, question, **ask_options))
            else:
                answers.append(vqa.run(pictures, program, question=question, **running))
        except ProgramError as error:  # what the others say stands
            if error.answer is None:
                raise
            answers.append(error.answer)
    return tuple(answers)


async def index(engine: CodeVQA, collection: Collection, progress: Tell | None) -> None:
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
