"""What a scene graph says is true of an elementary question, a phrase or a set of pictures.

Judged: whether something is there; its color or size; whether it has an attribute, or which of two; how many there are;
what the red object is; whether two things stand in a relation; where something is; which picture shows it. The truth
is told before the value is looked at, so that what can be judged never depends on what was answered.

It rests on names, attributes, relations and boxes of the graph, and on two things that GQA's own program of the
question says: which objects a noun stands for (``select: clothing (693480)``, where the graph has a suit), and that
there is none (``select: horse (-)``). Everything else is unknown: in graphs made by people, what is not listed may
still be there. ``complete`` says that the graphs list everything; then absence and number can be told as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .scene_graphs import (
    BROAD,
    FAMILIES,
    GENERIC,
    ObjectPhrase,
    SceneGraph,
    SceneGraphs,
    SceneObject,
    canonical,
    singular,
)

__all__ = ["GRID", "Gold", "SceneJudge", "Truth", "gold_of"]

GRID = 24
"""Positions count in patches of a 24x24 grid, y upwards."""

_NUMBERS = dict(
    zip(("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"), range(11), strict=True)
)
_OPPOSITES = {
    "to the left of": "to the right of",
    "to the right of": "to the left of",
    "above": "below",
    "below": "above",
}


@dataclass(frozen=True)
class Truth:
    """What is true, in words, and the test of a value against it."""

    text: str
    holds: Callable[[Any], bool]


@dataclass(frozen=True)
class Gold:
    """What the data set's own program says about nouns."""

    ids: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Objects that a noun certainly stands for."""
    absent: frozenset[ObjectPhrase] = frozenset()
    """What the program looks for in vain."""


def gold_of(semantic: Iterable[Mapping[str, Any]]) -> Gold:
    """Reads GQA's functional program.

    Args:
        semantic: its steps, each with ``operation``, ``argument`` and ``dependencies``.
    """
    steps = [one for one in semantic if isinstance(one, Mapping)]
    ids: dict[str, set[str]] = {}
    absent: set[ObjectPhrase] = set()
    for place, step in enumerate(steps):
        found = re.fullmatch(r"([^(]+?)\s*\(([^()]*)\)", str(step.get("argument", "")).strip())
        operation = step.get("operation")
        if found is None or operation not in ("select", "relate"):
            continue
        noun = singular(found[1].split(",")[0].strip().lower())
        if found[2].strip() != "-":
            ids.setdefault(noun, set()).update(part.strip() for part in found[2].split(","))
        elif operation == "select":
            attributes = _filters(steps, place)
            if attributes is not None:
                absent.add(ObjectPhrase(noun, attributes))
    return Gold({noun: frozenset(one) for noun, one in ids.items()}, frozenset(absent))


def _filters(steps: Sequence[Mapping[str, Any]], place: int) -> frozenset[str] | None:
    """Attributes that the steps after a selection ask for; None where they ask for something else."""
    attributes: set[str] = set()
    while True:
        after = [at for at, step in enumerate(steps) if list(step.get("dependencies") or ()) == [place]]
        narrowing = [at for at in after if str(steps[at].get("operation", "")).startswith("filter")]
        if not narrowing:
            return frozenset(attributes)
        argument = str(steps[narrowing[0]].get("argument", "")).lower()
        if len(narrowing) > 1 or not argument.isalpha():  # such as not(white)
            return None
        attributes.add(canonical(argument))
        place = narrowing[0]


@dataclass(frozen=True)
class SceneJudge:
    """One picture's graph with what is needed to read questions about it."""

    graph: SceneGraph
    words: SceneGraphs
    """Whose vocabulary is meant."""
    gold: Gold = Gold()
    complete: bool = False

    def question(self, text: str) -> Truth | None:
        """Returns what is true of a question, None where it cannot be told."""
        text = " ".join(text.lower().strip().rstrip("?. ").split())
        text = re.sub(rf",? (?:here|visible|shown|{_PLACE})$", "", text)
        for pattern, judge in _QUESTIONS:
            found = pattern.fullmatch(text)
            if found:
                truth = judge(self, **found.groupdict())
                if truth is not None:
                    return truth
        return self._relation(text)

    def position(self, text: str) -> Truth | None:
        """Returns where something is: inside its box, or within a patch of it."""
        phrase = self._phrase(text)
        if phrase is None or self._vague(phrase) or self.present(phrase) is not True:
            return None
        boxes = [
            one.box
            for one in self.graph.objects.values()
            if self._called(one, phrase) and self.fits(one, phrase) is not False
        ]
        across, up = GRID / self.graph.width, GRID / self.graph.height
        grown = [(a * across - 1, GRID - d * up - 1, c * across + 1, GRID - b * up + 1) for a, b, c, d in boxes]

        def holds(value: Any) -> bool:
            if not isinstance(value, list | tuple) or len(value) != 2:
                return False
            x, y = value
            return any(left <= x <= right and bottom <= y <= top for left, bottom, right, top in grown)

        shown = " or ".join(f"x {a:.1f}..{c:.1f}, y {b:.1f}..{d:.1f}" for a, b, c, d in grown)
        return Truth(shown, holds)

    def shows(self, text: str) -> bool | None:
        """Whether what a phrase describes is in the picture; None where it cannot be told."""
        phrase = self._phrase(text)
        return None if phrase is None else self.present(phrase)

    def fits(self, one: SceneObject, phrase: ObjectPhrase) -> bool | None:
        """Whether a phrase describes an object; None where it cannot be told."""
        if not self._called(one, phrase):  # but in graphs made by people a man may be a person too
            return False if self.complete and phrase.noun in self.words.names else None
        shown = [one.shows(attribute, complete=self.complete) for attribute in phrase.attributes]
        return False if False in shown else None if None in shown else True

    def present(self, phrase: ObjectPhrase) -> bool | None:
        """Whether there is what a phrase describes."""
        fitting = [self.fits(one, phrase) for one in self.graph.objects.values()]
        if True in fitting:
            return True
        if phrase in self.gold.absent:
            return False
        return False if self.complete and None not in fitting else None

    # -- one kind of question each ------------------------------------------------------------------------------------

    def exists(self, what: str) -> Truth | None:
        """Is there a red star?"""
        found = self.shows(what)
        return None if found is None else _yes_no(found)

    def attribute(self, family: str, what: str) -> Truth | None:
        """What color is the star?"""
        family = "size" if family in ("big", "large") else family
        shown = {frozenset(one.attributes & FAMILIES[family]) for one in self._named(what)}
        if len(shown) != 1 or not (accepted := shown.pop()):
            return None  # nothing such, or several that differ, or it is not annotated

        def holds(value: Any) -> bool:
            said = {canonical(word) for word in _words(value)} & FAMILIES[family]
            return bool(said) and said <= accepted

        return Truth(" or ".join(sorted(accepted)), holds)

    def verify(self, rest: str) -> Truth | None:
        """Is the star red?"""
        what, _, attribute = rest.rpartition(" ")
        shown = {one.shows(canonical(attribute), complete=self.complete) for one in self._named(what)}
        if canonical(attribute) not in self._attributes() or len(shown) != 1:
            return None
        found = shown.pop()
        return None if found is None else _yes_no(found)

    def choose(self, rest: str, other: str) -> Truth | None:
        """Is the star red or blue?"""
        what, _, first = rest.rpartition(" ")
        options = {canonical(first), canonical(other.split()[-1])}
        shown = {frozenset(one.attributes & options) for one in self._named(what)}
        if not options <= self._attributes() or len(shown) != 1 or len(accepted := shown.pop()) != 1:
            return None
        return Truth(min(accepted), lambda value: {canonical(word) for word in _words(value)} & options == accepted)

    def name(self, what: str) -> Truth | None:
        """What is the red object?"""
        phrase = self._phrase(what)
        if phrase is None or phrase.noun not in GENERIC or not self.complete:
            return None
        found = [one for one in self.graph.objects.values() if self.fits(one, phrase)]
        if len(found) != 1:
            return None
        name = found[0].name
        return Truth(name, lambda value: singular(" ".join(_words(value))) == name)

    def number(self, what: str) -> Truth | None:
        """How many stars are there?"""
        phrase = self._phrase(what)
        if phrase is None or not self.complete:
            return None
        fitting = [self.fits(one, phrase) for one in self.graph.objects.values()]
        if None in fitting:
            return None
        count = fitting.count(True)
        return Truth(str(count), lambda value: _number(value) == count)

    def _relation(self, text: str) -> Truth | None:
        """Is the man to the left of the car?"""
        found = re.fullmatch(r"(?:is|are) (the .+)", text)
        if found is None:
            return None
        for relation in sorted(self.words.relations, key=len, reverse=True):
            one, between, other = found[1].partition(f" {relation} ")
            firsts, seconds = self._named(one), self._named(other)
            if between and firsts and seconds:
                ids = {second.id for second in seconds}
                related = {name for first in firsts for name, target in first.relations if target in ids}
                if relation in related:
                    return _yes_no(True)
                single = len(firsts) == len(seconds) == 1
                no = self.complete or _OPPOSITES.get(relation) in related
                return _yes_no(False) if single and no else None
        return None

    # -- small parts --------------------------------------------------------------------------------------------------

    def _phrase(self, text: str) -> ObjectPhrase | None:
        return self.words.parse(" ".join(text.lower().strip(" ?.").split()), self.gold.ids.keys() | self._sought())

    def _named(self, text: str) -> list[SceneObject]:
        """Objects that a phrase certainly describes; none where others might be meant."""
        phrase = self._phrase(text)
        if phrase is None or self._vague(phrase):
            return []
        called = [(one, self.fits(one, phrase)) for one in self.graph.objects.values() if self._called(one, phrase)]
        return [] if None in [fits for _, fits in called] else [one for one, fits in called if fits]

    def _called(self, one: SceneObject, phrase: ObjectPhrase) -> bool:
        """Whether the phrase's noun names the object."""
        return one.name == phrase.noun or phrase.noun in GENERIC or one.id in self.gold.ids.get(phrase.noun, ())

    def _vague(self, phrase: ObjectPhrase) -> bool:
        """Whether more may be meant than the graph calls by the noun."""
        return not self.complete and (
            phrase.noun in GENERIC or (phrase.noun in BROAD and phrase.noun not in self.gold.ids)
        )

    def _sought(self) -> set[str]:
        return {phrase.noun for phrase in self.gold.absent}

    def _attributes(self) -> set[str]:
        return self.words.attributes.union(*FAMILIES.values())


