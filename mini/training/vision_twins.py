"""Scenes that differ from another by one change, and crowds of like things to count.

A near-twin is what contrast learns most from: a picture of which a phrase is false though all but one of its things are
there. Everything here can be drawn, unlike what :func:`.vision_texts.wrong` makes for texts alone.
"""

from __future__ import annotations

import random
from dataclasses import replace

from codevqa.mini.sampling import is_apart
from codevqa.mini.world import (
    BOX_COLORS,
    BOX_KINDS,
    BOX_SIDE,
    BOX_SIDES,
    CANVAS,
    COLORS,
    HELD_OUT,
    KINDS,
    MOST_THINGS,
    SCALE,
    Scene,
    Thing,
)

CHANGES = ("color", "kind", "count", "exchange")
"""What a twin may differ in: one thing's colour, its kind, one thing more or less, two things' colours exchanged."""


def twin(rng: random.Random, scene: Scene, *, train: bool = True) -> Scene | None:
    """The scene with one change; None when the change drawn is not possible, or if training leaves a pair out."""
    change = rng.choice(CHANGES)
    things = list(scene.things)
    place = rng.randrange(len(things))
    thing = things[place]
    colors, kinds = (BOX_COLORS, BOX_KINDS) if scene.style == "box" else (COLORS, KINDS)
    if change == "color":
        things[place] = replace(thing, color=rng.choice(colors))
    elif change == "kind" and not scene.tower:
        things[place] = replace(thing, kind=rng.choice(kinds))
    elif change == "exchange":
        other = rng.randrange(len(things))
        if things[other].kind == thing.kind and not scene.tower:
            return None
        things[place] = replace(thing, color=things[other].color)
        things[other] = replace(things[other], color=thing.color)
    elif change == "count":
        if len(things) > 1 and (len(things) >= MOST_THINGS or rng.random() < 0.5):
            things.remove(scene.tower[-1] if scene.tower else thing)
        else:
            more = _another(rng, scene, thing)
            if more is None:
                return None
            things.append(more)
    changed = tuple(things)
    if sorted(changed, key=repr) == sorted(scene.things, key=repr):
        return None
    if train and any((member.color, member.kind) in HELD_OUT for member in changed):
        return None
    return replace(scene, things=changed)


def _another(rng: random.Random, scene: Scene, thing: Thing) -> Thing | None:
    """One more of a thing at a free place."""
    if scene.tower:
        top = scene.tower[-1]
        return replace(top, y=top.y - 21 * SCALE) if len(scene.tower) < 4 else None
    box = scene.style == "box"
    radius = thing.radius
    for _ in range(12):
        if box:
            room = BOX_SIDE - BOX_SIDES[thing.size]
            x, y = (rng.randint(0, room) * SCALE + radius for _ in range(2))
            reach = radius + SCALE
            free = all(max(abs(x - other.x), abs(y - other.y)) >= reach + other.radius for other in scene.things)
        else:
            x, y = (float(rng.randint(round(radius), round(CANVAS - radius))) for _ in range(2))
            free = all(is_apart(x, y, radius, other) for other in scene.things)
        if free:
            return replace(thing, x=x, y=y)
    return None


def crowd_scene(rng: random.Random, scene: Scene) -> Scene:
    """The scene with two to all of its things alike in kind and mostly in colour, so that there is much to count."""
    if scene.tower or len(scene.things) < 3:
        return scene
    look = rng.choice(scene.things)
    alike = rng.sample(range(len(scene.things)), rng.randint(2, min(6, len(scene.things))))
    same_color = rng.random() < 0.7
    things = list(scene.things)
    for place in alike:
        thing = things[place]
        color = look.color if same_color or (thing.color, look.kind) in HELD_OUT else thing.color
        things[place] = replace(thing, kind=look.kind, color=color)
    return replace(scene, things=tuple(things))
