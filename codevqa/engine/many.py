"""Many questions at once: their answers as they come, while no more are under way than share batches well."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterable, Iterator, Sized
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from itertools import count
from queue import SimpleQueue
from typing import Any, TypeAlias, get_args

from ..collections.collection import Pictures, freeze_pictures
from ..core.answer import Answer
from ..core.errors import InputError
from ..core.trace import Form, Method
from .request import Errors, Request

Progress: TypeAlias = bool | Callable[[int, int | None], object]
"""Whether a bar is shown on standard error; or what is told how many are answered, of how many where that is known."""
_TAKES = "Give Questions or pairs (images, text), and a method: 'codevqa', 'direct' or 'pnpvqa'."


@dataclass(frozen=True)
class Question:
    """One question for :meth:`codevqa.CodeVQA.ask_many`."""

    images: Pictures
    text: str
    form: Form | None = None
    """None: one image is a question about an image, several are a set."""


QuestionLike: TypeAlias = "Question | tuple[Pictures, str]"
"""A question, or its images and its text."""
Begin: TypeAlias = Callable[[Any], "Future[Answer]"]
"""Begins to answer what was asked; what it needs of it is copied when it returns."""


def as_request(asked: object, method: Method) -> Request | InputError:
    """Returns what is wanted, or why this is no question. Call it in the user's thread, which copies the pictures."""
    if isinstance(asked, Request):
        return asked
    if isinstance(asked, tuple) and len(asked) == 2 and isinstance(asked[1], str):
        asked = Question(*asked)
    if not isinstance(asked, Question):
        return InputError(f"A {type(asked).__name__} is no question.", hint=_TAKES)
    try:
        return Request(freeze_pictures(asked.images), asked.text, asked.form, method)
    except InputError as error:  # of a collection that has no pictures
        return error


def text_of(asked: object) -> str:
    """Returns the text of what may be a question, for an answer that says why it is none."""
    if isinstance(asked, Request):
        return asked.question
    return str(asked[1] if isinstance(asked, tuple) and len(asked) == 2 else getattr(asked, "text", ""))


def check(questions: object, method: object, errors: object) -> None:
    """Checks what a type checker would.

    Raises:
        InputError: there are no questions, or an option has no such value.
    """
    if method not in get_args(Method) or not isinstance(questions, Iterable):
        raise InputError("There are no questions to answer.", hint=_TAKES)
    if errors not in get_args(Errors):
        raise InputError(f"errors is {errors!r:.60}.", hint="Give 'raise' or 'return'.")


class AnswerSlots:
    """Has so many questions answered at once. The others wait."""

    def __init__(self, count: int) -> None:
        self._free = asyncio.Semaphore(count)
        self.fresh: dict[object, Request] = {}
        """Questions that wait for a worker, by their places."""

    @asynccontextmanager
    async def free_for(self, request: Request | InputError) -> AsyncIterator[None]:
        """Waits for a worker, and has it for the length of the block."""
        place = object()
        if isinstance(request, Request):
            self.fresh[place] = request
        try:
            await self._free.acquire()
        finally:
            self.fresh.pop(place, None)
        try:
            yield
        finally:
            self._free.release()

    def take_fresh(self, form: Form) -> list[str]:
        """Returns the questions of a form that began to wait since the last time."""
        places = [place for place, request in self.fresh.items() if request.likely_form == form]
        return [self.fresh.pop(place).question for place in places]


def stream(begin: Begin, questions: Iterable[QuestionLike], most: int) -> Generator[tuple[int, Answer]]:
    """Yields the place and the answer of each question as they come; a caller that stops ends the rest.

    Questions are taken one by one, so that no more than ``most`` are under way. There may be no end of them.
    """
    under_way: dict[Future[Answer], int] = {}
    # To wait for all anew each time would ask hundreds of them each time.
    done: SimpleQueue[Future[Answer]] = SimpleQueue()
    failures = _Failures()
    try:
        for place, asked in enumerate(questions):
            begun = begin(asked)
            under_way[begun] = place
            begun.add_done_callback(done.put)
            while len(under_way) >= most and not failures:
                yield from _take_done(under_way, (done.get(),), failures)
            if failures:
                break
        while failures.leave_open(under_way):
            yield from _take_done(under_way, (done.get(),), failures)
        failures.raise_first()
    finally:
        for future in under_way:
            future.cancel()


async def stream_async(
    begin: Begin, questions: Iterable[QuestionLike], most: int
) -> AsyncGenerator[tuple[int, Answer]]:
    """Async twin of :func:`stream`, for any event loop."""
    under_way: dict[asyncio.Future[Answer], int] = {}
    failures = _Failures()
    try:
        for place, asked in enumerate(questions):
            under_way[asyncio.wrap_future(begin(asked))] = place
            while len(under_way) >= most and not failures:
                done, _ = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                for answered in _take_done(under_way, done, failures):
                    yield answered
            if failures:
                break
        while failures.leave_open(under_way):
            done, _ = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
            for answered in _take_done(under_way, done, failures):
                yield answered
        failures.raise_first()
    finally:
        for future in under_way:
            future.cancel()


@contextmanager
def follow_progress(progress: Progress, questions: object) -> Iterator[Callable[[], object]]:
    """Gives what to call for each question that is answered."""
    total = len(questions) if isinstance(questions, Sized) else None
    if progress is True:
        from huggingface_hub.utils.tqdm import tqdm

        with tqdm(total=total, unit=" questions") as bar:  # type: ignore[no-untyped-call]
            yield bar.update
    else:
        numbers = count(1)
        yield lambda: progress(next(numbers), total) if callable(progress) else None


class _Failures(dict[int, BaseException]):
    """Why questions failed, by their places. The first in order is raised, whichever fails first in time."""

    def leave_open(self, under_way: dict[Any, int]) -> bool:
        """Whether a question is under way that may yet fail before the first that did."""
        return min(under_way.values(), default=math.inf) < min(self, default=math.inf)

    def raise_first(self) -> None:
        """Raises the first failure in order, if there is one."""
        if self:
            raise self[min(self)]


def _take_done(under_way: dict[Any, int], done: Iterable[Any], failures: _Failures) -> Iterator[tuple[int, Answer]]:
    for future in done:
        place = under_way.pop(future)
        if (error := future.exception()) is not None:
            failures[place] = error
        else:
            yield place, future.result()
