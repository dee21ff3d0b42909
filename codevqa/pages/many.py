"""Answers about many pictures: a gallery of those that matter first, and the calls of a loop in one table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

from ..core.answer import Answer
from ..core.images import Picture
from ..core.selection import SURE, Selection
from ..core.settings import SetSettings
from ..core.trace import Call, ImageRef
from .pictures import PictureView, picture_view
from .words import chance, images_in, value_words

LARGE = SetSettings().large
"""Of more pictures than these a gallery is shown in place of each of them."""
TILES = 60
"""Pictures of a saved gallery, and of one piece of evidence."""
TILE = 128
"""Longest side of a picture in a gallery, in pixels."""
FOLD = 24
"""Of more calls than these at one line of a program, one table is made."""


class Tile(NamedTuple):
    """One picture of a gallery."""

    number: int
    picture: PictureView
    mark: Literal["yes", "unsure", "no", ""]
    """Whether it counts; a picture that is unsure may do either. Empty where nothing was selected."""
    counts: bool
    note: str


class GalleryView(NamedTuple):
    """A gallery: those that count first, then those to check, then the others."""

    tiles: tuple[Tile, ...]
    rest: int
    """How many pictures are not shown."""
    about: tuple[str, ...]
    """Lines on what was selected."""


class Block(NamedTuple):
    """The calls of one line of a program: one, or all of a loop in one table."""

    calls: tuple[Call, ...]

    @property
    def title(self) -> str:
        """How many they are and what they returned, such as ``200 calls of query: 171 no, 29 yes``."""
        values = Counter(
            "failed" if one.error else one.value if isinstance(one.value, str) else value_words(one.value, 24)
            for one in self.calls
        )
        said = [f"{count:,} {value or '(nothing)'}" for value, count in values.most_common(4)]
        more = len(self.calls) - sum(count for _, count in values.most_common(4))
        said += [f"{more:,} others"] if more else []
        return f"{len(self.calls):,} calls of {self.calls[0].name}: {', '.join(said)}"

    @property
    def asked(self) -> str:
        """What all of them were asked; empty where that differs."""
        texts = {tuple(one for one in call.arguments.values() if isinstance(one, str)) for call in self.calls}
        return " ".join(texts.pop()) if len(texts) == 1 else ""

    @property
    def seconds(self) -> float:
        """The time of all of them."""
        return sum(call.seconds for call in self.calls)


def blocks(calls: Sequence[Call]) -> list[Block]:
    """Returns calls in order; those of a loop stand together where its first does."""
    places: dict[object, list[Call]] = {}
    for call in calls:
        places.setdefault((call.name, call.line), []).append(call)
    found = []
    for group in places.values():
        found += [Block(tuple(group))] if len(group) > FOLD else [Block((call,)) for call in group]
    return sorted(found, key=lambda block: block.calls[0].index)


def lean(answer: Answer) -> Answer:
    """Returns an answer without the maps, patches and prompts of calls that stand in a table: they take most room."""
    folded = {call.index for block in blocks(answer.trace.calls) if len(block.calls) > 1 for call in block.calls}
    if not folded:
        return answer
    calls = tuple(
        replace(
            call,
            evidence=tuple(replace(one, relevance=(), patches=(), prompt="", completion="") for one in call.evidence),
        )
        if call.index in folded
        else call
        for call in answer.trace.calls
    )
    return replace(answer, trace=replace(answer.trace, calls=calls))


def gallery_view(answer: Answer, pictures: Sequence[Picture], count: int, most: int = TILES) -> GalleryView:
    """Returns the gallery of an answer about many pictures. No more are read than are shown.

    Args:
        answer: the answer; its first selection says which pictures count.
        pictures: the pictures of its question, in order.
        count: how many there are.
        most: how many are shown.
    """
    selection = next(iter(answer.selections), None)
    calls = answer.trace.calls
    said = {ref.index for call in calls for one in call.evidence if one.kind == "corrected" for ref in one.images}
    chances = {one.image.index: one.chance for one in (*selection.picked, *selection.others)} if selection else {}
    counting = {one.image.index for one in selection.picked} if selection else set(images_in(answer.value))
    doubtful = {index for index, one in chances.items() if SURE > one > 1 - SURE} - said
    first = [one.image.index for one in (*selection.picked, *selection.unsure)] if selection else sorted(counting)
    order = [
        index for index in dict.fromkeys([*first, *sorted(said), *chances, *range(1, count + 1)]) if 1 <= index <= count
    ]
    tiles = []
    for index in order[:most]:
        mark: Literal["yes", "unsure", "no", ""] = "yes" if index in counting else "no" if selection else ""
        note = "corrected" if index in said else chance(chances[index]) if index in chances else ""
        mark = "unsure" if index in doubtful else mark
        tiles.append(Tile(index, picture_view(ImageRef(index), pictures, TILE), mark, index in counting, note))
    return GalleryView(tuple(tiles), max(0, count - len(tiles)), _about(selection, count, len(doubtful)))


def _about(selection: Selection | None, count: int, doubtful: int) -> tuple[str, ...]:
    """Lines on a selection: how many count, how sure that is, and what was not looked at."""
    if selection is None:
        return (f"{count:,} pictures.",)
    low, high = selection.low, selection.high
    sure = f", {low:,} to {high:,} in nine of ten cases" if low < high else ""
    lines = [f"{selection.count:,} of {count:,} pictures count{sure}."]
    told = (
        (doubtful, "to check, marked with a question mark"),
        (selection.ruled_out, "ruled out without a close look"),
        (len(selection.unread), "could not be read"),
        (selection.left, "not reached in time"),
    )
    more = ", ".join(f"{number:,} {words}" for number, words in told if number)
    return (*lines, f"Of them {more}.") if more else tuple(lines)
