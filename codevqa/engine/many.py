"""Many questions at once: their answers as they come, while no more are under way than share batches well."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Iterator, Sized
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeAlias, get_args

from ..core.answer import Answer
from ..core.collection import Pictures, held
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


Asked: TypeAlias = "Question | tuple[Pictures, str]"
"""A question, or its images and its text."""
Begin: TypeAlias = Callable[[Any], "Future[Answer]"]
"""Begins to answer what was asked; what it needs of it is copied when it returns."""


def as_request(asked: object, method: Method) -> Request | InputError:
    """Returns what is wanted, or why this is no question. Call it in the user's thread, which copies the pictures."""
    if isinstance(asked, tuple) and len(asked) == 2 and isinstance(asked[1], str):
        asked = Question(*asked)
    if not isinstance(asked, Question):
        return InputError(f"A {type(asked).__name__} is no question.", hint=_TAKES)
    try:
        return Request(held(asked.images), asked.text, asked.form, method)
    except InputError as error:  # of a collection that has no pictures
        return error


def text_of(asked: object) -> str:
    """Returns the text of what may be a question, for an answer that says why it is none."""
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


def stream(begin: Begin, questions: Iterable[Asked], most: int) -> Generator[tuple[int, Answer]]:
    """Yields the place and the answer of each question as they come; a caller that stops ends the rest.

    Questions are taken one by one, so that no more than ``most`` are under way. There may be no end of them. A question
    that fails ends it, once the questions before it are answered: of several errors, the first in order is raised.
    """
    under_way = _UnderWay()
    try:
        for place, asked in enumerate(questions):
            under_way.begun[begin(asked)] = place
            while len(under_way.begun) >= most and under_way.error is None:
                yield from under_way.ended(wait(under_way.begun, return_when=FIRST_COMPLETED).done)
            if under_way.error is not None:
                break
        while waited := under_way.waited_for():
            yield from under_way.ended(wait(waited, return_when=FIRST_COMPLETED).done)
        if under_way.error is not None:
            raise under_way.error
    finally:
        under_way.cancel()


async def stream_async(begin: Begin, questions: Iterable[Asked], most: int) -> AsyncGenerator[tuple[int, Answer]]:
    """Async twin of :func:`stream`, for any event loop."""
    under_way = _UnderWay()
    try:
        for place, asked in enumerate(questions):
            under_way.begun[asyncio.wrap_future(begin(asked))] = place
            while len(under_way.begun) >= most and under_way.error is None:
                done, _ = await asyncio.wait(under_way.begun, return_when=asyncio.FIRST_COMPLETED)
                for answered in under_way.ended(done):
                    yield answered
            if under_way.error is not None:
                break
        while waited := under_way.waited_for():
            done, _ = await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            for answered in under_way.ended(done):
                yield answered
        if under_way.error is not None:
            raise under_way.error
    finally:
        under_way.cancel()


@contextmanager
def followed(progress: Progress, questions: object) -> Iterator[Callable[[], object]]:
    """Gives what to call for each question that is answered."""
    total = len(questions) if isinstance(questions, Sized) else None
    if progress is True:
        from huggingface_hub.utils.tqdm import tqdm

        with tqdm(total=total, unit=" questions") as bar:  # type: ignore[no-untyped-call]
            yield bar.update
    else:
        numbers = count(1)
        yield lambda: progress(next(numbers), total) if callable(progress) else None


class _UnderWay:
    """The questions of a stream that are not answered yet, and the first error in the order of the questions."""

    def __init__(self) -> None:
        self.begun: dict[Any, int] = {}
        """Future to the place of its question."""
        self.error: BaseException | None = None
        self._failed_at = 0

    def waited_for(self) -> list[Any]:
        """Returns the futures that may still count: all of them, or those before the question that failed."""
        return [future for future, place in self.begun.items() if self.error is None or place < self._failed_at]

    def ended(self, done: Iterable[Any]) -> Iterator[tuple[int, Answer]]:
        """Yields the answers of futures that are done, in the order of their questions; keeps the first error."""
        for future in sorted(done, key=self.begun.__getitem__):
            place = self.begun.pop(future)
            try:
                answer = future.result()
            except BaseException as error:  # noqa: BLE001 - raised later, unless an earlier question fails
                if self.error is None or place < self._failed_at:
                    self.error, self._failed_at = error, place
            else:
                yield place, answer

    def cancel(self) -> None:
        """Ends what is still under way."""
        for future in self.begun:
            future.cancel()
