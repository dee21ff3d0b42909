"""A report as Markdown, for a repository or an issue: the same sections without pictures.

What comes from data or models can neither open a tag nor break a table: it is escaped, and programs stand in fences
longer than any run of backticks in them.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

from .view import Case, Chart, Report, Table, percent

__all__ = ["to_markdown"]


def to_markdown(report: Report) -> str:
    """Returns the document."""
    lines = [f"# {text(report.title)}", ""]
    lines += [f"- {text(name)}: {text(value)}" for name, value in report.about]
    lines += [line for note in report.notes for line in ("", text(note))]
    for section in report.sections:
        lines += ["", f"## {text(section.title)}"]
        lines += [line for one in section.text for line in ("", text(one))]
        for table in section.tables:
            lines += _table(table)
        for chart in section.charts:
            lines += _chart(chart)
        for case in section.cases:
            lines += _case(case)
    return "\n".join([*lines, "", text(report.made), ""])


def text(value: str) -> str:
    """Returns one line of text that Markdown shows as it is."""
    line = " ".join(value.split())
    line = re.sub(r"([\\`*_\[\]|~#])", r"\\\1", line)
    return html.escape(line, quote=False)


def _rows(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(map(text, head)) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(map(text, row)) + " |" for row in rows]


def _table(table: Table) -> list[str]:
    lines = ["", f"### {text(table.title)}"] if table.title else []
    return [*lines, "", *_rows(table.head, table.rows), *(["", text(table.note)] if table.note else [])]


def _chart(chart: Chart) -> list[str]:
    names = list(dict.fromkeys(bar.name for line in chart.lines for bar in line.bars))
    rows = []
    for line in chart.lines:
        shares = {bar.name: percent(bar.share) for bar in line.bars}
        rows.append([line.label, f"{line.n:,}", *(shares.get(name, "–") for name in names)])
    lines = ["", f"### {text(chart.title)}", "", *_rows(["", "n", *names], rows)]
    return [*lines, "", text(chart.note)] if chart.note else lines


def _case(case: Case) -> list[str]:
    said = f"gold: {case.gold or 'hidden'}; {'fallback' if case.error else 'CodeVQA'}: {case.answer}"
    said += "" if case.baseline is None else f"; PnP-VQA: {case.baseline}"
    lines = ["", f"### {text(case.question)} ({text(case.id)})", "", text(said)]
    lines += ["", "pictures: " + text(", ".join(picture.name for picture in case.pictures))]
    if case.error:
        lines += ["", text(case.error)]
    shown = [case.program.rstrip()] if case.program else []
    for number, step in enumerate(case.steps, 1):
        wrong = f"   (true: {step.truth})" if step.right is False else ""
        shown.append(f"# {number}. {' '.join(step.text.split())}{' '.join(wrong.splitlines())}")
    if shown:
        body = "\n".join(shown)
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", body)), default=0))
        lines += ["", f"{fence}python", body, fence]
    return lines
