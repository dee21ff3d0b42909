"""The small drawn world: coloured things of some kinds and sizes, scenes of them, and their pictures.

Everything the mini models know is drawn here, so the truth about every picture is known. There are two styles:
``plain`` scatters things of all kinds over a pale ground, flat or patterned; ``box`` draws circles, squares and
triangles in grey boxes as the Cornell Natural Language Visual Reasoning corpus does (Suhr et al., ACL 2017), scattered
or stacked into a tower.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from PIL import Image

from .draw import PATTERNS, SHAPES, Color, paint

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

CROWD = 84
"""In style ``plain`` the radii of more than ``USUAL_THINGS`` things sum up to no more."""

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
_BOX_GROUND = (211, 211, 211)
_GROUNDS = (
    (204, 204, 204),
    (206, 198, 184),
    (188, 204, 216),
    (212, 192, 196),
    (190, 208, 190),
    (200, 192, 214),
    (176, 184, 188),
    (214, 206, 176),
)

_SCALES = {
    "gradient": (1,),
    "horizon": (25, 40, 50, 60, 75),
    "stripes": (4, 6, 8, 11, 16),
    "checks": (6, 8, 12, 16),
    "dots": (6, 8, 10),
}
"""How broad each pattern of a ground may be; see ``draw.pattern_mask``."""

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


def sample_scene(
    rng: random.Random,
    *,
    style: str | None = None,
    min_things: int = 1,
    max_things: int = 6,
    split: Literal["train", "test"] = "train",
) -> Scene:
    """Draws a scene at random.

    Args:
        rng: Where the chance comes from; the same state gives the same scene.
        style: "plain" or "box"; None takes "box" in two cases of five.
        min_things: Fewest things.
        max_things: Most things, at most 8; a tower has at most 4. Given 7 or 8, "plain" shows more than 6 in about one
            scene of ten, or always when ``min_things`` is more than 6.
        split: Pairs in ``HELD_OUT`` are never shown in "train", and often in "test".
    """
    if style is None:
        style = "box" if rng.random() < 0.4 else "plain"
    if style == "box":
        return _box_scene(rng, min_things, max_things)
    return _plain_scene(rng, min_things, max_things, split)


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


def _plain_scene(rng: random.Random, fewest: int, most: int, split: str) -> Scene:
    count = _plain_count(rng, min(fewest, MOST_THINGS), min(most, MOST_THINGS))
    looks = _looks(rng, count, split)
    sizes = [rng.choice(SIZES) for _ in looks]
    if rng.random() < 0.3:
        sizes = [sizes[0]] * count
    things = (_scatter if count <= USUAL_THINGS else _spread)(rng, looks, sizes)
    background, shift = rng.choice(_GROUNDS), rng.randint(-8, 8)
    first = _mix_colors(background, background, shift)
    if rng.random() < 0.4:
        return Scene(things, "plain", first)
    ground = rng.choice(PATTERNS)
    other = rng.choice([candidate for candidate in _GROUNDS if candidate != background])
    # Every color lies between two flat grounds, so nothing is harder to see than on those; fine patterns are fainter.
    second = _mix_colors(other, other if ground in ("gradient", "horizon") else background, shift)
    return Scene(things, "plain", first, ground, second, rng.choice(_SCALES[ground]))


def _plain_count(rng: random.Random, fewest: int, most: int) -> int:
    if most <= USUAL_THINGS:
        return rng.randint(fewest, most)
    if fewest > USUAL_THINGS or rng.random() < 0.1:
        return rng.randint(max(fewest, USUAL_THINGS + 1), most)
    return rng.randint(fewest, USUAL_THINGS)


def _mix_colors(color: Color, other: Color, shift: int) -> Color:
    """The color midway between two, lighter by ``shift``."""
    red, green, blue = ((first + second) // 2 + shift for first, second in zip(color, other, strict=True))
    return (red, green, blue)


def _looks(rng: random.Random, count: int, split: str) -> list[tuple[str, str]]:
    """Colours and kinds, often with the same kind or the same pair again, so that there is something to count."""
    looks: list[tuple[str, str]] = []
    repeat = rng.choice((0.0, 0.3, 0.6))
    rare = sorted(HELD_OUT) if split == "test" and rng.random() < 0.5 else []
    while len(looks) < count:
        color, kind = rng.choice(COLORS), rng.choice(KINDS)
        if rare and rng.random() < 0.4:
            color, kind = rng.choice(rare)
        if looks and rng.random() < repeat:
            old_color, old_kind = rng.choice(looks)
            chance = rng.random()
            if chance < 0.5:
                color, kind = old_color, old_kind
            elif chance < 0.8:
                kind = old_kind
            else:
                color = old_color
        if split == "train" and (color, kind) in HELD_OUT:
            continue
        looks.append((color, kind))
    return looks


def _scatter(rng: random.Random, looks: list[tuple[str, str]], sizes: list[str]) -> tuple[Thing, ...]:
    """Finds places; large things shrink one size when no place is found."""
    things: list[Thing] = []
    tries = 0
    while len(things) < len(looks):
        color, kind = looks[len(things)]
        radius = RADII[sizes[len(things)]]
        x, y = rng.randint(radius, CANVAS - radius), rng.randint(radius, CANVAS - radius)
        tries += 1
        if all(is_apart(x, y, radius, other) for other in things):
            things.append(Thing(kind, color, sizes[len(things)], float(x), float(y), float(radius)))
        elif tries % 60 == 0:
            things.clear()
            if tries % 240 == 0:
                sizes = [SIZES[max(0, SIZES.index(size) - 1)] for size in sizes]
    return tuple(things)


def _spread(rng: random.Random, looks: list[tuple[str, str]], sizes: list[str]) -> tuple[Thing, ...]:
    """Finds places for many things, where taking one after the other would seldom do; now and then one shrinks."""
    things: list[Thing] = []
    tries = 0
    while len(things) < len(looks):
        while sum(RADII[size] for size in sizes) > CROWD:
            sizes = _shrunk(rng, sizes)
        radii = [RADII[size] for size in sizes]
        across, down = _space_out(rng, radii), _space_out(rng, radii)
        things = []
        for (color, kind), size, radius, x, y in zip(looks, sizes, radii, across, down, strict=True):
            inside = radius <= min(x, y) and max(x, y) <= CANVAS - radius
            if not inside or not all(is_apart(x, y, radius, other) for other in things):
                break
            things.append(Thing(kind, color, size, float(x), float(y), float(radius)))
        tries += 1
        if tries % 20 == 0:
            sizes = _shrunk(rng, sizes)
    return tuple(things)


def _shrunk(rng: random.Random, sizes: list[str]) -> list[str]:
    """The sizes with one of them, if any can, a step smaller."""
    able = [place for place, size in enumerate(sizes) if size != SIZES[0]]
    chosen = rng.choice(able) if able else -1
    return [SIZES[SIZES.index(size) - 1] if place == chosen else size for place, size in enumerate(sizes)]


def _space_out(rng: random.Random, radii: list[int]) -> list[int]:
    """Whole numbers in random order, at least ``GAP`` apart, one for each radius."""
    first, gap = min(radii), int(GAP)
    slack = CANVAS - 2 * first - gap * (len(radii) - 1)
    positions = [
        first + gap * place + more for place, more in enumerate(sorted(rng.choices(range(slack + 1), k=len(radii))))
    ]
    rng.shuffle(positions)
    return positions


def is_apart(x: float, y: float, radius: float, other: Thing) -> bool:
    """Whether something lies far enough from a thing of a plain scene."""
    across, down = abs(x - other.x), abs(y - other.y)
    return across >= GAP and down >= GAP and max(across, down) > radius + other.radius


def _box_scene(rng: random.Random, fewest: int, most: int) -> Scene:
    if fewest <= 4 and rng.random() < 0.45:
        tops = [80 - 21 * level for level in range(rng.randint(fewest, min(most, 4)))]
        return _scene_of_boxes([(rng.choice(BOX_COLORS), "square", "medium", 40, top) for top in tops])
    count = min(rng.randint(fewest, most), MOST_THINGS)
    colors = rng.choice((BOX_COLORS, BOX_COLORS, rng.sample(BOX_COLORS, 2), rng.sample(BOX_COLORS, 1)))
    kinds = rng.choice((BOX_KINDS, BOX_KINDS, rng.sample(BOX_KINDS, 2), rng.sample(BOX_KINDS, 1)))
    items: list[tuple[str, str, str, int, int]] = []
    tries = 0
    while len(items) < count:
        size = rng.choice(SIZES if tries < 400 else SIZES[:2])
        room = BOX_SIDE - BOX_SIDES[size]
        left, top = rng.randint(0, room), rng.randint(0, room)
        if rng.random() < 0.36:  # against a wall, or nearly
            gap = rng.randint(1, 4) if rng.random() < 0.25 else 0
            left, top = rng.choice(((gap, top), (room - gap, top), (left, gap), (left, room - gap)))
        tries += 1
        if all(_clear(left, top, BOX_SIDES[size], item) for item in items):
            items.append((rng.choice(colors), rng.choice(kinds), size, left, top))
        elif tries % 200 == 0:
            items.clear()
    return _scene_of_boxes(items)


def _clear(left: int, top: int, side: int, item: tuple[str, str, str, int, int]) -> bool:
    *_, size, x, y = item
    return max(left - x - BOX_SIDES[size], x - left - side, top - y - BOX_SIDES[size], y - top - side) >= 1


def _scene_of_boxes(items: list[tuple[str, str, str, int, int]]) -> Scene:
    things = []
    for color, kind, size, left, top in items:
        radius = BOX_SIDES[size] * SCALE / 2
        things.append(Thing(kind, color, size, left * SCALE + radius, top * SCALE + radius, radius))
    return Scene(tuple(things), "box", _BOX_GROUND)
