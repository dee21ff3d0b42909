"""Engines over models that say what a test gives them, and what is read off the events that they tell."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from PIL import Image as PILImage

from codevqa import CodeVQA, Models, QuerySettings, Settings, Watch, Writer, WriterSettings
from codevqa.core.events import CallBegan, CallEnded, Event
from codevqa.core.trace import Call
from codevqa.models.base import Completion, GenerationRequest
from codevqa.models.fakes import FakeCaptioner, FakeMatcher, ScriptedLM
from codevqa.prompts import load as load_prompts

RED, GREEN = (PILImage.new("RGB", (60, 40), color) for color in ("red", "green"))
OPEN = 'img = open_image("Image13.jpg")\n'
THREE = OPEN + 'a = query(img, "{}")\nb = query(img, "Second?")\nc = query(img, "Third?")\nanswer = a + b + c'


class Streaming(ScriptedLM):
    """Tells its text a few letters at a time, from the thread it is called in."""

    def __init__(self, *texts: str, letters: int = 7) -> None:
        super().__init__(list(texts) if len(texts) > 1 else texts[0], name="writer")
        self.letters = letters
        self.threads: set[str] = set()

    def generate(self, requests: Sequence[GenerationRequest]) -> list[Completion]:
        self.threads.add(threading.current_thread().name)
        made = super().generate(requests)
        for request, completion in zip(requests, made, strict=True):
            if request.on_text is not None:
                for end in range(self.letters, len(completion.text) + self.letters, self.letters):
                    request.on_text(completion.text[:end])
        return made


@contextmanager
def engine(
    writer: ScriptedLM | str = "",
    read: ScriptedLM | Callable[[GenerationRequest], str] | str = " yes",
    *,
    repairs: int = 1,
    **settings: Any,
) -> Iterator[CodeVQA]:
    prompts = {"image": load_prompts("gqa"), "set": load_prompts("covr")}
    model = ScriptedLM(writer, name="writer") if isinstance(writer, str) else writer
    wrote = Writer(model, prompts, settings=WriterSettings(selection="fixed", repairs=repairs, fit=False))  # type: ignore[arg-type]
    reader = read if isinstance(read, ScriptedLM) else ScriptedLM(read, name="reader")
    captioner = FakeCaptioner(lambda request: f"thing {request.seed}", grid=6)
    given = {"query": QuerySettings(captions=2, patches=5), "workers": 4, **settings}
    with CodeVQA(wrote, Models(reader, FakeMatcher(6), captioner), Settings(**given)) as vqa:
        yield vqa


def names(events: Iterable[Event]) -> list[str]:
    return [type(event).__name__ for event in events]


def calls(events: Iterable[Event]) -> list[Call]:
    return [event.call for event in events if isinstance(event, CallEnded)]


def remembered(events: Iterable[Event]) -> dict[str, bool]:
    """Whether each query came from memory, by its question."""
    return {call.arguments["question"]: call.remembered for call in calls(events) if call.name == "query"}


def asked(vqa: CodeVQA) -> dict[str, int]:
    """How much each model has been asked so far."""
    models: Any = vqa.models
    return {
        "matches": len(models.matcher.matches.requests),
        "captions": len(models.captioner.requests),
        "readings": len(models.reader.requests),
        "programs": len(vqa.writer.language_model.requests),  # type: ignore[attr-defined]
    }


def begun(watch: Watch, name: str = "query") -> None:
    """Takes events until the program waits for a call."""
    for event in watch:
        if isinstance(event, CallBegan) and event.name == name:
            return
    pytest.fail(f"{name} was never called")
