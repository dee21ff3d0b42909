"""The demo's service over an engine that tells what a test gives it, and what is asked of it."""

from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cli_kit import GARDEN

from codevqa.core.answer import Answer
from codevqa.core.events import Answered, Event, Failed
from codevqa.core.trace import Call, Program, Trace
from codevqa.demo.limits import DemoLimits
from codevqa.demo.live import LiveQuestion
from codevqa.demo.service import DemoRequest, DemoService
from codevqa.engine.watch import Watch
from codevqa.presets.configuration import configure

VISITOR = "one"


def answer(text: str = "yes", *calls: Call, **fields: Any) -> Answer:
    return Answer("Is it?", text, Program("answer = 1"), Trace(calls), seconds=0.5, tokens=12, **fields)


class Endless(Watch):
    """Tells what it is given, and ends only when it is cancelled."""

    def __init__(self, *events: Event) -> None:
        def begin(tell: Callable[[Event], None]) -> Future[Answer]:
            future: Future[Answer] = Future()
            for event in events:
                tell(event)
            if events and isinstance(events[-1], Answered | Failed):
                future.set_result(answer())
            return future

        super().__init__(begin)


class StubEngine:
    """An engine whose questions end as they are told to."""

    models = SimpleNamespace(eyes=None)

    def __init__(self, *events: Event) -> None:
        self.events = events
        self.watches: list[Watch] = []
        self.options: list[dict[str, Any]] = []

    def watch(self, images: object, question: str, **options: Any) -> Watch:
        self.options.append({"question": question} | options)
        self.watches.append(Endless(*self.events))
        return self.watches[-1]

    def watch_run(self, images: object, program: str, *, question: str, **options: Any) -> Watch:
        return self.watch(images, question, program=program, **options)


class StubService(DemoService):
    """The demo's service over that engine."""

    def __init__(self, files: Path, stub: StubEngine, **limits: Any) -> None:
        super().__init__(configure("mini"), DemoLimits(**limits), files)
        self.stub: Any = stub
        (files / "garden.png").write_bytes(GARDEN.read_bytes())

    def engine(self) -> Any:
        return self.stub


def asked(tmp_path: Path, **fields: Any) -> DemoRequest:
    return DemoRequest(**{"pictures": [str(tmp_path / "garden.png")], "question": "Is it?"} | fields)


async def last(questions: AsyncIterator[LiveQuestion]) -> LiveQuestion:
    """Returns a question as it is shown at its end."""
    return [live async for live in questions][-1]
