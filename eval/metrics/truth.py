"""What a scene graph says is true of an elementary question, a phrase or a set of pictures.

Judged: whether something is there; its color or size; whether it has an attribute; how many there are; what the red
object is; where something is; which picture shows it. The truth is told before the value is looked at, so that what can
be judged never depends on what was answered.

In graphs made by people, what is not listed may still be there, and is unknown. ``complete`` says that the graphs list
everything; then they also tell absence and number.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
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
from .text import NUMBERS

__all__ = ["SceneJudge", "Truth"]

GRID = 24
"""Positions count in patches of a 24x24 grid, y upwards."""


@dataclass(frozen=True)
class Truth:
    """What is true, in words, and the test of a value against it."""

    text: str
    holds: Callable[[Any], bool]


@dataclass(frozen=True)
class SceneJudge:
    """One picture's graph with what is needed to read questions about it."""

    graph: SceneGraph
    words: SceneGraphs
    """Whose vocabulary is meant."""
    complete: bool = False

    def question(self, text: str) -> Truth | None:
        """Returns what is true of a question, None where the graph does not tell."""
        text = " ".join(text.lower().strip().rstrip("?. ").split())
        text = re.sub(rf",? (?:here|visible|shown|(?:in|on) {_PICTURE})$", "", text)
        for pattern, judge in _QUESTIONS:
            if (found := re.fullmatch(pattern, text)) and (truth := judge(self, **found.groupdict())):
                return truth
        return None

    def position(self, text: str) -> Truth | None:
        """Returns where something is: inside its box, or within a patch of it."""
        phrase = self.words.parse(text)
        if phrase is None or self._vague(phrase) or not self.shows(text):
            return None
        across, up = GRID / self.graph.width, GRID / self.graph.height
        grown = [
            (left * across - 1, right * across + 1, GRID - bottom * up - 1, GRID - top * up + 1)
            for left, top, right, bottom in (one.box for one, fits in self._called(phrase) if fits is not False)
        ]

        def holds(value: Any) -> bool:
            if not isinstance(value, list | tuple) or len(value) != 2:
                return False
            x, y = value
            return any(left <= x <= right and bottom <= y <= top for left, right, bottom, top in grown)

        return Truth(" or ".join("x {:.1f}..{:.1f}, y {:.1f}..{:.1f}".format(*box) for box in grown), holds)

    def shows(self, text: str) -> bool | None:
        """Whether what a phrase describes is in the picture; None where the graph does not tell."""
        phrase = self.words.parse(text)
        fitting = [] if phrase is None else [fits for _, fits in self._called(phrase)]
        if True in fitting:
            return True
        return False if phrase and self._lists(phrase) and None not in fitting else None

    # -- one kind of question each ------------------------------------------------------------------------------------

    def _exists(self, what: str) -> Truth | None:
        return _yes_no(self.shows(what))

    def _attribute(self, kind: str, what: str) -> Truth | None:
        options = FAMILIES["color" if kind == "color" else "size"]
        shown = {one.attributes & options for one in self._named(what)}
        if len(shown) != 1 or not (accepted := shown.pop()):
            return None  # they differ, or have none

        def holds(value: Any) -> bool:
            said = _said(value, options.__contains__)
            return bool(said) and accepted.issuperset(said)

        return Truth(" or ".join(sorted(accepted)), holds)

    def _verify(self, rest: str) -> Truth | None:
        what, _, attribute = rest.rpartition(" ")
        shown = {one.shows(canonical(attribute), complete=self.complete) for one in self._named(what)}
        return _yes_no(shown.pop()) if len(shown) == 1 and self.words.knows(canonical(attribute)) else None

    def _name(self, what: str) -> Truth | None:
        phrase = self.words.parse(what)
        if phrase is None or phrase.noun not in GENERIC or not self.complete:
            return None
        found = [one.name for one, fits in self._called(phrase) if fits]
        return Truth(found[0], lambda value: singular(" ".join(_words(value))) == found[0]) if len(found) == 1 else None

    def _number(self, what: str) -> Truth | None:
        phrase = self.words.parse(what)
        if phrase is None or not self._lists(phrase):
            return None
        fitting = [fits for _, fits in self._called(phrase)]
        count = str(fitting.count(True))
        return None if None in fitting else Truth(count, lambda value: _said(value, str.isdecimal) == [count])

    # -- small parts --------------------------------------------------------------------------------------------------

    def _called(self, phrase: ObjectPhrase) -> list[tuple[SceneObject, bool | None]]:
        """Objects that the phrase's noun names, each with whether it has the attributes."""
        found: list[tuple[SceneObject, bool | None]] = []
        for one in self.graph.objects:
            if phrase.noun in GENERIC or one.name == phrase.noun:
                shown = [one.shows(attribute, complete=self.complete) for attribute in phrase.attributes]
                found.append((one, False if False in shown else None if None in shown else True))
        return found

    def _named(self, text: str) -> list[SceneObject]:
        """Objects that a phrase certainly describes; none where others might be meant."""
        phrase = self.words.parse(text)
        called = [] if phrase is None or self._vague(phrase) else self._called(phrase)
        return [] if None in [fits for _, fits in called] else [one for one, fits in called if fits]

    def _vague(self, phrase: ObjectPhrase) -> bool:
        """Whether more may be meant than the graph calls by the noun."""
        return not self.complete and phrase.noun in GENERIC | BROAD

    def _lists(self, phrase: ObjectPhrase) -> bool:
        """Whether the graph lists all that the noun names."""
        return self.complete and (phrase.noun in self.words.names or phrase.noun in GENERIC)


_PICTURE = "(?:the|this) (?:image|picture|photo|photograph|scene)"
_QUESTIONS: tuple[tuple[str, Callable[..., Truth | None]], ...] = (
    (r"(?:(?:is|are) there|(?:can|do) you see) (?P<what>.+)", SceneJudge._exists),
    (rf"do(?:es)? {_PICTURE} (?:show|contain|have) (?P<what>.+)", SceneJudge._exists),
    (r"(?:what|which) (?P<kind>color|size) (?:is|are|do|does) (?P<what>the .+?)(?: have)?", SceneJudge._attribute),
    (r"what(?: is|'s) the (?P<kind>color|size) of (?P<what>the .+)", SceneJudge._attribute),
    (r"how (?P<kind>big|large) (?:is|are) (?P<what>the .+)", SceneJudge._attribute),
    (r"(?:is|are) (?P<rest>the .+)", SceneJudge._verify),
    (r"what is (?P<what>the .+)", SceneJudge._name),
    (rf"how many (?P<what>.+?) (?:are(?: there)?|(?:do|can) you see|does {_PICTURE} show)", SceneJudge._number),
)


def _yes_no(true: bool | None) -> Truth | None:
    said = "yes" if true else "no"
    return None if true is None else Truth(said, lambda value: _words(value)[:1] == [said])


def _words(value: Any) -> list[str]:
    return re.findall(r"[\w'-]+", str(value).lower())


def _said(value: Any, wanted: Callable[[str], bool]) -> list[str]:
    """The words of a value that are wanted, in the spelling by which they are compared."""
    return [word for one in _words(value) if wanted(word := canonical(NUMBERS.get(one, one)))]
