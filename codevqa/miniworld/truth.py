"""Whether a caption of the small world is true of a scene.

Reads the sentences that :mod:`.captions` writes, also those that a network writes in their manner. "a red star" is true
when there is one or more; "one red star" and "two red stars" are true of exactly so many.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .captions import NUMBERS, RELATIONS, place, related
from .world import COLORS, KINDS, SIZES, Scene, Thing, plural

GENERAL = ("object", "item", "thing")
"""Nouns that name a thing of any kind."""

_SINGULAR = {plural(noun): noun for noun in (*KINDS, *GENERAL, "block")}
_NOUNS = {noun: noun for noun in (*KINDS, *GENERAL, "block")} | _SINGULAR
_COUNTS = {"a": 1, "an": 1} | {word: value for value, word in enumerate(NUMBERS)}
_RELATION = re.compile(f"^(.+) ({'|'.join(RELATIONS)}|over|on top of) (.+)$")
_TOWER = re.compile(r"^a tower (?:of|with) (\w+) (?:(\w+) )?blocks?(?: with an? (\w+) block (on top|at the base))?$")
_TOUCHING = re.compile(r"^(.+) touching the (wall|top|bottom|left wall|right wall)$")
_MIDDLE = re.compile(r"^an? (\w+) block in the middle of a tower$")
_PLACED = re.compile(r"^(.+) ((?:at|on) the (?:top|bottom|left|right)(?: left| right)?|in the middle)$")


@dataclass(frozen=True)
class NounPhrase:
    """A noun with its adjectives and number: "two large red stars"."""

    noun: str
    color: str = ""
    size: str = ""
    number: int = 1
    exact: bool = False
    """Whether the number was counted ("one", "two") rather than an article."""

    def fits(self, scene: Scene, thing: Thing) -> bool:
        """Whether it can name this thing of the scene, its number aside."""
        if self.noun == "block":
            if not scene.tower:
                return False
        elif self.noun not in GENERAL and self.noun != thing.kind:
            return False
        return self.color in ("", thing.color) and self.size in ("", thing.size)

    def counts(self, things: int) -> bool:
        """Whether its number is right for so many things."""
        return things == self.number if self.exact else things >= self.number


def parse(text: str) -> NounPhrase | None:
    """Reads "a red star" or "two large triangles"; None when it is no such phrase."""
    words = text.split()
    if len(words) < 2 or words[0] not in _COUNTS or words[-1] not in _NOUNS:
        return None
    number = _COUNTS[words[0]]
    rest = words[1:-1]
    size = rest.pop(0) if rest and rest[0] in SIZES else ""
    color = rest.pop(0) if rest and rest[0] in COLORS else ""
    if rest:
        return None
    return NounPhrase(_NOUNS[words[-1]], color, size, number, words[0] not in ("a", "an"))


def is_true(scene: Scene, caption: str) -> bool | None:
    """Whether the caption is true of the scene; None when it is no sentence of this world."""
    tower = _TOWER.match(caption)
    if tower:
        return _true_tower(scene, *tower.groups())
    middle = _MIDDLE.match(caption)
    if middle:
        return any(block.color == middle[1] for block in scene.tower[1:-1])
    if caption.startswith("only ") and caption.endswith(" objects"):
        return all(thing.color == caption.split()[1] for thing in scene.things)
    for pattern, judge in ((_TOUCHING, _true_touching), (_RELATION, _true_relation), (_PLACED, _true_placed)):
        found = pattern.match(caption)
        if found:
            return judge(scene, *found.groups())
    parts = [parse(part) for part in re.split(r", | and ", caption.replace(" , ", ", "))]
    verdicts = [part and _true_count(scene, part) for part in parts]
    return None if None in verdicts else all(verdicts)


def _true_count(scene: Scene, phrase: NounPhrase) -> bool:
    return phrase.counts(sum(phrase.fits(scene, thing) for thing in scene.things))


def _true_touching(scene: Scene, text: str, wall: str) -> bool | None:
    phrase = parse(text)
    if phrase is None:
        return None
    side = wall.split()[0]
    touching = [
        thing
        for thing in scene.things
        if phrase.fits(scene, thing) and (bool(thing.walls) if side == "wall" else side in thing.walls)
    ]
    return phrase.counts(len(touching))


def _true_relation(scene: Scene, one: str, relation: str, other: str) -> bool | None:
    first, second = parse(one), parse(other)
    if first is None or second is None:
        return None
    if relation in ("over", "on top of"):
        relation = "above"
    blocks = scene.tower
    if blocks and relation == "above":  # directly above
        pairs = list(zip(blocks[1:], blocks[:-1], strict=True))
    else:
        pairs = [(a, b) for a in scene.things for b in scene.things if a is not b and related(a, relation, b)]
    return any(first.fits(scene, a) and second.fits(scene, b) for a, b in pairs)


def _true_placed(scene: Scene, text: str, where: str) -> bool | None:
    phrase = parse(text)
    if phrase is None:
        return None
    return phrase.counts(sum(phrase.fits(scene, thing) and place(thing) == where for thing in scene.things))


def _true_tower(scene: Scene, number: str, color: str | None, end: str | None, where: str | None) -> bool | None:
    blocks = scene.tower
    if number not in _COUNTS:
        return None
    if len(blocks) != _COUNTS[number] or (color and any(block.color != color for block in blocks)):
        return False
    return end is None or blocks[-1 if where == "on top" else 0].color == end
