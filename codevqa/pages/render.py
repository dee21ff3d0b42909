"""Renders the pages and their fragments: the templates read answers, calls and evidence themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from markupsafe import Markup

from .. import __version__
from ..core.answer import Answer
from ..core.errors import ErrorRecord
from ..core.events import CallBegan, PromptExample
from ..core.images import Picture
from ..core.trace import Call, Evidence, ImageRef, Program
from .code import code_lines
from .comparison import comparison_view, comparisons
from .evidence_view import evidence_view
from .heat import heat_gradient
from .many import LARGE, block_title, blocks, gallery_view, lean
from .pictures import PictureView, named_words, picture_view
from .words import agreement, call_words, clean, images_in, images_of, model_name, pictures_name, seconds, value_words

if TYPE_CHECKING:
    from jinja2 import Environment

PICTURE_SIDE = 640
"""Longest side of a picture of the question on a page, in pixels."""
FRAGMENT_SIDE = 400
"""The same in a fragment, which shows it lower."""
THUMB = 160
"""Longest side of a small picture, in pixels."""
MOST_THUMBS = 8
_STAGES = {
    "writing": "writing the program",
    "choosing": "choosing among programs",
    "reading": "answering without a program",
}


def trace_page(answer: Answer, pictures: Sequence[Picture], baseline: Answer | None = None) -> str:
    """Returns one self-contained page with everything an answer rests on.

    Args:
        answer: the answer.
        pictures: the pictures of its question, in order; those that are missing are named, and their maps drawn alone.
        baseline: the answer of the baseline, where it was asked too; the page says whether the two agree.
    """
    return _answer_page("trace.html.j2", answer, pictures, baseline)


def answer_fragment(
    answer: Answer, pictures: Sequence[Picture], baseline: Answer | None = None, *, alone: bool = True
) -> str:
    """Returns what a notebook shows of an answer: a piece of HTML, every class prefixed ``cv-``.

    Args:
        answer: the answer.
        pictures: the pictures of its question, in order.
        baseline: the answer of the baseline, where it was asked too.
        alone: False for a page that has :func:`styles` and shows the question: both are left out, the calls are open.
    """
    return _answer_page("fragment.html.j2", answer, pictures, baseline, FRAGMENT_SIDE, alone)


def examples_html(examples: Sequence[PromptExample]) -> str:
    """Returns the in-context examples as a list; each opens to show its program."""
    return _part("examples", (), examples)


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
    compared = comparisons(source, calls, error)
    return _part("program", pictures, source, calls, error, compared)


def comparisons_html(source: str, calls: Sequence[Call], pictures: Sequence[Picture]) -> str:
    """Returns a figure for each comparison of positions in a program: the points on their picture, and what it said."""
    compared = comparisons(source, calls)
    return _part("comparisons", pictures, compared) if compared else ""


def call_html(call: Call | CallBegan, pictures: Sequence[Picture] = ()) -> str:
    """Returns the card of a call: what was asked, what came back, how long it took, and the evidence.

    Args:
        call: the call; it may still be running.
        pictures: the pictures of the question, in order.
    """
    return _part("call", pictures, call, True)


def calls_html(calls: Sequence[Call], pictures: Sequence[Picture] = ()) -> str:
    """Returns the cards of calls; those of a long loop stand in one table."""
    return _part("calls", pictures, calls)


def gallery_html(answer: Answer, pictures: Sequence[Picture]) -> str:
    """Returns all pictures of an answer as buttons, those that count first; ``data-picture`` has their numbers."""
    return _part("gallery", pictures, gallery_view(answer, pictures, len(pictures), len(pictures)), "button")


def evidence_html(evidence: Evidence, pictures: Sequence[Picture]) -> str:
    """Returns one piece of evidence."""
    return _part("evidence", pictures, evidence)


def notebook_html(macro: str, pictures: Sequence[Picture], *arguments: object) -> str:
    """Returns a macro of ``macros.html.j2``, filled in, with the styles, as a notebook shows it."""
    return f'<div class="cv-fragment"><style>\n{styles()}\n</style>\n{_part(macro, pictures, *arguments)}</div>'


def demo_html(macro: str, *arguments: object) -> str:
    """Returns a macro of ``demo.html.j2``, filled in: what the demo shows around a question."""
    return clean(getattr(_environment().get_template("demo.html.j2").module, macro)(*arguments))


def rules_html(rules: Sequence[Mapping[str, Any]], version: str) -> str:
    """Returns the page of checked rules; see :func:`.check_page.rules_page`."""
    page = _environment().get_template("check.html.j2")
    return clean(page.render(rules=rules, version=version, styles=Markup(styles())))


@cache
def styles(narrow: int = 800) -> str:
    """Returns the style sheet of everything here, without ``<style>`` tags.

    Below a window ``narrow`` pixels wide the values of a program's calls stand under its lines, not beside them.

    Dark where the reader's system is, and where the page around says so: Gradio's ``dark`` class, JupyterLab's and
    Visual Studio Code's marks on the body.
    """
    return _environment().get_template("styles.css.j2").render(gradient=heat_gradient(), narrow=narrow)


def _part(macro: str, pictures: Sequence[Picture], *arguments: object) -> str:
    parts = _environment().get_template("macros.html.j2").make_module({"pictures": pictures})
    return clean(f'<div class="cv-root">{getattr(parts, macro)(*arguments)}\n</div>')


def _answer_page(
    template: str,
    answer: Answer,
    pictures: Sequence[Picture],
    baseline: Answer | None,
    side: int = PICTURE_SIDE,
    alone: bool = True,
) -> str:
    program = answer.program
    count = max([len(pictures), *images_of(answer)])  # those that are not at hand are named
    page = _environment().get_template(template)
    many = gallery_view(answer, pictures, count) if count > LARGE else None
    values = {
        "answer": answer,
        "pictures": pictures,
        "pictures_name": pictures_name(pictures),
        "beside": (baseline.text, agreement(answer, baseline)) if baseline and answer.text else None,
        "outcome": _outcome(answer),
        "direct": any(entry.kind == "eyes" for entry in answer.trace.baseline),
        "gallery": [picture_view(ImageRef(n + 1), pictures, side) for n in range(0 if many else count)],
        "many": many,
        "whole": lean(answer).to_dict(),
        "compared": comparisons(program.source, answer.trace.calls, answer.error) if program else (),
        "facts": _facts(answer),
        "spans": _spans(answer, pictures),
        "earlier": _earlier(answer),
        "version": __version__,
        "styles": Markup(styles() if alone else ""),  # ours alone: no data goes into it
    }
    return clean(page.render(values))


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"), autoescape=True, undefined=StrictUndefined
    )
    # Of the answer inside the page: text that is no valid Unicode is kept as escapes.
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": True, "allow_nan": False}
    views = (comparison_view, evidence_view, picture_view, _state, _thumbs)
    words = (block_title, blocks, call_words, code_lines, model_name, named_words, seconds, value_words)
    environment.globals |= {function.__name__.lstrip("_"): function for function in (*views, *words)}
    return environment


# -- what the templates ask for ----------------------------------------------------------------------------------------


def _state(call: Call | CallBegan) -> Literal["running", "computed", "remembered", "failed"]:
    if isinstance(call, CallBegan):
        return "running"
    return "failed" if call.error else "remembered" if call.remembered else "computed"


def _thumbs(call: Call | CallBegan, pictures: Sequence[Picture]) -> list[PictureView]:
    """The pictures that a call is about, where no evidence shows them."""
    values = [call.arguments]
    if isinstance(call, Call):
        values = [] if call.evidence else [call.arguments, call.value]
    wanted = list(dict.fromkeys(index for value in values for index in images_in(value)))
    return [picture_view(ImageRef(index), pictures, THUMB) for index in wanted[:MOST_THUMBS]]


def _outcome(answer: Answer) -> Literal["answered", "declined", "fallback", "failed"]:
    if answer.fallback:
        return "fallback"
    if answer.error and not answer.text:
        return "failed"
    return "declined" if answer.declined or answer.abstained else "answered"


def _facts(answer: Answer) -> list[tuple[str, str]]:
    calls = answer.trace.calls
    facts = [("time", seconds(answer.seconds))]
    if answer.program is not None:
        remembered = sum(call.remembered for call in calls)
        ahead = sum(call.ahead and not call.remembered and not call.error for call in calls)
        notes = ((f"{remembered:,} from memory", remembered), (f"{ahead:,} begun ahead", ahead))
        facts.append(("calls", ", ".join([f"{len(calls):,}", *(words for words, count in notes if count)])))
    if answer.confidence is not None:
        facts.append(("confidence", f"{100 * answer.confidence:.0f} %"))
    if answer.tokens:
        estimated = answer.cost is not None and answer.cost.estimated_tokens
        facts.append(("tokens", f"{'about ' if estimated else ''}{answer.tokens:,}"))
    return facts


def _spans(answer: Answer, pictures: Sequence[Picture]) -> list[dict[str, Any]]:
    """The parts of the time line, in percent of the whole; ``number`` is the call's, 0 for what is no call."""
    calls, stages = answer.trace.calls, answer.stages
    in_calls = sum(call.seconds for call in calls)
    whole = max(answer.seconds, in_calls)
    if not calls or whole <= 0:
        return []
    rest = {name: stages.get(stage, 0.0) for stage, name in _STAGES.items()}
    rest["running the program, without its calls"] = max(0.0, stages.get("running", 0.0) - in_calls)
    rest["other"] = whole - in_calls - sum(rest.values())
    parts = [(0, name, took) for name, took in rest.items() if took >= 0.001]
    for block in blocks(calls):
        call, label = block[0], block_title(block)
        if len(block) == 1:
            label = call_words(call.name, call.arguments, 60)
            label += f" → {named_words(call.value, pictures, 60)}" if any(images_in(call.value)) else ""
        parts.append((call.index, label, sum(member.seconds for member in block)))
    return [
        {"number": number, "width": round(100 * took / whole, 3), "label": label, "time": seconds(took)}
        for number, label, took in parts
    ]


def _earlier(answer: Answer) -> list[tuple[Program, ErrorRecord]]:
    """Attempts but the one that is the answer's own program, which is shown in full."""
    attempts = list(answer.trace.attempts)
    if attempts and attempts[-1] == (answer.program, answer.error):
        attempts.pop()
    return attempts
