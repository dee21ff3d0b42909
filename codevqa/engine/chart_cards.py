"""The cards of a chart: numbers, shapes and arrows on white, each with a question and its answer."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, TypeAlias

from PIL import Image, ImageDraw, ImageFont

from ..core.images import Picture, load_pictures

COLORS = {"red": "#d62020", "blue": "#2040d0", "green": "#209040", "yellow": "#f0d000", "black": "#101010"}
SHAPES = {"circle": 0, "triangle": 3, "square": 4, "hexagon": 6}
"""Shapes, and how many corners each has."""
ARROW = ((0, -1), (0.7, -0.2), (0.25, -0.2), (0.25, 1), (-0.25, 1), (-0.25, -0.2), (-0.7, -0.2))
ARROWS = {"up": 0, "left": 90, "down": 180, "right": 270}
"""Directions, and by how many degrees an arrow that points up is turned."""
SIZES = (96, 64, 48, 32, 24, 16, 12)
"""Heights of the numbers on a sheet, in pixels."""
SIDE, SHEET = 448, 1024
"""Sides of a card and of a sheet, in pixels."""
MIDDLE = (SIDE / 2, SIDE / 2)
Mark: TypeAlias = "tuple[str, tuple[float, float], int] | tuple[str, tuple[float, float], int, str]"
"""A number, ``arrow`` or shape, where its middle is, its size in pixels, and the colour of a shape."""


class Card(NamedTuple):
    """A picture, what is asked about it, and the answer."""

    picture: Picture
    question: str
    answer: str
    words: Sequence[str] = ()
    """Words of which an answer names one; none where it is a number."""


class Cards:
    """Draws cards, others for each seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.blank = draw_card()
        self._numbers = self.random.sample(range(100, 1000), 200)
        self._last: dict[str, str] = {}

    def next_number(self) -> str:
        """Returns a number of three digits that no other card has."""
        return str(self._numbers.pop())

    def pick(self, what: str, words: Iterable[str]) -> str:
        """Returns one of some words at random, not the one that was picked last for this."""
        word = self._last[what] = self.random.choice([word for word in words if word != self._last.get(what)])
        return word

    def number(self) -> Card:
        """Returns a card with a number."""
        text = self.next_number()
        return Card(draw_card((text, MIDDLE, 160)), "What number is shown?", text)

    def thing(self, ask: Literal["color", "shape"] = "color") -> Card:
        """Returns a card with a coloured shape."""
        color, shape = self.pick(f"color {ask}", COLORS), self.pick(f"shape {ask}", SHAPES)
        picture = draw_card((shape, MIDDLE, 120, color))
        if ask == "color":
            return Card(picture, f"What color is the {shape}?", color, [*COLORS])
        return Card(picture, f"What is the shape of the {color} thing: {', '.join(SHAPES)}?", shape, [*SHAPES])

    def arrow(self) -> Card:
        """Returns a card with an arrow."""
        answer = self.pick("arrow", ARROWS)
        question = f"Where does the arrow point, {', '.join(ARROWS)}?"
        return Card(draw_card(("arrow", MIDDLE, 160), turn=ARROWS[answer]), question, answer, [*ARROWS])

    def pair(self, side: str) -> Card:
        """Returns a card with two things, asked for the one on a side."""
        shapes, colors = self.random.sample([*SHAPES], 2), self.random.sample([*COLORS], 2)
        things = [(shapes[place], ((0.25, 0.75)[place] * SIDE, SIDE / 2), 75, colors[place]) for place in (0, 1)]
        names = self.random.sample(shapes, 2)
        question = f"Which is on the {side}, the {names[0]} or the {names[1]}?"
        return Card(draw_card(*things), question, shapes[side == "right"], names)

    def dots(self, count: int) -> Card:
        """Returns a card with so many dots that do not touch."""
        places = self.random.sample([(x, y) for x in range(56, SIDE, 84) for y in range(56, SIDE, 84)], count)
        picture = draw_card(*(("circle", place, 24, "blue") for place in places))
        return Card(picture, "How many circles are there?", str(count))

    def sheet(self) -> tuple[Picture, list[str]]:
        """Returns a sheet with a number of each of :data:`SIZES` below one another, and the numbers."""
        numbers, y = [self.next_number() for _ in SIZES], 10.0
        rows: list[Mark] = []
        for number, size in zip(numbers, SIZES, strict=True):
            y += 80 + size
            rows.append((number, (self.random.randint(300, SHEET - 300), y), size))
        return draw_card(*rows, side=SHEET), numbers


def draw_card(*marks: Mark, side: int = SIDE, turn: int = 0) -> Picture:
    """Returns a white card with marks, turned to the left by so many degrees."""
    card = Image.new("RGB", (side, side), "white")
    draw = ImageDraw.Draw(card)
    for what, (x, y), size, *color in marks:
        if what.isdigit():
            draw.text((x, y), what, "black", ImageFont.load_default(size), "mm")
        elif what == "arrow":
            draw.polygon([(x + size * across, y + size * down) for across, down in ARROW], "black")
        elif what == "circle":
            draw.circle((x, y), size, COLORS[color[0]])
        else:
            draw.regular_polygon((x, y, size), SHAPES[what], fill=COLORS[color[0]])
    return load_pictures([card.rotate(turn)])[0]
