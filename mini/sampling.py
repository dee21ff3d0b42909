"""Random scenes of the drawn world: which things, how large, and where."""

from __future__ import annotations

import random
from typing import Literal

from .draw import PATTERNS, Color
from .world import (
    BOX_COLORS,
    BOX_KINDS,
    BOX_SIDE,
    BOX_SIDES,
    CANVAS,
    COLORS,
    GAP,
    HELD_OUT,
    KINDS,
    MOST_THINGS,
    RADII,
    SCALE,
    SIZES,
    USUAL_THINGS,
    Scene,
    Thing,
)

CROWD = 84
"""In style ``plain`` the radii of more than ``USUAL_THINGS`` things sum up to no more."""
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
