"""What the writers of data sets share: splits, and questions whose answers are even.

A question-only guesser must stay near chance, so questions are admitted one by one: for each skeleton of a program (its
words masked) "yes" and "no" take turns, the right one of two options is as often the first as the second, and no color,
kind or number may become more common than its share.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from ..core.errors import InputError
from .questions import UNSEEN, NoQuestionError, SceneQuestion, sample_question
from .world import COLORS, HELD_OUT, KINDS, SIZES, Scene, pluralize

SPLITS: tuple[str, ...] = ("train", "val", "test", "test_combinations", "test_wording")
"""New scenes in each; in "test_combinations" pairs of color and kind that the others never show or name; in
"test_wording" wordings that the others never use."""

SHARES = {"color": len(COLORS), "find_color": len(COLORS), "kind": len(KINDS), "size": len(SIZES)}
"""How many answers share a kind of question; counts are taken to have five."""
_MASKS = (
    (re.compile(rf"\b({'|'.join(COLORS)})\b"), "COLOR"),
    (re.compile(rf"\b({'|'.join(sorted({*KINDS, *map(pluralize, KINDS)}, key=len, reverse=True))})\b"), "KIND"),
    (re.compile(rf"\b({'|'.join(SIZES)})\b"), "SIZE"),
    (re.compile(r"\b(an?) "), ""),
)


def tries(limit: int, what: str) -> Iterator[int]:
    """Counts attempts.

    Raises:
        InputError: there were too many.
    """
    yield from range(limit)
    raise InputError(f"Too few questions are left for {what}.", hint="Ask for fewer pictures.")


def write_lines(path: Path, rows: Sequence[Any]) -> None:
    """Writes a line of JSON for each row, in a folder that need not be there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def split_of_world(split: str) -> Literal["train", "test"]:
    """The split of the drawn world that scenes come from."""
    return "test" if split == "test_combinations" else "train"


def ask_in_split(
    rng: random.Random, subject: Scene | Sequence[Scene], split: str, more: Callable[[SceneQuestion], bool]
) -> SceneQuestion | None:
    """Asks a question that belongs in a split and meets one condition more; None where none is found."""
    scenes = [subject] if isinstance(subject, Scene) else subject
    try:
        return sample_question(rng, subject, wanted=lambda item: belongs_in_split(item, scenes, split) and more(item))
    except NoQuestionError:
        return None


def belongs_in_split(item: SceneQuestion, scenes: Sequence[Scene], split: str) -> bool:
    """Tells whether a question belongs in a split: by its wording, and by the pairs that it names or speaks of."""
    if item.wording.endswith(UNSEEN) != (split == "test_wording"):
        return False
    pairs = {(phrase.color, phrase.kind) for phrase in item.phrases}
    if item.type in ("verify", "choose_color"):  # they name color and kind apart
        pairs |= {(str(getattr(item.slots, name, "")), item.slots.a.kind) for name in ("c", "d")}
    rare = [thing for scene in scenes for thing in scene.things if (thing.color, thing.kind) in HELD_OUT]
    spoken = any(phrase.holds(thing) for phrase in item.phrases if phrase.kind or phrase.color for thing in rare)
    return (bool(pairs & HELD_OUT) or spoken) == (split == "test_combinations")


def mask_program(text: str) -> str:
    """A program with colors, kinds and sizes masked."""
    for pattern, mask in _MASKS:
        text = pattern.sub(mask, text)
    return text


class Balance:
    """Admits questions so that no answer stands out."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[str]] = defaultdict(Counter)

    def admits(self, item: SceneQuestion) -> bool:
        """Tells whether a question may be added, and counts it when so."""
        keys, value = [item.type, item.type + mask_program(item.program)], item.answer
        two = ("yes", "no") if value in ("yes", "no") else ("first", "second") if item.options else ()
        if item.options:
            value = two[item.options.index(value)]
        for counts in (self._counts[key] for key in keys):
            most = min(counts[answer] for answer in two) if two else counts.total() / SHARES.get(item.type, 5) + 1
            if counts[value] > most:
                return False
        for key in keys:
            self._counts[key][value] += 1
        return True
