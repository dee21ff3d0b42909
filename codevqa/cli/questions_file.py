"""``--questions``: many questions from a file, answered together, one JSON line each in their order."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from ..collections.collection import Collection, StoredPicture
from ..core.answer import Answer
from ..core.errors import CodeVQAError, ErrorRecord, InputError
from ..core.events import Answered, Failed
from ..core.input_files import parse_json, pictures_and_question, read_lines, read_text
from ..core.trace import Trace
from .printing import print_json
from .terminal import STDIN, Bar

if TYPE_CHECKING:
    from ..engine.codevqa import CodeVQA
    from ..engine.request import AskOptions
    from ..engine.watch import Watch


def read_questions(name: str) -> tuple[tuple[int, str], ...]:
    """Returns number and text of each line of a file of questions that is not empty; ``-`` is standard input."""
    lines = tuple(read_lines(read_text(None if name == STDIN else Path(name))))
    if not lines:
        raise InputError(
            f"{name} holds no question.", hint='Write one {"images": ["a.png"], "question": "..."} on each line.'
        )
    return lines


def answer_lines(
    vqa: CodeVQA, name: str, lines: Sequence[tuple[int, str]], options: AskOptions, *, evidence: bool, quiet: bool
) -> int:
    """Prints the answer to each line as a line of JSON, and how far it is on standard error.

    Pictures and folders of them lie beside the file; those that standard input names, in the current folder.

    Returns:
        How many questions were not answered; each says why in its ``error``.
    """
    from ..eval.run.session import Status

    status, began = Status(len(lines)), time.perf_counter()
    with Bar(quiet) as bar:
        for answer in _answers(vqa, name, lines, options):
            print_json(answer.to_dict(evidence=evidence))
            status.examples += 1
            status.fallbacks += answer.fallback
            status.unanswered += answer.error is not None and not answer.fallback
            status.seconds = time.perf_counter() - began
            bar(status)
    return status.unanswered


def _answers(vqa: CodeVQA, name: str, lines: Sequence[tuple[int, str]], options: AskOptions) -> Iterator[Answer]:
    """Yields the answers in the order of the questions, as many of which run at once as the engine has workers."""
    running: deque[tuple[str, Watch | ErrorRecord]] = deque()
    pictures = lru_cache(maxsize=64)(_pictures)  # many lines name the same folder
    for number, line in lines:
        question = ""
        try:
            shown = "standard input" if name == STDIN else name
            words, question = pictures_and_question(parse_json(line, shown, number), f"{shown}, line {number}")
            images = [picture for word in words for picture in pictures(os.path.dirname(name), word)]  # noqa: PTH120 - addresses
            running.append((question, vqa.watch(images, question, **options)))
        except CodeVQAError as error:
            running.append((question, error.record()))
        if len(running) >= vqa.settings.workers:
            yield _final_answer(*running.popleft())
    while running:
        yield _final_answer(*running.popleft())


def _pictures(folder: str, word: str) -> Sequence[str | StoredPicture]:
    """Returns the picture that a line names, or those of the folder that it names."""
    path = os.path.join(folder, word)  # noqa: PTH118 - addresses
    # What is there decides, not the name; "" would be the whole folder.
    return Collection(path).open() if word and os.path.isdir(path) else [path]  # noqa: PTH112 - any name may come


def _final_answer(question: str, course: Watch | ErrorRecord) -> Answer:
    """Returns the answer at the end of a question's course; one without text where it failed."""
    if not isinstance(course, ErrorRecord):
        *_, last = course
        if isinstance(last, Answered):
            return last.answer
        assert isinstance(last, Failed)
        if last.answer is not None:
            return last.answer
        course = last.error
    return Answer(question, "", None, Trace(), error=course)
