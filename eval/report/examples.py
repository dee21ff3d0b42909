"""Some questions of a run as the pages of answers show them: pictures, program, each call with its heat maps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from pathlib import Path
from typing import TypeAlias

from markupsafe import Markup

from ...core.errors import ImageError
from ...core.images import Picture, load_picture
from ...core.trace import Method
from ...pages import answer_fragment
from ..task import Example, PictureFile, Row
from .figures import RunFigures
from .reading import answer_of, first_pairs
from .tables import METHOD_LABELS

MOST = 12
"""Examples of a page."""
ROOM = 1_600_000
"""Characters that they take of a page, at most."""

Asked: TypeAlias = tuple[Example, Mapping[Method, Row]]


@dataclass(frozen=True)
class Shown:
    """One example on the page."""

    example: Example
    answers: tuple[tuple[str, str, bool | None], ...]
    """What each method said, and whether that is right; None where the answer is hidden."""
    page: Markup
    """Its pictures, program and calls."""

    @property
    def gold(self) -> str:
        """The accepted answers."""
        return ", ".join(dict.fromkeys(self.example.gold))


def examples(runs: Sequence[RunFigures], here: Path | None = None) -> list[list[Shown]]:
    """Returns a few examples of each run, of every outcome; no more than a page has room for.

    Args:
        runs: the runs.
        here: where the pictures are now, if they were moved.
    """
    return [list(_fitting(run, max(1, MOST // len(runs)), ROOM // len(runs), here)) for run in runs]


def _fitting(run: RunFigures, most: int, room: int, here: Path | None) -> Iterator[Shown]:
    for example, rows in _chosen(run):
        first = rows.get("codevqa") or next(iter(rows.values()))
        beside = rows.get("pnpvqa") if first.method == "codevqa" else None
        page = answer_fragment(
            answer_of(example, first, maps=True),
            _pictures(example, here),
            answer_of(example, beside) if beside else None,
            alone=False,
        )
        if len(page) <= room:
            room -= len(page)
            most -= 1
            said = (
                (METHOD_LABELS[method], row.prediction, run.metric.right(example, row.prediction))
                for method, row in rows.items()
            )
            yield Shown(example, tuple(said), Markup(page))
        if not most:
            return


def _chosen(run: RunFigures) -> list[Asked]:
    """Returns questions of each outcome in turn, those on which methods differ first; of each, other programs first."""
    outcomes: dict[tuple[tuple[bool | None, bool], ...], dict[object, Asked]] = {}
    for example, rows in first_pairs(run.store):
        verdicts = tuple((run.metric.right(example, row.prediction), row.fallback) for row in rows.values())
        found = outcomes.setdefault(verdicts, {})
        used = frozenset(call.get("name") for call in next(iter(rows.values())).trace.get("calls", ()))
        if len(found) < 2 * MOST:
            found.setdefault(example.id if used in found else used, (example, rows))
    ordered = sorted(outcomes, key=lambda verdicts: (len(set(verdicts)) == 1, verdicts[0][0] is True))
    turns = (
        [found[key] for key in sorted(found, key=lambda key: isinstance(key, str))]
        for found in map(outcomes.get, ordered)
        if found
    )
    return [one for one in chain.from_iterable(zip_longest(*turns)) if one is not None]


def _pictures(example: Example, here: Path | None) -> tuple[Picture, ...]:
    """Returns the pictures of an example; none where one cannot be read: the page names them then."""
    try:
        read = [load_picture(_found(image, here).load()) for image in example.images]
    except ImageError:
        return ()
    return tuple(replace(one, name=image.name) for one, image in zip(read, example.images, strict=True))


def _found(image: PictureFile, here: Path | None) -> PictureFile:
    """Returns a picture where it is now, if its data set was moved since the run was made."""
    if here is None or image.path.is_file():
        return image
    parts = image.path.parts  # the longest end of its path that is there
    ends = (here.joinpath(*parts[at:]) for at in range(1, len(parts)))
    return replace(image, path=next((one for one in ends if one.is_file()), image.path))
