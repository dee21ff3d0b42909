"""Drawing of the small world: every kind of thing as polygons and ellipses, grounds, and scenes of them as pictures.

A kind is a list of strokes on the unit square (x to the right, y down); a stroke fills or erases. Masks are drawn large
once per kind and size, shrunk, and kept, so that a scene costs one paste a thing. Patterns of grounds are kept as masks
too, through which a second color is laid over the first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TypeAlias

from PIL import Image, ImageDraw

Point: TypeAlias = "tuple[float, float]"
Stroke: TypeAlias = "tuple[str, tuple[Point, ...], int]"
"""What it is ("polygon" or "ellipse"), its points (of an ellipse the corners of its box), 1 to fill, 0 to erase."""

Color: TypeAlias = "tuple[int, int, int]"
"""Red, green and blue, 0 to 255."""

PATTERNS: tuple[str, ...] = ("gradient", "horizon", "stripes", "checks", "dots")
"""How a ground's second color lies over its first."""

SUPERSAMPLING = 8


def _polygon(*points: Point, fill: int = 1) -> Stroke:
    return ("polygon", points, fill)


def _ellipse(left: float, top: float, right: float, bottom: float, fill: int = 1) -> Stroke:
    return ("ellipse", ((left, top), (right, bottom)), fill)


def _box(left: float, top: float, right: float, bottom: float, fill: int = 1) -> Stroke:
    return _polygon((left, top), (right, top), (right, bottom), (left, bottom), fill=fill)


def _star(points: int, inner: float) -> Stroke:
    corners = []
    for step in range(2 * points):
        length = 0.54 if step % 2 == 0 else 0.54 * inner
        angle = math.pi * step / points
        corners.append((0.5 + length * math.sin(angle), 0.53 - length * math.cos(angle)))
    return _polygon(*corners)


def _regular(corners: int, turn: float) -> Stroke:
    angles = [2 * math.pi * (step + turn) / corners for step in range(corners)]
    return _polygon(*((0.5 + 0.5 * math.sin(angle), 0.5 - 0.5 * math.cos(angle)) for angle in angles))


def _flower() -> tuple[Stroke, ...]:
    petals = []
    for step in range(5):
        angle = 2 * math.pi * step / 5
        x, y = 0.5 + 0.29 * math.sin(angle), 0.5 - 0.29 * math.cos(angle)
        petals.append(_ellipse(x - 0.21, y - 0.21, x + 0.21, y + 0.21))
    return (*petals, _ellipse(0.37, 0.37, 0.63, 0.63, fill=0))


def _heart() -> Stroke:
    points = []
    for step in range(48):
        t = 2 * math.pi * step / 48
        x = 16 * math.sin(t) ** 3
        y = 13 * math.cos(t) - 5 * math.cos(2 * t) - 2 * math.cos(3 * t) - math.cos(4 * t)
        points.append((0.5 + x / 32, 0.44 - y / 30))
    return _polygon(*points)


