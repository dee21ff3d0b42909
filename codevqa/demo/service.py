"""What the page and the API do: they check what a visitor gave, start the engine and follow what it tells."""

from __future__ import annotations

import asyncio
import logging
import secrets
import shutil
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING

from ..batching.call_cache import Memory
from ..core.answer import Answer
from ..core.errors import CodeVQAError, ErrorRecord, InputError, ProgramLimitError
from ..core.events import Event
from ..core.images import Picture
from ..core.notices import current
from ..core.trace import Method
from ..engine.watch import Watch
from ..pages import LARGE, page_name, trace_page
from ..presets.configuration import Configuration
from .limits import DemoLimits
from .live import LiveQuestion, opened_html, visitor_words
from .opening import Opening
from .pictures import read_uploads

if TYPE_CHECKING:
    from ..engine.codevqa import CodeVQA

log = logging.getLogger(__name__)

PACE = 0.03
"""Seconds between two views of a question: a browser draws no faster."""
_LOOK_S = 0.3
"""How often it is looked whether a model waits for its server."""
OWN_FAULT = "The page itself failed. The reason is in its log."


@dataclass(frozen=True)
class DemoRequest:
    """One question, or one program to run, as it came from the page or from a client."""

    pictures: Sequence[str]
    """Files on this machine that the visitor uploaded."""
    question: str
    method: Method = "codevqa"
    shots: int | None = None
    program: str | None = None
    """A program to run; None has one written."""
    compared: bool = False
    """Whether the question is answered without a program as well, in each way that the models can."""
    original: str = ""
    """What the program was before the visitor changed it."""


@dataclass(frozen=True)
class _Gallery:
    """What an answer about many pictures selected from, and the question put to each. It keeps no evidence."""

    asked: DemoRequest
    """What runs the answer's program again."""
    pictures: Sequence[Picture]
    question: str
    corrections: dict[tuple[str, str], bool]


@dataclass
class _Visitor:
    """What the server knows of one visitor. Nothing is shared between two of them."""

    memory: Memory
    """Their finished model calls."""
    folder: Path
    """Holds the page of their last answer, where nobody guesses it."""
    watches: list[Watch] = field(default_factory=list)
    """What runs for them."""
    gallery: _Gallery | None = None

    def drop_page(self) -> None:
        """Deletes the page of their last answer."""
        shutil.rmtree(self.folder, ignore_errors=True)


