"""Scene graphs of drawn pictures and GQA's functional programs for questions about them.

Counting is not among GQA's operations, nor is "but no": such questions have no program. "Which is higher" becomes the
comparative ``choose higher``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from .phrases import Phrase
from .places import SIDES
from .questions import SceneQuestion
from .slots import QuestionSlots
from .world import CANVAS, Scene, Thing

_MORE = {"left": "further left", "right": "further right", "above": "higher", "below": "lower"}
_ABOUT_ONE = {
    "exist": ("exist", "?"),
    "color": ("query", "color"),
    "size": ("query", "size"),
    "kind": ("query", "name"),
    "verify": ("verify color", "{c}"),
    "choose_color": ("choose color", "{c}|{d}"),
    "choose_kind": ("choose name", "{c}|{d}"),
    "half": ("verify {way}position", "{s.half}"),
    "half_choice": ("choose {way}position", "{s.half}|{s.other_half}"),
}
"""Operation and argument of kinds that are about one selection."""

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

    def graph(self) -> dict[str, Any]:
        """Its scene graph."""
        objects = {}
        for thing in self.scene.things:
            left, top, right, bottom = (min(CANVAS, max(0, round(part))) for part in thing.box)
            objects[self.ids[thing]] = {
                "name": thing.kind,
                "x": left,
                "y": top,
                "w": right - left,
                "h": bottom - top,
                "attributes": [thing.color, thing.size],
                "relations": [
                    {"name": side.relation, "object": self.ids[other]}
                    for other in self.scene.things
                    for side in SIDES
                    if side.lies(thing, other)
                ],
            }
        return {"width": CANVAS, "height": CANVAS, "objects": objects}


@dataclass
class _FunctionalProgram:
    """Builds a functional program."""

    picture: NamedScene
    steps: list[Step] = field(default_factory=list)

    def add(self, operation: str, argument: str, *dependencies: int) -> int:
        """Adds a step and returns its place."""
        self.steps.append({"operation": operation, "dependencies": list(dependencies), "argument": argument})
        return len(self.steps) - 1

    def ids(self, what: Phrase) -> str:
        """Ids of the things that a phrase describes."""
        return self.picture.of(what.find(self.picture.scene))

    def find(self, what: Phrase) -> int:
        """Selects what a phrase describes."""
        return self.narrow(self.add("select", f"{what.kind or 'object'} ({self.ids(what)})"), what)

    def narrow(self, place: int, what: Phrase) -> int:
        """Filters by the size and the color of a phrase."""
        for name, value in (("size", what.size), ("color", what.color)):
            if value:
                place = self.add(f"filter {name}", value, place)
        return place

    def relation(self, q: QuestionSlots, *, verify: bool) -> None:
        """Is there ``a`` on a side of ``b``?"""
        if verify and q.b.color is None and q.b.size is None:
            self.add("verify rel", f"{q.b.kind},{q.s.relation},o ({self.ids(q.b)})", self.find(q.a))
            return
        scene = self.picture.scene
        things = [thing for thing in q.a.find(scene) if any(q.s.lies(thing, other) for other in q.b.find(scene))]
        argument = f"{q.a.kind or 'object'},{q.s.relation},s ({self.picture.of(things)})"
        place = self.add("relate", argument, self.find(q.b))
        self.add("exist", "?", self.narrow(place, q.a))

    def which_side(self, q: QuestionSlots) -> bool:
        """On which side of ``b`` is ``a``? The argument has no room for a color: one of the two must have none."""
        pair = "|".join(side.relation for side in SIDES if side.axis == q.s.axis)
        for role, named, other in (("o", q.b, q.a), ("s", q.a, q.b)):
            if named.color is None and named.size is None:
                self.add("choose rel", f"{named.kind},{pair},{role} ({self.ids(named)})", self.find(other))
                return True
        return False


def semantic(picture: NamedScene, item: SceneQuestion) -> list[Step] | None:
    """GQA's functional program for a question, or None where GQA has no operation for it."""
    program, q = _FunctionalProgram(picture), item.slots
    add, find = program.add, program.find
    if item.type in _ABOUT_ONE:
        words = {**vars(q), "way": "h" if "s" in vars(q) and q.s.axis == "x" else "v"}
        operation, argument = (part.format(**words) for part in _ABOUT_ONE[item.type])
        add(operation, argument, find(q.a))
    elif item.type in ("relation", "exist_relation"):
        program.relation(q, verify=item.type == "relation")
    elif item.type == "which_side":
        return program.steps if program.which_side(q) else None
    elif item.type == "which_thing":
        add(f"choose {_MORE[q.s.name]}", "", find(q.a), find(q.b))
    elif item.type in ("and", "or"):
        add(item.type, "", add("exist", "?", find(q.a)), add("exist", "?", find(q.b)))
    elif item.type in ("same_color", "different_color", "same_size"):
        add(item.type.replace("_", " "), "", find(q.a), find(q.b))
    return program.steps or None
