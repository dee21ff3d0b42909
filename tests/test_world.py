"""The small drawn world: scenes are what they say, and pictures show them."""

from __future__ import annotations

import hashlib
import random
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from codevqa.miniworld.world import (
    CANVAS,
    COLORS,
    GAP,
    HELD_OUT,
    KINDS,
    RADII,
    Scene,
    draw,
    sample_scene,
)


def scenes(count: int, **settings: object) -> list[Scene]:
    rng = random.Random(7)
    return [sample_scene(rng, **settings) for _ in range(count)]  # type: ignore[arg-type]


def pixels(scene: Scene, size: int = CANVAS) -> npt.NDArray[np.int64]:
    return np.asarray(draw(scene, size), dtype=np.int64)


def test_kinds_and_their_held_out_pairs_stay() -> None:
    # The shipped weights know kinds by their place and were trained without these pairs.
    assert hashlib.sha256(repr((KINDS, sorted(HELD_OUT))).encode()).hexdigest()[:16] == "614e6ef3a922a5fc"
    assert 0.08 < len(HELD_OUT) / len(KINDS) / len(COLORS) < 0.12


@pytest.mark.parametrize(("style", "fewest"), [("plain", 7), ("box", 1)])
def test_things_stay_inside_and_apart(style: str, fewest: int) -> None:
    for scene in scenes(200, style=style, min_things=fewest, max_things=8):
        for place, one in enumerate(scene.things):
            assert min(one.box) >= -1e-6 and max(one.box) <= CANVAS + 1e-6
            assert style == "box" or one.radius == RADII[one.size]
            for other in scene.things[:place]:
                apart = sorted((abs(one.x - other.x), abs(one.y - other.y)))
                assert apart[1] > one.radius + other.radius - 1e-6, (one, other)
                assert style == "box" or apart[0] >= GAP


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
