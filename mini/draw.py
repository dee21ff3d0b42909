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


def _stroke(text: str) -> Stroke:
    """Reads a stroke such as ``-box 12,45 88,100``."""
    name, *pairs = text.removeprefix("-").split()
    points = [(int(x) / 100, int(y) / 100) for x, y in (pair.split(",") for pair in pairs)]
    if name == "box":
        (left, top), (right, bottom) = points
        name, points = "polygon", [(left, top), (right, top), (right, bottom), (left, bottom)]
    return (name, tuple(points), int(not text.startswith("-")))


def _around(corners: int, *lengths: float, turn: float = 0.0, y: float = 0.5) -> tuple[Point, ...]:
    """Points around the middle, clockwise from the top; their distances from it take turns."""
    angles = [2 * math.pi * (step + turn) / corners for step in range(corners)]
    reach = [(lengths[step % len(lengths)], angle) for step, angle in enumerate(angles)]
    return tuple((0.5 + length * math.sin(angle), y - length * math.cos(angle)) for length, angle in reach)


def _flower() -> tuple[Stroke, ...]:
    petals = [((x - 0.21, y - 0.21), (x + 0.21, y + 0.21)) for x, y in _around(5, 0.29)]
    return (*(("ellipse", petal, 1) for petal in petals), _stroke("-ellipse 37,37 63,63"))


def _heart() -> tuple[Point, ...]:
    points = []
    for step in range(48):
        t = 2 * math.pi * step / 48
        x = 16 * math.sin(t) ** 3
        y = 13 * math.cos(t) - 5 * math.cos(2 * t) - 2 * math.cos(3 * t) - math.cos(4 * t)
        points.append((0.5 + x / 32, 0.44 - y / 30))
    return tuple(points)


