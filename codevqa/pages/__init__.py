"""Answers as HTML: the trace page, what a notebook shows, and the fragments that the demo shows while a question runs.

Every page is self-contained: pictures are inline, there is no script, and nothing is asked of another machine. What
comes from a user, a model or a picture is escaped by the template engine. Reading needs no JavaScript.
"""

from __future__ import annotations

from .many import LARGE
from .render import (
    answer_fragment,
    call_html,
    calls_html,
    comparisons_html,
    demo_html,
    evidence_html,
    examples_html,
    gallery_html,
    program_html,
    styles,
    trace_page,
)
from .words import agreement, page_name

__all__ = [
    "LARGE",
    "agreement",
    "answer_fragment",
    "call_html",
    "calls_html",
    "comparisons_html",
    "demo_html",
    "evidence_html",
    "examples_html",
    "gallery_html",
    "page_name",
    "program_html",
    "styles",
    "trace_page",
]
