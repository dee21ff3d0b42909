"""Drawing of the small world: every kind of thing as polygons and ellipses, and scenes of them as pictures.

A kind is a list of strokes on the unit square (x to the right, y down); a stroke fills or erases. Masks are drawn large
once per kind and size, shrunk, and kept, so that a scene costs one paste a thing.
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
}
"""The strokes of each kind."""


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


def paint(
    side: int,
    background: tuple[int, int, int],
    items: Sequence[tuple[str, tuple[int, int, int], int, int, int]],
) -> Image.Image:
    """Paints items, later ones over earlier ones, on a square canvas.

    Args:
        side: Width and height of the canvas in pixels.
        background: Its colour, RGB.
        items: For each its kind, colour (RGB), left, top and width in whole pixels.
    """
    canvas = Image.new("RGB", (side, side), background)
    for kind, color, left, top, pixels in items:
        canvas.paste(color, (left, top), mask(kind, pixels))
    return canvas
