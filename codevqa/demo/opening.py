"""The example that the page opens with: the answer that ships, where the same models gave it, or a new one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING

from ..core.errors import CodeVQAError
from ..core.images import load_pictures
from ..pages import demo_html
from ..presets.configuration import Configuration, configure
from .live import LiveQuestion, PageUpdate
from .pictures import shipped_answers, shipped_questions

if TYPE_CHECKING:
    from ..engine.codevqa import CodeVQA

HEAD_START = 3.0
"""Seconds that a browser has to fetch the page before models are loaded, where an answer of theirs ships."""
SHIPPED = "An example answer. Ask your own question."


class Opening:
    """The example, answered once for all visitors."""

    def __init__(self) -> None:
        self._example: Future[tuple[LiveQuestion, PageUpdate]] = Future()
        self._asked = threading.Event()

    async def example(self) -> tuple[LiveQuestion, PageUpdate]:
        """Returns the example, once it is answered, and what the page shows of it."""
        shown = await asyncio.shield(asyncio.wrap_future(self._example))  # a visitor who leaves must not end it
        self._asked.set()
        return shown

    def answer(self, configuration: Configuration, engine: Callable[[], CodeVQA]) -> None:
        """Answers the example and loads the models, in a thread of its own.

        Raises:
            CodeVQAError: they cannot be loaded, or the example failed; the page says so, too.
        """
        paths, question = shipped_questions()[0]
        live, mini = LiveQuestion(question, compared=configuration.methods[1:]), configure("mini")
        try:
            live.pictures = load_pictures(paths)
            if all(getattr(configuration, field) == getattr(mini, field) for field in ("parts", "settings", "options")):
                live.replay(*shipped_answers())
                self._example.set_result((live, live.view()._replace(status=demo_html("status", SHIPPED))))
                self._asked.wait(HEAD_START)  # loading would hold up the browser that fetches the page
            vqa = engine()
            if not self._example.done():
                for event in vqa.watch(list(live.pictures), question):
                    live.feed(event)
                for method in live.without:
                    for event in vqa.watch(list(live.pictures), question, method=method):
                        live.feed_without(method, event)
        except CodeVQAError as error:
            live.fail(error.record())
            raise
        finally:
            if not self._example.done():
                live.end("Stopped.")
                self._example.set_result((live, live.view()))
