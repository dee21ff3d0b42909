"""Questions about drawn scenes, each with its true answer and a program that answers it: what all families share.

Every question is made from the scene itself, so the answer is known. Yes and no are equally likely, and a "no" asks for
something that is nearly there: another color, another kind. Each family has several wordings; those marked unseen are
kept out of training. ``sampling`` draws from all families.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar

from .world import BOX_COLORS, BOX_KINDS, COLORS, KINDS, SIZES, Scene, Thing, plural

__all__ = ["Item", "Phrase"]

UNSEEN = "~"
"""Marks a wording that training never sees, in templates (first character) and in ``Item.wording`` (last)."""

NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
YES = 'answer = "yes" if {test} else "no"'
"""Last line of a program that answers yes or no."""

GENERIC = ("object", "object", "object", "thing", "item", "shape")


@dataclass(frozen=True)
class Item:
    """One question with its truth."""

    question: str
    answer: str
    """Lower case: "yes", "no", a color, a kind, a number in digits, a side, or a phrase of the question."""
    program: str
    """Without the line that opens the image; leaves the result in ``answer``."""
    type: str
    """Family it comes from."""
    form: Literal["image", "set"]
    wording: str
    """Which wording of the family, e.g. ``exist.2``; ends with ``~`` when training never sees it."""


@dataclass(frozen=True)
class Phrase:
    """A description of things: any of size, color and kind."""

    kind: str | None = None
    color: str | None = None
    size: str | None = None
    noun: str = ""
    """Word shown instead of the kind: "block" for a square, "object" where any kind will do."""

    @property
    def head(self) -> str:
        """The noun, singular."""
        return self.noun or self.kind or "object"

    @property
    def name(self) -> str:
        """Such as "small red star"."""
        return " ".join(part for part in (self.size, self.color, self.head) if part)

    @property
    def many(self) -> str:
        """Such as "small red stars"."""
        return " ".join(part for part in (self.size, self.color, plural(self.head)) if part)

    @property
    def one(self) -> str:
        """Such as "a small red star"."""
        return f"{article(self.name)} {self.name}"

    def holds(self, thing: Thing) -> bool:
        """Tells whether the phrase describes a thing."""
        return (
            (self.kind is None or thing.kind == self.kind)
            and (self.color is None or thing.color == self.color)
            and (self.size is None or thing.size == self.size)
        )

    def find(self, scene: Scene) -> list[Thing]:
        """Returns the things of a scene that it describes."""
        return [thing for thing in scene.things if self.holds(thing)]

    def overlaps(self, other: Phrase) -> bool:
        """Tells whether one thing could fit both phrases."""
        pairs = ((self.kind, other.kind), (self.color, other.color), (self.size, other.size))
        return all(one is None or two is None or one == two for one, two in pairs)

    def count(self, scene: Scene) -> int:
        """Returns how many things of a scene it describes."""
        return len(self.find(scene))


Value = TypeVar("Value")
ImageFamily: TypeAlias = "Callable[[random.Random, Scene], Item | None]"
SetFamily: TypeAlias = "Callable[[random.Random, Sequence[Scene]], Item | None]"


def article(text: str) -> str:
    """Returns "a" or "an"."""
    return "an" if text[:1] in tuple("aeiou") else "a"


def yes_no(truth: bool) -> str:
    """Returns "yes" or "no"."""
    return "yes" if truth else "no"


def number(rng: random.Random, value: int) -> str:
    """Returns a small number as a word or as digits."""
    return NUMBERS[value] if rng.random() < 0.65 else str(value)


def item(
    rng: random.Random,
    name: str,
    templates: Sequence[str],
    answer: str | bool,
    program: str,
    *,
    form: Literal["image", "set"] = "image",
    **slots: str,
) -> Item:
    """Fills one of the wordings of a family."""
    place = rng.randrange(len(templates))
    template = templates[place]
    unseen = template.startswith(UNSEEN)
    text = template.removeprefix(UNSEEN).format(**slots)
    question = text[:1].upper() + text[1:]
    truth = yes_no(answer) if isinstance(answer, bool) else answer
    return Item(question, truth, program, name, form, f"{name}.{place}{UNSEEN if unseen else ''}")


def colors_of(scene: Scene) -> tuple[str, ...]:
    """The colors that may be asked for in a scene of this style."""
    return BOX_COLORS if scene.style == "box" else COLORS


def kinds_of(scene: Scene) -> tuple[str, ...]:
    """The kinds that may be asked for in a scene of this style."""
    return BOX_KINDS if scene.style == "box" else KINDS


def phrase(rng: random.Random, scene: Scene, *, size: float = 0.1, generic: float = 0.12) -> Phrase:
    """Describes a thing of the scene, or nearly: with even chance one word of the description is exchanged.

    Args:
        rng: Where the chance comes from.
        scene: What is described.
        size: Chance that the description tells the size.
        generic: Chance that it names no kind.
    """
    thing = rng.choice(scene.things)
    kind: str | None = thing.kind
    color: str | None = thing.color if rng.random() < 0.75 else None
    extent = thing.size if rng.random() < size else None
    noun = "block" if scene.tower and rng.random() < 0.7 else ""
    if noun:
        extent = None
    if rng.random() < generic:
        kind, noun, color = None, rng.choice(GENERIC), thing.color
    if rng.random() < 0.5:
        if extent is not None and rng.random() < 0.5:
            extent = rng.choice(SIZES)
        elif color is not None and (kind is None or noun == "block" or rng.random() < 0.6):
            color = rng.choice(colors_of(scene))
        elif kind is not None and noun != "block":
            kind = rng.choice(_likely_kinds(rng, scene))
    return Phrase(kind, color, extent, noun)


def _likely_kinds(rng: random.Random, scene: Scene) -> tuple[str, ...]:
    here = tuple(sorted({thing.kind for thing in scene.things}))
    return here if len(here) > 1 and rng.random() < 0.5 else kinds_of(scene)


def unique(rng: random.Random, scene: Scene, *, need_color: bool = True) -> tuple[Phrase, Thing] | None:
    """Picks a thing and a phrase that describes it alone; None when there is none."""
    things = list(scene.things)
    rng.shuffle(things)
    for thing in things:
        options = [Phrase(thing.kind)]
        if need_color:
            options = [Phrase(thing.kind, thing.color), *options]
            if rng.random() < 0.35:
                options.reverse()
            options.append(Phrase(thing.kind, thing.color, thing.size))
        for option in options:
            if option.count(scene) == 1:
                return option, thing
    return None


def pair(rng: random.Random, scene: Scene) -> tuple[Phrase, Thing, Phrase, Thing] | None:
    """Picks two things, each described alone."""
    for _ in range(12):
        first, second = unique(rng, scene), unique(rng, scene)
        if first and second and first[1] is not second[1] and first[0].name != second[0].name:
            return (*first, *second)
    return None


def wanted(rng: random.Random, propose: Callable[[], tuple[Value, bool] | None], tries: int = 32) -> Value | None:
    """Proposes until both truths have come up and returns one of the two, with even chance; None when one never does.

    Asking only what could have been answered either way keeps yes and no equally likely whatever the scene.
    """
    found: dict[bool, Value] = {}
    for _ in range(tries):
        proposal = propose()
        if proposal is not None:
            found.setdefault(proposal[1], proposal[0])
            if len(found) == 2:
                return found[rng.random() < 0.5]
    return None


# Elementary questions: what a program asks ``query``. Captions can answer each of them.


def ask_exist(what: Phrase) -> str:
    """Such as "Is there a red star?"."""
    return f"Is there {what.one}?"


def ask_count(what: Phrase) -> str:
    """Such as "How many red stars are there?"."""
    return f"How many {what.many} are there?"


def ask_color(what: Phrase) -> str:
    """Such as "What color is the star?"."""
    return f"What color is the {what.name}?"


def ask_size(what: Phrase) -> str:
    """Such as "What size is the star?"."""
    return f"What size is the {what.name}?"
