"""The small drawn world: coloured things of some kinds and sizes, scenes of them, and their pictures.

Everything the mini models know is drawn here, so the truth about every picture is known. There are two styles:
``plain`` scatters things of all kinds over a pale ground, flat or patterned; ``box`` draws circles, squares and
triangles in grey boxes as the Cornell Natural Language Visual Reasoning corpus does (Suhr et al., ACL 2017), scattered
or stacked into a tower.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from PIL import Image

from .draw import SHAPES, Color, paint

CANVAS = 128
"""Width and height of a picture, in pixels."""

KINDS: tuple[str, ...] = tuple(SHAPES)
COLORS: tuple[str, ...] = ("red", "green", "blue", "yellow", "purple", "orange", "black", "white")
SIZES: tuple[str, ...] = ("small", "medium", "large")

BOX_KINDS: tuple[str, ...] = ("circle", "square", "triangle")
BOX_COLORS: tuple[str, ...] = ("black", "blue", "yellow")
BOX_SIDE = 100
"""Pixels along a box of the corpus; a scene shows it enlarged to the canvas."""
SCALE = CANVAS / BOX_SIDE

RADII = {"small": 8, "medium": 12, "large": 18}
"""Half the extent of a thing in style ``plain``, in pixels."""
BOX_SIDES = {"small": 10, "medium": 20, "large": 30}
"""The whole extent of a thing in style ``box``, in pixels of a box."""

GAP = 10.0
"""In style ``plain`` any two centres are at least this far apart both across and down, so that each of left, right,
above and below is certain."""
MOST_THINGS = 8
"""The most things that a scene shows."""
USUAL_THINGS = 6
"""Style ``plain`` shows more than so many only when asked to, and then in one scene of ten."""


RGB: dict[str, tuple[int, int, int]] = {
    "red": (214, 34, 36),
    "green": (36, 150, 56),
    "blue": (38, 84, 214),
    "yellow": (250, 214, 24),
    "purple": (128, 44, 160),
    "orange": (244, 128, 20),
    "black": (18, 18, 20),
    "white": (255, 255, 255),
}
"""Of things in style ``plain``; each thing is a little lighter or darker."""
_BOX_RGB = {"black": (0, 0, 0), "blue": (0, 153, 255), "yellow": (255, 255, 0)}


HELD_OUT: frozenset[tuple[str, str]] = frozenset(
    (COLORS[(3 * place + 1) % len(COLORS)], kind)
    for place, kind in enumerate(KINDS)
    if kind not in BOX_KINDS and place % 8 != 5
)
"""Pairs of colour and kind, about one in ten, that only scenes of split "test" show."""

Wall = Literal["left", "right", "top", "bottom"]


@dataclass(frozen=True)
class Thing:
    """One thing of a scene; positions are pixels of the 128x128 canvas, y down."""

    kind: str
    color: str
    size: str
    x: float
    y: float
    radius: float
    """Half of its extent."""

    @property
    def box(self) -> tuple[float, float, float, float]:
        """Left, top, right, bottom."""
        return (self.x - self.radius, self.y - self.radius, self.x + self.radius, self.y + self.radius)

    @property
    def walls(self) -> frozenset[Wall]:
        """The sides of the picture that it touches."""
        left, top, right, bottom = self.box
        by_wall: dict[Wall, bool] = {
            "left": left < 1,
            "right": right > CANVAS - 1,
            "top": top < 1,
            "bottom": bottom > CANVAS - 1,
        }
        return frozenset(wall for wall, touches in by_wall.items() if touches)

    def touches(self, wall: str) -> bool:
        """Tells whether it touches "wall" (any side), "top", "bottom", "left wall" or "right wall"."""
        return bool(self.walls) if wall == "wall" else wall.split()[0] in self.walls


@dataclass(frozen=True)
class Scene:
    """What a picture shows."""

    things: tuple[Thing, ...]
    style: str
    """ "plain" or "box"."""
    background: Color
    """Color of the ground."""
    ground: str = "flat"
    """ "flat", or the pattern in which ``second`` lies over the background: one of ``draw.PATTERNS``."""
    second: Color = (0, 0, 0)
    """Second color of a ground that is not flat."""
    scale: int = 1
    """How broad the pattern is, in pixels (of a horizon its height, percent from the top)."""

    @property
    def tower(self) -> tuple[Thing, ...]:
        """The blocks of the tower from its base to its top, or nothing when the scene is no tower."""
        if self.style != "box" or any(thing.kind != "square" or thing.size != "medium" for thing in self.things):
            return ()
        blocks = tuple(sorted(self.things, key=lambda thing: -thing.y))
        if any(abs(block.x - CANVAS / 2) > 1 for block in blocks) or "bottom" not in blocks[0].walls:
            return ()
        return blocks


def pluralize(kind: str) -> str:
    """The plural of a kind, or of another noun of this world: "stars", "crosses", "fish", "boxes", "boots"."""
    if kind == "fish":
        return "fish"
    return kind + ("es" if kind.endswith(("s", "x", "ch", "sh")) else "s")


def draw_scene(scene: Scene, size: int = CANVAS) -> Image.Image:
    """The picture of a scene, RGB, ``size`` pixels wide and high."""
    if scene.style == "box":
        items = [_box_item(thing) for thing in scene.things]
        picture = paint(BOX_SIDE, scene.background, items)
    else:
        over = None if scene.ground == "flat" else (scene.ground, scene.scale, scene.second)
        picture = paint(CANVAS, scene.background, [_plain_item(thing) for thing in scene.things], over)
    return picture if picture.width == size else picture.resize((size, size), Image.Resampling.BICUBIC)


def save_scene(scene: Scene, path: Path) -> None:
    """Draws a scene into a file, in a folder that need not be there; a JPEG is barely compressed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draw_scene(scene).save(path, quality=95, subsampling=0)


def _plain_item(thing: Thing) -> tuple[str, Color, int, int, int]:
    # A thing's shade varies a little; taken from its place, it is the same every time.
    shade = int(thing.x * 7 + thing.y * 13) % 25 - 12
    red, green, blue = (min(255, max(0, part + shade)) for part in RGB[thing.color])
    color = (255, 255, 255) if thing.color == "white" else (red, green, blue)
    left, top, right, _ = thing.box
    return (thing.kind, color, round(left), round(top), round(right - left))


def _box_item(thing: Thing) -> tuple[str, Color, int, int, int]:
    left, top, _, _ = thing.box
    return (thing.kind, _BOX_RGB[thing.color], round(left / SCALE), round(top / SCALE), BOX_SIDES[thing.size])
