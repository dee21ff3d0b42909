"""What will be asked, read through before a model is loaded: how much it is, and whether its pictures are there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain

from ...core.errors import InputError
from ..task import DataSet, Example, PictureFile

__all__ = ["UNCOUNTED", "Selection", "look_over"]


@dataclass(frozen=True)
class Selection:
    """The part of a data set that a run asks."""

    questions: int | None = None
    """None where that cannot be told beforehand."""
    ends: bool | None = None
    """Whether the data set ends with it."""
    cut: tuple[int, int] = (0, 0)
    """Groups, such as a statement's pictures, with questions in it and others before it, or after it."""


UNCOUNTED = Selection()
"""What was not read through."""


def look_over(
    dataset: DataSet, offset: int, limit: int | None, asks: Callable[[Example], bool], *, pictures: bool
) -> Selection:
    """Reads through what will be asked.

    Args:
        dataset: the data set. One whose pictures are in memory is not read through: that would decode them all.
        offset: examples left out at the start.
        limit: examples at most after those.
        asks: whether anything is still to be asked about an example.
        pictures: whether its pictures have to be there.

    Raises:
        InputError: there is nothing to ask, or pictures are missing or unreadable.
    """
    examples = iter(dataset)
    first = next(examples, None)
    if first is None:
        raise InputError(f"{dataset.name} {dataset.split} has no questions.", hint="Check its files.")
    if not all(isinstance(image, PictureFile) for image in first.images):
        return UNCOUNTED
    end = None if limit is None else offset + limit
    checked: dict[tuple[str, str], str] = {}
    before: set[str] = set()
    inside: set[str] = set()
    after: set[str] = set()
    place = -1
    for place, example in enumerate(chain((first,), examples)):
        within = place >= offset and (end is None or place < end)
        if example.group:
            (inside if within else before if place < offset else after).add(example.group)
        elif end is not None and place >= end:
            break  # the data set goes on, and there are no groups to look for
        if within and pictures and asks(example):
            _check(example, checked)
    if place < offset:
        raise InputError(f"--offset {offset:,} is past the end: {dataset.split} has {place + 1:,} questions.")
    _refuse(checked)
    stop = place + 1 if end is None else min(place + 1, end)
    return Selection(stop - offset, stop == place + 1, (len(inside & before), len(inside & after)))


def _check(example: Example, checked: dict[tuple[str, str], str]) -> None:
    """Looks at an example's pictures, each file once."""
    for image in example.images:
        if isinstance(image, PictureFile):
            key = (str(image.path), image.member)
            if key not in checked:
                checked[key] = image.wrong


def _refuse(checked: dict[tuple[str, str], str]) -> None:
    """Says which pictures cannot be asked about.

    Raises:
        InputError: there are such.
    """
    bad = [key for key, wrong in checked.items() if wrong]
    if not bad:
        return
    path, member = bad[0]
    how = " or ".join(dict.fromkeys(filter(None, checked.values())))
    raise InputError(
        f"{len(bad):,} of {len(checked):,} pictures are {how}, first: {f'{member} in {path}' if member else path}.",
        hint="Put them there, or ask the rest with --missing-pictures skip.",
    )
