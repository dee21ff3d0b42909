"""Drawings of other kinds than the world's: silhouettes, charts, logos, phantoms and pages of text.

What the mini models never saw, drawn at random, so that ``mini/training/domain.py`` can tell it from what they did see.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import TypeAlias

from PIL import Image, ImageDraw, ImageFont

from codevqa.mini.draw import Color

Box: TypeAlias = tuple[float, float, float, float]
"""Left, top, right, bottom, in pixels."""
WHITE, BLACK = (255, 255, 255), (0, 0, 0)
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789&%$#@?"


def _color(rng: random.Random) -> Color:
    return rng.randint(0, 255), rng.randint(0, 255), rng.randint(0, 255)


def _sheet(rng: random.Random, low: int, high: int, white: float) -> tuple[Image.Image, ImageDraw.ImageDraw]:
    """A white or coloured ground, and a brush for it."""
    size = rng.randint(low, high), rng.randint(low, high)
    image = Image.new("RGB", size, WHITE if rng.random() < white else _color(rng))
    return image, ImageDraw.Draw(image)


def _draw_text(brush: ImageDraw.ImageDraw, place: tuple[float, float], size: float, ink: Color, text: str) -> None:
    brush.text(place, text, ink, ImageFont.load_default(max(7, round(size))), anchor="mm")


def _word(rng: random.Random, longest: int = 8) -> str:
    return "".join(rng.choices(_LETTERS[:26], k=rng.randint(1, longest)))


def silhouette(rng: random.Random) -> Image.Image:
    """A large blot with limbs, or one letter."""
    image, brush = _sheet(rng, 120, 400, 0.6)
    ink = BLACK if rng.random() < 0.6 else _color(rng)
    if rng.random() < 0.1:
        image.paste(BLACK, (0, 0, *image.size))
        ink = WHITE
    width, height = image.size
    if rng.random() < 0.25:
        _draw_text(brush, (width / 2, height / 2), min(image.size) * rng.uniform(0.6, 1.1), ink, rng.choice(_LETTERS))
        return image
    waves = [(rng.randint(1, 7), rng.uniform(0, 0.35), rng.uniform(0, 2 * math.pi)) for _ in range(4)]
    outline = []
    for step in range(120):
        angle = 2 * math.pi * step / 120
        reach = 1 + sum(high / count**0.7 * math.sin(count * angle + turn) for count, high, turn in waves)
        outline.append(
            (width / 2 + 0.35 * width * reach * math.cos(angle), height / 2 + 0.3 * height * reach * math.sin(angle))
        )
    brush.polygon(outline, ink)
    for _ in range(rng.randint(0, 6)):
        x, y = width * rng.uniform(0.2, 0.8), height * rng.uniform(0.3, 0.7)
        end = width * rng.uniform(0.05, 0.95), height * rng.choice((rng.uniform(0, 0.2), rng.uniform(0.8, 1)))
        brush.line((x, y, *end), ink, round(width * rng.uniform(0.02, 0.08)))
    return image


def _draw_slices(rng: random.Random, brush: ImageDraw.ImageDraw, box: Box, colors: Sequence[Color]) -> None:
    left, top, right, bottom = box
    reach, begin, count = 0.45 * min(right - left, bottom - top), rng.uniform(0, 360), rng.randint(3, 7)
    x, y = (left + right) / 2, (top + bottom) / 2
    for place in range(count):
        ends = (begin + 360 * place / count, begin + 360 * (place + 1) / count)
        brush.pieslice((x - reach, y - reach, x + reach, y + reach), *ends, colors[place % 6])


def _draw_bars(rng: random.Random, brush: ImageDraw.ImageDraw, box: Box, colors: Sequence[Color]) -> None:
    left, top, right, bottom = box
    count, lying = rng.randint(3, 14), rng.random() < 0.3
    for place in range(count):
        share, color = rng.random(), colors[0 if count % 2 else place % 6]
        start, end = (place + 0.15) / count, (place + 0.85) / count
        if lying:
            ends = (left, top + (bottom - top) * start, left + (right - left) * share, top + (bottom - top) * end)
        else:
            high = bottom - (bottom - top) * share
            ends = (left + (right - left) * start, high, left + (right - left) * end, bottom)
        brush.rectangle(ends, color)


def _draw_dots(rng: random.Random, brush: ImageDraw.ImageDraw, box: Box, colors: Sequence[Color]) -> None:
    left, top, right, bottom = box
    for place in range(rng.randint(15, 200)):
        x, y, reach = rng.uniform(left, right), rng.uniform(top, bottom), rng.uniform(1.5, 5)
        brush.ellipse((x - reach, y - reach, x + reach, y + reach), colors[place % 3])


def _draw_curves(rng: random.Random, brush: ImageDraw.ImageDraw, box: Box, colors: Sequence[Color]) -> None:
    left, top, right, bottom = box
    filled = rng.random() < 0.3
    for color in colors[: rng.randint(1, 4)]:
        y, points = rng.uniform(top, bottom), []
        for step in range(40):
            y = min(bottom, max(top, y + rng.gauss(0, 0.07 * (bottom - top))))
            points.append((left + (right - left) * step / 39, y))
        if filled:
            brush.polygon([(left, bottom), *points, (right, bottom)], color)
        else:
            brush.line(points, color, rng.randint(1, 3))


def chart(rng: random.Random) -> Image.Image:
    """Bars, lines, dots, areas or slices, with axes and labels."""
    image, brush = _sheet(rng, 200, 560, 0.75)
    width, height = image.size
    ink = BLACK if sum(image.getpixel((0, 0))) > 300 else WHITE  # type: ignore[arg-type]
    left, top, right, bottom = 0.12 * width, 0.1 * height, 0.95 * width, 0.85 * height
    fill = rng.choice((_draw_bars, _draw_bars, _draw_curves, _draw_curves, _draw_dots, _draw_slices))
    fill(rng, brush, (left, top, right, bottom), [_color(rng) for _ in range(6)])
    if fill is not _draw_slices:
        brush.line((left, top, left, bottom, right, bottom), ink)
        for place in range(5):
            x, y = left + (right - left) * place / 4, top + (bottom - top) * place / 4
            _draw_text(brush, (x, bottom + 0.05 * height), 0.035 * height, ink, _word(rng, 4))
            _draw_text(brush, (left / 2, y), 0.035 * height, ink, str(rng.randint(0, 99)))
    _draw_text(brush, (width / 2, 0.05 * height), 0.05 * height, ink, f"{_word(rng)} {_word(rng)}")
    return image


def logo(rng: random.Random) -> Image.Image:
    """A few bold shapes, an arc, and a name."""
    image, brush = _sheet(rng, 60, 420, 0.6)
    width, height = image.size
    colors, chance = [_color(rng) for _ in range(3)], rng.random()
    if chance < 0.75:
        for _ in range(rng.randint(1, 5)):
            side = min(image.size) * rng.uniform(0.2, 0.8)
            x, y = width * rng.uniform(0, 0.6), height * rng.uniform(0, 0.5)
            box = (x, y, x + side, y + side * rng.uniform(0.5, 1))
            rng.choice((brush.ellipse, brush.rectangle))(box, rng.choice(colors))
    if rng.random() < 0.5:
        box = (0.1 * width, 0.1 * height, 0.9 * width, 0.9 * height)
        brush.arc(box, rng.uniform(0, 360), rng.uniform(0, 360), colors[0], max(2, height // 16))
    if chance > 0.25:
        ink = rng.choice((*colors, BLACK))
        _draw_text(brush, (width / 2, height * rng.uniform(0.3, 0.8)), min(height / 2, width / 5), ink, _word(rng))
    return image


def phantom(rng: random.Random) -> Image.Image:
    """Grey ellipses within one another, as of a scan."""
    side = rng.randint(100, 400)
    image = Image.new("L", (side, side), rng.choice((0, 0, 0, 20, 255)))
    for place in range(rng.randint(4, 14)):
        shape = Image.new("L", (side, side), 0)
        x, y = (side / 2, side / 2) if place == 0 else (side * rng.uniform(0.35, 0.65), side * rng.uniform(0.35, 0.65))
        wide = 0.36 * side if place == 0 else side * rng.uniform(0.04, 0.45) / (1 + 0.2 * place)
        high = 0.46 * side if place == 0 else side * rng.uniform(0.04, 0.48) / (1 + 0.2 * place)
        ImageDraw.Draw(shape).ellipse((x - wide, y - high, x + wide, y + high), 255)
        image.paste(rng.randint(0, 255), (0, 0), shape.rotate(rng.uniform(-30, 30), center=(x, y)))
    return image.convert("RGB")


def page(rng: random.Random) -> Image.Image:
    """Lines of text."""
    image, brush = _sheet(rng, 150, 500, 0.7)
    size, ink, y = rng.uniform(8, 30), BLACK if rng.random() < 0.8 else _color(rng), 10.0
    while y < image.height:
        words = " ".join(_word(rng, 9) for _ in range(max(1, int(image.width / size / 3))))
        _draw_text(brush, (image.width / 2, y), size, ink, words)
        y += 1.4 * size
    return image


OTHER_KINDS: dict[str, Callable[[random.Random], Image.Image]] = {
    "silhouette": silhouette,
    "chart": chart,
    "logo": logo,
    "phantom": phantom,
    "page": page,
}
"""What draws each kind."""
