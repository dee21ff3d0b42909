"""The page: what is where, and what it calls. What needs no server is in static/demo.js. Imports Gradio."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import aclosing
from html import escape
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias

import gradio as gr
from PIL import Image

from ..core.errors import CodeVQAError
from ..pages import demo_html, styles
from ..pages.pictures import data_uri
from ..presets.assembly import domain_of
from ..presets.configuration import Configuration
from ..presets.presets import preset
from .api import Blocks, offer_api
from .live import LiveQuestion, PageUpdate, visitor_words
from .pictures import shipped_questions, thumbnails
from .service import DemoRequest, DemoService

Gallery: TypeAlias = "list[tuple[str, str | None]] | None"
FIRST = "The models are loading. You can ask already."
HEAD = """
<header class="demo-head"><h1>CodeVQA</h1><p>Ask about pictures. A language model writes a small program, a sandbox
runs it, and every step is shown. <a href="https://aclanthology.org/2023.acl-short.65/" target="_blank"
rel="noopener noreferrer">Paper</a></p></header>
"""
DROP = "Drop pictures here"
HIDDEN: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
"""Only :mod:`codevqa.demo.api` is offered to clients; and how far things are stands in the status line."""
STATIC = Path(__file__).resolve().parent / "static"
SAME = {
    "body_background_fill": "var(--cv-paper)",
    "body_text_color": "var(--cv-ink)",
    "block_background_fill": "var(--cv-sheet)",
    "block_border_color": "var(--cv-line)",
    "button_secondary_background_fill": "var(--cv-track)",
    "button_secondary_background_fill_hover": "var(--cv-line)",
    "button_secondary_text_color": "var(--cv-ink)",
    "button_primary_background_fill": "*primary_700",
    "block_label_text_color": "var(--cv-soft)",
    "body_text_color_subdued": "var(--cv-soft)",
}
"""Settings that say the same in light and dark: these variables change their meaning by themselves."""


def build_page(service: DemoService) -> gr.Blocks:
    """Returns the page with its events and the API."""
    limits, parts = service.limits, SimpleNamespace()
    with Blocks(
        title="CodeVQA",
        analytics_enabled=False,
        delete_cache=(min(600, limits.keep_seconds), limits.keep_seconds),
    ) as blocks:
        _html(HEAD)
        _html(_models_html(service.configuration), elem_id="cv-models")
        with gr.Row(equal_height=False, elem_id="cv-columns"):
            with gr.Column(scale=5, min_width=320):
                _place_question(parts, service)
            with gr.Column(scale=7, min_width=320, elem_classes="demo-results"):
                _place_answer(parts, service)
            with (
                gr.Column(min_width=320),
                gr.Accordion("More: a folder, earlier answers", open=False, elem_id="cv-unfold"),
            ):
                parts.folder = gr.UploadButton(
                    "Choose a folder", file_count="directory", size="sm", elem_id="cv-folder"
                )
                parts.history = _html(elem_id="cv-history")
        line: dict[str, Any] = {"concurrency_limit": limits.at_once, "concurrency_id": "questions"}
        _wire_questions(blocks, service, parts, line | HIDDEN)
        _wire_buttons(parts)
        offer_api(service, **line)
    blocks.queue(api_open=False, max_size=limits.queue)
    return blocks  # type: ignore[no-any-return]


# -- what is where -----------------------------------------------------------------------------------------------------


def _models_html(configuration: Configuration) -> str:
    """Returns which models answer, and what they know."""
    name, domain = configuration.preset, domain_of(configuration)
    about = domain.about if domain else preset(name).about
    about = escape(visitor_words(about))  # the options in it are for whoever started the page
    text = f'<p class="demo-models">Answers come from the <b>{escape(name)}</b> models: {about}</p>'
    if domain is None or domain.picture is None:
        return text
    words = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in domain.knows.items())
    with Image.open(domain.picture) as picture:
        shown = f'<img src="{data_uri(picture.convert("RGB"))}" alt="{escape(words)}">'
    asked = f"<p>Try: {' or '.join(map(escape, domain.questions))}</p>"
    return f'{text}<details class="demo-models"><summary>What these models know</summary>{shown}{asked}</details>'


def _place_question(parts: SimpleNamespace, service: DemoService) -> None:
    images, question = shipped_questions()[0]
    parts.pictures = gr.Gallery(
        images,
        label=DROP,
        elem_id="cv-pictures",
        type="filepath",
        file_types=["image"],
        columns=3,
        fit_columns=False,
        height=150,
        object_fit="contain",
        interactive=True,
        sources=["upload", "webcam", "clipboard"],
        buttons=["fullscreen"],
    )
    parts.question = gr.Textbox(question, label="Question", placeholder=question, elem_id="cv-question", lines=1)
    _html(demo_html("hint", service.configuration.settings.max_question), elem_id="cv-hint")
    with gr.Row():
        parts.ask = gr.Button("Ask", variant="primary", elem_id="cv-ask", scale=3, min_width=120)
        parts.stop = gr.Button("Stop", elem_id="cv-stop", scale=1, min_width=90, interactive=False)
    with gr.Column(elem_classes="demo-examples"):
        _html('<h2 class="demo-title">Or try an example</h2>')
        parts.picks = [
            gr.Button(question, icon=thumbnails(images, service.files), size="sm", elem_id=f"cv-example-{place}")
            for place, (images, question) in enumerate(shipped_questions())
        ]
    for part in (parts.pictures, *parts.picks):
        part.keep_in_cache |= part.temp_files  # the page needs them for as long as it is served


def _place_answer(parts: SimpleNamespace, service: DemoService) -> None:
    first = LiveQuestion(shipped_questions()[0][1], compared=service.configuration.methods[1:]).view()
    parts.status = _html(demo_html("status", FIRST, "loading"), elem_id="cv-status")
    with gr.Row(elem_classes="demo-answers"):
        parts.answer = _html(first.answer, elem_id="cv-answer", min_width=140)
        parts.baseline = _html(first.baseline, elem_id="cv-baseline", min_width=140)
    parts.message = _html(elem_id="cv-message")  # below: it comes and goes, and moves nothing that is read
    parts.opened = _html(elem_id="cv-opened")
    parts.gallery = _html(elem_id="cv-gallery")
    with gr.Row(elem_id="cv-hidden"):  # demo.js presses these when a picture of the gallery is clicked
        parts.picked, parts.original = gr.Textbox(label="Picture"), gr.Textbox(label="Program before")
        parts.open, parts.back = gr.Button("open", elem_id="cv-open"), gr.Button("back", elem_id="cv-back")
    with gr.Column(elem_id="cv-live"):
        parts.examples = _html()
        parts.program = _html(elem_id="cv-annotated")
        parts.source = gr.Code(
            label="Change a line, then press Run. Esc, then Tab leaves the editor.",
            language="python",
            lines=4,
            max_lines=20,
            elem_id="cv-program",
            interactive=True,
            buttons=["copy"],
            wrap_lines=True,
        )
        with gr.Row():
            parts.edit = gr.Button("Write a program", elem_id="cv-edit", min_width=140)
            parts.run = gr.Button("Run", variant="primary", elem_id="cv-run", min_width=140, interactive=False)
            parts.leave = gr.Button("Cancel", elem_id="cv-leave", min_width=140)
            parts.download = gr.DownloadButton("Download", elem_id="cv-download", interactive=False, min_width=140)
        parts.calls = _html(elem_id="cv-calls")
        parts.running = _html()


def _html(value: str = "", **options: Any) -> gr.HTML:
    return gr.HTML(value, js_on_load=None, apply_default_css=False, **options)


# -- what it calls -----------------------------------------------------------------------------------------------------


def _wire_questions(blocks: gr.Blocks, service: DemoService, parts: SimpleNamespace, working: dict[str, Any]) -> None:
    """Binds what answers questions. Gradio finds the request by the type of the parameter."""

    async def ask_here(pictures: Gallery, question: str, request: gr.Request) -> AsyncIterator[tuple[Any, ...]]:
        async for update in _stream_updates(
            service, DemoRequest(_gallery_paths(pictures), question or "", compared=True), request
        ):
            yield update

    async def run_here(
        pictures: Gallery, question: str, program: str, original: str, request: gr.Request
    ) -> AsyncIterator[tuple[Any, ...]]:
        before = (original or "")[: service.limits.program]
        asked = DemoRequest(_gallery_paths(pictures), question or "", program=program or "", original=before)
        async for update in _stream_updates(service, asked, request):
            yield update

    async def leave(request: gr.Request) -> None:
        service.forget(str(request.session_hash))

    async def first_here(request: gr.Request) -> AsyncIterator[tuple[Any, ...]]:
        live, view = await service.opening.example()
        yield _update(view)
        async for update in _offer_download(service, live, str(request.session_hash)):
            yield update

    inputs = [parts.pictures, parts.question]
    shown = [getattr(parts, name) for name in PageUpdate._fields]
    answered = {"outputs": [*shown, parts.download]} | working
    opened = blocks.load(first_here, None, **answered | {"concurrency_limit": None, "concurrency_id": "first"})
    # First, since the page begins with what was bound first.
    for trigger in (parts.ask.click, parts.question.submit, parts.run.click, *(b.click for b in parts.picks)):
        cleared = [parts.status, parts.message, parts.opened]
        trigger(None, None, cleared, js="cvDemo.begin", cancels=opened, **HIDDEN)
    begun = [gr.on([parts.ask.click, parts.question.submit], ask_here, inputs, js="cvDemo.ask", **answered)]
    begun.append(parts.run.click(run_here, [*inputs, parts.source, parts.original], js="cvDemo.run", **answered))
    begun.append(_wire_gallery(service, parts, answered))
    for button, example in zip(parts.picks, shipped_questions(), strict=True):
        picked = button.click(
            lambda chosen=example: chosen, None, [parts.pictures, parts.question], queue=False, **HIDDEN
        )
        begun.append(picked.success(ask_here, inputs, js="cvDemo.ask", **answered))
    boxes = [parts.status, parts.answer, parts.baseline, parts.running]
    outputs = [parts.message, *boxes]
    for event in begun:
        event.failure(None, outputs, outputs, js="cvDemo.failed", **HIDDEN)
        event.success(None, [*inputs, *shown], parts.history, js="cvDemo.keep", **HIDDEN)
    blocks.load(None, inputs, parts.history, js="cvDemo.load", **HIDDEN)
    parts.back.click(None, None, [*inputs, *shown, parts.opened, parts.download], js="cvDemo.back", **HIDDEN)
    parts.stop.click(None, boxes, boxes, js="cvDemo.stopped", cancels=begun, **HIDDEN)
    blocks.unload(leave)


def _wire_gallery(service: DemoService, parts: SimpleNamespace, answered: dict[str, Any]) -> Any:
    """Binds what opens a picture, and before it runs the program on where something was said of it."""

    async def open_here(picked: str, request: gr.Request) -> AsyncIterator[tuple[Any, ...]]:
        session, skipped = str(request.session_hash), [gr.skip() for _ in (*PageUpdate._fields, "download")]
        try:
            match = re.fullmatch(r"([0-9]{1,6}) (|yes|no)", picked or "0 ")
            number, correction = (int(match[1]), match[2]) if match else (0, "")  # there is no picture 0
            if correction:
                asked = service.correct(number, correction == "yes", session)
                async for update in _stream_updates(service, asked, request):
                    yield (*update, gr.skip())
            yield (*skipped, await service.look(number, session))
        except CodeVQAError as error:
            yield (*skipped, demo_html("message", str(error), "error"))

    shown = answered | {"outputs": [*answered["outputs"], parts.opened]}
    opened = parts.open.click(open_here, parts.picked, js="cvDemo.picked", **shown)
    opened.success(None, None, None, js="cvDemo.opened", **HIDDEN)
    return opened


def _wire_buttons(parts: SimpleNamespace) -> None:
    """Has each button pressed only where it does something."""
    seen = [parts.pictures, parts.question, parts.status, parts.source]
    switched = [parts.stop, parts.ask, parts.run, parts.edit, *parts.picks]
    gr.on([part.change for part in seen], None, seen, switched, js="cvDemo.states", **HIDDEN)
    parts.edit.click(None, parts.source, None, js="cvDemo.edit", **HIDDEN)
    parts.pictures.upload(None, parts.pictures, parts.pictures, js="cvDemo.given", **HIDDEN)
    parts.folder.upload(None, parts.folder, parts.pictures, js="cvDemo.folder", **HIDDEN)
    parts.leave.click(None, None, parts.source, js="cvDemo.leave", **HIDDEN)


async def _stream_updates(
    service: DemoService, asked: DemoRequest, request: gr.Request
) -> AsyncIterator[tuple[Any, ...]]:
    """Yields what the parts of the page show, each time that it changes, and at last the page to download."""
    live, session = None, str(request.session_hash)
    async with aclosing(service.serve(asked, session)) as changes:
        async for live in changes:
            yield _update(await asyncio.to_thread(live.view))  # other visitors wait for this loop
    async for update in _offer_download(service, live, session):
        yield update


def _update(view: PageUpdate) -> tuple[Any, ...]:
    """Returns the parts of the page, and that there is nothing to download yet."""
    source = gr.skip() if view.source is None else view.source
    return (*view._replace(source=source), gr.DownloadButton(value=None, interactive=False))


async def _offer_download(
    service: DemoService, live: LiveQuestion | None, session: str
) -> AsyncIterator[tuple[Any, ...]]:
    """Yields the page to download, where there is an answer."""
    if live is not None and (place := await service.page(live, session)) is not None:
        # All else shows already, and the visitor may have begun to edit the program.
        yield (*(gr.skip() for _ in PageUpdate._fields), gr.DownloadButton(value=place, interactive=True))


def _gallery_paths(pictures: Gallery) -> list[str]:
    return [str(Path(path)) for path, _ in pictures or []]


# -- how it looks ------------------------------------------------------------------------------------------------------


def theme() -> gr.themes.Base:
    """Returns fonts of the reader's system and colors of the pages, with contrast enough in light and dark."""
    both = SAME | {f"{name}_dark": value for name, value in SAME.items()}
    return gr.themes.Default(
        primary_hue=gr.themes.colors.blue,
        neutral_hue=gr.themes.colors.zinc,
        font=[gr.themes.Font("system-ui"), gr.themes.Font("sans-serif")],
        font_mono=[gr.themes.Font("ui-monospace"), gr.themes.Font("monospace")],
    ).set(
        **both,
        block_radius="10px",
        button_primary_background_fill_hover="*primary_800",
        button_primary_text_color="white",
    )


def head() -> str:
    """Returns style sheets and script, for the head of the page: Gradio rewrites those that it is given otherwise."""
    css, script = ((STATIC / name).read_text("utf-8") for name in ("demo.css", "demo.js"))
    return f"<style>{styles(1180)}\n{css}</style><script>{script}</script>"
