"""Comparisons as the templates need them: the points on one picture, named, and what was said of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..core.images import Picture
from ..primitives.signature import GRID
from .comparison import Comparison, Side
from .heat import overlay
from .inline import data_uri
from .picture_view import PictureView, picture_name, picture_of

__all__ = ["ComparisonView", "comparison_view"]

SIDE = 480
"""Longest side of the picture, in pixels."""
LABEL = 44
"""Width of a name on the picture, in percent of it."""
EDGE = 30
"""How near to an edge a name may not fit, in percent of the picture."""
MOST = 60
"""Characters of a name that are shown on the picture."""


@dataclass(frozen=True)
class Mark:
    """The name of one point; places in percent of the picture."""

    name: str
    coordinate: str
    left: float
    top: float
    below: bool
    """Whether its name stands below it: the lowest one's does, so that two names do not meet."""


@dataclass(frozen=True)
class ComparisonView:
    """One comparison on its picture."""

    line: int
    source: str
    values: str
    holds: bool
    words: str
    """What the points say, in words; empty where there are more than two things to say it of."""
    upright: bool
    """Whether the lines through what is compared stand upright, as for x."""
    lines: tuple[float, ...]
    marks: tuple[Mark, ...]
    over: bool
    """Whether a name reaches over the upper edge of the picture."""
    under: bool
    picture: PictureView


def comparison_view(found: Comparison, pictures: Sequence[Picture]) -> ComparisonView:
    """Returns one comparison with its picture."""
    points = {side.point: side for side in found.sides if side.point is not None}
    drawn = overlay(picture_of(found.image, pictures), (), SIDE, positions=list(points))
    label = picture_name(found.image, pictures)
    names = " and ".join(f"“{side.name}”" for side in points.values())
    lowest = min(points, key=lambda point: point[1]) if len(points) > 1 else None
    across = [100 * side.value / GRID for side in found.sides]
    marks = tuple(_mark(side, point, point == lowest) for point, side in points.items())
    return ComparisonView(
        line=found.line,
        source=found.source,
        values=found.values,
        holds=found.holds,
        words=_words(found),
        upright=found.axis == 0,
        lines=tuple(round(place if found.axis == 0 else 100 - place, 2) for place in across if 0 <= place <= 100),
        marks=marks,
        over=any(mark.top < EDGE and not mark.below for mark in marks),
        under=any(mark.top > 100 - EDGE and mark.below for mark in marks),
        picture=PictureView(data_uri(drawn), f"Positions of {names} in {label}", label),
    )


def _mark(side: Side, point: tuple[float, float], below: bool) -> Mark:
    left = min(max(100 * point[0] / GRID - LABEL / 2, 0.0), 100.0 - LABEL)
    top = min(max(100 - 100 * point[1] / GRID, 0.0), 100.0)
    name = side.name if len(side.name) <= MOST else f"{side.name[: MOST - 1]}…"
    return Mark(name, f"{side.source} = {side.value:g}", round(left, 2), round(top, 2), below)


def _words(found: Comparison) -> str:
    one, other, *more = found.sides
    if more or one.point is None or other.point is None:
        return ""
    if one.value == other.value:
        return f"“{one.name}” and “{other.name}” are level."
    less, greater = ("farther left", "farther right") if found.axis == 0 else ("lower", "higher")
    return f"“{one.name}” is {less if one.value < other.value else greater} than “{other.name}”."
