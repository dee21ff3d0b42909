"""What a scene graph says is true of an elementary question or a position.

Judged: whether something is there; its color or size; whether it has an attribute; where it is. The truth is told
before the value is looked at, so that what can be judged never depends on what was answered.

Graphs are made by people. What is not listed may still be there, and is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from .scene_graphs import BROAD, FAMILIES, SceneGraph, SceneGraphs, SceneObject, canonical

GRID = 24
"""Positions count in patches of a 24x24 grid, y upwards."""


class Truth(NamedTuple):
    """What is true, in words, and the test of a value against it."""

    text: str
    holds: Callable[[Any], bool]


class SceneJudge(NamedTuple):
    """One picture's graph with what is needed to read questions about it."""

    graph: SceneGraph
    words: SceneGraphs
    """Whose vocabulary is meant."""

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
        called = self._called(text, narrowly=True)
        if not any(fits for _, fits in called):
            return None
        across, up = GRID / self.graph.width, GRID / self.graph.height
        grown = [
            (left * across - 1, right * across + 1, GRID - bottom * up - 1, GRID - top * up + 1)
            for left, top, right, bottom in (one.box for one, fits in called if fits is not False)
        ]

        def holds(value: Any) -> bool:
            if not isinstance(value, list | tuple) or len(value) != 2:
                return False
            x, y = value
            return any(left <= x <= right and bottom <= y <= top for left, right, bottom, top in grown)

        return Truth(" or ".join("x {:.1f}..{:.1f}, y {:.1f}..{:.1f}".format(*box) for box in grown), holds)

    # -- one kind of question each ------------------------------------------------------------------------------------

    def _exists(self, what: str) -> Truth | None:
        return _yes_no(True) if any(fits for _, fits in self._called(what)) else None

    def _attribute(self, kind: str, what: str) -> Truth | None:
        options = FAMILIES["color" if kind == "color" else "size"]
        shown = {one.attributes & options for one in self._named(what)}
        if len(shown) != 1 or not (accepted := shown.pop()):
            return None  # they differ, or have none

        def holds(value: Any) -> bool:
            said = {word for one in _words(value) if (word := canonical(one)) in options}
            return bool(said) and said <= accepted

        return Truth(" or ".join(sorted(accepted)), holds)

    def _verify(self, rest: str) -> Truth | None:
        what, _, attribute = rest.rpartition(" ")
        shown = {one.shows(canonical(attribute)) for one in self._named(what)}
        return _yes_no(shown.pop()) if len(shown) == 1 and self.words.knows(canonical(attribute)) else None

    # -- small parts --------------------------------------------------------------------------------------------------

    def _called(self, text: str, *, narrowly: bool = False) -> list[tuple[SceneObject, bool | None]]:
        """Objects that a phrase's noun names, each with whether it has the attributes; ``narrowly`` no broad noun."""
        noun, attributes = self.words.parse(text) or ("", frozenset())
        found: list[tuple[SceneObject, bool | None]] = []
        for one in self.graph.objects:
            if one.name == noun and not (narrowly and noun in BROAD):
                shown = [one.shows(attribute) for attribute in attributes]
                found.append((one, False if False in shown else None if None in shown else True))
        return found

    def _named(self, text: str) -> list[SceneObject]:
        """Objects that a phrase certainly describes; none where others might be meant."""
        called = self._called(text, narrowly=True)
        return [] if None in [fits for _, fits in called] else [one for one, fits in called if fits]


_PICTURE = "(?:the|this) (?:image|picture|photo|photograph|scene)"
_QUESTIONS: tuple[tuple[str, Callable[..., Truth | None]], ...] = (
    (r"(?:(?:is|are) there|(?:can|do) you see) (?P<what>.+)", SceneJudge._exists),
    (rf"do(?:es)? {_PICTURE} (?:show|contain|have) (?P<what>.+)", SceneJudge._exists),
    (r"(?:what|which) (?P<kind>color|size) (?:is|are|do|does) (?P<what>the .+?)(?: have)?", SceneJudge._attribute),
    (r"what(?: is|'s) the (?P<kind>color|size) of (?P<what>the .+)", SceneJudge._attribute),
    (r"how (?P<kind>big|large) (?:is|are) (?P<what>the .+)", SceneJudge._attribute),
    (r"(?:is|are) (?P<rest>the .+)", SceneJudge._verify),
)


def _yes_no(true: bool | None) -> Truth | None:
    said = "yes" if true else "no"
    return None if true is None else Truth(said, lambda value: _words(value)[:1] == [said])


def _words(value: Any) -> list[str]:
    return re.findall(r"[\w'-]+", str(value).lower())
