"""Where things lie: left, right, above or below of each other, and in which part of the picture."""

from __future__ import annotations

from dataclasses import dataclass

from .world import CANVAS, Thing

_LEFT = (("to the left of", "left of", "on the left side of"), ("further to the left", "more to the left"))
_RIGHT = (("to the right of", "right of", "on the right side of"), ("further to the right", "more to the right"))
_ABOVE = (("above", "higher than", "over"), ("higher", "higher up"))
_BELOW = (("below", "lower than", "under", "underneath", "beneath"), ("lower", "lower down"))
_ACROSS = ("to the left or to the right of", "left or right of", "to the right or to the left of")
_DOWN = ("above or below", "below or above", "located above or below")


@dataclass(frozen=True)
class Direction:
    """How one thing lies from another, or in which half of the picture."""

    name: str
    half: str
    relation: str
    """As in scene graphs."""
    axis: str
    sign: int
    """Whether it is where the axis grows, in pixels from the top left."""
    words: tuple[str, ...]
    more: tuple[str, ...]
    other: str = ""
    """The opposite, of the first of each two."""
    other_half: str = ""
    either: tuple[str, ...] = ()
    """Words for both."""

    @property
    def test(self) -> str:
        """What a program compares; its y grows upwards."""
        return f"{self.axis}1 {self._sign} {self.axis}2"

    @property
    def middle(self) -> str:
        """What a program compares for the half."""
        return f"{self.axis} {self._sign} ({'LEFT + RIGHT' if self.axis == 'x' else 'BOTTOM + TOP'}) / 2"

    def lies(self, thing: Thing, other: Thing) -> bool:
        """Tells whether one thing lies so from another."""
        return float(getattr(thing, self.axis) - getattr(other, self.axis)) * self.sign > 0

    @property
    def _sign(self) -> str:
        return ">" if (self.sign > 0) == (self.axis == "x") else "<"


SIDES = (
    Direction("left", "left", "to the left of", "x", -1, *_LEFT, "right", "right", _ACROSS),
    Direction("right", "right", "to the right of", "x", 1, *_RIGHT),
    Direction("above", "top", "above", "y", -1, *_ABOVE, "below", "bottom", _DOWN),
    Direction("below", "bottom", "below", "y", 1, *_BELOW),
)


def place(thing: Thing) -> str:
    """Where in the picture a thing lies: "at the top left", "on the right", "in the middle"; empty in between."""
    low, high = 0.38 * CANVAS, 0.62 * CANVAS
    across = "left" if thing.x < low else "right" if thing.x > high else ""
    down = "top" if thing.y < low else "bottom" if thing.y > high else ""
    if not across and not down:
        return "in the middle"
    return f"{'at' if down else 'on'} the {f'{down} {across}'.strip()}"
