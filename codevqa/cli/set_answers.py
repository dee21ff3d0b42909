"""Answers about collections on the terminal: the pictures behind them, and their doubt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..collections.collection import Collection, picture_file, picture_path
from ..core.answer import Answer
from ..core.answer_rows import rows_of
from ..core.selection import Pick, Selection
from ..core.table import Column, Row
from ..core.trace import ImageRef

SHOWN = 20
"""Pictures that are listed unless all are wanted."""
UNSURE = 5
"""Pictures to check that are named."""


@dataclass(frozen=True)
class SetAnswer:
    """An answer about a collection: of a program that failed, what was found until then."""

    answer: Answer
    collection: Collection
    selections: tuple[Selection, ...]

    def path(self, image: ImageRef) -> str:
        """Returns where a picture of the answer lies."""
        return picture_path(self.collection.open()[image.index - 1])

    def rows(self, column: Column, of: str = "") -> list[Row]:
        """Returns what it says of each picture, as rows of a table; ``of`` names its set."""
        return rows_of(self.answer, column, [picture_file(picture) for picture in self.collection], of)

    def count_text(self, selection: Selection) -> str:
        """Returns how many were selected: with their range, or until when."""
        if selection.left or self.answer.error is not None:
            looked = len(selection.picked) + len(selection.others)
            return f"stopped after {looked:,} of {len(self.collection):,} pictures: {selection.count:,} so far"
        low, high = selection.low, selection.high
        return f"{selection.count:,}" + ("" if low == high else f", {low:,} to {high:,} likely")

    def lines(self, most: int | None = SHOWN) -> Iterator[str]:
        """Yields what is printed below the answer."""
        for selection in self.selections:
            yield f"{selection.question}: {self.count_text(selection)}"
            yield from self._list_images([pick.image for pick in selection.picked], most)
            if selection.unsure:
                doubts = ", ".join(f"{self.path(pick.image)} ({pick.chance:.0%})" for pick in selection.unsure[:UNSURE])
                yield f"  unsure: {doubts}{_more(selection.unsure, UNSURE)}"
            if selection.unread:
                unread = ", ".join(map(self.path, selection.unread[:UNSURE]))
                yield f"  not read: {unread}{_more(selection.unread, UNSURE)}"
        if not self.selections:
            yield from self._list_images(list(_images(self.answer.value)), most)

    def _list_images(self, images: Sequence[ImageRef], most: int | None) -> Iterator[str]:
        yield from (f"  {self.path(image)}" for image in images[:most])
        if more := _more(images, most):
            yield f" {more} (--all)"

    def to_dict(self, *, evidence: bool = False) -> dict[str, Any]:
        """Returns the answer as plain data, with its pictures and selections."""
        pictures = {str(number): picture_path(picture) for number, picture in enumerate(self.collection, 1)}
        selections = [self._plain(selection) for selection in self.selections]
        return {**self.answer.to_dict(evidence=evidence), "pictures": pictures, "selections": selections}

    def _plain(self, selection: Selection) -> dict[str, Any]:
        def plain(picks: Sequence[Pick]) -> list[dict[str, Any]]:
            return [{"path": self.path(pick.image), "chance": round(pick.chance, 4)} for pick in picks]

        same = {name: getattr(selection, name) for name in ("question", "count", "low", "high", "ruled_out", "left")}
        unread = [self.path(image) for image in selection.unread]
        return {**same, "picked": plain(selection.picked), "unsure": plain(selection.unsure), "unread": unread}


def compare_answers(names: Sequence[str], answers: Sequence[SetAnswer]) -> Iterator[str]:
    """Yields the answer of each set, and where they are numbers what they differ by."""
    wide = max(map(len, names))
    ranges = [_range(answer) for answer in answers]
    for name, answer, span in zip(names, answers, ranges, strict=True):
        error = answer.answer.error
        likely = f", {span[1]:g} to {span[2]:g} likely" if span and span[1] != span[2] else ""
        text = answer.answer.text or f"failed: {error.message if error else 'no answer'}"
        yield f"{name:{wide}}  {text}{likely}  (of {len(answer.collection):,} pictures)"
    for name, span in zip(names[1:], ranges[1:], strict=True):
        if (first := ranges[0]) and span:
            overlap = "do not overlap" if first[2] < span[1] or span[2] < first[1] else "overlap"
            both = f"; their ranges {overlap}" if (first[1], span[1]) != (first[2], span[2]) else ""
            yield f"{names[0]} - {name}: {first[0] - span[0]:g}{both}"


def _range(answer: SetAnswer) -> tuple[float, float, float] | None:
    """Returns a number and its range; None where the answer is none. A number that no selection counted is its own."""
    try:
        number = float(answer.answer.text)
    except ValueError:
        return None
    counted = [
        (number, float(selection.low), float(selection.high))
        for selection in answer.selections
        if selection.count == number
    ]
    return counted[0] if counted else (number, number, number)


def _more(things: Sequence[object], most: int | None) -> str:
    return f" and {len(things) - most:,} more" if most is not None and len(things) > most else ""


def _images(value: object) -> Iterator[ImageRef]:
    if isinstance(value, ImageRef):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _images(part)
