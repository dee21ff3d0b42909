"""Answers about collections on the terminal: the pictures behind them, and their doubt."""

from __future__ import annotations

import json as encoder
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..core.answer import Answer
from ..core.collection import StoredPicture
from ..core.selection import Pick, Selection
from ..core.text import visible
from ..core.trace import ImageRef
from .collections import path_of

SHOWN = 20
"""Pictures that are listed unless all are wanted."""
UNSURE = 5
"""Pictures to check that are named."""


@dataclass(frozen=True)
class SetAnswer:
    """An answer about a collection.

    Args:
        answer: the answer, or what was found until its program failed.
        pictures: the collection's.
    """

    answer: Answer
    pictures: Sequence[StoredPicture]

    def path(self, image: ImageRef) -> str:
        """Returns where a picture of the answer lies."""
        return path_of(self.pictures[image.index - 1])

    def picked(self) -> list[ImageRef]:
        """Returns the pictures that were selected, the surest first."""
        if found := self.answer.selections:
            return [one.image for one in found[0].picked]
        return list(_images(self.answer.value))

    def told(self, selection: Selection) -> str:
        """Returns how many were selected: with their range, or until when."""
        if selection.left or self.answer.error is not None:
            looked = len(selection.picked) + len(selection.others)
            return f"stopped after {looked:,} of {len(self.pictures):,} pictures: {selection.count:,} so far"
        low, high = selection.low, selection.high
        return f"{selection.count:,}" + ("" if low == high else f", {low:,} to {high:,} likely")

    def lines(self, most: int | None = SHOWN) -> Iterator[str]:
        """Yields what is printed below the answer."""
        found = self.answer.selections
        for selection in found:
            yield f"{selection.question}: {self.told(selection)}"
            yield from self._listed([one.image for one in selection.picked], most)
            if unsure := selection.unsure:
                more = f" and {len(unsure) - UNSURE:,} more" if len(unsure) > UNSURE else ""
                yield f"  unsure: {', '.join(map(self._doubt, unsure[:UNSURE]))}{more}"
            if selection.unread:
                yield f"  not read: {', '.join(map(self.path, selection.unread[:UNSURE]))} ({len(selection.unread):,})"
        if not found:
            yield from self._listed(list(_images(self.answer.value)), most)

    def to_dict(self, *, evidence: bool = False) -> dict[str, Any]:
        """Returns the answer as plain data, with its pictures and selections."""
        pictures = {str(number): path_of(one) for number, one in enumerate(self.pictures, 1)}
        selections = [self._plain(one) for one in self.answer.selections]
        return {**self.answer.to_dict(evidence=evidence), "pictures": pictures, "selections": selections}

    def to_json(self, *, evidence: bool = False) -> str:
        """Returns :meth:`to_dict` as one line."""
        return encoder.dumps(self.to_dict(evidence=evidence), ensure_ascii=False, allow_nan=False)

    def _plain(self, one: Selection) -> dict[str, Any]:
        return {
            "question": one.question,
            "count": one.count,
            "low": one.low,
            "high": one.high,
            "picked": [self._pick(pick) for pick in one.picked],
            "unsure": [self._pick(pick) for pick in one.unsure],
            "ruled_out": one.ruled_out,
            "left": one.left,
            "unread": [self.path(image) for image in one.unread],
        }

    def _pick(self, pick: Pick) -> dict[str, Any]:
        return {"path": self.path(pick.image), "chance": round(pick.chance, 4)}

    def _doubt(self, pick: Pick) -> str:
        return f"{self.path(pick.image)} ({pick.chance:.0%})"

    def _listed(self, images: Sequence[ImageRef], most: int | None) -> Iterator[str]:
        yield from (f"  {self.path(image)}" for image in images[:most])
        if most is not None and len(images) > most:
            yield f"  and {len(images) - most:,} more (--all)"


def print_lines(lines: Iterable[str]) -> None:
    """Prints lines on standard output, as a terminal may show them."""
    for line in lines:
        print(visible(line))


def compared(names: Sequence[str], found: Sequence[SetAnswer]) -> Iterator[str]:
    """Yields the answer of each set, and where they are numbers what they differ by."""
    wide = max(map(len, names))
    ranges = [_range(one) for one in found]
    for name, one, span in zip(names, found, ranges, strict=True):
        error = one.answer.error
        likely = f", {span[1]:g} to {span[2]:g} likely" if span and span[1] != span[2] else ""
        said = one.answer.text or f"failed: {error.message if error else 'no answer'}"
        yield f"{name:{wide}}  {said}{likely}  (of {len(one.pictures):,} pictures)"
    for name, span in zip(names[1:], ranges[1:], strict=True):
        if (first := ranges[0]) and span:
            apart = first[2] < span[1] or span[2] < first[1]
            overlap = "do not overlap" if apart else "overlap"
            both = f"; their ranges {overlap}" if (first[1], span[1]) != (first[2], span[2]) else ""
            yield f"{names[0]} - {name}: {first[0] - span[0]:g}{both}"


def _range(one: SetAnswer) -> tuple[float, float, float] | None:
    """Returns a number and its range; None where the answer is none. A number that no selection counted is its own."""
    try:
        number = float(one.answer.text)
    except ValueError:
        return None
    for selection in one.answer.selections:
        if selection.count == number:
            return number, selection.low, selection.high
    return number, number, number


def _images(value: object) -> Iterator[ImageRef]:
    if isinstance(value, ImageRef):
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _images(one)