class DemoService:
    """Serves visitors, each by themselves. Used on one event loop; Gradio's queue bounds how many ask at once.

    Args:
        configuration: what the engine is made from.
        limits: what visitors may use.
        files: the folder of what they upload and download, and of nothing else.
    """

    def __init__(self, configuration: Configuration, limits: DemoLimits, files: Path) -> None:
        self.configuration = configuration
        self.limits = limits
        self.files = files
        self.opening = Opening()
        self._visitors: dict[str, _Visitor] = {}
        """By session, who was away longest first."""
        self._engine: CodeVQA | None = None
        self._loading = threading.Lock()

    def start(self, report: Callable[[str], None]) -> None:
        """Begins to load the models, and to answer the opening example; each question then reports a failure, too."""

        def load() -> None:
            try:
                self.opening.answer(self.configuration, self.engine)
            except CodeVQAError as error:
                report(str(error))

        threading.Thread(target=load, name="codevqa-load", daemon=True).start()

    def engine(self) -> CodeVQA:
        """Returns the engine, from any thread; the first call loads it, which may take long.

        Raises:
            SetupError: models are missing; the message names them.
        """
        with self._loading:
            if self._engine is None:
                from ..engine.codevqa import CodeVQA

                self._engine = CodeVQA.from_configuration(self.configuration)
            return self._engine

    async def serve(self, asked: DemoRequest, session: str) -> AsyncGenerator[LiveQuestion, None]:
        """Yields the question each time it has something new to show; failures are shown, never raised.

        Args:
            asked: what is asked.
            session: of who asks. Several of their questions may run side by side.
        """
        # Of many pictures it would read each, which takes minutes.
        compared = self.configuration.methods[1:] if asked.compared and len(asked.pictures) <= LARGE else ()
        live = LiveQuestion(asked.question, asked.program, compared=compared, original=asked.original)
        yield live
        try:
            visitor = self._visitor(session)
            live.pictures = await self._pictures(asked, visitor.folder / "index")
            if asked.program is None:
                visitor.gallery = None
            elif visitor.gallery is not None:
                live.corrections = visitor.gallery.corrections
            if self._engine is None:
                live.stage = "Loading the models."
            yield live
            vqa = await asyncio.to_thread(self.engine)
            with self._begin_answers(vqa, asked, live, session) as watches:
                async with aclosing(_follow(live, watches, self.limits.seconds)) as changes:
                    async for _ in changes:
                        yield live
            visitor.gallery = _find_gallery(asked, live) or visitor.gallery
        except CodeVQAError as error:
            live.fail(error.record())
        except Exception as error:  # noqa: BLE001 - it is logged, without what a visitor sent
            log_fault(error)
            live.fail(ErrorRecord("CodeVQAError", OWN_FAULT))
        live.end("Stopped.")
        yield live

    async def page(self, live: LiveQuestion, session: str) -> str | None:
        """Writes an answer's page for its visitor to download, in place of the one before.

        Returns:
            The file; None if there is no answer.
        """
        if live.answer is None:
            return None
        without = next((for_visitors(answer) for answer in live.without.values() if isinstance(answer, Answer)), None)
        try:
            html = await asyncio.to_thread(trace_page, for_visitors(live.answer), live.pictures, without)
            folder = self._visitor(session).folder
            folder.mkdir(exist_ok=True)
            for before in folder.glob("*.html"):
                before.unlink()
            place = folder / page_name(live.question, live.pictures)
            place.write_text(html, "utf-8")
        except OSError as error:  # the answer itself is shown already
            log.warning("the page of an answer was not written: %s", error.strerror)
            return None
        return str(place)

    async def look(self, number: int, session: str) -> str:
        """Returns one picture of the visitor's last gallery, and why it counts or doesn't: it is asked again.

        Raises:
            InputError: there is no such picture, or nothing was selected.
        """
        shown, vqa = self._gallery(number, session), await asyncio.to_thread(self.engine)
        program = f"answer = query(images[{number - 1}], {shown.question!r})"
        memory, corrections = self._visitor(session).memory, dict(shown.corrections)
        async with asyncio.timeout(self.limits.seconds):
            answer = await vqa.run_async(list(shown.pictures), program, memory=memory, corrections=corrections)
        return await asyncio.to_thread(opened_html, number, answer, shown.pictures)

    def correct(self, number: int, counts: bool, session: str) -> DemoRequest:
        """Notes what a visitor says of a picture in their last gallery; returns what runs the program on with it.

        Raises:
            InputError: there is no such picture, or nothing was selected.
        """
        shown = self._gallery(number, session)
        shown.corrections[shown.pictures[number - 1].key, shown.question] = counts
        return shown.asked

    def _gallery(self, number: int, session: str) -> _Gallery:
        shown = self._visitor(session).gallery
        if shown is None or not 1 <= number <= len(shown.pictures):
            raise InputError("There is no such picture any more.", hint="Ask the question again.")
        return shown

    def forget(self, session: str) -> None:
        """Forgets a visitor who has gone, and ends what runs for them."""
        if (visitor := self._visitors.pop(session, None)) is not None:
            visitor.drop_page()
            for watch in visitor.watches:
                watch.cancel()

    def _visitor(self, session: str) -> _Visitor:
        if (visitor := self._visitors.pop(session, None)) is None:
            visitor = _Visitor(Memory(self.limits.memory_bytes), self.files / secrets.token_hex(16))
        self._visitors[session] = visitor
        while len(self._visitors) > self.limits.visitors:
            self._visitors.pop(next(iter(self._visitors))).drop_page()
        return visitor

    @contextmanager
    def _begin_answers(
        self, vqa: CodeVQA, asked: DemoRequest, live: LiveQuestion, session: str
    ) -> Iterator[list[Watch]]:
        """Begins to answer, and beside it to answer without a program where that is compared; ends it at last."""
        visitor = self._visitor(session)
        images, memory = list(live.pictures), visitor.memory
        if asked.program is not None:
            corrections, question = dict(live.corrections), asked.question
            watches = [vqa.watch_run(images, asked.program, question=question, memory=memory, corrections=corrections)]
        else:
            shots = asked.shots or None
            watches = [vqa.watch(images, asked.question, method=asked.method, shots=shots, memory=memory)]
        watches += [vqa.watch(images, asked.question, method=method, memory=memory) for method in live.without]
        visitor.watches += watches
        try:
            yield watches
        finally:
            for watch in watches:
                watch.cancel()
                visitor.watches.remove(watch)

    async def _pictures(self, asked: DemoRequest, index: Path) -> tuple[Picture, ...]:
        """Returns the pictures of what is asked; the engine checks the rest, within its own limits.

        Raises:
            InputError: there are too many examples, or what is given is no picture.
            ProgramLimitError: the program is too long.
        """
        limits = self.limits
        if (length := len(asked.program or "")) > limits.program:
            raise ProgramLimitError(f"the program has {length:,} characters", hint=f"The limit is {limits.program:,}.")
        if (asked.shots or 0) > limits.shots:
            raise InputError(f"{asked.shots} examples cannot be shown.", hint=f"The limit is {limits.shots}.")
        return await asyncio.to_thread(read_uploads, asked.pictures, limits, self.files, index)


