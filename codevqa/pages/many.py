"""Answers about many pictures: a gallery of those that matter first, and the calls of a loop in one table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from ..core.answer import Answer
from ..core.images import Picture
from ..core.selection import SURE, Selection
from ..core.settings import SetSettings
from ..core.trace import Call, ImageRef
from .pictures import picture_view
from .words import chance, images_in, value_words

LARGE = SetSettings().large
"""Of more pictures than these a gallery is shown in place of each of them."""
TILES = 60
"""Pictures of a saved gallery, and of one piece of evidence."""
TILE = 128
"""Longest side of a picture in a gallery, in pixels."""
FOLD = 24
"""Of more calls than these at one line of a program, one table is made."""
Block: TypeAlias = tuple[Call, ...]
"""The calls of one line of a program: one, or all of a loop."""


def blocks(calls: Sequence[Call]) -> list[Block]:
    """Returns calls in order; those of a loop stand together where its first does."""
    places: dict[object, list[Call]] = {}
    for call in calls:
        places.setdefault((call.name, call.line), []).append(call)
    blocks: list[Block] = []
    for group in places.values():
        blocks += [tuple(group)] if len(group) > FOLD else [(call,) for call in group]
    return sorted(blocks, key=lambda block: block[0].index)


def block_title(block: Block) -> str:
    """Returns how many calls they are and what they returned, such as ``200 calls of query: 171 no, 29 yes``."""
    values = Counter("failed" if call.error else value_words(call.value, 24).strip("'") for call in block)
    summary = ", ".join(f"{count:,} {value or '(nothing)'}" for value, count in values.most_common(4))
    return f"{len(block):,} calls of {block[0].name}: {summary}{', ...' if len(values) > 4 else ''}"


def lean(answer: Answer) -> Answer:
    """Returns an answer without the maps, patches and prompts of calls that stand in a table: they take most room."""
    folded = {call.index for block in blocks(answer.trace.calls) if len(block) > 1 for call in block}

    def bare(call: Call) -> Call:
        small = (replace(entry, relevance=(), patches=(), prompt="", completion="") for entry in call.evidence)
        return replace(call, evidence=tuple(small)) if call.index in folded else call

    return replace(answer, trace=replace(answer.trace, calls=tuple(map(bare, answer.trace.calls))))


def gallery_view(answer: Answer, pictures: Sequence[Picture], count: int, most: int = TILES) -> dict[str, Any]:
    """Returns the gallery of an answer about many pictures, as its template shows it. No more are read than are shown.

    Those that count come first, then those to check, then the others.

    Args:
        answer: the answer; its first selection says which pictures count.
        pictures: the pictures of its question, in order.
        count: how many there are.
        most: how many are shown.
    """
    selection = next(iter(answer.selections), Selection("", ()))
    calls = answer.trace.calls
    corrected = {
        ref.index for call in calls for entry in call.evidence if entry.kind == "corrected" for ref in entry.images
    }
    chances = {pick.image.index: pick.chance for pick in (*selection.picked, *selection.others)}
    counting = {pick.image.index for pick in selection.picked} if chances else set(images_in(answer.value))
    doubtful = {index for index, chance in chances.items() if SURE > chance > 1 - SURE} - corrected
    first = [
        *(pick.image.index for pick in (*selection.picked, *selection.unsure)),
        *sorted(counting | corrected),
        *chances,
    ]

    def tile(index: int) -> dict[str, Any]:
        picture, counts, unsure = picture_view(ImageRef(index), pictures, TILE), index in counting, index in doubtful
        note = "corrected" if index in corrected else chance(chances[index]) if index in chances else ""
        words = "counts" if counts else "does not count" if chances and not unsure else ""
        label = ", ".join(filter(None, (picture.alt, words, "to check" if unsure else "", note)))
        gallery = {"counts": counts, "unsure": unsure, "note": note, "label": label}
        return {"number": index, "picture": picture} | gallery

    order = [index for index in dict.fromkeys([*first, *range(1, count + 1)]) if 1 <= index <= count][:most]
    about = _about(selection, count, len(doubtful)) if answer.selections else (f"{count:,} pictures.",)
    return {"tiles": list(map(tile, order)), "rest": count - len(order), "about": about}


def _about(selection: Selection, count: int, doubtful: int) -> tuple[str, ...]:
    """Lines on a selection: how many count, how sure that is, and what was not looked at."""
    low, high = selection.low, selection.high
    sure = f" The true number is {low:,} to {high:,}, with a chance of 90 %." if low < high else ""
    sentence = (
        (doubtful, "are to be checked and have a question mark"),
        (selection.ruled_out, "were ruled out without a close look"),
        (len(selection.unread), "could not be read"),
        (selection.left, "were not reached in time"),
    )
    more = ", ".join(f"{number:,} {words}" for number, words in sentence if number)
    about = f"The answer rests on {selection.count:,} of {count:,} pictures.{sure}"
    return about, *([f"Of all pictures, {more}."] if more else [])
