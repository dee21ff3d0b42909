"""The page: what is where. Imports Gradio, so only the server imports this."""

from __future__ import annotations

from typing import Any

import gradio as gr

from .about import head_html, models_html
from .api import offer_api
from .events import Parts, wire
from .live import answer_box, status_box
from .pictures import ShippedQuestion, shipped_questions
from .service import DemoService
from .unread import Unread

__all__ = ["build"]

FIRST = "Click an example, or give a picture and ask. The program that finds it, and all it looks at, shows here."


def build(service: DemoService) -> gr.Blocks:
    """Returns the page with its events and the API."""
    limits, parts = service.limits, Parts()
    with gr.Blocks(
        title="CodeVQA",
        analytics_enabled=False,
        delete_cache=(min(600, limits.keep_seconds), limits.keep_seconds),
    ) as blocks:
        _html(head_html())
        parts.models = _html(models_html(service.engines, service.engines.default), elem_id="cv-models")
        with gr.Row(equal_height=False, elem_id="cv-columns"):
            with gr.Column(scale=5, min_width=320):
                parts.picks = _examples()
                parts.pictures = _pictures()
                parts.question, parts.ask, parts.stop = _question(limits.question)
                parts.past, parts.forget = _past()
                parts.preset, parts.method, parts.shots = _options(service)
                parts.camera = _camera()
            with gr.Column(scale=7, min_width=320, elem_classes="demo-results"):
                parts.message = _html(elem_id="cv-message")
                parts.status = _html(status_box("Ready."), elem_id="cv-status")
                parts.stale = _html(elem_id="cv-stale")
                with gr.Row(elem_classes="demo-answers"):
                    parts.answer = _html(answer_box("Answer", note=FIRST), elem_id="cv-answer", min_width=140)
                    parts.baseline = _html(elem_id="cv-baseline", min_width=140)
                with gr.Column(elem_id="cv-live"):
                    parts.examples = _html()
                    parts.program = _html(elem_id="cv-annotated")
                    parts.source = _editor()
                    with gr.Row():
                        parts.edit = gr.Button("Write a program", elem_id="cv-edit", min_width=140)
                        parts.run = gr.Button(
                            "Run", variant="primary", elem_id="cv-run", min_width=140, interactive=False
                        )
                        parts.leave = gr.Button("Cancel", elem_id="cv-leave", min_width=140)
                        parts.download = gr.DownloadButton(
                            "Download", elem_id="cv-download", interactive=False, min_width=140
                        )
                    parts.calls = _html(elem_id="cv-calls")
                    parts.running = _html()
        parts.token = gr.BrowserState("", storage_key="codevqa-visitor")
        wire(blocks, service, parts)
        offer_api(service)
    blocks.queue(api_open=False, default_concurrency_limit=limits.at_once)
    service.each_question = Unread(blocks, limits.receive_seconds).sweep
    return blocks  # type: ignore[no-any-return]


def _html(value: str = "", **options: Any) -> gr.HTML:
    return gr.HTML(value, js_on_load=None, apply_default_css=False, **options)


def _pictures() -> gr.Gallery:
    return gr.Gallery(
        label="Or your own pictures: drop in one or several",
        elem_id="cv-pictures",
        type="filepath",
        file_types=["image"],
        columns=3,
        fit_columns=False,
        height=220,
        object_fit="contain",
        interactive=True,
        sources=["upload", "clipboard"],
        buttons=["fullscreen"],
    )


def _examples() -> tuple[gr.Button, ...]:
    _html('<h2 class="demo-title">Click one to see it answered</h2>')
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
        ask = gr.Button("Ask", variant="primary", elem_id="cv-ask", scale=3, min_width=120, interactive=False)
        stop = gr.Button("Stop", elem_id="cv-stop", scale=1, min_width=90, interactive=False)
    return question, ask, stop


def _past() -> tuple[gr.Radio, gr.Button]:
    with gr.Column(elem_id="cv-past"):
        past = gr.Radio([], label="What you asked before", elem_id="cv-history", visible=False)
        forget = gr.Button("Forget these", size="sm", elem_id="cv-forget")
    return past, forget


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
            [("By a program (CodeVQA)", "codevqa"), ("Without a program (PnP-VQA)", "pnpvqa")],
            value="codevqa",
            label="How to answer",
            elem_id="cv-method",
        )
        shots = gr.Slider(
            0,
            service.limits.shots,
            value=0,
            step=1,
            label="Worked examples shown to the language model",
            info="0: as many as suit it.",
            elem_id="cv-shots",
        )
    return preset, method, shots


def _editor() -> gr.Code:
    return gr.Code(
        label="Change a line and run it (Esc, then Tab, leaves the text)",
        language="python",
        lines=4,
        max_lines=20,
        elem_id="cv-program",
        interactive=True,
        buttons=["copy"],
        wrap_lines=True,
    )
