"""The benchmarks' reference computes what the library computes: maps, captions, answers; and wastes what it should."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from codevqa import Answer, CodeVQA, Question
from codevqa.core.images import Picture, load_picture
from codevqa.miniworld.questions import sample_question, sample_set
from codevqa.miniworld.world import draw, sample_scene
from codevqa.models.base import CaptionRequest, MatchRequest
from codevqa.primitives.patches import Patches

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))
import reference

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        torch.cuda.is_available(), reason="compares to the last digits; on a GPU the library computes in bfloat16"
    ),
]

TEXTS = ["What color is the star", "Is there a red bell to the left of the cat", "fish"]


@pytest.fixture(scope="module")
def models() -> Iterator[reference.Release]:
    with reference.from_preset("mini", numbers=reference.Numbers(drawn=12)) as release:
        yield release


@pytest.fixture
def release(models: reference.Release) -> reference.Release:
    """The release's own sampling; tests that couple it to the library's seeds say so."""
    models.seeds = None
    models.counts = type(models.counts)()
    return models


def picture(number: int) -> Picture:
    return load_picture(draw(sample_scene(random.Random(f"reference {number}"), split="test")))


@pytest.mark.parametrize("text", TEXTS)
def test_gradcam_and_itm_are_those_of_the_fast_path(mini: CodeVQA, release: reference.Release, text: str) -> None:
    for number in range(3):
        shown = picture(number)
        maps, logits = release.gradcam(shown, text)
        matcher: Any = mini.models.matcher
        ((ours, our_logits),) = matcher.token_maps([MatchRequest(shown, text)])
        assert maps.shape == ours.shape
        assert np.linalg.norm(ours - maps.numpy()) < 1e-4 * np.linalg.norm(maps.numpy())
        assert np.abs(logits.numpy() - our_logits).max() < 1e-3
        read = matcher.match([MatchRequest(shown, text)])[0].relevance
        wanted = release.relevance(shown, text).numpy()
        assert np.linalg.norm(read - wanted) < 1e-4 * np.linalg.norm(wanted)


def test_equal_seeds_give_equal_captions(mini: CodeVQA, release: reference.Release) -> None:
    release.seeds = reference.engine_seeds(mini.settings.seed)
    for number, text in enumerate(TEXTS):
        shown = picture(number)
        relevance = release.relevance(shown, text)
        assert release.captions(shown, relevance, text) == caption(mini, shown, relevance, text, 12)


def caption(mini: CodeVQA, shown: Picture, relevance: torch.Tensor, text: str, count: int) -> list[str]:
    seeds = [reference.engine_seeds(mini.settings.seed)(shown.key, text, place) for place in range(count)]
    patches = [Patches(relevance.numpy(), 20).draw(seed) for seed in seeds]
    requests = [CaptionRequest(shown, chosen, seed) for chosen, seed in zip(patches, seeds, strict=True)]
    captioner = mini.models.captioner
    assert captioner is not None
    return list(captioner.caption(requests))


def test_the_captions_read_are_the_first_that_differ(mini: CodeVQA, release: reference.Release) -> None:
    release.seeds = reference.engine_seeds(mini.settings.seed)
    for number in range(3):
        shown, question = picture(number), f"{TEXTS[number]}?"
        theirs = release.query([shown], question, "image", "image")
        (evidence,) = mini.ask(shown, question, method="pnpvqa").trace.baseline
        assert theirs.captions == evidence.captions
        assert theirs.text == evidence.completion.strip().lower()


def test_answers_are_the_same(mini: CodeVQA, release: reference.Release) -> None:
    release.seeds = reference.engine_seeds(mini.settings.seed)
    asked: list[Question] = []
    shown = []
    for number in range(24):
        rng = random.Random(f"answers {number}")
        scenes = [sample_scene(rng, split="test")] if number % 3 else sample_set(rng, split="test")
        item = sample_question(rng, scenes if number % 3 == 0 else scenes[0])
        shown.append([draw(scene) for scene in scenes])
        asked.append(Question(shown[-1], item.question, None if number % 3 else "set"))
    answers: list[Answer] = mini.ask_many(asked)
    theirs = [release.ask(pictures, one.text, form=one.form) for pictures, one in zip(shown, asked, strict=True)]
    pairs = [(answer.question, answer.text, other) for answer, other in zip(answers, theirs, strict=True)]
    differing = [one for one in pairs if one[1] != one[2]]
    assert not differing
    assert len({answer.text for answer in answers}) > 4
    assert {call.name for answer in answers for call in answer.trace.calls} >= {"query", "get_pos"}
