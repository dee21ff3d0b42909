"""Draws a question about a scene or a set of scenes, from all families of questions.

Questions about one picture are in ``questions_image``, ``questions_space`` and ``questions_logic``, about several in
``questions_set``, statements about boxes of blocks in ``statements``.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeVar

from . import questions_image, questions_set, statements
from .questions import Item, SetFamily
from .world import Scene

__all__ = ["families", "sample_question"]

Subject = TypeVar("Subject")


def families(form: Literal["image", "set"]) -> tuple[str, ...]:
    """Returns the names of the families of one form."""
    if form == "image":
        return tuple(questions_image.FAMILIES)
    return (*questions_set.FAMILIES, *statements.FAMILIES)


def sample_question(rng: random.Random, scene_or_scenes: Scene | Sequence[Scene], kind: str | None = None) -> Item:
    """Asks something about a scene, or about a set of scenes.

    Args:
        rng: Where the chance comes from; the same state gives the same question.
        scene_or_scenes: One scene, or a list of one to five.
        kind: Name of a family; None takes any that fits. Sets of boxes are mostly asked in statements.

    Raises:
        LookupError: no such family, or it has no question about this scene.
    """
    if isinstance(scene_or_scenes, Scene):
        return _draw(rng, questions_image.FAMILIES, scene_or_scenes, kind)
    scenes = list(scene_or_scenes)
    boxes = all(scene.style == "box" for scene in scenes)
    pools: Mapping[str, tuple[float, SetFamily]] = {**questions_set.FAMILIES, **statements.FAMILIES}
    if kind is None:
        pools = statements.FAMILIES if boxes and rng.random() < 0.8 else questions_set.FAMILIES
    return _draw(rng, pools, scenes, kind)


def _draw(
    rng: random.Random,
    pool: Mapping[str, tuple[float, Callable[[random.Random, Subject], Item | None]]],
    subject: Subject,
    kind: str | None,
) -> Item:
    if kind is not None and kind not in pool:
        raise LookupError(f"no question family {kind!r}; there are {', '.join(pool)}")
    names = list(pool) if kind is None else [kind]
    weights = [pool[name][0] for name in names]
    for _ in range(200):
        name = rng.choices(names, weights)[0]
        made = pool[name][1](rng, subject)
        if made is not None:
            return made
    raise LookupError(f"no question of family {kind!r} fits this scene")