SHAPES: dict[str, tuple[Stroke, ...]] = {
    "circle": (_ellipse(0, 0, 1, 1),),
    "square": (_box(0, 0, 1, 1),),
    "triangle": (_polygon((0.5, 0), (1, 1), (0, 1)),),
    "star": (_star(5, 0.42),),
    "heart": (_heart(),),
    "moon": (_ellipse(0.05, 0, 1.05, 1), _ellipse(0.38, -0.05, 1.2, 0.8, fill=0)),
    "arrow": (_polygon((0, 0.33), (0.5, 0.33), (0.5, 0.02), (1, 0.5), (0.5, 0.98), (0.5, 0.67), (0, 0.67)),),
    "cross": (_box(0.34, 0, 0.66, 1), _box(0, 0.34, 1, 0.66)),
    "diamond": (_polygon((0.5, 0), (0.88, 0.5), (0.5, 1), (0.12, 0.5)),),
    "ring": (_ellipse(0, 0, 1, 1), _ellipse(0.26, 0.26, 0.74, 0.74, fill=0)),
    "hexagon": (_regular(6, 0.5),),
    "house": (
        _polygon((0.5, 0), (1, 0.45), (0, 0.45)),
        _box(0.12, 0.45, 0.88, 1),
        _box(0.4, 0.62, 0.62, 1, fill=0),
    ),
    "tree": (
        _polygon((0.5, 0), (0.84, 0.42), (0.16, 0.42)),
        _polygon((0.5, 0.22), (0.98, 0.78), (0.02, 0.78)),
        _box(0.41, 0.78, 0.59, 1),
    ),
    "flower": _flower(),
    "fish": (
        _ellipse(0, 0.2, 0.74, 0.8),
        _polygon((0.62, 0.5), (1, 0.16), (1, 0.84)),
        _ellipse(0.14, 0.38, 0.27, 0.51, fill=0),
    ),
    "cup": (
        _ellipse(0.5, 0.18, 1, 0.72),
        _ellipse(0.62, 0.3, 0.88, 0.6, fill=0),
        _polygon((0.02, 0.08), (0.72, 0.08), (0.64, 0.96), (0.1, 0.96)),
    ),
    "key": (
        _ellipse(0, 0.26, 0.46, 0.74),
        _ellipse(0.13, 0.4, 0.33, 0.6, fill=0),
        _box(0.4, 0.43, 1, 0.57),
        _box(0.64, 0.5, 0.75, 0.78),
        _box(0.87, 0.5, 0.98, 0.82),
    ),
    "bell": (
        _ellipse(0.2, 0.02, 0.8, 0.7),
        _polygon((0.2, 0.36), (0.8, 0.36), (0.98, 0.8), (0.02, 0.8)),
        _ellipse(0.38, 0.76, 0.62, 1),
    ),
    "car": (
        _polygon((0.2, 0.5), (0.32, 0.2), (0.68, 0.2), (0.84, 0.5)),
        _box(0, 0.48, 1, 0.74),
        _ellipse(0.1, 0.6, 0.38, 0.88),
        _ellipse(0.62, 0.6, 0.9, 0.88),
        _polygon((0.36, 0.46), (0.42, 0.29), (0.6, 0.29), (0.68, 0.46), fill=0),
    ),
    "boat": (
        _polygon((0, 0.68), (1, 0.68), (0.8, 1), (0.2, 1)),
        _polygon((0.44, 0), (0.44, 0.6), (0.02, 0.6)),
        _polygon((0.54, 0.12), (0.92, 0.6), (0.54, 0.6)),
    ),
    "umbrella": (
        _ellipse(0, 0.02, 1, 0.98),
        _box(0, 0.5, 1, 1, fill=0),
        _box(0.45, 0.45, 0.55, 0.92),
        _box(0.45, 0.86, 0.74, 0.98),
    ),
    "crown": (_polygon((0, 0.14), (0.27, 0.5), (0.5, 0.08), (0.73, 0.5), (1, 0.14), (0.9, 0.9), (0.1, 0.9)),),
    "flag": (_box(0.1, 0, 0.22, 1), _polygon((0.22, 0.04), (1, 0.3), (0.22, 0.58))),
    "cloud": (
        _ellipse(0, 0.42, 0.46, 0.84),
        _ellipse(0.22, 0.16, 0.72, 0.68),
        _ellipse(0.56, 0.38, 1, 0.84),
        _box(0.22, 0.56, 0.78, 0.84),
    ),
    "bolt": (_polygon((0.62, 0), (0.16, 0.56), (0.46, 0.56), (0.34, 1), (0.86, 0.4), (0.54, 0.4)),),
    "mushroom": (
        _ellipse(0, 0, 1, 1.1),
        _box(0, 0.55, 1, 1.2, fill=0),
        _box(0.35, 0.5, 0.65, 1),
    ),
    "hat": (_box(0, 0.72, 1, 0.88), _polygon((0.22, 0.12), (0.78, 0.12), (0.74, 0.74), (0.26, 0.74))),
    "bottle": (
        _box(0.4, 0, 0.6, 0.3),
        _polygon((0.4, 0.24), (0.6, 0.24), (0.74, 0.44), (0.74, 1), (0.26, 1), (0.26, 0.44)),
    ),
    "apple": (
        _ellipse(0.02, 0.26, 0.6, 1),
        _ellipse(0.4, 0.26, 0.98, 1),
        _polygon((0.46, 0.34), (0.5, 0.12), (0.64, 0), (0.82, 0), (0.74, 0.16), (0.56, 0.24), (0.54, 0.34)),
    ),
    "anchor": (
        _ellipse(0.02, 0.22, 0.98, 1),
        _ellipse(0.17, 0.16, 0.83, 0.83, fill=0),
        _box(0, 0, 1, 0.6, fill=0),
        _polygon((0, 0.72), (0.1, 0.48), (0.3, 0.68)),
        _polygon((1, 0.72), (0.9, 0.48), (0.7, 0.68)),
        _ellipse(0.33, 0, 0.67, 0.34),
        _ellipse(0.43, 0.1, 0.57, 0.24, fill=0),
        _box(0.43, 0.3, 0.57, 0.94),
        _box(0.22, 0.36, 0.78, 0.48),
    ),
    "ladder": (
        _box(0.14, 0, 0.27, 1),
        _box(0.73, 0, 0.86, 1),
        *(_box(0.2, top, 0.8, top + 0.11) for top in (0.09, 0.33, 0.57, 0.81)),
    ),
    "rocket": (
        _ellipse(0.3, 0, 0.7, 0.9),
        _box(0.3, 0.45, 0.7, 0.8),
        _box(0.3, 0.8, 0.7, 1, fill=0),
        _polygon((0.34, 0.5), (0.34, 0.8), (0.06, 0.94), (0.06, 0.76)),
        _polygon((0.66, 0.5), (0.66, 0.8), (0.94, 0.94), (0.94, 0.76)),
        _polygon((0.38, 0.84), (0.62, 0.84), (0.5, 1)),
        _ellipse(0.4, 0.28, 0.6, 0.48, fill=0),
    ),
    "chair": (
        _box(0.16, 0, 0.31, 1),
        _box(0.16, 0.46, 0.86, 0.62),
        _box(0.72, 0.5, 0.86, 1),
    ),
    "lamp": (
        _polygon((0.32, 0), (0.68, 0), (0.94, 0.5), (0.06, 0.5)),
        _box(0.44, 0.5, 0.56, 0.9),
        _polygon((0.34, 0.86), (0.66, 0.86), (0.8, 1), (0.2, 1)),
    ),
    "clock": (
        _polygon((0.2, 0.7), (0.34, 0.8), (0.2, 1), (0.06, 1)),
        _polygon((0.8, 0.7), (0.66, 0.8), (0.8, 1), (0.94, 1)),
        _ellipse(0, 0, 0.42, 0.38),
        _ellipse(0.58, 0, 1, 0.38),
        _ellipse(0.02, 0.06, 0.98, 0.98, fill=0),
        _ellipse(0.08, 0.12, 0.92, 0.96),
        _ellipse(0.22, 0.26, 0.78, 0.82, fill=0),
        _box(0.44, 0.32, 0.56, 0.61),
        _box(0.44, 0.49, 0.7, 0.61),
    ),
    "book": (
        _polygon((0, 0.14), (0.46, 0.28), (0.46, 0.94), (0, 0.8)),
        _polygon((1, 0.14), (0.54, 0.28), (0.54, 0.94), (1, 0.8)),
    ),
    "cat": (
        _ellipse(0.03, 0.22, 0.97, 0.98),
        _polygon((0.06, 0), (0.46, 0.3), (0.06, 0.6)),
        _polygon((0.94, 0), (0.54, 0.3), (0.94, 0.6)),
        _ellipse(0.22, 0.44, 0.38, 0.62, fill=0),
        _ellipse(0.62, 0.44, 0.78, 0.62, fill=0),
        _polygon((0.4, 0.7), (0.6, 0.7), (0.5, 0.82), fill=0),
    ),
    "duck": (
        _ellipse(0.14, 0.42, 0.94, 0.98),
        _polygon((0.62, 0.56), (1, 0.34), (0.94, 0.76)),
        _ellipse(0.16, 0.02, 0.6, 0.46),
        _polygon((0.26, 0.36), (0.58, 0.3), (0.6, 0.6), (0.2, 0.64)),
        _polygon((0.22, 0.16), (0, 0.3), (0.22, 0.38)),
        _ellipse(0.28, 0.13, 0.41, 0.26, fill=0),
    ),
    "ghost": (
        _ellipse(0.08, 0, 0.92, 0.84),
        _polygon(
            (0.08, 0.42),
            (0.92, 0.42),
            (0.92, 1),
            (0.78, 0.84),
            (0.64, 1),
            (0.5, 0.84),
            (0.36, 1),
            (0.22, 0.84),
            (0.08, 1),
        ),
        _ellipse(0.24, 0.28, 0.42, 0.5, fill=0),
        _ellipse(0.58, 0.28, 0.76, 0.5, fill=0),
    ),
    "envelope": (
        _box(0, 0.16, 1, 0.86),
        _polygon((0, 0.2), (0.5, 0.54), (1, 0.2), (1, 0.33), (0.5, 0.67), (0, 0.33), fill=0),
    ),
    "hammer": (
        _box(0.02, 0.04, 0.22, 0.42),
        _box(0.2, 0.1, 0.66, 0.36),
        _polygon((0.62, 0.1), (0.86, 0.14), (1, 0.44), (0.78, 0.36), (0.62, 0.36)),
        _box(0.36, 0.3, 0.54, 1),
    ),
    "magnet": (
        _ellipse(0.04, 0, 0.96, 0.92),
        _box(0.04, 0.46, 0.96, 1),
        _ellipse(0.34, 0.3, 0.66, 0.62, fill=0),
        _box(0.34, 0.46, 0.66, 1, fill=0),
        _box(0, 0.7, 1, 0.79, fill=0),
    ),
    "boot": (
        _box(0.16, 0, 0.6, 0.84),
        _ellipse(0.34, 0.48, 0.98, 1.1),
        _box(0.34, 0.72, 0.6, 0.86),
        _box(0, 0.84, 1, 1.2, fill=0),
        _box(0.12, 0.84, 0.42, 1),
        _box(0.12, 0.84, 1, 0.92),
    ),
    "plane": (
        _ellipse(0.02, 0.41, 1, 0.59),
        _polygon((0.7, 0.5), (0.36, 0), (0.22, 0), (0.38, 0.5), (0.22, 1), (0.36, 1)),
        _polygon((0.24, 0.5), (0.12, 0.24), (0, 0.24), (0.08, 0.5), (0, 0.76), (0.12, 0.76)),
    ),
}
"""The strokes of each kind; new kinds come last, because the pairs held out and the weights go by a kind's place."""


