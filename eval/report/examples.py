"""Some questions of a run as the pages of answers show them: pictures, program, each call with its heat maps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, zip_longest
from pathlib import Path
from typing import NamedTuple, TypeAlias

from markupsafe import Markup

from ...core.errors import ImageError
from ...core.images import Picture
from ...core.trace import Method
from ...pages import answer_fragment
from ..task import Example, Row
from .figures import RunFigures
from .reading import answer_of, first_pairs

MOST = 12
"""Examples of a page."""
ROOM = 1_600_000
"""Characters that they take of a page, at most."""

AnsweredExample: TypeAlias = tuple[Example, Mapping[Method, Row]]


class ExampleView(NamedTuple):
    """One example on the page."""

    example: Example
    rows: Mapping[Method, Row]
    page: Markup
    """Its pictures, program and calls."""


def show_examples(runs: Sequence[RunFigures], here: Path | None = None) -> list[list[ExampleView]]:
    """Returns a few examples of each run, of every outcome; no more than a page has room for.

    Args:
        runs: the runs.
        here: where the pictures are now, if they were moved.
    """
    return [list(_fitting(run, max(1, MOST // len(runs)), ROOM // len(runs), here)) for run in runs]


def _fitting(run: RunFigures, most: int, room: int, here: Path | None) -> Iterator[ExampleView]:
    for example, rows in _choose_examples(run):
        first = rows.get("codevqa") or next(iter(rows.values()))
        beside = rows.get("pnpvqa") if first.method == "codevqa" else None
        page = answer_fragment(
            answer_of(example, first, maps=True),
            _locate_pictures(example, here),
            answer_of(example, beside) if beside else None,
            alone=False,
        )
        if len(page) <= room:
            room -= len(page)
            most -= 1
            yield ExampleView(example, rows, Markup(page))  # escaped by its template
        if not most:
            return


def _choose_examples(run: RunFigures) -> list[AnsweredExample]:
    """Returns questions of each outcome in turn, those on which methods differ first; of each, other programs first."""
    outcomes: dict[tuple[tuple[bool | None, bool], ...], dict[tuple[bool, str], AnsweredExample]] = {}
    kinds = set[object]()
    for example, rows in first_pairs(run.store):
        verdicts = tuple((run.metric.right(example, row.prediction), row.fallback) for row in rows.values())
        kind = verdicts, frozenset(str(call.get("name")) for call in next(iter(rows.values())).trace.get("calls", ()))
        group = outcomes.setdefault(verdicts, {})
        if kind not in kinds or len(group) < 2 * MOST:
            group[kind in kinds, example.id] = example, rows
        kinds.add(kind)
    ordered = sorted(outcomes, key=lambda verdicts: (len(set(verdicts)) == 1, verdicts[0][0] is True))
    turns = ([outcomes[verdicts][key] for key in sorted(outcomes[verdicts])] for verdicts in ordered)
    return [kept for kept in chain.from_iterable(zip_longest(*turns)) if kept is not None]


def _locate_pictures(example: Example, here: Path | None) -> tuple[Picture, ...]:
    """Returns the pictures of an example, where they are now; none where one is gone: the page names them then."""
    views = []
    for image in example.images:
        place = image
        if here is not None and not image.path.is_file():
            parts = image.path.parts  # the longest end of its path that is there
            ends = (here.joinpath(*parts[at:]) for at in range(1, len(parts)))
            place = replace(image, path=next((end for end in ends if end.is_file()), image.path))
        try:
            views.append(replace(place.load(), name=image.name))
        except ImageError:
            return ()
    return tuple(views)
