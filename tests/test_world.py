"""The small drawn world: scenes are what they say, and pictures show them."""

from __future__ import annotations

import hashlib
import random
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from codevqa.miniworld.draw import PATTERNS, SHAPES, mask
from codevqa.miniworld.world import (
    BOX_COLORS,
    BOX_KINDS,
    CANVAS,
    COLORS,
    GAP,
    HELD_OUT,
    KINDS,
    RADII,
    Scene,
    Thing,
    draw,
    plural,
    sample_scene,
)


def scenes(count: int, **settings: object) -> list[Scene]:
    rng = random.Random(7)
    return [sample_scene(rng, **settings) for _ in range(count)]  # type: ignore[arg-type]


def pixels(scene: Scene, size: int = CANVAS) -> npt.NDArray[np.int64]:
    return np.asarray(draw(scene, size), dtype=np.int64)


def test_kinds_can_be_told_apart_when_small() -> None:
    masks = [np.asarray(mask(kind, 16), dtype=float) / 255 for kind in KINDS]
    assert len(masks) == len(SHAPES) == 44
    for place, first in enumerate(masks):
        assert 40 < first.sum() <= 256, KINDS[place]
        for other, second in enumerate(masks[:place]):
            overlap = np.minimum(first, second).sum() / np.maximum(first, second).sum()
            assert overlap < 0.86 and np.abs(first - second).sum() > 28, (KINDS[place], KINDS[other])


def test_kinds_and_their_held_out_pairs_stay() -> None:
    # The shipped weights know kinds by their place and were trained without these pairs.
    assert hashlib.sha256(repr((KINDS, sorted(HELD_OUT))).encode()).hexdigest()[:16] == "614e6ef3a922a5fc"
    assert 0.08 < len(HELD_OUT) / len(KINDS) / len(COLORS) < 0.12


def test_the_same_seed_gives_the_same_scene_and_picture() -> None:
    one, other = (sample_scene(random.Random(3)) for _ in range(2))
    assert one == other
    assert np.array_equal(pixels(one), pixels(other))
    assert sample_scene(random.Random(4)) != one


@pytest.mark.parametrize(("style", "fewest"), [("plain", 1), ("plain", 7), ("box", 1)])
def test_things_stay_inside_and_apart(style: str, fewest: int) -> None:
    for scene in scenes(200, style=style, min_things=fewest, max_things=8):
        for place, one in enumerate(scene.things):
            assert min(one.box) >= -1e-6 and max(one.box) <= CANVAS + 1e-6
            assert style == "box" or one.radius == RADII[one.size]
            for other in scene.things[:place]:
                apart = sorted((abs(one.x - other.x), abs(one.y - other.y)))
                assert apart[1] > one.radius + other.radius - 1e-6, (one, other)
                assert style == "box" or apart[0] >= GAP


def test_numbers_of_things_and_bad_arguments() -> None:
    assert {len(scene.things) for scene in scenes(300, style="plain")} == set(range(1, 7))
    many = [len(scene.things) for scene in scenes(1000, style="plain", max_things=8)]
    assert set(many) == set(range(1, 9))
    assert 0.07 < np.mean([count > 6 for count in many]) < 0.13
    assert {len(scene.things) for scene in scenes(80, style="plain", min_things=7, max_things=9)} == {7, 8}
    assert {len(scene.things) for scene in scenes(300, style="box", min_things=5, max_things=8)} == {5, 6, 7, 8}
    with pytest.raises(ValueError, match="style"):
        sample_scene(random.Random(0), style="oil")
    with pytest.raises(ValueError, match="min_things"):
        sample_scene(random.Random(0), min_things=3, max_things=2)


def test_grounds_vary_and_hide_nothing() -> None:
    drawn = scenes(800, style="plain")
    assert {scene.ground for scene in drawn} == {"flat", *PATTERNS}
    seen = {(scene.ground, scene.scale): scene for scene in drawn}
    assert len(seen) > 15
    for (ground, _), scene in seen.items():
        colors = np.unique(pixels(replace(scene, things=())).reshape(-1, 3), axis=0)
        for clear in ((255, 255, 255), (250, 214, 24)):  # the palest and the most yellow thing
            assert np.abs(colors - np.array(clear)).sum(-1).min() > 90, scene
        assert len(colors) == 1 if ground == "flat" else len(colors) > 1
    assert {scene.ground for scene in scenes(200, style="box")} == {"flat"}


