"""Batches of drawn scenes for training: pictures, texts to match, questions with captions, and where the things are."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from codevqa.mini.phrases import Phrase
from codevqa.mini.sampling import sample_scene
from codevqa.mini.world import CANVAS, COLORS, KINDS, MOST_THINGS, SIZES, Scene, Thing, draw_scene

from .captions import draw_captions
from .vision_texts import draw_contrast, draw_query, in_question, matching
from .vision_twins import crowd_scene, twin
from .vision_words import CLS, DEC, ENC, SEP, text_ids

Batch: TypeAlias = "dict[str, torch.Tensor]"

GRID = 16
PATCH = CANVAS // GRID
TEXT_LENGTH = 20
"""Tokens of a text to match, and of a caption with its prompt."""
PAIRS = 4
"""Matching texts a picture, and as many others."""
CAPTIONS = 2
"""Captions a picture of the patches chosen for a question; one more is of the whole picture."""
PATCHES = 20
"""Patches a caption sees."""
PROMPT = "a picture of "
TWINS = 3
"""Near-twins that a scene may bring into its batch."""
TWINNED = 0.15
"""Share of scenes that do: about a third of a batch is a scene with its twins."""
CROWDED = 0.12
"""Share of scenes in which many things are alike."""


def coverage(scene: Scene, places: list[int]) -> np.ndarray:
    """How much of each patch some of the things cover, (GRID, GRID), 0..1."""
    weights = np.zeros((GRID, GRID), dtype=np.float32)
    edges = np.arange(GRID + 1) * PATCH
    for place in places:
        left, top, right, bottom = scene.things[place].box
        across = (np.minimum(edges[1:], right) - np.maximum(edges[:-1], left)).clip(0) / PATCH
        down = (np.minimum(edges[1:], bottom) - np.maximum(edges[:-1], top)).clip(0) / PATCH
        weights = np.maximum(weights, down[:, None] * across[None, :])
    return weights


class Batches(IterableDataset):  # type: ignore[type-arg]
    """Endless batches; every worker draws its own."""

    def __init__(self, size: int, seed: int) -> None:
        self.size, self.seed, self.rng = size, seed, random.Random()

    def __iter__(self) -> Iterator[Batch]:
        info = get_worker_info()
        torch.set_num_threads(1)
        self.rng = random.Random(self.seed * 1000 + (info.id if info else 0))
        while True:
            yield self._batch()

    def _batch(self) -> Batch:
        """Draws as many pictures as a batch has; texts are padded with zeros."""
        size = self.size
        arrays: dict[str, np.ndarray] = {
            "pixels": np.zeros((size, CANVAS, CANVAS, 3), np.uint8),
            "itm": np.zeros((size, 2 * PAIRS, TEXT_LENGTH), np.int64),
            "match": np.zeros((size, 2 * PAIRS), np.int64),
            "query": np.zeros((size, TEXT_LENGTH), np.int64),
            "captions": np.zeros((size, CAPTIONS + 1, TEXT_LENGTH), np.int64),
            "coverage": np.zeros((size, GRID * GRID), np.float32),
            "contrast": np.zeros((size, TEXT_LENGTH), np.int64),
            "specs": np.full((size, 2, 3), -1, np.int64),
            "bounds": np.tile(np.array([0, 9], np.int64), (size, 2, 1)),
            "things": np.full((size, MOST_THINGS, 3), -2, np.int64),
        }
        row = 0
        while row < size:
            scene, *twins = self._scenes()
            self._fill(arrays, row, scene, twins)
            row += 1
            for other in twins[: size - row]:
                self._fill(arrays, row, other, (scene,))
                row += 1
        return {name: torch.from_numpy(array) for name, array in arrays.items()}

    def _scenes(self) -> list[Scene]:
        """A scene, now and then followed by some that differ from it by one change."""
        rng = self.rng
        chance = rng.random()
        if chance < CROWDED:
            scene = crowd_scene(rng, sample_scene(rng, min_things=3, max_things=8))
        else:
            scene = sample_scene(rng, max_things=6 if rng.random() < 0.6 else 8)
        if rng.random() > TWINNED:
            return [scene]
        return [scene, *(other for _ in range(TWINS) if (other := twin(rng, scene)) is not None)]

    def _fill(self, arrays: dict[str, np.ndarray], row: int, scene: Scene, twins: Sequence[Scene]) -> None:
        rng = self.rng
        arrays["pixels"][row] = np.asarray(draw_scene(scene))
        texts, labels = matching(rng, scene, PAIRS)
        for place, (text, label) in enumerate(zip(texts, labels, strict=True)):
            self._write_ids(arrays["itm"][row, place], ENC, text)
            arrays["match"][row, place] = int(label)
        # A question about things that are not there still shows some patches: the captions then speak of anything.
        question = texts[1] if rng.random() < 0.12 else draw_query(rng, scene)
        focus = in_question(scene, question)
        self._write_ids(arrays["query"][row], ENC, question)
        arrays["coverage"][row] = coverage(scene, focus).reshape(-1)
        descriptions = draw_captions(scene, rng, CAPTIONS, focus) + draw_captions(scene, rng, 1)
        for place, text in enumerate(descriptions):
            self._write_ids(arrays["captions"][row, place], DEC, PROMPT + text)
        pair = draw_contrast(rng, scene, twins)
        self._write_ids(arrays["contrast"][row], CLS, pair.text)
        for place, (what, bounds) in enumerate(zip(pair.things, pair.bounds, strict=True)):
            arrays["specs"][row, place] = _look_indices(what)
            arrays["bounds"][row, place] = bounds
        for place, thing in enumerate(scene.things):
            arrays["things"][row, place] = _look_indices(thing)

    def _write_ids(self, row: np.ndarray, first: int, text: str) -> None:
        ids = [first, *text_ids(text)[: TEXT_LENGTH - 2], SEP]
        row[: len(ids)] = ids


def _look_indices(what: Thing | Phrase) -> tuple[int, int, int]:
    """Kind, color and size by their places; -1 for any."""
    pairs = ((KINDS, what.kind), (COLORS, what.color), (SIZES, what.size))
    kind, color, size = (names.index(name) if name else -1 for names, name in pairs)
    return kind, color, size
