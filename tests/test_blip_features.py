"""BLIP's features are computed once and kept, and batches are bounded by the memory there is."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from blip_kit import PICTURES, TEXTS, load, requests_by_layout
from tiny import GRID, write_blip

from codevqa.core.errors import ModelError
from codevqa.models.base import MatchRequest, SimilarityRequest
from codevqa.models.blip.batches import rows_that_fit
from codevqa.models.blip.fast.text_encoder import FastTextEncoder
from codevqa.models.blip.fast.vision_encoder import FastVisionEncoder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_blip(tmp_path_factory.mktemp("blip") / "matcher", "matcher")


# Counts


def test_each_picture_goes_through_the_tower_once(folder: str) -> None:
    matcher = load(folder)
    for _ in range(2):
        matcher.match([MatchRequest(picture, text) for picture in PICTURES for text in TEXTS])
        matcher.similarity([SimilarityRequest(picture, text) for picture in PICTURES for text in TEXTS])
    stats = matcher.stats
    assert (stats.vision_forwards, stats.vision_batches) == (5, 1)
    assert (stats.text_rows, stats.text_batches) == (2 * (25 + 5), 4)


def test_pairs_go_in_batches_of_the_size_given(folder: str) -> None:
    matcher = load(folder, max_batch=2)
    matcher.match([MatchRequest(PICTURES[0], text) for text in TEXTS])
    assert matcher.stats.text_batches == 3
    matcher.similarity([SimilarityRequest(PICTURES[0], text) for text in TEXTS])
    assert (matcher.stats.text_batches, matcher.stats.text_rows) == (6, 10)


# Memory


def starve(monkeypatch: pytest.MonkeyPatch, most: int) -> list[int]:
    """Lets the vision tower run out of memory with more than so many pictures; returns the batches it saw."""
    forward = FastVisionEncoder.forward
    batches: list[int] = []

    def limited(self: FastVisionEncoder, pixels: torch.Tensor) -> torch.Tensor:
        batches.append(len(pixels))
        if len(pixels) > most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB.")
        return forward(self, pixels)

    monkeypatch.setattr(FastVisionEncoder, "forward", limited)
    return batches


def test_running_out_of_memory_halves_the_batch(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = load(folder)._vision.features(PICTURES)
    batches = starve(monkeypatch, 2)
    matcher = load(folder, max_batch=5)
    found = matcher._vision.features(PICTURES)
    assert batches == [5, 2, 2, 1]
    for key, features in found.items():
        torch.testing.assert_close(features, expected[key], rtol=0, atol=1e-5)
    assert (matcher.stats.vision_forwards, matcher.stats.vision_batches) == (5, 3)


def test_a_picture_that_does_not_fit_alone_is_a_model_error(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = starve(monkeypatch, 0)
    with pytest.raises(ModelError, match="out of memory on a single row"):
        load(folder).match([MatchRequest(picture, "a dog") for picture in PICTURES[:4]])
    assert batches[-1] == 1


def test_texts_that_run_out_of_memory_halve_too(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gradcam = FastTextEncoder.gradcam
    rows: list[int] = []

    def limited(self: FastTextEncoder, ids: torch.Tensor, *others: Any) -> Any:
        rows.append(len(ids))
        if len(ids) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return gradcam(self, ids, *others)

    requests = requests_by_layout("uneven")
    expected = load(folder).match(requests)
    matcher = load(folder)
    monkeypatch.setattr(FastTextEncoder, "gradcam", limited)
    for one, other in zip(expected, matcher.match(requests), strict=True):
        assert one.logit == pytest.approx(other.logit, abs=3e-5)
    assert rows == [7, 3, 1, 1, 1, 1, 1, 1, 1]
    assert matcher.stats.vision_forwards == len({request.picture.key for request in requests})


def test_batches_are_chosen_by_free_memory(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = torch.device("cpu")
    free = rows_that_fit(cpu, 1, 2**60)
    assert 2**20 < free < 2**50  # half of what the machine has
    matcher = load(folder)
    picture, pair = matcher._vision._encoder.row_bytes(), matcher._text.row_bytes(1 + GRID**2, 35)
    assert picture == (1 + GRID**2) * (6 * 32 + 2 * 64) * 4 and pair > 0
    for budget, expected in ((10**12, [5]), (2 * 2 * picture, [2, 2, 1]), (0, [1] * 5)):
        monkeypatch.setattr("codevqa.models.blip.batches._free_bytes", lambda _, budget=budget: budget)
        with monkeypatch.context() as patch:
            batches = starve(patch, 99)
            load(folder)._vision.features(PICTURES)
        assert batches == expected