def test_patterns_of_grounds_lie_as_named() -> None:
    first, second = (200, 200, 200), (220, 210, 190)
    two = {
        ground: (pixels(Scene((), "plain", first, ground, second, 8)) == np.array(second)).all(-1)
        for ground in ("horizon", "stripes", "checks", "dots")
    }
    assert two["horizon"].mean(1).tolist() == [0.0] * 10 + [1.0] * 118
    assert two["stripes"].mean(1).tolist() == ([0.0] * 8 + [1.0] * 8) * 8
    assert two["checks"][:8].mean(0).tolist() == ([1.0] * 8 + [0.0] * 8) * 8
    assert 0.05 < two["dots"].mean() < 0.2
    slope = pixels(Scene((), "plain", first, "gradient", second))
    assert np.abs(slope[[0, -1], 9] - np.array([first, second])).max() <= 1


def test_held_out_pairs_appear_in_test_only() -> None:
    train = {(one.color, one.kind) for scene in scenes(1000) for one in scene.things}
    test = {(one.color, one.kind) for scene in scenes(1000, split="test") for one in scene.things}
    assert not train & HELD_OUT
    assert test >= HELD_OUT
    assert {color for color, _ in train} == set(COLORS)
    assert {kind for _, kind in train} == set(KINDS)


def test_a_picture_shows_each_thing_in_its_place() -> None:
    for scene in scenes(100, style="plain"):
        changed = np.abs(pixels(scene) - pixels(replace(scene, things=()))).sum(-1) > 60
        for one in scene.things:
            left, top, right, bottom = (round(edge) for edge in one.box)
            assert changed[top:bottom, left:right].mean() > 0.1, one
            changed[top:bottom, left:right] = False
        assert not changed.any()


def test_colors_look_like_their_names() -> None:
    shown = {
        color: pixels(Scene((Thing("square", color, "large", 64, 64, 18),), "plain", (204, 204, 204)))[64, 64]
        for color in COLORS
    }
    assert [int(shown[color].argmax()) for color in ("red", "green", "blue")] == [0, 1, 2]
    assert shown["white"].min() > 245 > 60 > shown["black"].max()
    assert shown["yellow"][:2].min() > 180 > 60 > shown["yellow"][2]


def test_a_box_is_drawn_like_the_corpus() -> None:
    things = (
        Thing("square", "yellow", "small", (0 + 5) * 1.28, (40 + 5) * 1.28, 6.4),
        Thing("circle", "blue", "large", (70 + 15) * 1.28, (70 + 15) * 1.28, 19.2),
    )
    shown = pixels(Scene(things, "box", (211, 211, 211)), 100)
    assert shown.shape == (100, 100, 3)
    assert shown[45, 0].tolist() == shown[49, 9].tolist() == [255, 255, 0]
    assert shown[45, 10].tolist() == shown[39, 5].tolist() == shown[71, 71].tolist() == [211, 211, 211]
    assert shown[85, 85].tolist() == [0, 153, 255]
    assert [one.walls for one in things] == [{"left"}, {"right", "bottom"}]
    assert things[0].touches("left wall") and things[1].touches("wall") and not things[0].touches("top")
    for drawn in scenes(100, style="box"):
        assert {(one.color, one.kind) for one in drawn.things} <= {(c, k) for c in BOX_COLORS for k in BOX_KINDS}


def test_towers_are_known_from_base_to_top() -> None:
    colors = ["black", "blue", "yellow"]
    blocks = tuple(
        Thing("square", color, "medium", 64, 115.2 - 26.88 * level, 12.8) for level, color in enumerate(colors)
    )
    tower = Scene(blocks, "box", (211, 211, 211))
    assert [block.color for block in tower.tower] == colors
    assert not replace(tower, things=tuple(replace(one, x=84.0) for one in blocks)).tower
    assert not replace(tower, style="plain").tower
    assert 0.3 < np.mean([bool(scene.tower) for scene in scenes(400, style="box")]) < 0.65


def test_plurals() -> None:
    assert {kind: plural(kind) for kind in KINDS if plural(kind) != kind + "s"} == {"fish": "fish", "cross": "crosses"}
