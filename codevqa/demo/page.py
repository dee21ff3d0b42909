"""The page: what is where, and which button calls which handler. Imports Gradio, so only the server imports this."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import gradio as gr

from ..core.errors import ImageError
from .api import Api
from .live import PageUpdate, answer_box, message_box, status_box
from .pictures import ShippedQuestion, read_pictures, shipped_questions
from .service import DemoRequest, DemoService, VisitorId
from .unread import Unread

__all__ = ["build"]

Gallery: TypeAlias = "list[tuple[str, str | None]] | None"
HIDDEN: dict[str, Any] = {"api_visibility": "private"}
"""Only :mod:`codevqa.demo.api` is offered to clients."""

INTRO = """<header class="demo-head"><h1>CodeVQA</h1>
<p>Ask about pictures. A language model writes a small program for your question, a sandbox runs it, and every step it
takes is shown: what it looked at, what it read there, and what it concluded.</p></header>"""
STOP_FIRST = "() => { const s = document.getElementById('cv-status'); \
if (window.innerWidth < 800 && s) s.scrollIntoView({behavior: 'smooth'}); }"


@dataclass(frozen=True)
class Inputs:
    """Where visitors put things."""

    pictures: gr.Gallery
    camera: gr.Image
    question: gr.Textbox
    preset: gr.Dropdown
    method: gr.Radio
    shots: gr.Slider
    program: gr.Code


@dataclass(frozen=True)
class Outputs:
    """Where they see things."""

    message: gr.HTML
    status: gr.HTML
    answer: gr.HTML
    baseline: gr.HTML
    examples: gr.HTML
    program: gr.HTML
    calls: gr.HTML
    running: gr.HTML
    download: gr.DownloadButton


@dataclass(frozen=True)
class Buttons:
    """What they press."""

    ask: gr.Button
    stop: gr.Button
    run: gr.Button
    examples: tuple[gr.Button, ...]


def build(service: DemoService) -> gr.Blocks:
    """Returns the page with its events and the API."""
    limits = service.limits
    with gr.Blocks(
        title="CodeVQA",
        analytics_enabled=False,
        delete_cache=(min(600, limits.keep_seconds), limits.keep_seconds),
    ) as blocks:
        _html(INTRO)
        with gr.Row(equal_height=False):
            with gr.Column(scale=5, min_width=320):
                pictures = _pictures()
                question, ask, stop = _question(limits.question)
                shown = _examples()
                preset, method, shots = _options(service)
                camera = _camera()
            with gr.Column(scale=7, min_width=320, elem_classes="demo-results"):
                outputs, editor, run = _results()
        inputs = Inputs(pictures, camera, question, preset, method, shots, editor)
        _wire(blocks, service, inputs, outputs, Buttons(ask, stop, run, shown))
        Api(service).offer()
    blocks.queue(api_open=False, default_concurrency_limit=limits.at_once)
    service.each_question = Unread(blocks, limits.receive_seconds).sweep
    return blocks  # type: ignore[no-any-return]


def _html(value: str = "", **options: Any) -> gr.HTML:
    return gr.HTML(value, js_on_load=None, apply_default_css=False, **options)


def _pictures() -> gr.Gallery:
    return gr.Gallery(
        label="Pictures: drop in one or several",
        elem_id="cv-pictures",
        type="filepath",
        file_types=["image"],
        columns=3,
        fit_columns=False,
        height=240,
        object_fit="contain",
        interactive=True,
        sources=["upload", "clipboard"],
        buttons=["fullscreen"],
    )


def _examples() -> tuple[gr.Button, ...]:
    _html('<h2 class="demo-title">Or begin with one of these</h2>')
    with gr.Column(elem_classes="demo-examples"):
        buttons = tuple(
            gr.Button(_shown(example), icon=example.images[0], size="sm", elem_id=f"cv-example-{place}")
            for place, example in enumerate(shipped_questions())
        )
    for button in buttons:
        button.keep_in_cache |= button.temp_files  # the page needs them for as long as it is served
    return buttons


def _camera() -> gr.Image:
    with gr.Accordion("Camera", open=False):
        return gr.Image(
            label="Take a picture",
            elem_id="cv-camera",
            sources=["webcam"],
            type="filepath",
            image_mode=None,  # else Gradio decodes what was sent, whatever it is
            height=240,
            buttons=[],
        )


def _shown(example: ShippedQuestion) -> str:
    several = f"{len(example.images)} pictures: " if len(example.images) > 1 else ""
    return several + example.question


def _question(longest: int) -> tuple[gr.Textbox, gr.Button, gr.Button]:
    question = gr.Textbox(
        label="Question",
        placeholder="Is the red house to the left of the green tree?",
        elem_id="cv-question",
        lines=1,
        max_length=longest,
        autofocus=False,
    )
    with gr.Row():
        ask = gr.Button("Ask", variant="primary", elem_id="cv-ask", scale=3, min_width=120)
        stop = gr.Button("Stop", elem_id="cv-stop", scale=1, min_width=90)
    return question, ask, stop


def _options(service: DemoService) -> tuple[gr.Dropdown, gr.Radio, gr.Slider]:
    with gr.Accordion("Options", open=False):
        preset = gr.Dropdown(
            service.engines.choices(),
            value=service.engines.default,
            label="Preset",
            info="Which models answer.",
            elem_id="cv-preset",
            filterable=False,
        )
        method = gr.Radio(
            [("CodeVQA: write a program", "codevqa"), ("PnP-VQA: the plain baseline", "pnpvqa")],
            value="codevqa",
            label="Method",
            elem_id="cv-method",
        )
        shots = gr.Slider(
            0,
            service.limits.shots,
            value=0,
            step=1,
            label="Examples shown to the language model",
            info="0: as many as the prompt set says.",
            elem_id="cv-shots",
        )
    return preset, method, shots


def _results() -> tuple[Outputs, gr.Code, gr.Button]:
    message = _html(elem_id="cv-message")
    status = _html(status_box("Ready."), elem_id="cv-status")
    with gr.Row(elem_classes="demo-answers"):
        answer = _html(answer_box("Answer", note="Give a picture and ask."), elem_id="cv-answer", min_width=140)
        baseline = _html(elem_id="cv-baseline", min_width=140)
    with gr.Column(elem_id="cv-live"):
        shown = _html()
        program = _html()
        editor = gr.Code(
            label="Program: change a line and run it again (Esc, then Tab, leaves it)",
            language="python",
            lines=4,
            max_lines=20,
            elem_id="cv-program",
            interactive=True,
            buttons=["copy"],
            wrap_lines=True,
        )
        with gr.Row():
            run = gr.Button("Run this program", elem_id="cv-run", min_width=140)
            download = gr.DownloadButton("Download as a page", elem_id="cv-download", interactive=False, min_width=140)
        calls = _html()
        running = _html()
    return Outputs(message, status, answer, baseline, shown, program, calls, running, download), editor, run


def _wire(blocks: gr.Blocks, service: DemoService, inputs: Inputs, outputs: Outputs, buttons: Buttons) -> None:
    """Binds the handlers to the buttons. Gradio finds the request by the type of the parameter."""

    async def ask_here(
        pictures: Gallery, question: str, preset: str, method: str, shots: int, request: gr.Request
    ) -> AsyncIterator[tuple[Any, ...]]:
        asked = DemoRequest(_paths(pictures), question or "", preset, method, int(shots))
        async for update in _serve(service, asked, request):
            yield update

    async def run_here(
        pictures: Gallery, question: str, preset: str, program: str, request: gr.Request
    ) -> AsyncIterator[tuple[Any, ...]]:
        asked = DemoRequest(_paths(pictures), question or "", preset, program=program or "")
        async for update in _serve(service, asked, request):
            yield update

    async def stop(request: gr.Request) -> str:
        return status_box("Stopped." if service.stop(_visitor_id(request)) else "Nothing is running.")

    async def forget(request: gr.Request) -> None:
        service.forget(_visitor_id(request))

    shown = [
        outputs.message,
        outputs.status,
        outputs.answer,
        outputs.baseline,
        outputs.examples,
        outputs.program,
        outputs.calls,
        outputs.running,
        inputs.program,
        outputs.download,
    ]
    # How far things are stands in the status line, and so does how many wait: the service keeps the queue.
    working: dict[str, Any] = {"outputs": shown, "show_progress": "hidden", "concurrency_limit": None} | HIDDEN
    given = [inputs.pictures, inputs.question, inputs.preset]
    gr.on([buttons.ask.click, inputs.question.submit], ask_here, [*given, inputs.method, inputs.shots], **working)
    buttons.run.click(run_here, [*given, inputs.program], **working)
    for trigger in (buttons.ask.click, inputs.question.submit, buttons.run.click):
        trigger(None, js=STOP_FIRST, **HIDDEN)
    # The question ends itself and shows so; Gradio's own way of cancelling would leave the page as it was.
    buttons.stop.click(stop, None, outputs.status, concurrency_limit=None, show_progress="hidden", **HIDDEN)
    _wire_pictures(service, inputs, outputs, buttons)
    blocks.unload(forget)


def _wire_pictures(service: DemoService, inputs: Inputs, outputs: Outputs, buttons: Buttons) -> None:
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

    quiet: dict[str, Any] = {"show_progress": "hidden"} | HIDDEN
    inputs.pictures.upload(check, inputs.pictures, [inputs.pictures, outputs.message], **quiet)
    inputs.camera.input(
        add, [inputs.camera, inputs.pictures], [inputs.pictures, inputs.camera, outputs.message], **quiet
    )
    for button, example in zip(buttons.examples, shipped_questions(), strict=True):
        button.click(_picker(example), None, [inputs.pictures, inputs.question, outputs.message], **quiet)


def _picker(example: ShippedQuestion) -> Any:
    def pick() -> tuple[list[str], str, str]:
        return [str(path) for path in example.images], example.question, ""

    return pick


async def _serve(service: DemoService, asked: DemoRequest, request: gr.Request) -> AsyncIterator[tuple[Any, ...]]:
    visitor_id = _visitor_id(request)
    nothing, last = gr.DownloadButton(interactive=False), None
    async with aclosing(service.serve(asked, visitor_id)) as views:
        async for view, live in views:
            yield (*_pieces(view), nothing if live is not None else gr.skip())
            last = (view, live)
    if last is not None and last[1] is not None and last[1].answer is not None:
        path = await service.page(visitor_id)
        yield (*_pieces(last[0]), gr.DownloadButton(value=path, interactive=path is not None))


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


def _paths(pictures: Gallery) -> list[str]:
    return [str(Path(path)) for path, _ in pictures or []]


def _visitor_id(request: gr.Request) -> VisitorId:
    host = request.client.host if request.client else ""
    return VisitorId(str(request.session_hash or ""), str(host))
