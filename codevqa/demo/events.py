"""Which part of the page calls which handler. What needs no server is in static/demo.js."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any, TypeAlias

import gradio as gr

from ..core.errors import CodeVQAError, ImageError
from .about import models_html
from .live import LiveQuestion, PageUpdate, message_box, status_box
from .pictures import ShippedQuestion, read_pictures, shipped_questions
from .service import DemoRequest, DemoService

__all__ = ["Parts", "wire"]

Gallery: TypeAlias = "list[tuple[str, str | None]] | None"
HIDDEN: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
"""Only :mod:`codevqa.demo.api` is offered to clients; and how far things are stands in the status line."""


class Parts:
    """All of the page that something happens to; :mod:`codevqa.demo.page` puts it there."""

    models: gr.HTML
    picks: tuple[gr.Button, ...]
    """The shipped examples."""
    pictures: gr.Gallery
    question: gr.Textbox
    ask: gr.Button
    stop: gr.Button
    past: gr.Radio
    forget: gr.Button
    preset: gr.Dropdown
    method: gr.Radio
    shots: gr.Slider
    camera: gr.Image
    message: gr.HTML
    status: gr.HTML
    stale: gr.HTML
    """Says that what is shown answers another question."""
    answer: gr.HTML
    baseline: gr.HTML
    examples: gr.HTML
    program: gr.HTML
    source: gr.Code
    edit: gr.Button
    run: gr.Button
    leave: gr.Button
    download: gr.DownloadButton
    calls: gr.HTML
    running: gr.HTML
    token: gr.BrowserState
    """What a visitor's browser knows their earlier questions by."""

    @property
    def shown(self) -> list[Any]:
        """What an answer is shown in, in the order that :func:`_pieces` gives, and what comes with it."""
        first = [self.message, self.status, self.answer, self.baseline, self.examples, self.program, self.calls]
        return [*first, self.running, self.source, self.download, self.past]


def wire(blocks: gr.Blocks, service: DemoService, parts: Parts) -> None:
    """Binds the handlers. Gradio finds the request by the type of the parameter."""
    _wire_questions(blocks, service, parts)
    _wire_pictures(service, parts)
    _wire_past(blocks, service, parts)
    _wire_states(service, parts)


def _wire_questions(blocks: gr.Blocks, service: DemoService, parts: Parts) -> None:
    async def ask_here(
        pictures: Gallery, question: str, preset: str, token: str, method: str, shots: int, request: gr.Request
    ) -> AsyncIterator[tuple[Any, ...]]:
        asked = DemoRequest(_paths(pictures), question or "", preset, method, int(shots))
        async for update in _serve(service, asked, request, token):
            yield update

    async def run_here(
        pictures: Gallery, question: str, preset: str, token: str, program: str, request: gr.Request
    ) -> AsyncIterator[tuple[Any, ...]]:
        asked = DemoRequest(_paths(pictures), question or "", preset, program=program or "")
        async for update in _serve(service, asked, request, token):
            yield update

    async def stop(request: gr.Request) -> Any:
        # The question ends itself and shows so; Gradio's own way of cancelling would leave the page as it was.
        return gr.skip() if service.stop(_session(request)) else status_box("Nothing is running.")

    async def leave(request: gr.Request) -> None:
        service.forget(_session(request))

    # First, since the page begins with what was bound first.
    for trigger in (parts.ask.click, parts.question.submit, parts.run.click, *(b.click for b in parts.picks)):
        trigger(None, None, [parts.status, parts.message], js="cvDemo.begin", **HIDDEN)
    # The service keeps the line, as for the API.
    working: dict[str, Any] = {"outputs": parts.shown, "concurrency_limit": None, "js": "cvDemo.sent"} | HIDDEN
    given = [parts.pictures, parts.question, parts.preset, parts.token]
    asking = {"fn": ask_here, "inputs": [*given, parts.method, parts.shots], **working}
    begun = [gr.on([parts.ask.click, parts.question.submit], **asking)]
    begun.append(parts.run.click(run_here, [*given, parts.source], **working))
    for button, example in zip(parts.picks, shipped_questions(), strict=True):
        picked = button.click(_picker(example), None, [parts.pictures, parts.question], **HIDDEN)
        begun += [picked, picked.success(**asking)]
    for event in begun:
        event.failure(None, None, [parts.message, parts.status], js="cvDemo.failed", **HIDDEN)
    parts.stop.click(stop, None, parts.status, concurrency_limit=None, **HIDDEN)
    blocks.unload(leave)


