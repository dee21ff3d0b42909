"""Which captions tell what a question asks: the facts a question rests on, and captions that state them all.

Reading can only be measured fairly where the captions decide the answer. Captions decide a question when every fact
that its program asks for is stated, or when they name everything there is and so tell what is absent.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from codevqa.miniworld import oracle
from codevqa.miniworld.captions import RELATIONS, captions, relation_caption
from codevqa.miniworld.questions import Phrase
from codevqa.miniworld.truth import NounPhrase, parse
from codevqa.miniworld.world import Scene, Thing

MOST = 10
"""Captions of one picture at most."""


@dataclass(frozen=True)
class Fact:
    """Something a question needs to know about one scene."""

    place: int
    """Which scene of the set."""
    asked: str
    """An elementary question, or the phrase whose position is needed."""
    other: str = ""
    """The phrase it is held against; empty for a half of the picture."""
    axis: str = ""
    """ "x" or "y" for positions, else empty."""


def facts_of(program: str, scenes: Sequence[Scene], form: str) -> list[Fact]:
    """The facts that a true run of a program asks for.

    Raises:
        ValueError: the truth does not decide the program.
    """
    found: list[Fact] = []
    places = {id(scene): place for place, scene in enumerate(scenes)}

    def note(scene: Scene, question: str) -> str:
        found.append(Fact(places[id(scene)], question))
        return oracle.query(scene, question)

    oracle.run_program(program, scenes, form, query_with=note)
    mark = re.search(r'find_matching_image\(images, "([^"]*)"', program)
    if mark:
        what = oracle.parse_phrase(mark[1])
        found += [Fact(place, f"Is there {what.one}?") for place in range(len(scenes))]
    names = re.findall(r'get_pos\(img, "([^"]*)"', program)
    if len(names) == 1:
        found.append(Fact(0, names[0], "", "x" if re.search(r"\bx [<>]", program) else "y"))
    for axis, other in re.findall(r"\b([xy])1 [<>] [xy]([23])", program):
        found.append(Fact(0, names[0], names[int(other) - 1], axis))
    return list(dict.fromkeys(found))


@dataclass(frozen=True)
class _Told:
    """What one caption states."""

    parts: tuple[NounPhrase, ...] = ()
    relation: str = ""
    where: str = ""
    wall: str = ""
    height: int = 0
    one_color: str = ""
    end: tuple[str, str] = ("", "")
    """ "top" or "base", and its color."""
    only: str = ""


_NUMBERS = {word: place for place, word in enumerate(("no", "one", "two", "three", "four", "five", "six"))}
_TOWER = re.compile(r"a tower (?:of|with) (\w+)(?: (\w+))? blocks?(?: with an? (\w+) block (on top|at the base))?")
_TOUCHING = re.compile(r"(.+) touching the (.+)")
_RELATED = re.compile(f"(.+) ({'|'.join(RELATIONS)}|over|on top of) (.+)")
_PLACED = re.compile(r"(.+) ((?:at|on) the [a-z ]+|in the middle)")


@lru_cache(maxsize=200_000)
def _read(caption: str) -> _Told:
    """Takes a caption apart."""
    if match := _TOWER.fullmatch(caption):
        end = ("top" if match[4] == "on top" else "base", match[3]) if match[3] else ("", "")
        return _Told(height=_NUMBERS.get(match[1], 0), one_color=match[2] or "", end=end)
    if match := re.fullmatch(r"only (\w+) objects", caption):
        return _Told(only=match[1])
    if caption.endswith("in the middle of a tower"):
        return _Told()
    if match := _TOUCHING.fullmatch(caption):
        return _Told(_parts(match[1]), wall=match[2])
    if match := _RELATED.fullmatch(caption):
        return _Told((*_parts(match[1]), *_parts(match[3])), relation=match[2])
    if match := _PLACED.fullmatch(caption):
        return _Told(_parts(match[1]), where=match[2])
    return _Told(_parts(caption))


def _parts(text: str) -> tuple[NounPhrase, ...]:
    parts = [parse(part) for part in re.split(r", | and ", text)]
    return tuple(part for part in parts if part is not None)


class _Known:
    """What captions of one scene have told so far."""

    def __init__(self, scene: Scene, told: Sequence[str]) -> None:
        self.scene = scene
        self.read = [_read(caption) for caption in told]
        self.phrases = {part for one in self.read if not one.wall for part in one.parts}
        self.heights = [one for one in self.read if one.height]

    def named(self, thing: Thing, *, sized: bool = False) -> bool:
        """Whether a caption names the things of this look with their number."""
        same = [one for one in self.scene.things if (one.color, one.kind) == (thing.color, thing.kind)]
        nouns = (thing.kind, "block") if self.scene.tower else (thing.kind,)
        if any(one.one_color == thing.color and one.height == len(same) for one in self.heights):
            return not sized
        return any(
            part.noun in nouns
            and part.color == thing.color
            and part.number == len(same)
            and (part.size == thing.size if sized else True)
            for part in self.phrases
        )

    def everything(self, *, sized: bool = False) -> bool:
        """Whether every look is named."""
        return all(self.named(thing, sized=sized) for thing in self.scene.things)

    def amount(self) -> int:
        """A measure of how much is known."""
        return sum(self.named(thing) for thing in self.scene.things)  # never ten: telling() relies on it

    def counted(self, what: Phrase) -> bool:
        """Whether the number of things that a phrase describes is known."""
        nouns = {what.kind} if what.kind else {"object", "item", "thing"}
        if what.noun == "block" or (what.kind == "square" and self.scene.tower):
            nouns |= {"block"}
        value = what.count(self.scene)
        direct = any(
            part.noun in nouns and (part.color, part.size) == (what.color or "", what.size or "")
            for part in self.phrases
            if value and part.number == value
        )
        every = what.color is None and what.size is None and value == len(self.scene.things) and bool(self.heights)
        return direct or (every and "block" in nouns) or self.everything(sized=what.size is not None)

    def exists(self, what: Phrase) -> bool:
        """Whether it is known if there is such a thing."""
        found = what.find(self.scene)
        return any(self.named(thing, sized=what.size is not None) for thing in found) or self.counted(what)

    def touching(self, text: str, wall: str, *, number: bool) -> bool:
        """Whether it is known what of a phrase touches a wall."""
        side = wall.split()[0]
        things = oracle.parse_phrase(text).find(self.scene)
        near = [one for one in things if (one.walls if side == "wall" else side in one.walls)]
        told = [self._touch(one, wall) for one in near]
        if near and not number:
            return any(told)
        return all(told) and (bool(near) or all(self.named(one) for one in things) or self.everything())

    def _touch(self, thing: Thing, wall: str) -> bool:
        same = [one for one in self.scene.things if (one.color, one.kind) == (thing.color, thing.kind)]
        for one in self.read:
            part = one.parts[0] if one.wall and one.parts else None
            if part is None or (part.color, part.noun) != (thing.color, thing.kind):
                continue
            if one.wall == wall or (wall == "wall" and len(same) == 1):
                return True
        return False

    def stacked(self, upper: str, lower: str) -> bool:
        """Whether it is known if a block of one color lies on one of another."""
        pairs = {(a.color, b.color) for b, a in zip(self.scene.tower, self.scene.tower[1:], strict=False)}
        known = {(one.parts[0].color, one.parts[1].color) for one in self.read if one.relation and len(one.parts) == 2}
        if any(one.one_color for one in self.heights):
            return True
        return (upper, lower) in known or ((upper, lower) not in pairs and pairs <= known)

    def ended(self, end: str) -> bool:
        """Whether the color at an end of the tower is known."""
        return any(one.end[0] == end or one.one_color for one in self.heights)

    def all_color(self, color: str) -> bool:
        """Whether it is known if everything has a color."""
        if any(one.only or one.one_color for one in self.read):
            return True
        others = {part.color for part in self.phrases} - {color, ""}
        return bool(others) or self.everything()

    def placed(self, text: str, other: str, axis: str) -> bool:
        """Whether it is known which of two things, or which half, lies further along an axis."""
        thing = oracle.parse_phrase(text).find(self.scene)
        words = ("left", "right") if axis == "x" else ("top", "bottom")
        spots = [self._spot(thing[0], words)] if thing else [""]
        if not other:
            return bool(spots[0])
        mark = oracle.parse_phrase(other).find(self.scene)
        if not thing or not mark:
            return True
        spots.append(self._spot(mark[0], words))
        if all(spots) and spots[0] != spots[1]:
            return True
        relations = ("to the left of", "to the right of") if axis == "x" else ("above", "below")
        looks = {(thing[0].color, thing[0].kind), (mark[0].color, mark[0].kind)}
        return any(
            one.relation in relations and {(part.color, part.noun) for part in one.parts} == looks for one in self.read
        )

    def _spot(self, thing: Thing, words: tuple[str, str]) -> str:
        for one in self.read:
            if one.where and one.parts and (one.parts[0].color, one.parts[0].noun) == (thing.color, thing.kind):
                return next((word for word in words if word in one.where.split()), "")
        return ""


def _single(known: _Known, text: str, *, sized: bool = False) -> bool:
    found = oracle.parse_phrase(text).find(known.scene)
    return bool(found) and known.named(found[0], sized=sized)


_KNOWS: tuple[tuple[str, Callable[..., bool]], ...] = (
    (r"Is there an? (\w+) block above an? (\w+) block\?", lambda k, a, b: k.stacked(a, b)),
    (r"Is there (an? [\w ]+) touching the ([\w ]+)\?", lambda k, p, w: k.touching(p, w, number=False)),
    (r"Is there (an? [\w ]+)\?", lambda k, p: k.exists(oracle.parse_phrase(p))),
    (r"How many blocks are in the tower\?", lambda k: bool(k.heights) or k.everything()),
    (r"How many ([\w ]+) are there\?", lambda k, p: k.counted(oracle.parse_phrase(p))),
    (r"How many ([\w ]+) touch the ([\w ]+)\?", lambda k, p, w: k.touching(p, w, number=True)),
    (r"What color is the block at the (top|base) of the tower\?", lambda k, e: k.ended(e)),
    (r"What color is the ([\w ]+)\?", _single),
    (r"What size is the ([\w ]+)\?", lambda k, p: _single(k, p, sized=True)),
    (r"What is the ([\w ]+)\?", _single),
    (r"Are all the (?:objects|items|blocks) (\w+)\?", lambda k, c: k.all_color(c)),
)


def _stated(known: _Known, fact: Fact) -> bool:
    if fact.axis:
        return known.placed(fact.asked, fact.other, fact.axis)
    for pattern, knows in _KNOWS:
        if match := re.fullmatch(pattern, fact.asked):
            return knows(known, *match.groups())
    return False


def missing(facts: Sequence[Fact], scenes: Sequence[Scene], told: Sequence[Sequence[str]]) -> list[Fact]:
    """The facts that captions of each scene leave open."""
    known = [_Known(scene, one) for scene, one in zip(scenes, told, strict=True)]
    return [fact for fact in facts if not _stated(known[fact.place], fact)]


def telling(
    rng: random.Random, facts: Sequence[Fact], scenes: Sequence[Scene], start: Sequence[Sequence[str]], tries: int = 60
) -> list[list[str]] | None:
    """Adds captions until they state every fact.

    Args:
        rng: Where the chance comes from.
        facts: What must be told.
        scenes: What is described.
        start: Captions of each scene to begin with.
        tries: Captions drawn for a scene at most.

    Returns:
        Captions of each scene in random order, or None where they do not come together.
    """
    found: list[list[str]] = []
    for place, (scene, first) in enumerate(zip(scenes, start, strict=True)):
        needed = [fact for fact in facts if fact.place == place]
        told = list(first)
        where = any(fact.axis for fact in needed)

        def score(told: list[str], needed: list[Fact] = needed, scene: Scene = scene) -> int:
            known = _Known(scene, told)
            return 10 * sum(_stated(known, fact) for fact in needed) + known.amount()

        best, full = score(told), 10 * len(needed)
        for _ in range(tries):
            if best >= full:
                break
            more = relation_caption(scene, rng) if where and rng.random() < 0.6 else captions(scene, rng, 1)[0]
            if more and more not in told and (value := score([*told, more])) > best:
                told.append(more)
                best = value
        else:
            return None
        if len(told) > MOST:
            return None
        rng.shuffle(told)
        found.append(told)
    return found


__all__ = ["Fact", "facts_of", "missing", "telling"]
