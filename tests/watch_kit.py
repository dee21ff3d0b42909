"""Engines over models that say what a test gives them, and what is read off the events that they tell."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import engine_kit
import pytest

from codevqa import CodeVQA, Watch
from codevqa.core.events import CallBegan, CallEnded, Event
from codevqa.core.trace import Call
from codevqa.models.base import Completion, GenerationRequest
from codevqa.models.fakes import ScriptedLM

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


engine = partial(engine_kit.engine, fit=False, workers=4)


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