_KINDS: dict[str, str | tuple[Stroke, ...]] = {
    "circle": "ellipse 0,0 100,100",
    "square": "box 0,0 100,100",
    "triangle": "polygon 50,0 100,100 0,100",
    "star": (("polygon", _around(10, 0.54, 0.54 * 0.42, y=0.53), 1),),
    "heart": (("polygon", _heart(), 1),),
    "moon": "ellipse 5,0 105,100; -ellipse 38,-5 120,80",
    "arrow": "polygon 0,33 50,33 50,2 100,50 50,98 50,67 0,67",
    "cross": "box 34,0 66,100; box 0,34 100,66",
    "diamond": "polygon 50,0 88,50 50,100 12,50",
    "ring": "ellipse 0,0 100,100; -ellipse 26,26 74,74",
    "hexagon": (("polygon", _around(6, 0.5, turn=0.5), 1),),
    "house": "polygon 50,0 100,45 0,45; box 12,45 88,100; -box 40,62 62,100",
    "tree": "polygon 50,0 84,42 16,42; polygon 50,22 98,78 2,78; box 41,78 59,100",
    "flower": _flower(),
    "fish": "ellipse 0,20 74,80; polygon 62,50 100,16 100,84; -ellipse 14,38 27,51",
    "cup": "ellipse 50,18 100,72; -ellipse 62,30 88,60; polygon 2,8 72,8 64,96 10,96",
    "key": "ellipse 0,26 46,74; -ellipse 13,40 33,60; box 40,43 100,57; box 64,50 75,78; box 87,50 98,82",
    "bell": "ellipse 20,2 80,70; polygon 20,36 80,36 98,80 2,80; ellipse 38,76 62,100",
    "car": (
        "polygon 20,50 32,20 68,20 84,50; box 0,48 100,74; ellipse 10,60 38,88; ellipse 62,60 90,88; "
        "-polygon 36,46 42,29 60,29 68,46"
    ),
    "boat": "polygon 0,68 100,68 80,100 20,100; polygon 44,0 44,60 2,60; polygon 54,12 92,60 54,60",
    "umbrella": "ellipse 0,2 100,98; -box 0,50 100,100; box 45,45 55,92; box 45,86 74,98",
    "crown": "polygon 0,14 27,50 50,8 73,50 100,14 90,90 10,90",
    "flag": "box 10,0 22,100; polygon 22,4 100,30 22,58",
    "cloud": "ellipse 0,42 46,84; ellipse 22,16 72,68; ellipse 56,38 100,84; box 22,56 78,84",
    "bolt": "polygon 62,0 16,56 46,56 34,100 86,40 54,40",
    "mushroom": "ellipse 0,0 100,110; -box 0,55 100,120; box 35,50 65,100",
    "hat": "box 0,72 100,88; polygon 22,12 78,12 74,74 26,74",
    "bottle": "box 40,0 60,30; polygon 40,24 60,24 74,44 74,100 26,100 26,44",
    "apple": "ellipse 2,26 60,100; ellipse 40,26 98,100; polygon 46,34 50,12 64,0 82,0 74,16 56,24 54,34",
    "anchor": (
        "ellipse 2,22 98,100; -ellipse 17,16 83,83; -box 0,0 100,60; polygon 0,72 10,48 30,68; "
        "polygon 100,72 90,48 70,68; ellipse 33,0 67,34; -ellipse 43,10 57,24; box 43,30 57,94; box 22,36 78,48"
    ),
    "ladder": "box 14,0 27,100; box 73,0 86,100; box 20,9 80,20; box 20,33 80,44; box 20,57 80,68; box 20,81 80,92",
    "rocket": (
        "ellipse 30,0 70,90; box 30,45 70,80; -box 30,80 70,100; polygon 34,50 34,80 6,94 6,76; "
        "polygon 66,50 66,80 94,94 94,76; polygon 38,84 62,84 50,100; -ellipse 40,28 60,48"
    ),
    "chair": "box 16,0 31,100; box 16,46 86,62; box 72,50 86,100",
    "lamp": "polygon 32,0 68,0 94,50 6,50; box 44,50 56,90; polygon 34,86 66,86 80,100 20,100",
    "clock": (
        "polygon 20,70 34,80 20,100 6,100; polygon 80,70 66,80 80,100 94,100; ellipse 0,0 42,38; "
        "ellipse 58,0 100,38; -ellipse 2,6 98,98; ellipse 8,12 92,96; -ellipse 22,26 78,82; box 44,32 56,61; "
        "box 44,49 70,61"
    ),
    "book": "polygon 0,14 46,28 46,94 0,80; polygon 100,14 54,28 54,94 100,80",
    "cat": (
        "ellipse 3,22 97,98; polygon 6,0 46,30 6,60; polygon 94,0 54,30 94,60; -ellipse 22,44 38,62; "
        "-ellipse 62,44 78,62; -polygon 40,70 60,70 50,82"
    ),
    "duck": (
        "ellipse 14,42 94,98; polygon 62,56 100,34 94,76; ellipse 16,2 60,46; polygon 26,36 58,30 60,60 20,64; "
        "polygon 22,16 0,30 22,38; -ellipse 28,13 41,26"
    ),
    "ghost": (
        "ellipse 8,0 92,84; polygon 8,42 92,42 92,100 78,84 64,100 50,84 36,100 22,84 8,100; -ellipse 24,28 42,50; "
        "-ellipse 58,28 76,50"
    ),
    "envelope": "box 0,16 100,86; -polygon 0,20 50,54 100,20 100,33 50,67 0,33",
    "hammer": "box 2,4 22,42; box 20,10 66,36; polygon 62,10 86,14 100,44 78,36 62,36; box 36,30 54,100",
    "magnet": "ellipse 4,0 96,92; box 4,46 96,100; -ellipse 34,30 66,62; -box 34,46 66,100; -box 0,70 100,79",
    "boot": (
        "box 16,0 60,84; ellipse 34,48 98,110; box 34,72 60,86; -box 0,84 100,120; box 12,84 42,100; box 12,84 100,92"
    ),
    "plane": (
        "ellipse 2,41 100,59; polygon 70,50 36,0 22,0 38,50 22,100 36,100; polygon 24,50 12,24 0,24 8,50 0,76 12,76"
    ),
}
"""What each kind is drawn with, in hundredths of its extent; a stroke with a minus erases. A polygon has its corners, a
box and an ellipse their upper left and lower right. New kinds come last, because the pairs held out and the weights go
by a kind's place."""

SHAPES: dict[str, tuple[Stroke, ...]] = {
    kind: tuple(map(_stroke, drawn.split("; "))) if isinstance(drawn, str) else drawn for kind, drawn in _KINDS.items()
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
    """
    if pattern == "gradient":
        return Image.linear_gradient("L").resize((1, side), Image.Resampling.BILINEAR)
    image = Image.new("1", (side, side), 0)
    pen = ImageDraw.Draw(image)
    if pattern == "horizon":
        pen.rectangle((0, side * scale // 100, side, side), fill=1)
    elif pattern == "stripes":
        for top in range(scale, side, 2 * scale):
            pen.rectangle((0, top, side, top + scale - 1), fill=1)
    elif pattern == "checks":
        for top in range(0, side, scale):
            for left in range(top // scale % 2 * scale, side, 2 * scale):
                pen.rectangle((left, top, left + scale - 1, top + scale - 1), fill=1)
    else:  # dots
        for y in range(scale, side, 2 * scale):
            for x in range(scale, side, 2 * scale):
                pen.ellipse((x - scale // 3, y - scale // 3, x + scale // 3, y + scale // 3), fill=1)
    return image


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
    canvas = Image.new("RGB", (side, side), background)
    if over is not None:
        pattern, scale, second = over
        through = pattern_mask(pattern, scale, side)
        canvas = canvas.crop((0, 0, *through.size))
        canvas.paste(second, (0, 0), through)
        canvas = canvas.resize((side, side), Image.Resampling.NEAREST)
    for kind, color, left, top, pixels in items:
        canvas.paste(color, (left, top), mask(kind, pixels))
    return canvas
