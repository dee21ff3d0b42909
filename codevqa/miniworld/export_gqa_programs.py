"""GQA's functional programs for questions about one drawn picture.

Counting is not among GQA's operations, nor is "but no": such questions have no program. "Which is higher" becomes the
comparative ``choose higher``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from .export_draw import options, phrases
from .oracle import parse_phrase
from .questions import Item, Phrase
from .world import Scene, Thing

RELATIONS = {"left": "to the left of", "right": "to the right of", "above": "above", "below": "below"}
HOLDS: dict[str, Callable[[Thing, Thing], bool]] = {
    "to the left of": lambda one, two: one.x < two.x,
    "to the right of": lambda one, two: one.x > two.x,
    "above": lambda one, two: one.y < two.y,
    "below": lambda one, two: one.y > two.y,
}
_TESTS = {"x1 < x2": "left", "x1 > x2": "right", "y1 > y2": "above", "y1 < y2": "below"}
_HALVES = {"x < ": "left", "x > ": "right", "y > ": "top", "y < ": "bottom"}
_MORE = {"left": "further left", "right": "further right", "above": "higher", "below": "lower"}

Step = dict[str, Any]


@dataclass
class NamedScene:
    """A scene with the ids of its things."""

    id: str
    scene: Scene
    ids: dict[Thing, str]

    def of(self, things: Iterable[Thing]) -> str:
        """Ids as a program writes them; "-" when there is none."""
        return ",".join(self.ids[thing] for thing in things) or "-"


@dataclass
class _Program:
    """Builds a functional program."""

    picture: NamedScene
    steps: list[Step] = field(default_factory=list)

    def add(self, operation: str, argument: str, *dependencies: int) -> int:
        """Adds a step and returns its place."""
        self.steps.append({"operation": operation, "dependencies": list(dependencies), "argument": argument})
        return len(self.steps) - 1

    def find(self, what: Phrase) -> int:
        """Selects what a phrase describes."""
        name = what.kind or "object"
        return self.narrow(self.add("select", f"{name} ({self.picture.of(what.find(self.picture.scene))})"), what)

    def narrow(self, place: int, what: Phrase) -> int:
        """Filters by the size and the color of a phrase."""
        for name, value in (("size", what.size), ("color", what.color)):
            if value:
                place = self.add(f"filter {name}", value, place)
        return place


def _relate(program: _Program, what: Phrase, relation: str, mark: Phrase) -> None:
    """Is there WHAT in this relation to MARK?"""
    scene = program.picture.scene
    others = mark.find(scene)
    found = [one for one in what.find(scene) if any(HOLDS[relation](one, other) for other in others)]
    place = program.find(mark)
    place = program.add("relate", f"{what.kind or 'object'},{relation},s ({program.picture.of(found)})", place)
    program.add("exist", "?", program.narrow(place, what))


def _relation(program: _Program, item: Item, parts: list[Phrase]) -> None:
    what, mark = parts[-2:]
    side = next(side for test, side in _TESTS.items() if test in item.program)
    if item.type == "relation" and mark.color is None and mark.size is None and mark.kind:
        ids = program.picture.of(mark.find(program.picture.scene))
        program.add("verify rel", f"{mark.kind},{RELATIONS[side]},o ({ids})", program.find(what))
    else:
        _relate(program, what, RELATIONS[side], mark)


def _which_side(program: _Program, item: Item, parts: list[Phrase]) -> bool:
    what, mark = parts
    pair = "to the left of|to the right of" if item.answer in ("left", "right") else "above|below"
    if mark.color is None and mark.size is None:
        role, named, other = "o", mark, what
    elif what.color is None and what.size is None:
        role, named, other = "s", what, mark
    else:
        return False  # the argument of choose rel has no room for a color
    ids = program.picture.of(named.find(program.picture.scene))
    program.add("choose rel", f"{named.kind},{pair},{role} ({ids})", program.find(other))
    return True


def _half(program: _Program, item: Item, what: Phrase) -> None:
    across = "x, y" in item.program and "(LEFT + RIGHT)" in item.program
    axis = "hposition" if across else "vposition"
    place = program.find(what)
    if item.type == "half":
        program.add(f"verify {axis}", next(half for test, half in _HALVES.items() if test in item.program), place)
    else:
        program.add(f"choose {axis}", "left|right" if across else "top|bottom", place)


def _one_thing(program: _Program, item: Item, what: Phrase) -> bool:
    """Programs over a single selection."""
    if item.type == "choose_kind":
        what = Phrase(None, what.color)
    elif item.type in ("half", "half_choice"):
        _half(program, item, what)
        return True
    shown = re.search(r'(?:color|size) == "(\w+)"', item.program)
    last = {
        "exist": ("exist", "?"),
        "color": ("query", "color"),
        "size": ("query", "size"),
        "kind": ("query", "name"),
        "verify": ("verify color", shown and shown[1]),
        "verify_size": ("verify size", shown and shown[1]),
        "choose_color": ("choose color", "|".join(options(item)) if item.type == "choose_color" else ""),
        "choose_kind": ("choose name", "|".join(options(item)) if item.type == "choose_kind" else ""),
    }.get(item.type)
    if last is None:
        return False
    program.add(last[0], str(last[1]), program.find(what))
    return True


def semantic(picture: NamedScene, item: Item) -> list[Step] | None:
    """GQA's functional program for a question, or None where GQA has no operation for it."""
    program, parts = _Program(picture), phrases(item.program)
    if item.type in ("relation", "exist_relation"):
        _relation(program, item, parts)
    elif item.type == "which_side":
        if not _which_side(program, item, parts):
            return None
    elif item.type == "which_thing":
        side = next(side for test, side in _TESTS.items() if test in item.program)
        first, second = (parse_phrase(one) for one in options(item))
        program.add(f"choose {_MORE[side]}", "", program.find(first), program.find(second))
    elif item.type in ("and", "or"):
        one = program.add("exist", "?", program.find(parts[0]))
        two = program.add("exist", "?", program.find(parts[1]))
        program.add(item.type, "", one, two)
    elif item.type in ("same_color", "different_color", "same_size"):
        program.add(item.type.replace("_", " "), "", program.find(parts[0]), program.find(parts[1]))
    elif not _one_thing(program, item, parts[0]):
        return None
    return program.steps


def semantic_text(steps: list[Step]) -> str:
    """The program on one line, as ``semanticStr`` has it."""
    return "->".join(
        f"{step['operation']}: {step['argument']} {step['dependencies'] or ''}".rstrip(" ") for step in steps
    )
