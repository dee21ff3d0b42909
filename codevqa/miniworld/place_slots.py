"""Slots of questions that say where things are."""

from __future__ import annotations

from types import SimpleNamespace

from .phrases import Phrase
from .places import SIDES, Side, outermost, place
from .slots import CLEAR, Maker, Slots
from .world import CANVAS


def _side(both: bool) -> Maker:
    """On which side ``a`` may lie from ``b``, or from the middle: clearly there, or clearly opposite."""

    def make(q: Slots) -> Side | None:
        chosen = q.rng.choice([one for one in SIDES if one.other or not both])
        here = [getattr(thing, chosen.axis) for thing in q.a.find(q.scene)]
        there = [getattr(thing, chosen.axis) for thing in q.b.find(q.scene)] if hasattr(q, "b") else [CANVAS / 2]
        if len(here) > 1 or (not here and q.rng.random() < 0.5):
            return None
        return chosen if all(abs(one - two) >= CLEAR for one in here for two in there) else None

    return make


def _lonely_side(q: Slots) -> Side | None:
    """A side of ``b`` on which a single thing lies, clearly, and all others clearly opposite."""
    side, at = q.rng.choice(SIDES), q.b.the(q.scene)
    others = [thing for thing in q.scene.things if thing is not at]
    far = all(abs(getattr(thing, side.axis) - getattr(at, side.axis)) >= CLEAR for thing in others)
    return side if far and sum(side.lies(thing, at) for thing in others) == 1 else None


def _lonely_side_of_another_kind(q: Slots) -> Side | None:
    """As ``_lonely_side``, where what lies there is alone in its kind."""
    side, at = _lonely_side(q), q.b.the(q.scene)
    kinds = [thing.kind for thing in q.scene.things if side and thing is not at and side.lies(thing, at)]
    return side if kinds and Phrase(kinds[0]).count(q.scene) == 1 else None


_MOST = {
    "top": (("topmost", "highest", "uppermost"), ("at the very top", "at the top", "highest up", "nearest to the top")),
    "bottom": (("lowest", "bottommost"), ("at the very bottom", "at the bottom", "closest to the bottom")),
    "left": (("leftmost",), ("furthest to the left", "on the far left", "furthest left", "closest to the left edge")),
    "right": (("rightmost",), ("furthest to the right", "on the far right", "furthest right")),
}


def _extreme_place(q: Slots) -> SimpleNamespace | None:
    """A side on which the outermost thing is alone in its kind: as programs ask for it, and as it is worded."""
    side = q.rng.choice(SIDES)
    if len(q.scene.things) < 2 or Phrase(outermost(q.scene, side).kind).count(q.scene) != 1:
        return None
    most, far = map(q.rng.choice, _MOST[side.half])
    phrase = f"{'on' if side.axis == 'x' else 'at'} the {side.half}"
    return SimpleNamespace(phrase=phrase, most=most, far=far)


def _filled_corner(q: Slots) -> SimpleNamespace | None:
    """A corner in which a single thing lies, alone in its kind."""
    down, across = q.rng.choice(("top", "bottom")), q.rng.choice(("left", "right"))
    phrase = f"at the {down} {across}"
    there = [thing for thing in q.scene.things if place(thing) == phrase]
    if len(there) != 1 or Phrase(there[0].kind).count(q.scene) != 1:
        return None
    half = q.rng.choice((down, "upper" if down == "top" else "lower"))
    corner = q.rng.choice((" corner", " corner", " corner of the picture", ""))
    return SimpleNamespace(phrase=phrase, far=f"{q.rng.choice(('in', 'at'))} the {half} {across}{corner}")


def _corner(q: Slots) -> SimpleNamespace | None:
    """A corner that ``a`` may lie in: it lies clearly in one, but only the program finds out in which."""
    thing = q.a.the(q.scene)
    down, across = q.rng.choice(SIDES[2:]), q.rng.choice(SIDES[:2])
    clear = min(abs(thing.x - CANVAS / 2), abs(thing.y - CANVAS / 2)) >= CLEAR
    name = f"{q.rng.choice((down.half, 'upper' if down.half == 'top' else 'lower'))} {across.half}"
    return SimpleNamespace(name=name, test=f"{across.middle} and {down.middle}") if clear else None


def _wall(q: Slots) -> SimpleNamespace:
    """A wall of a box: as programs ask for it, as it is said, and as what touches it not."""
    name = q.rng.choice(("wall", "wall", "wall", "wall", "bottom", "top", "left wall", "right wall"))
    if name != "wall":
        return SimpleNamespace(name=name, said=f"the {name}", free=f"the {name}")
    said = q.rng.choice(("the wall", "the wall", "the edge"))
    return SimpleNamespace(name=name, said=said, free=q.rng.choice(("the wall", "any wall", "any edge")))


PLACE_MAKERS: dict[str, Maker] = {
    "side": _side(both=False),
    "either side": _side(both=True),
    "either words": lambda q: q.rng.choice(q.s.either),
    "side words": lambda q: q.rng.choice(q.s.words),
    "more words": lambda q: q.rng.choice(q.s.more),
    "extreme place": _extreme_place,
    "filled corner": _filled_corner,
    "lonely side of another kind": _lonely_side_of_another_kind,
    "lonely side": _lonely_side,
    "corner": _corner,
    "wall": _wall,
}
"""Makers by the names that the table of questions gives them."""
