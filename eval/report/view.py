"""How figures read, and the tables that a page and a terminal share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..run.run_info import Pace
from ..statistics import Interval, Paired
from ..task import Method

__all__ = [
    "METHOD_LABELS",
    "Table",
    "calls_text",
    "p_text",
    "pace_text",
    "percent",
    "points",
]

METHOD_LABELS: Mapping[Method, str] = {"codevqa": "CodeVQA", "pnpvqa": "PnP-VQA"}
"""What a reader sees of a method."""
TIED = "\N{NO-BREAK SPACE}"
"""Keeps a figure and its interval on one line."""


@dataclass(frozen=True)
class Table:
    """A table of texts; the first column names the row."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str = ""
    note: str = ""
    muted: frozenset[int] = frozenset()
    """Rows that stand apart, such as the paper's."""


def percent(share: Interval | None, digits: int = 1) -> str:
    """Writes ``49.0 % (45.9 to 52.1)``; a dash where there is nothing."""
    if share is None:
        return "–"
    value, low, high = (f"{100 * one:.{digits}f}" for one in (share.value, share.low, share.high))
    return f"{value} % ({low} to {high})".replace(" ", TIED)


def points(difference: Interval | None, digits: int = 1) -> str:
    """Writes ``+2.5 (+0.9 to +4.1)`` in percentage points; a dash where there is nothing."""
    if difference is None:
        return "–"
    value, low, high = (f"{100 * one:+.{digits}f}" for one in (difference.value, difference.low, difference.high))
    return f"{value} ({low} to {high})".replace("-", "−").replace(" ", TIED)


def p_text(paired: Paired | None) -> str:
    """Writes a p-value with the test it is of; a dash where there is nothing."""
    return "–" if paired is None else f"{paired.p_value:.2g}{TIED}({paired.test})"


def calls_text(calls: Mapping[str, float]) -> str:
    """Writes ``caption 11.1, match 1.5``: model calls a question."""
    return ", ".join(f"{kind} {count:,.1f}" for kind, count in calls.items())


def pace_text(pace: Pace) -> str:
    """Writes how fast a run went; empty where nothing was asked."""
    return f"{pace.rate:.2f} questions a second" if pace.rate is not None else ""
