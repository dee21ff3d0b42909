"""A report as HTML: one page with everything in it, pictures and traces too, or of a long run a page and a folder.

What comes from data or models is escaped by the template engine, or lies packed in chunks that the page's one script
shows as text; a content security policy forbids every other script, and requests.
"""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup

from .view import Report, Section, percent

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["FOLDER", "Inline", "figures_html", "live_page", "page_html", "policy", "write_chunk"]

FOLDER = "report-rows"
"""Where the chunks of a page lie that are too many for it."""
TEMPLATES = Path(__file__).parent / "templates"


class Inline(dict[str, str]):
    """Chunks that are part of the page."""

    def put(self, name: str, data: bytes) -> None:
        """Takes a chunk."""
        self[name] = base64.b64encode(data).decode()


def write_chunk(folder: Path, name: str, data: bytes) -> None:
    """Writes a chunk as a script, the one thing that a page of a file may read from another."""
    text = f"chunk({json.dumps(name)}, {json.dumps(base64.b64encode(data).decode())});\n"
    (folder / f"{name}.js").write_text(text, encoding="utf-8")


def page_html(report: Report, chunks: Inline | None) -> str:
    """Returns the page.

    Args:
        report: the report.
        chunks: all that is listed; None where it lies in :data:`FOLDER`.
    """
    source = FOLDER if chunks is None else "inline"
    return _page(report.title, report.made, source, chunks or Inline(), report)


def live_page(title: str, made: str) -> str:
    """Returns the page of a run that goes on: it asks who serves it for figures, questions and traces."""
    return _page(title, made, "live", Inline(), None)


def figures_html(report: Report) -> str:
    """Returns what stands above the questions."""
    template = _environment().get_template("figures.html.j2")
    return template.render(report=report, percent=percent, width=_width, roles=_roles)


def policy(source: str) -> str:
    """Returns the content security policy of a page whose chunks come from there."""
    digest = base64.b64encode(hashlib.sha256(_script().encode()).digest()).decode()
    more = {
        "inline": "; require-trusted-types-for 'script'; trusted-types 'none'",
        "live": "; connect-src 'self'",
    }.get(source, "")
    scripts = f"'sha256-{digest}'" + (" 'strict-dynamic'" if source == FOLDER else "")  # which that script itself adds
    pictures = "'self' data:" if source == "live" else "data:"
    return (
        f"default-src 'none'; img-src {pictures}; style-src 'unsafe-inline'; script-src {scripts}; base-uri 'none'; "
        f"form-action 'none'{more}"
    )


def _page(title: str, made: str, source: str, chunks: Inline, report: Report | None) -> str:
    first = [name for name in ("head", "part-0") if name in chunks]
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            title=title,
            made=made,
            source=source,
            chunks=chunks,
            first=first,
            rest=sorted(chunks.keys() - set(first), key=lambda name: (not name.startswith("part-"), name)),
            report=report,
            policy=policy(source),
            script=Markup(_script()),  # ours alone: no data goes into it
            percent=percent,
            width=_width,
            roles=_roles,
        )
    )


@cache
def _script() -> str:
    return (TEMPLATES / "rows.js").read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True
    )


def _width(share: float) -> str:
    """A share as a number of percent that fits its track."""
    return f"{100 * min(1.0, max(0.0, share)):.1f}"


def _roles(section: Section) -> list[tuple[str, str]]:
    """What the colors of a section's bars stand for, each once."""
    found = {bar.name: bar.role for chart in section.charts for line in chart.lines for bar in line.bars}
    return list(found.items())
