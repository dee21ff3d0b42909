"""Sets of drawn scenes that have something to do with one another."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from .sampling import sample_scene
from .world import COLORS, HELD_OUT, Scene, Thing


def sample_set(
    rng: random.Random,
    *,
    style: Literal["plain", "box"] | None = None,
    size: int | None = None,
    split: Literal["train", "test"] = "train",
) -> list[Scene]:
    """Draws scenes that have something to do with one another: later ones often show looks of earlier ones.

    Args:
        rng: Where the chance comes from.
        style: "plain" or "box"; None takes either. Sets of boxes are all towers or all scattered.
        size: How many; None takes one to five, or three boxes.
        split: As for ``sample_scene``.
    """
    style = style or rng.choice(("plain", "box"))
    count = size or (3 if style == "box" else rng.choice((1, 2, 2, 2, 3, 3, 4, 5)))
    towers = rng.random() < 0.5
    scenes: list[Scene] = []
    while len(scenes) < count:
        most = 8 if style == "plain" or rng.random() < 0.3 else 6
        scene = sample_scene(rng, style=style, max_things=most, split=split)
        if style == "box" and bool(scene.tower) != towers:
            continue
        looks = [(thing.color, thing.kind) for earlier in scenes for thing in earlier.things]
        if style == "plain" and looks:
            scene = like(rng, scene, looks, 0.5, split)
        scenes.append(scene)
    if style == "plain" and rng.random() < 0.15:
        scenes[1:] = [_with_kinds_of(rng, scenes[0], scene, split) for scene in scenes[1:]]
    return scenes


def like(
    rng: random.Random, scene: Scene, looks: Sequence[tuple[str, str]], chance: float, split: Literal["train", "test"]
) -> Scene:
    """Gives some things of a scene the looks of others, or nearly."""

    def again(thing: Thing) -> Thing:
        if rng.random() > chance:
            return thing
        color, kind = rng.choice(looks)
        color = color if rng.random() < 0.65 else rng.choice(COLORS)
        return thing if split == "train" and (color, kind) in HELD_OUT else replace(thing, color=color, kind=kind)

    return replace(scene, things=tuple(map(again, scene.things)))


def _with_kinds_of(rng: random.Random, first: Scene, scene: Scene, split: Literal["train", "test"]) -> Scene:
    """Lets a scene show one or two kinds of another, each once, often in the same color."""
    things = list(scene.things)
    for place, thing in enumerate(first.things[:2]):
        if place >= len(things) or any(thing.kind == other.kind for other in things):
            continue
        color = thing.color if rng.random() < 0.7 else rng.choice(COLORS)
        if split == "test" or (color, thing.kind) not in HELD_OUT:
            things[place] = replace(things[place], color=color, kind=thing.kind)
    return replace(scene, things=tuple(things))
