"""A report as one HTML page that needs nothing else: no script, no outside request, pictures inline.

Everything that comes from data or models is escaped by the template engine; a content security policy in the page
forbids scripts and requests besides.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from .view import Report, Section, percent

if TYPE_CHECKING:
    from jinja2 import Template

__all__ = ["to_html"]


def to_html(report: Report) -> str:
    """Returns the page."""
    return _template().render(report=report, percent=percent, width=_width, roles=_roles)


@cache
def _template() -> Template:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    return environment.get_template("report.html.j2")


def _width(share: float) -> str:
    """A share as a number of percent that fits its track."""
    return f"{100 * min(1.0, max(0.0, share)):.1f}"


def _roles(section: Section) -> list[tuple[str, str]]:
    """What the colors of a section's bars stand for, each once."""
    found = {bar.name: bar.role for chart in section.charts for line in chart.lines for bar in line.bars}
    return list(found.items())