def _wire_pictures(service: DemoService, parts: Parts) -> None:
    def check(pictures: Gallery) -> tuple[Any, str]:
        """Tells at once what is wrong with an upload, and takes away what cannot be used."""
        good, told = [], ""
        for path in _paths(pictures):
            try:
                read_pictures([path], service.limits, service.files)
            except ImageError as error:
                told = message_box(str(error))
            else:
                good.append(path)
        if len(good) > service.limits.pictures:
            good = good[: service.limits.pictures]
            told = message_box(f"Only the first {len(good)} pictures are kept: that is the limit.", kind="note")
        return (good if told else gr.skip()), told

    def add(taken: str | None, pictures: Gallery) -> tuple[Any, Any, str]:
        if taken is None:
            return gr.skip(), gr.skip(), ""
        kept = [*_paths(pictures), taken]
        if len(kept) > service.limits.pictures:
            return gr.skip(), None, message_box(f"The limit is {service.limits.pictures} pictures: take some away.")
        return kept, None, ""

    parts.pictures.upload(check, parts.pictures, [parts.pictures, parts.message], **HIDDEN)
    taken = [parts.camera, parts.pictures]
    parts.camera.input(add, taken, [parts.pictures, parts.camera, parts.message], **HIDDEN)


def _wire_past(blocks: gr.Blocks, service: DemoService, parts: Parts) -> None:
    async def arrive(token: object) -> tuple[Any, ...]:
        known = service.histories.token(token)
        return known, _past(service, known)

    async def show(chosen: str | None, token: str, request: gr.Request) -> tuple[Any, ...]:
        service.turn_away(_session(request))
        past = service.histories.find(token, chosen or "")
        view = await asyncio.to_thread(past.view) if past is not None else None
        if past is None or view is None:
            gone = PageUpdate.refusal("That answer is no longer kept. Ask again.")
            return (*_pieces(gone), _no_page(), _past(service, token), gr.skip(), gr.skip())
        here = [path for path in past.pictures if Path(path).is_file()]
        page = gr.DownloadButton(value=past.page, interactive=past.page is not None)
        return (*_pieces(view), page, gr.skip(), here or None, past.question)

    async def forget(token: str) -> Any:
        service.histories.forget(token)
        return _past(service, token)

    shown = [*parts.shown, parts.pictures, parts.question]
    blocks.load(arrive, parts.token, [parts.token, parts.past], **HIDDEN)
    again = parts.past.input(show, [parts.past, parts.token], shown, **HIDDEN)
    again.then(None, [parts.pictures, parts.question], None, js="cvDemo.shown", **HIDDEN)
    parts.forget.click(forget, parts.token, parts.past, **HIDDEN)


def _wire_states(service: DemoService, parts: Parts) -> None:
    """Has each button pressed only where it does something, and an answer marked that answers another question."""

    def tell_models(preset: str) -> Any:
        try:
            return models_html(service.engines, preset)
        except CodeVQAError:  # that it cannot be picked is said where it is asked
            return gr.skip()

    parts.preset.change(tell_models, parts.preset, parts.models, **HIDDEN)
    seen: list[Any] = [parts.pictures, parts.question, parts.status, parts.source, parts.past]
    switched = [parts.ask, parts.stop, parts.run, parts.edit, parts.stale]
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
    live: LiveQuestion | None = None
    yield (*(gr.skip() for _ in range(9)), _no_page(), gr.Radio(value=None))
    async with aclosing(service.serve(asked, _session(request))) as views:
        async for view, shown in views:
            yield (*_pieces(view), gr.skip(), gr.skip())
            live = shown
    if live is not None:
        past = await service.keep(asked, live, service.histories.token(token))
        if past is not None and not live.replaced:
            page = gr.DownloadButton(value=past.page, interactive=past.page is not None)
            # All else shows already, and the visitor may have begun to edit the program.
            yield (*(gr.skip() for _ in range(9)), page, _past(service, token, past.id))


def _pieces(view: PageUpdate) -> tuple[Any, ...]:
    pieces = (
        view.message,
        view.status,
        view.answer,
        view.baseline,
        view.examples,
        view.program,
        view.calls,
        view.running,
        view.source,
    )
    return tuple(gr.skip() if piece is None else piece for piece in pieces)


def _no_page() -> gr.DownloadButton:
    return gr.DownloadButton(interactive=False)


def _past(service: DemoService, token: str, shown: str | None = None) -> gr.Radio:
    """Returns the list of what a visitor asked, with what is shown now picked."""
    past = service.histories.of(token)
    choices = [(f"{one.question or 'A program of yours'} → {one.answer or '(failed)'}", one.id) for one in past]
    return gr.Radio(choices=choices, value=shown, visible=bool(past))


def _paths(pictures: Gallery) -> list[str]:
    return [str(Path(path)) for path, _ in pictures or []]


def _session(request: gr.Request) -> str:
    return str(request.session_hash or "")