@lru_cache(maxsize=1024)
def mask(kind: str, pixels: int) -> Image.Image:
    """The mask of a kind, ``pixels`` wide and high, mode L; treat it as read-only."""
    side = pixels * SUPERSAMPLING
    large = Image.new("L", (side, side), 0)
    pen = ImageDraw.Draw(large)
    for what, points, fill in SHAPES[kind]:
        scaled = [(x * side, y * side) for x, y in points]
        # PIL includes the last row and column of what it fills.
        if what == "ellipse":
            (left, top), (right, bottom) = scaled
            pen.ellipse((left, top, right - 1, bottom - 1), fill=255 * fill)
        else:
            pen.polygon([(min(x, side - 1), min(y, side - 1)) for x, y in scaled], fill=255 * fill)
    return large.reduce(SUPERSAMPLING)


@lru_cache(maxsize=128)
def pattern_mask(pattern: str, scale: int, side: int) -> Image.Image:
    """Where a ground shows its second color; treat it as read-only.

    Args:
        pattern: One of ``PATTERNS``.
        scale: Width of a stripe, a check or half the way between two dots; percent of the picture above the horizon; a
            gradient has none.
        side: Width and height of the picture in pixels.

    Returns:
        Mode 1, ``side`` wide and high; of a gradient mode L and one pixel wide: pasting through either is several times
        faster than through a whole mask of mode L.

    Raises:
        ValueError: there is no such pattern.
    """
    if pattern == "gradient":
        return Image.linear_gradient("L").resize((1, side), Image.Resampling.BILINEAR)
    found = Image.new("1", (side, side), 0)
    pen = ImageDraw.Draw(found)
    if pattern == "horizon":
        pen.rectangle((0, side * scale // 100, side, side), fill=1)
    elif pattern == "stripes":
        for top in range(scale, side, 2 * scale):
            pen.rectangle((0, top, side, top + scale - 1), fill=1)
    elif pattern == "checks":
        for top in range(0, side, scale):
            for left in range(top // scale % 2 * scale, side, 2 * scale):
                pen.rectangle((left, top, left + scale - 1, top + scale - 1), fill=1)
    elif pattern == "dots":
        for y in range(scale, side, 2 * scale):
            for x in range(scale, side, 2 * scale):
                pen.ellipse((x - scale // 3, y - scale // 3, x + scale // 3, y + scale // 3), fill=1)
    else:
        raise ValueError(f"a ground's pattern must be one of {PATTERNS}, not {pattern!r}")
    return found


def _ground(side: int, first: Color, pattern: str, scale: int, second: Color) -> Image.Image:
    through = pattern_mask(pattern, scale, side)
    canvas = Image.new("RGB", through.size, first)
    canvas.paste(second, (0, 0), through)
    return canvas if canvas.width == side else canvas.resize((side, side), Image.Resampling.NEAREST)


def paint(
    side: int,
    background: Color,
    items: Sequence[tuple[str, Color, int, int, int]],
    over: tuple[str, int, Color] | None = None,
) -> Image.Image:
    """Paints items, later ones over earlier ones, on a square canvas.

    Args:
        side: Width and height of the canvas in pixels.
        background: Its color, RGB.
        items: For each its kind, color (RGB), left, top and width in whole pixels.
        over: Pattern, scale and second color of the ground (see ``pattern_mask``); None leaves it flat.
    """
    canvas = Image.new("RGB", (side, side), background) if over is None else _ground(side, background, *over)
    for kind, color, left, top, pixels in items:
        canvas.paste(color, (left, top), mask(kind, pixels))
    return canvas
