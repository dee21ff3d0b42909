"""Slots of questions that say where things are."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

from .phrases import Phrase
from .places import SIDES, Direction, place
from .slots import CLEAR, Maker, QuestionSlots
from .world import CANVAS, Scene, Thing


def _side(both: bool) -> Maker:
    """On which side ``a`` may lie from ``b``, or from the middle: clearly there, or clearly opposite."""

    def make(q: QuestionSlots) -> Direction | None:
        chosen = q.rng.choice([side for side in SIDES if side.other or not both])
        here = [getattr(thing, chosen.axis) for thing in q.a.find(q.scene)]
        there = [getattr(thing, chosen.axis) for thing in q.b.find(q.scene)] if hasattr(q, "b") else [CANVAS / 2]
        if len(here) > 1 or (not here and q.rng.random() < 0.5):
            return None
        return chosen if all(abs(first - second) >= CLEAR for first in here for second in there) else None

    return make


def _side_of_d(start: str, end: str, names: str) -> Maker:
    """On which side one of two things lies from the other, ``d`` among them: what a program compares, and a word."""

    def make(q: QuestionSlots) -> SimpleNamespace | None:
        side = q.rng.choice(SIDES)
        first, second = (getattr(getattr(q, name).the(q.scene), side.axis) for name in (start, end))
        if abs(first - second) < CLEAR:
            return None
        test = side.test.translate(str.maketrans("12", names))
        return SimpleNamespace(test=test, word=q.rng.choice(side.words))

    return make


def _two_halves(q: QuestionSlots) -> SimpleNamespace | None:
    """Halves in which ``a`` may lie in two pictures, clearly: what a program compares, and words for both."""
    across = q.rng.random() < 0.6
    sides = SIDES[:2] if across else SIDES[2:]
    if any(abs(getattr(q.a.the(scene), sides[0].axis) - CANVAS / 2) < CLEAR for scene in q.scenes):
        return None
    chosen = [q.rng.choice(sides) for _ in q.scenes]
    tests = [side.middle.replace(side.axis, f"{side.axis}{n}", 1) for n, side in enumerate(chosen, 1)]
    names = q.rng.choice((("the first {}", "the second"), ("{} 1", "{} 2"), ("the left {}", "the right one")))
    on = "on" if across else "at"
    parts = [f"{on} the {side.half} in {name.format(q.n.one)}" for side, name in zip(chosen, names, strict=True)]
    same = q.rng.choice(("on the same side", "on the same side of the picture"))
    again = chosen[0].middle.replace(chosen[0].axis, f"{chosen[0].axis}2", 1)
    if not across:
        same = "in the same half, top or bottom,"
    return SimpleNamespace(first=tests[0], second=tests[1], first_again=again, words=" and ".join(parts), same=same)


def _lonely_side(q: QuestionSlots) -> Direction | None:
    """A side of ``b``, alone in its kind, on which a single thing lies, clearly, and all others clearly opposite."""
    side, at = q.rng.choice(SIDES), q.b.the(q.scene)
    if not _all_differ(q.scene) or Phrase(at.kind).count(q.scene) > 1:
        return None
    others = [thing for thing in q.scene.things if thing is not at]
    far = all(abs(getattr(thing, side.axis) - getattr(at, side.axis)) >= CLEAR for thing in others)
    return side if far and sum(side.lies(thing, at) for thing in others) == 1 else None


_MOST = {
    "top": (("topmost", "highest", "uppermost"), ("at the very top", "at the top", "highest up", "nearest to the top")),
    "bottom": (("lowest", "bottommost"), ("at the very bottom", "at the bottom", "closest to the bottom")),
    "left": (("leftmost",), ("furthest to the left", "on the far left", "furthest left", "closest to the left edge")),
    "right": (("rightmost",), ("furthest to the right", "on the far right", "furthest right")),
}


def _outermost(q: QuestionSlots, things: Sequence[Thing], corner: bool) -> SimpleNamespace | None:
    """Words for a side or a corner to which one of the things lies clearly nearest, and what a program compares."""
    across, down = q.rng.choice(SIDES[:2]), q.rng.choice(SIDES[2:])
    sides = (across, down) if corner else (q.rng.choice((across, down)),)
    ranked = sorted((sum(getattr(thing, side.axis) * side.sign for side in sides) for thing in things), reverse=True)
    if len(ranked) > 1 and ranked[0] - ranked[1] < CLEAR:
        return None
    where = {place(thing) for thing in things} if corner or len(things) == 1 else set()
    grows = [(side.sign > 0) == (side.axis == "x") for side in sides]  # a program's y grows upwards
    score = ("" if grows[0] else "-") + sides[0].axis
    if corner:
        score += f" {'+' if grows[1] else '-'} {down.axis}"
        half = q.rng.choice((down.half, "upper" if down.half == "top" else "lower"))
        end = q.rng.choice((" corner", " corner", " corner of the picture", ""))
        far = f"{q.rng.choice(('in', 'at'))} the {half} {across.half}{end}"
        there = f"at the {down.half} {across.half}" in where
        return SimpleNamespace(score=score, far=far) if there else None
    most, far = map(q.rng.choice, _MOST[sides[0].half])
    if where and not any(sides[0].half in words for words in where):
        return None
    return SimpleNamespace(score=score, most=most, far=far, than=q.rng.choice(sides[0].words))


def _outermost_of_all(corner: bool) -> Maker:
    """As ``_outermost``, where every thing has a look of its own."""

    def make(q: QuestionSlots) -> SimpleNamespace | None:
        return _outermost(q, q.scene.things, corner) if _all_differ(q.scene) else None

    return make


def _all_differ(scene: Scene) -> bool:
    return len({(thing.color, thing.kind) for thing in scene.things}) == len(scene.things) > 1


def _side_moved(q: QuestionSlots) -> Direction | None:
    """A side on which ``a`` lies clearly further in one of the two pictures than in the other."""
    side = q.rng.choice(SIDES)
    first, second = (getattr(q.a.the(scene), side.axis) for scene in q.scenes)
    return side if abs(first - second) >= CLEAR else None


def _corner(q: QuestionSlots) -> SimpleNamespace | None:
    """A corner that ``a`` may lie in: it lies clearly in one, but only the program finds out in which."""
    thing = q.a.the(q.scene)
    down, across = q.rng.choice(SIDES[2:]), q.rng.choice(SIDES[:2])
    clear = min(abs(thing.x - CANVAS / 2), abs(thing.y - CANVAS / 2)) >= CLEAR
    name = f"{q.rng.choice((down.half, 'upper' if down.half == 'top' else 'lower'))} {across.half}"
    return SimpleNamespace(name=name, test=f"{across.middle} and {down.middle}") if clear else None


def _wall(q: QuestionSlots) -> SimpleNamespace:
    """A wall of a box: as programs ask for it, as it is said, and as what touches it not."""
    name = q.rng.choice(("wall", "wall", "wall", "wall", "bottom", "top", "left wall", "right wall"))
    if name != "wall":
        return SimpleNamespace(name=name, said=f"the {name}", free=f"the {name}")
    phrase = q.rng.choice(("the wall", "the wall", "the edge"))
    return SimpleNamespace(name=name, said=phrase, free=q.rng.choice(("the wall", "any wall", "any edge")))


PLACE_MAKERS: dict[str, Maker] = {
    "side": _side(both=False),
    "either side": _side(both=True),
    "either words": lambda q: q.rng.choice(q.s.either),
    "side words": lambda q: q.rng.choice(q.s.words),
    "more words": lambda q: q.rng.choice(q.s.more),
    "extreme place": _outermost_of_all(corner=False),
    "filled corner": _outermost_of_all(corner=True),
    "place among": lambda q: _outermost(q, q.a.find(q.scene), q.rng.random() < 0.4),
    "side of d": _side_of_d("a", "d", "13"),
    "side of d from b": _side_of_d("d", "b", "12"),
    "side among": lambda q: _outermost(q, q.a.find(q.scene), corner=False),
    "two halves": _two_halves,
    "side moved": _side_moved,
    "lonely side": _lonely_side,
    "corner": _corner,
    "wall": _wall,
    "end": lambda q: q.rng.choice(("top", "base")),
}
"""Makers by the names that the table of questions gives them."""
