"""Renders the pages and their fragments from templates."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup

from ..core.answer import Answer
from ..core.errors import ErrorRecord
from ..core.events import CallBegan, Shown
from ..core.images import Picture
from ..core.trace import Call, Evidence
from .code import code_lines
from .colors import DARK, LIGHT, heat_gradient
from .comparison import comparisons
from .comparison_view import comparison_view
from .evidence_view import evidence_view
from .page_view import elsewhere, page_view
from .view import call_view, line_views, running_view, stands_for
from .words import clean

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = [
    "answer_fragment",
    "call_html",
    "comparisons_html",
    "evidence_html",
    "examples_html",
    "program_html",
    "running_html",
    "styles",
    "trace_page",
]


def trace_page(answer: Answer, pictures: Sequence[Picture], baseline: Answer | None = None) -> str:
    """Returns one self-contained page with everything an answer rests on.

    Args:
        answer: the answer.
        pictures: the pictures of its question, in order; those that are missing are named, and their maps drawn alone.
        baseline: the answer of the baseline, where it was asked too; the page says whether the two agree.
    """
    return _render("trace.html.j2", page=page_view(answer, pictures, baseline), styles=_styles())


def answer_fragment(answer: Answer, pictures: Sequence[Picture]) -> str:
    """Returns what a notebook shows of an answer: a piece of HTML with its own styles, every class prefixed ``cv-``."""
    return _render("fragment.html.j2", page=page_view(answer, pictures), styles=_styles())


def examples_html(examples: Sequence[Shown]) -> str:
    """Returns the in-context examples as a list; each opens to show its program."""
    shown = [{"id": one.id, "question": one.question, "code": _joined(one.program)} for one in examples]
    return _render("part.html.j2", kind="examples", all=shown)


def program_html(
    source: str, calls: Sequence[Call] = (), error: ErrorRecord | None = None, pictures: Sequence[Picture] = ()
) -> str:
    """Returns a program as numbered lines.

    Args:
        source: the program; it may be half written.
        calls: calls so far; their values are shown at their lines.
        error: why it failed; its line is marked, and the message shown there, or below where no line is known.
        pictures: the pictures of the question, in order, to name what it opens.
    """
    lines = line_views(source, calls, error, pictures, comparisons(source, calls, error))
    names = stands_for(calls, pictures)
    return _render("part.html.j2", kind="program", lines=lines, message=elsewhere(lines, error), names=names)


def comparisons_html(
    source: str, calls: Sequence[Call], pictures: Sequence[Picture], error: ErrorRecord | None = None
) -> str:
    """Returns a figure for each comparison of positions in a program: the points on their picture, and what it said."""
    compared = [comparison_view(one, pictures) for one in comparisons(source, calls, error)]
    return _render("part.html.j2", kind="comparisons", all=compared) if compared else ""


def call_html(call: Call, pictures: Sequence[Picture], *, open: bool = True) -> str:
    """Returns one call's card: what was asked, what came back, how long it took, and the evidence.

    Args:
        call: the call.
        pictures: the pictures of the question, in order.
        open: whether the evidence is unfolded.
    """
    return _render("part.html.j2", kind="call", one=call_view(call, pictures), open=open)


def running_html(began: CallBegan, pictures: Sequence[Picture] = ()) -> str:
    """Returns the card of a call that is still running.

    Args:
        began: the call.
        pictures: the pictures of the question; those that the call is about are shown.
    """
    return _render("part.html.j2", kind="call", one=running_view(began, pictures), open=False)


def evidence_html(evidence: Evidence, pictures: Sequence[Picture]) -> str:
    """Returns one piece of evidence."""
    return _render("part.html.j2", kind="evidence", one=evidence_view(evidence, pictures))


@cache
def styles() -> str:
    """Returns the style sheet of everything here, without ``<style>`` tags.

    Dark where the reader's system is, and where the page around says so: Gradio's ``dark`` class, JupyterLab's and
    Visual Studio Code's marks on the body.
    """
    return _environment().get_template("styles.css.j2").render(light=LIGHT, dark=DARK, gradient=heat_gradient())


def _styles() -> Markup:
    return Markup(styles())  # ours alone: no data goes into it


def _joined(source: str) -> Markup:
    return Markup("\n").join(code_lines(source))


def _render(template: str, **values: object) -> str:
    return clean(_environment().get_template(template).render(**values))


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        keep_trailing_newline=False,
    )
