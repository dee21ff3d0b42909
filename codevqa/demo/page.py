"""The page: what is where. Imports Gradio, so only the server imports this."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import gradio as gr

from .about import HEAD, models_html
from .api import offer_api
from .events import wire
from .live import answer_box, status_box
from .pictures import ShippedQuestion, shipped_questions
from .service import DemoService

__all__ = ["build"]

FIRST = "Click an example, or give a picture and ask. The program that finds it, and all it looks at, shows here."


def build(service: DemoService) -> gr.Blocks:
    """Returns the page with its events and the API."""
    limits, parts = service.limits, SimpleNamespace()
    with gr.Blocks(
        title="CodeVQA",
        analytics_enabled=False,
        delete_cache=(min(600, limits.keep_seconds), limits.keep_seconds),
    ) as blocks:
        _html(HEAD)
        _html(models_html(service.configuration), elem_id="cv-models")
        with gr.Row(equal_height=False, elem_id="cv-columns"):
            with gr.Column(scale=5, min_width=320):
                _place_question(parts, limits.question)
            with gr.Column(scale=7, min_width=320, elem_classes="demo-results"):
                _place_answer(parts)
        parts.token = gr.BrowserState("", storage_key="codevqa-visitor")
        line: dict[str, Any] = {"concurrency_limit": limits.at_once, "concurrency_id": "questions"}
        wire(blocks, service, parts, **line)
        offer_api(service, **line)
    blocks.queue(api_open=False, max_size=limits.queue)
    return blocks  # type: ignore[no-any-return]


def _place_question(parts: SimpleNamespace, longest: int) -> None:
    _html('<h2 class="demo-title">Click one to see it answered</h2>')
    with gr.Column(elem_classes="demo-examples"):
        parts.picks = [
            gr.Button(_shown(example), icon=example.images[0], size="sm", elem_id=f"cv-example-{place}")
            for place, example in enumerate(shipped_questions())
        ]
    for button in parts.picks:
        button.keep_in_cache |= button.temp_files  # the page needs them for as long as it is served
    parts.pictures = gr.Gallery(
        label="Or your own pictures: drop in one or several",
        elem_id="cv-pictures",
        type="filepath",
        file_types=["image"],
        columns=3,
        fit_columns=False,
        height=220,
        object_fit="contain",
        interactive=True,
        sources=["upload", "webcam", "clipboard"],
        buttons=["fullscreen"],
    )
    parts.question = gr.Textbox(
        label="Question",
        placeholder="Is the red house to the left of the green tree?",
        elem_id="cv-question",
        lines=1,
        max_length=longest,
        autofocus=False,
    )
    with gr.Row():
        parts.ask = gr.Button("Ask", variant="primary", elem_id="cv-ask", scale=3, min_width=120, interactive=False)
        parts.stop = gr.Button("Stop", elem_id="cv-stop", scale=1, min_width=90, interactive=False)
    with gr.Column(elem_id="cv-past"):
        parts.past = gr.Radio([], label="What you asked before", elem_id="cv-history", visible=False)
        parts.forget = gr.Button("Forget these", size="sm", elem_id="cv-forget")


def _place_answer(parts: SimpleNamespace) -> None:
    parts.message = _html(elem_id="cv-message")
    parts.status = _html(status_box("Ready."), elem_id="cv-status")
    with gr.Row(elem_classes="demo-answers"):
        parts.answer = _html(answer_box("Answer", note=FIRST), elem_id="cv-answer", min_width=140)
        parts.baseline = _html(elem_id="cv-baseline", min_width=140)
    with gr.Column(elem_id="cv-live"):
        parts.examples = _html()
        parts.program = _html(elem_id="cv-annotated")
        parts.source = gr.Code(
            label="Change a line and run it (Esc, then Tab, leaves the text)",
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


def _shown(example: ShippedQuestion) -> str:
    several = f"{len(example.images)} pictures: " if len(example.images) > 1 else ""
    return several + example.question
