"""What tests of the engine share."""

from __future__ import annotations

import threading

from codevqa.models.base import GenerationRequest


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