_PLACE = r"(?:in|on) (?:the|this) (?:image|picture|photo|photograph|scene)"
_QUESTIONS: tuple[tuple[re.Pattern[str], Callable[..., Truth | None]], ...] = tuple(
    (re.compile(pattern), judge)
    for pattern, judge in (
        (r"(?:is|are) there (?P<what>.+)", SceneJudge.exists),
        (r"do(?:es)? (?:the|this) (?:image|picture|photo|scene) (?:show|contain|have) (?P<what>.+)", SceneJudge.exists),
        (r"(?:can|do) you see (?P<what>.+)", SceneJudge.exists),
        (r"(?:what|which) (?P<family>color|size) (?:is|are) (?P<what>the .+)", SceneJudge.attribute),
        (r"(?:what|which) (?P<family>color|size) do(?:es)? (?P<what>the .+) have", SceneJudge.attribute),
        (r"what(?: is|'s) the (?P<family>color|size) of (?P<what>the .+)", SceneJudge.attribute),
        (r"how (?P<family>big|large) (?:is|are) (?P<what>the .+)", SceneJudge.attribute),
        (r"(?:is|are) (?P<rest>the .+) or (?P<other>.+)", SceneJudge.choose),
        (r"(?:is|are) (?P<rest>the .+)", SceneJudge.verify),
        (r"what is (?P<what>the .+)", SceneJudge.name),
        (r"how many (?P<what>.+) (?:are there|are)", SceneJudge.number),
        (r"how many (?P<what>.+) (?:do|can) you see", SceneJudge.number),
        (r"how many (?P<what>.+) does the (?:image|picture|photo) show", SceneJudge.number),
    )
)


def _yes_no(true: bool) -> Truth:
    said = "yes" if true else "no"
    return Truth(said, lambda value: _words(value)[:1] == [said])


def _words(value: Any) -> list[str]:
    return re.findall(r"[\w'-]+", str(value).lower())


def _number(value: Any) -> int | None:
    found = [_NUMBERS.get(word, int(word) if word.isdecimal() else None) for word in _words(value)]
    numbers = [one for one in found if one is not None]
    return numbers[0] if len(numbers) == 1 else None
