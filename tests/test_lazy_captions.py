"""Captions drawn only until enough differ have the distribution of the first few distinct ones of a hundred.

The paper's release draws a hundred captions of a picture, drops each that is contained in one already kept, and reads
the first few that are left. Here that is done once more by its definition, with random numbers of its own, beside what
the library draws; a permutation test compares the two. The same test tells every wrong rule from the right one.
"""

from __future__ import annotations

import asyncio
import dataclasses
import zlib
from collections import Counter
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pytest
import torch
from PIL import Image

from codevqa import Models, QuerySettings
from codevqa.batching.model_services import ModelServices
from codevqa.core.images import load_picture
from codevqa.core.trace import ImageRef
from codevqa.models.base import CaptionRequest
from codevqa.models.fakes import FakeCaptioner, FakeMatcher, ScriptedLM
from codevqa.primitives.pnpvqa import PnPVQA
from codevqa.prompts import load as load_prompts

Kept: TypeAlias = "tuple[str, ...]"

RUNS = 1500
DRAWN = 100
READ = 3
PATCHES = 2
PICTURE = load_picture(Image.new("RGB", (8, 8), "red"))
RELEVANCE = np.array([[0.5, 0.1, 0.0], [0.2, 0.05, 0.1], [0.0, 0.03, 0.02]], np.float32)

# What a caption says when its first patch is even, or odd, and how often. Some are contained in others; some are empty.
SAID = ("a dog", "dog", "a dog on a mat", "mat", "a cat", "a bird", "")
SHARES = ((0.3, 0.25, 0.05, 0.15, 0.1, 0.1, 0.05), (0.1, 0.1, 0.25, 0.25, 0.1, 0.1, 0.1))
BELOW = np.cumsum(SHARES, axis=1)[:, :-1]


def say(patches: Sequence[int], number: float) -> str:
    """The synthetic captioner: a caption that depends on the patches and one random number."""
    return SAID[int(BELOW[min(patches) % 2].searchsorted(number, side="right"))]


def drawn_by_the_library(runs: int = RUNS, draws: int = DRAWN) -> list[Kept]:
    """Captions of many runs, each with a seed of its own."""

    def caption(request: CaptionRequest) -> str:
        assert request.patches is not None and request.seed is not None
        # Not the generator that the patches were drawn with.
        return say(request.patches, np.random.default_rng([request.seed, 1]).random())

    async def main() -> list[Kept]:
        reader = ScriptedLM("x")
        models = Models(reader, FakeMatcher(3, relevance=RELEVANCE), FakeCaptioner(caption, grid=3))
        services = ModelServices(models, reader, max_batch=4096, max_wait=0.001)
        bank = dataclasses.replace(load_prompts("gqa"), captions=READ, caption_draws=draws, reading_shots=0)
        method = PnPVQA(services, {"image": bank}, QuerySettings(patches=PATCHES), None, 0)
        question = [(ImageRef(1), PICTURE)]
        try:
            read = await asyncio.gather(
                *(method.with_seed(seed).answer(question, "What?", "image", "image") for seed in range(runs))
            )
        finally:
            services.close()
        return [one.evidence[-1].captions[0] for one in read]

    return asyncio.run(main())


def a_hundred(seed: int, relevance: np.ndarray = RELEVANCE) -> list[Kept]:
    """A hundred captions in each run, of patches drawn by torch's multinomial."""
    generator = torch.Generator().manual_seed(seed)
    shares = torch.from_numpy(relevance).flatten().expand(RUNS * DRAWN, -1)
    patches = torch.multinomial(shares, PATCHES, generator=generator).tolist()
    numbers = np.random.default_rng(seed).random(RUNS * DRAWN).tolist()
    said = list(map(say, patches, numbers))
    return [tuple(said[start : start + DRAWN]) for start in range(0, len(said), DRAWN)]


def release(captions: Sequence[str], read: int) -> Kept:
    kept: list[str] = []
    for caption in captions:
        if caption and not any(caption in other for other in kept):
            kept.append(caption)
    return tuple(kept[:read])


def p_value(one: Sequence[Kept], other: Sequence[Kept], permutations: int = 2000) -> float:
    """The share of random relabelings of two samples whose chi-square is at least theirs: small where they differ."""
    common = [kept for kept, count in Counter([*one, *other]).items() if count >= 10]
    places = {kept: place for place, kept in enumerate(common)}
    labels = np.array([places.get(kept, len(common)) for kept in [*one, *other]])
    size = len(common) + 1
    total = np.bincount(labels, minlength=size)
    there = total > 0
    expected = total[there] * len(one) / len(labels)
    rng = np.random.default_rng(zlib.crc32(b"permutations"))

    def statistic(sample: np.ndarray) -> float:
        found = np.bincount(sample, minlength=size)[there]
        return float(((found - expected) ** 2 / expected).sum())

    observed = statistic(labels[: len(one)])
    beyond = sum(statistic(rng.permutation(labels)[: len(one)]) >= observed for _ in range(permutations))
    return (1 + beyond) / (1 + permutations)


@pytest.fixture(scope="module")
def library() -> list[Kept]:
    return drawn_by_the_library()


@pytest.fixture(scope="module")
def hundreds() -> list[Kept]:
    return a_hundred(0)


def test_the_same_distribution_as_drawing_a_hundred(library: list[Kept], hundreds: list[Kept]) -> None:
    assert len(set(library)) > 40
    assert p_value(library, [release(captions, READ) for captions in hundreds]) > 0.01
    assert p_value(library, [release(captions, READ) for captions in a_hundred(1)]) > 0.01


def test_no_more_are_drawn_than_the_bound_says(hundreds: list[Kept]) -> None:
    few = drawn_by_the_library(runs=400, draws=READ)
    assert min(map(len, few)) < READ
    assert p_value(few, [release(captions[:READ], READ) for captions in hundreds[:400]]) > 0.01
