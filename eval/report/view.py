"""What a report shows, before it is a page: sections of tables, charts and cases, as plain frozen data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from ..statistics import Interval

__all__ = [
    "AccuracyBar",
    "Case",
    "Chart",
    "ChartLine",
    "Report",
    "Role",
    "Section",
    "ShownCall",
    "Table",
    "Thumbnail",
    "percent",
    "points",
]

TIED = "\N{NO-BREAK SPACE}"
"""Keeps a figure and its interval on one line."""
Role: TypeAlias = Literal["program", "baseline"]


@dataclass(frozen=True)
class Table:
    """A table of texts; the first column names the row."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str = ""
    note: str = ""
    muted: frozenset[int] = frozenset()
    """Rows that are not ours to claim, such as the paper's."""


@dataclass(frozen=True)
class AccuracyBar:
    """A share with its interval."""

    name: str
    role: Role
    share: Interval


@dataclass(frozen=True)
class ChartLine:
    """One group of questions in a chart, with a bar for each method."""

    label: str
    n: int
    bars: tuple[AccuracyBar, ...]


@dataclass(frozen=True)
class Chart:
    """Bars by group."""

    title: str
    lines: tuple[ChartLine, ...]
    note: str = ""


@dataclass(frozen=True)
class Thumbnail:
    """A picture: inline data where it can be read, else only its name."""

    name: str
    uri: str = ""


@dataclass(frozen=True)
class ShownCall:
    """One call of a program, with the verdict of the scene graph where there is one."""

    text: str
    truth: str = ""
    right: bool | None = None


@dataclass(frozen=True)
class Case:
    """One question in full."""

    id: str
    question: str
    gold: str
    pictures: tuple[Thumbnail, ...]
    answer: str
    answer_right: bool | None
    baseline: str | None
    baseline_right: bool | None
    program: str
    steps: tuple[ShownCall, ...]
    error: str = ""
    """What failed, where the baseline answered in the program's place."""


@dataclass(frozen=True)
class Section:
    """A part of the report under a heading."""

    title: str
    text: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    charts: tuple[Chart, ...] = ()
    cases: tuple[Case, ...] = ()
    folded: bool = False
    """Whether a page shows it only when asked."""


@dataclass(frozen=True)
class Report:
    """The whole of it."""

    title: str
    about: tuple[tuple[str, str], ...]
    sections: tuple[Section, ...]
    made: str = ""
    """By what and when."""
    notes: tuple[str, ...] = field(default=())


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
