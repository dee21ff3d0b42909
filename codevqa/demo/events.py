"""Which part of the page calls which handler. What needs no server is in static/demo.js."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias

import gradio as gr

from .live import LiveQuestion, PageUpdate, answer_box, message_box, status_box
from .pictures import ShippedQuestion, shipped_questions
from .service import DemoRequest, DemoService

__all__ = ["wire"]

Gallery: TypeAlias = "list[tuple[str, str | None]] | None"
HIDDEN: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
"""Only :mod:`codevqa.demo.api` is offered to clients; and how far things are stands in the status line."""
AT_ONCE = HIDDEN | {"queue": False}
"""For what is done in a moment, however many questions wait."""


def wire(blocks: gr.Blocks, service: DemoService, parts: SimpleNamespace, **queue: Any) -> None:
    """Binds the handlers. Gradio finds the request by the type of the parameter.

    Args:
        blocks: the page.
        service: answers.
        parts: of the page, by the names that :mod:`codevqa.demo.page` gives them.
        queue: which of Gradio's queues questions wait in.
    """
    shown = [parts.message, parts.status, parts.answer, parts.baseline, parts.examples, parts.program, parts.calls]
    shown += [parts.running, parts.source, parts.download, parts.past]
    _wire_questions(blocks, service, parts, {"outputs": shown} | queue | HIDDEN)
    _wire_past(blocks, service, parts, shown)
    _wire_states(parts)


def _wire_questions(blocks: gr.Blocks, service: DemoService, parts: SimpleNamespace, working: dict[str, Any]) -> None:
    async def ask_here(
        pictures: Gallery, question: str, token: str, request: gr.Request
    ) -> AsyncIterator[tuple[Any, ...]]:
        async for update in _serve(service, DemoRequest(_paths(pictures), question or ""), request, token):
            yield update

    async def run_here(
        pictures: Gallery, question: str, token: str, program: str, request: gr.Request
    ) -> AsyncIterator[tuple[Any, ...]]:
        asked = DemoRequest(_paths(pictures), question or "", program=program or "")
        async for update in _serve(service, asked, request, token):
            yield update

    async def leave(request: gr.Request) -> None:
        service.forget(str(request.session_hash))

    # First, since the page begins with what was bound first.
    for trigger in (parts.ask.click, parts.question.submit, parts.run.click, *(b.click for b in parts.picks)):
        trigger(None, None, [parts.status, parts.message], js="cvDemo.begin", **HIDDEN)
    given = [parts.pictures, parts.question, parts.token]
    begun = [gr.on([parts.ask.click, parts.question.submit], ask_here, given, **working)]
    begun.append(parts.run.click(run_here, [*given, parts.source], **working))
    for button, example in zip(parts.picks, shipped_questions(), strict=True):
        picked = button.click(_picker(example), None, [parts.pictures, parts.question], **AT_ONCE)
        begun.append(picked.success(ask_here, given, **working))
    told = [parts.message, parts.status]
    for event in begun:
        event.failure(None, told, told, js="cvDemo.failed", **HIDDEN)
    boxes = [parts.status, parts.answer, parts.baseline, parts.running]
    parts.stop.click(None, boxes, boxes, js="cvDemo.stopped", cancels=begun, **HIDDEN)
    blocks.unload(leave)


def _wire_past(blocks: gr.Blocks, service: DemoService, parts: SimpleNamespace, shown: list[Any]) -> None:
    async def arrive(token: object) -> tuple[Any, ...]:
        known = service.histories.token(token)
        return known, _past(service, known)

    async def show(chosen: str | None, token: str) -> tuple[Any, ...]:
        past = service.histories.find(token, chosen or "")
        if past is None:
            gone = PageUpdate(
                answer_box("Answer", note="none"),
                message=message_box("That answer is no longer kept. Ask again."),
                status=status_box("Failed."),
            )
            return (*_pieces(gone), _page(None), _past(service, token), gr.skip(), gr.skip())
        view = await asyncio.to_thread(past.view)
        here = [path for path in past.pictures if Path(path).is_file()]
        return (*_pieces(view), _page(past.page), gr.skip(), here or None, past.question)

    async def forget(token: str) -> Any:
        service.histories.forget(token)
        return _past(service, token)

    blocks.load(arrive, parts.token, [parts.token, parts.past], **AT_ONCE)
    again = parts.past.input(show, [parts.past, parts.token], [*shown, parts.pictures, parts.question], **AT_ONCE)
    again.then(None, None, None, js="cvDemo.close", **HIDDEN)
    parts.forget.click(forget, parts.token, parts.past, **AT_ONCE)


def _wire_states(parts: SimpleNamespace) -> None:
    """Has each button pressed only where it does something."""
    seen = [parts.pictures, parts.question, parts.status, parts.source]
    switched = [parts.stop, parts.ask, parts.run, parts.edit, parts.past, *parts.picks]
    gr.on([part.change for part in seen], None, seen, switched, js="cvDemo.states", **HIDDEN)
    parts.edit.click(None, parts.source, None, js="cvDemo.edit", **HIDDEN)
    parts.leave.click(None, None, parts.source, js="cvDemo.leave", **HIDDEN)


def _picker(example: ShippedQuestion) -> Any:
    def pick() -> tuple[list[str], str]:
        return [str(path) for path in example.images], example.question

    return pick


async def _serve(
    service: DemoService, asked: DemoRequest, request: gr.Request, token: str
) -> AsyncIterator[tuple[Any, ...]]:
    shown: PageUpdate | None = None
    live: LiveQuestion | None = None
    yield (*(gr.skip() for _ in range(9)), _page(None), gr.Radio(value=None))
    async with aclosing(service.serve(asked, str(request.session_hash))) as changes:
        async for live in changes:
            if live.view != shown:
                shown = live.view
                yield (*_pieces(shown), gr.skip(), gr.skip())
    if live is not None and (past := await service.keep(asked, live, service.histories.token(token))) is not None:
        # All else shows already, and the visitor may have begun to edit the program.
        yield (*(gr.skip() for _ in range(9)), _page(past.page), _past(service, token, past.id))


def _pieces(view: PageUpdate) -> tuple[Any, ...]:
    first = (view.message, view.status, view.answer, view.baseline, view.examples, view.program, view.calls)
    return (*first, view.running, gr.skip() if view.source is None else view.source)


def _page(path: str | None) -> gr.DownloadButton:
    """Returns the button that downloads an answer's page."""
    return gr.DownloadButton(value=path, interactive=path is not None)


def _past(service: DemoService, token: str, shown: str | None = None) -> gr.Radio:
    """Returns the list of what a visitor asked, with what is shown now picked."""
    past = service.histories.of(token)
    choices = [(f"{one.question or 'A program of yours'} → {one.answer or '(failed)'}", one.id) for one in past]
    return gr.Radio(choices=choices, value=shown, visible=bool(past))


def _paths(pictures: Gallery) -> list[str]:
    return [str(Path(path)) for path, _ in pictures or []]