def _find_gallery(asked: DemoRequest, live: LiveQuestion) -> _Gallery | None:
    """Returns what an answer selected its pictures from; None where it selected none, or they are few."""
    answer = live.answer
    if answer is None or answer.program is None or not live.many or not answer.selections:
        return None
    source = answer.program.source
    again = DemoRequest(asked.pictures, asked.question, program=source, original=asked.original or source)
    return _Gallery(again, live.pictures, answer.selections[0].question, live.corrections)


async def _follow(live: LiveQuestion, watches: Sequence[Watch], seconds: float) -> AsyncGenerator[None, None]:
    """Feeds a question with what it and the answers beside it tell, and yields each time that something is new."""
    changed, until, waits = asyncio.Event(), time.monotonic() + seconds, ""

    async def pump(watch: Watch, feed: Callable[[Event], None]) -> None:
        async for event in watch:
            feed(event)
            changed.set()

    feeds: list[Callable[[Event], None]] = [live.feed]
    feeds += [partial(live.feed_without, method) for method in live.without]
    pumps = asyncio.gather(*map(pump, watches, feeds))
    pumps.add_done_callback(lambda _: changed.set())
    try:
        while not pumps.done():
            with suppress(TimeoutError):
                async with asyncio.timeout(min(until - time.monotonic(), _LOOK_S)):
                    await changed.wait()
            if time.monotonic() > until:
                raise TimeoutError
            if not changed.is_set() and waits == current():
                continue
            waits = current()
            changed.clear()
            yield
            await asyncio.sleep(PACE * (1 + min(len(live.calls), 9)))  # a view of many calls takes longer
        await pumps
    except TimeoutError:
        live.end(f"Stopped: that took more than {seconds:.0f} seconds.")
    finally:
        pumps.cancel()
        with suppress(asyncio.CancelledError):
            await pumps


def log_fault(error: Exception) -> None:
    """Logs on one line what failed and where, and of its message, which a visitor may have written, the start."""
    where = " ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in extract_tb(error.__traceback__))
    log.error("a call failed: %s %r at %s", type(error).__name__, str(error)[:200], where)


def for_visitors(answer: Answer) -> Answer:
    """Returns the answer without folders of this machine, and without what only its command line can do."""
    names = {role: Path(name).name if Path(name).is_absolute() else name for role, name in answer.models.items()}
    warnings = tuple(replace(warning, message=visitor_words(warning.message)) for warning in answer.warnings)
    return replace(answer, models=names, warnings=warnings)
