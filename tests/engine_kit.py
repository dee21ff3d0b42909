"""What tests of the engine share."""

from __future__ import annotations

import threading

from codevqa import CodeVQA, Settings
from codevqa.core.settings import Limits
from codevqa.models.base import GenerationRequest, Models
from codevqa.models.fakes import FakeCaptioner, FakeMatcher, ScriptedLM
from codevqa.prompts import load
from codevqa.writing.writer import Writer

NARROW = Settings(limits=Limits(seconds=1, wall_seconds=20, calls=50))


def reading_yes(settings: Settings = NARROW) -> CodeVQA:
    """An engine that reads yes in every picture."""
    reader = ScriptedLM(lambda request: " yes")
    writer = Writer(reader, {"image": load("gqa"), "set": load("covr")})
    models = Models(reader, FakeMatcher(6), FakeCaptioner(grid=6))
    return CodeVQA(writer, models, settings)


class Gate:
    """A reading model that waits to be let through."""

    def __init__(self) -> None:
        self.entered, self.open = threading.Event(), threading.Event()
        self.questions: list[str] = []

    def __call__(self, request: GenerationRequest) -> str:
        self.questions.append(str(request.prompt).rsplit("Q: ", 1)[1].removesuffix("\nA:"))
        self.entered.set()
        assert self.open.wait(20), "nobody let it through"
        return " yes"
