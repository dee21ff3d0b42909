"""What the GPU's encoders record once and replay, and what they do where nothing can be recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from blip_kit import BLOCK, PICTURES, TEXTS, apart, features_of, load, own_features
from tiny import noise_picture, write_blip

from codevqa.models.base import MatchRequest
from codevqa.models.blip import BlipMatcher
from codevqa.models.blip.gpu.text_encoder import GpuTextEncoder
from codevqa.models.blip.gpu.vision_encoder import GpuVisionEncoder
from codevqa.models.cuda_graphs import avoid_cudnn_attention, bucket, enabled


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_blip(tmp_path_factory.mktemp("blip") / "matcher", "matcher")


class Replayed:
    """A recording for tests without a GPU: it computes again on the tensors it holds, as a graph does."""

    made: list[int]

    def __init__(self, _: Any, function: Any, *inputs: torch.Tensor) -> None:
        self._function = function
        self.inputs = inputs
        Replayed.made.append(len(inputs[0]))

    def __call__(self) -> torch.Tensor:
        return self._function(*self.inputs)  # type: ignore[no-any-return]


def recording_tower(matcher: BlipMatcher) -> GpuVisionEncoder:
    """Gives a matcher the vision encoder of a GPU, which records."""
    encoder = matcher._vision._encoder = GpuVisionEncoder(matcher._at.model.vision_model, matcher._vision._reader)
    encoder._records = True
    return encoder


def recording_texts(matcher: BlipMatcher) -> GpuTextEncoder:
    """Gives a matcher the text encoder of a GPU, which records."""
    model = matcher._at.model
    encoder = matcher._text = GpuTextEncoder(model.text_encoder, model.itm_head, BLOCK, 1 + matcher.grid**2)
    encoder._records = True
    return encoder


def test_batches_are_replayed_at_a_few_sizes(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codevqa.models.blip.gpu.vision_encoder.Recorded", Replayed)
    monkeypatch.setattr(Replayed, "made", [], raising=False)
    pictures = [noise_picture(seed) for seed in range(19)]
    expected = load(folder)._vision.features(pictures)
    matcher = load(folder)
    assert recording_tower(matcher).rows == 16
    start = 0
    for rows in (3, 1, 4, 9, 2):
        for key, features in matcher._vision.features(pictures[start : start + rows]).items():
            torch.testing.assert_close(features, expected[key], rtol=0, atol=1e-5)
        start += rows
    assert Replayed.made == [4, 1, 16, 2] and matcher.stats.vision_forwards == 19


def test_where_nothing_can_be_recorded_the_work_goes_on(
    folder: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(*_: Any) -> Any:
        raise RuntimeError("CUDA error: operation not permitted when stream is capturing")

    monkeypatch.setattr("codevqa.models.blip.gpu.vision_encoder.Recorded", refused)
    matcher = load(folder)
    recording_tower(matcher)
    for pictures in (PICTURES[:1], PICTURES[1:3]):
        matcher._vision.features(pictures)
    assert apart(features_of(matcher, PICTURES), own_features(matcher, PICTURES)) < 1e-5
    assert len(caplog.records) == 1 and "not recorded as a CUDA graph" in caplog.text


@pytest.mark.parametrize(("value", "on"), [(None, True), ("", True), ("0", False), ("1", True)])
def test_recording_can_be_turned_off(value: str | None, on: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CODEVQA_CUDA_GRAPHS", raising=False)
    if value is not None:
        monkeypatch.setenv("CODEVQA_CUDA_GRAPHS", value)
    assert enabled(torch.device("cuda")) is enabled(torch.device("cuda", 1)) is on
    assert not enabled(torch.device("cpu"))


def test_a_gpu_attends_without_cudnn() -> None:
    allowed: Callable[[], bool] = torch.backends.cuda.cudnn_sdp_enabled
    before = allowed()
    try:
        torch.backends.cuda.enable_cudnn_sdp(True)
        avoid_cudnn_attention(torch.device("cpu"))
        assert allowed()
        avoid_cudnn_attention(torch.device("cuda"))
        assert not allowed()
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)


def test_the_tower_records_where_that_is_asked_for(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = load(folder)
    for on in (False, True):
        monkeypatch.setattr("codevqa.models.blip.gpu.vision_encoder.enabled", lambda _, on=on: on)
        assert GpuVisionEncoder(matcher._at.model.vision_model, matcher._vision._reader)._records is on


def test_buckets() -> None:
    assert [bucket(rows, (1, 2, 4, 8)) for rows in (1, 2, 3, 5, 8, 9)] == [1, 2, 4, 8, 8, None]


def test_gradcam_is_replayed_over_padding(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codevqa.models.blip.gpu.text_encoder.Recorded", Replayed)
    monkeypatch.setattr(Replayed, "made", [], raising=False)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)
    expected, matcher = load(folder), load(folder)
    assert (1 + matcher.grid**2) % 8  # there is padding after the patches
    encoder = recording_texts(matcher)
    # The second batch leaves rows, tokens and pictures of the first behind it.
    for pairs in ([(0, 0), (0, 1), (1, 2), (2, 0), (1, 1)], [(2, 1), (0, 2), (1, 0)], [(1, 0)] * 2 + [(0, 1)] * 3):
        requests = [MatchRequest(PICTURES[picture], TEXTS[text], TEXTS[text].split()[0]) for picture, text in pairs]
        for one, other in zip(matcher.match(requests), expected.match(requests), strict=True):
            np.testing.assert_allclose(one.relevance, other.relevance, rtol=1e-4, atol=1e-7)
            assert one.logit == pytest.approx(other.logit, abs=1e-4)
    assert 1 < len(Replayed.made) < 4 and matcher.stats.text_rows == 13
    encoder.release()
    assert not encoder._kept


def test_gradcam_that_cannot_be_recorded_is_launched(
    folder: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(*_: Any) -> Any:
        raise RuntimeError("CUDA error: operation not permitted when stream is capturing")

    monkeypatch.setattr("codevqa.models.blip.gpu.text_encoder.Recorded", refused)
    expected, matcher = load(folder), load(folder)
    recording_texts(matcher)
    request = MatchRequest(PICTURES[0], TEXTS[0])
    for _ in range(2):
        assert np.array_equal(matcher.match([request])[0].relevance, expected.match([request])[0].relevance)
    assert len(caplog.records) == 1 and "not recorded as a CUDA graph" in caplog.text
