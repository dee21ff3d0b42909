"""Descriptions of things: "a small red star"."""

from __future__ import annotations

from dataclasses import dataclass

from .world import COLORS, KINDS, SIZES, Scene, Thing, pluralize

GENERIC = ("object", "object", "object", "thing", "item", "shape")
"""Nouns for things of any kind, the usual one more often."""
_KINDS: dict[str, str | None] = {**{kind: kind for kind in KINDS}, "block": "square", **dict.fromkeys(GENERIC)}
NOUNS = {**{noun: noun for noun in _KINDS}, **{pluralize(noun): noun for noun in _KINDS}}
"""Every noun that a phrase may have, singular or plural, with its singular."""


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
    def word(self) -> str:
        """An everyday word for its size."""
        return {"small": "little", "large": "big"}.get(self.size or "", self.size or "")

    @property
    def many(self) -> str:
        """Such as "small red stars"."""
        return " ".join(part for part in (self.size, self.color, pluralize(self.head)) if part)

    @property
    def kinds(self) -> str:
        """Such as "stars"."""
        return pluralize(self.head)

    @property
    def one(self) -> str:
        """Such as "a small red star"."""
        return with_article(self.name)

    def holds(self, thing: Thing) -> bool:
        """Tells whether the phrase describes a thing."""
        pairs = ((self.kind, thing.kind), (self.color, thing.color), (self.size, thing.size))
        return all(wanted in (None, other) for wanted, other in pairs)

    def find(self, scene: Scene) -> list[Thing]:
        """Returns the things of a scene that it describes."""
        return [thing for thing in scene.things if self.holds(thing)]

    def count(self, scene: Scene) -> int:
        """Returns how many things of a scene it describes."""
        return len(self.find(scene))

    def the(self, scene: Scene) -> Thing:
        """Returns the one thing of a scene that it describes.

        Raises:
            ValueError: there is none, or more than one.
        """
        things = self.find(scene)
        if len(things) != 1:
            raise ValueError(f"{len(things)} things are {self.name!r}")
        return things[0]

    def overlaps(self, other: Phrase) -> bool:
        """Tells whether one thing could fit both phrases."""
        pairs = ((self.kind, other.kind), (self.color, other.color), (self.size, other.size))
        return all(mine is None or theirs is None or mine == theirs for mine, theirs in pairs)


def with_article(text: str) -> str:
    """Puts "a" or "an" before a noun phrase."""
    return f"{'an' if text[0] in 'aeiou' else 'a'} {text}"


def parse_phrase(text: str) -> Phrase:
    """Reads "small red stars" or "a block".

    Raises:
        ValueError: a word is unknown.
    """
    words = text.removeprefix("a ").removeprefix("an ").split()
    noun = NOUNS.get(words.pop(), "") if words else ""
    size = words.pop(0) if words and words[0] in SIZES else None
    color = words.pop(0) if words and words[0] in COLORS else None
    if words or not noun:
        raise ValueError(f"cannot read the phrase {text!r}")
    return Phrase(_KINDS[noun], color, size, noun if _KINDS[noun] != noun else "")
