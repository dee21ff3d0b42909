"""What the writers of data sets share: splits, even answers, wordings, the phrases a program speaks of.

A question-only guesser must stay near chance, so questions are admitted one by one: for each skeleton of a program (its
words masked) "yes" and "no" take turns, the right one of two options is as often the first as the second, and no color,
kind or number may become more common than its share.
"""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from .oracle import parse_phrase
from .questions import UNSEEN, Item, Phrase
from .world import COLORS, HELD_OUT, KINDS, SIZES, Scene, draw, plural

SPLITS: tuple[str, ...] = ("train", "val", "test", "test_combinations", "test_wording")
"""New scenes in each; in "test_combinations" pairs of color and kind that the others never show or name; in
"test_wording" wordings that the others never use."""

CHOICES = ("choose_color", "choose_kind", "which_thing")
SHARES = {"color": len(COLORS), "find_color": len(COLORS), "kind": len(KINDS), "size": len(SIZES)}
"""How many answers share a family; counts are taken to have five."""
JPEG_QUALITY = 95

_PHRASE = re.compile(
    r'"(?:Is there|What color is|What size is|What is|How many) (?:the )?([\w ]+?)(?: are there)?\?"|'
    r'(?:get_pos\(img|find_matching_image\(images), "([\w ]+)"'
)
_MASKS = (
    (re.compile(rf"\b({'|'.join(COLORS)})\b"), "COLOR"),
    (re.compile(rf"\b({'|'.join(sorted({*KINDS, *map(plural, KINDS)}, key=len, reverse=True))})\b"), "KIND"),
    (re.compile(rf"\b({'|'.join(SIZES)})\b"), "SIZE"),
    (re.compile(r"\b(an?) "), ""),
)


class Rewording(random.Random):
    """Replays a state with another wording: the last one-argument ``randrange`` is the one that picks the wording."""

    def __init__(self, state: tuple[object, ...]) -> None:
        super().__init__(0)
        self.setstate(state)
        self.picks: list[int] = []
        self.shift: tuple[int, int] | None = None

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        """As ``random.Random.randrange``; notes or shifts the picks of one argument."""
        value = super().randrange(start) if stop is None else super().randrange(start, stop, step)
        if stop is None:
            if self.shift is not None and self.shift[0] == len(self.picks):
                value = (value + self.shift[1]) % start
            self.picks.append(start)
        return value


def reworded(
    state: tuple[object, ...], make: Callable[[random.Random], Item], item: Item, *, seen: bool = False
) -> str | None:
    """The same question in other words, or None when it has one wording only.

    Args:
        state: State of the generator from which ``make`` drew the question.
        make: Draws the question again.
        item: The question.
        seen: Take only wordings that training may use.
    """
    first = Rewording(state)
    make(first)
    last = len(first.picks) - 1
    for shift in range(1, first.picks[last]):
        again = Rewording(state)
        again.shift = (last, shift)
        other = make(again)
        same = (other.program, other.answer) == (item.program, item.answer) and other.question != item.question
        if same and not (seen and other.wording.endswith(UNSEEN)):
            return other.question
    return None


def phrases(program: str) -> list[Phrase]:
    """The descriptions of things that a program speaks of, in order."""
    return [parse_phrase(one or two) for one, two in _PHRASE.findall(program)]


def skeleton(text: str) -> str:
    """A program with colors, kinds and sizes masked."""
    for pattern, mask in _MASKS:
        text = pattern.sub(mask, text)
    return text


def _named_pairs(item: Item) -> set[tuple[str, str]]:
    """Pairs of color and kind that a question names, also where they are apart ("is the star red?")."""
    pairs = {(one.color, one.kind) for one in phrases(item.program) if one.color and one.kind}
    if item.type in ("verify", *CHOICES[:2]):
        words = re.findall(r"\w+", item.question.lower())
        pairs |= {(color, kind) for color in words if color in COLORS for kind in words if kind in KINDS}
    return pairs


def combines(item: Item, scenes: Sequence[Scene]) -> bool:
    """Tells whether a question names a held-out pair or speaks of a thing that is one."""
    if _named_pairs(item) & HELD_OUT:
        return True
    rare = [thing for scene in scenes for thing in scene.things if (thing.color, thing.kind) in HELD_OUT]
    return any(one.holds(thing) for one in phrases(item.program) if one.kind or one.color for thing in rare)


def fits(item: Item, scenes: Sequence[Scene], split: str) -> bool:
    """Tells whether a question belongs in a split."""
    unseen = item.wording.endswith(UNSEEN)
    return unseen == (split == "test_wording") and combines(item, scenes) == (split == "test_combinations")


class Balance:
    """Admits questions so that no answer stands out."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[str]] = defaultdict(Counter)

    def admits(self, item: Item) -> bool:
        """Tells whether a question may be added, and counts it when so."""
        keys, value, share = self._place(item)
        for key in keys:
            counts = self._counts[key]
            if share == 2:
                if counts[value] > min(counts[one] for one in self._pair(item)):
                    return False
            elif counts[value] > counts.total() / share + 1:
                return False
        for key in keys:
            self._counts[key][value] += 1
        return True

    def _place(self, item: Item) -> tuple[list[str], str, int]:
        if item.answer in ("yes", "no"):
            return [item.type, skeleton(item.program)], item.answer, 2
        if item.type in CHOICES:
            return [item.type, item.type + skeleton(item.program)], _place_of(item), 2
        if item.type in ("which_side", "half_choice"):
            sides = "".join(self._pair(item))
            return [item.type + sides, item.wording + sides], item.answer, 2
        return [item.type], item.answer, SHARES.get(item.type, 5)

    @staticmethod
    def _pair(item: Item) -> tuple[str, str]:
        if item.answer in ("yes", "no"):
            return ("yes", "no")
        if item.type in CHOICES:
            return ("first", "second")
        return next(two for two in (("left", "right"), ("above", "below"), ("top", "bottom")) if item.answer in two)


def options(item: Item) -> list[str]:
    """The two options of a choice in the order of the question."""
    if item.type == "choose_color":
        return [word for word in re.findall(r"\w+", item.question.lower()) if word in COLORS]
    two = re.findall(r'"([\w ]+)"', item.program.splitlines()[-1])
    found = [one for one in two if one != "yes"]
    return sorted(found, key=lambda one: re.search(rf"\b(the|an?) {one} or ", item.question.lower()) is None)


def _place_of(item: Item) -> str:
    return "first" if options(item)[0] == item.answer else "second"


@dataclass
class AdmittedQuestion:
    """A question that was admitted."""

    item: Item
    scenes: list[Scene]
    paraphrased: str | None = None


class Halt(Exception):
    """No question could be found for a split."""


def tries(limit: int, what: str) -> Iterator[int]:
    """Counts attempts.

    Raises:
        Halt: there were too many.
    """
    yield from range(limit)
    raise Halt(what)


def save_jpeg(scene: Scene, path: Path) -> None:
    """Draws a scene into a JPEG file."""
    draw(scene).save(path, "JPEG", quality=JPEG_QUALITY, subsampling=0)


def split_of_world(split: str) -> Literal["train", "test"]:
    """The split of the drawn world that scenes come from."""
    return "test" if split == "test_combinations" else "train"
