"""What no fast forward pass fits goes through transformers' own, and says why."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny import noise_picture, write_blip
from transformers import BlipForConditionalGeneration, BlipForImageTextRetrieval

from codevqa.models.base import CaptionRequest, MatchRequest, SimilarityRequest
from codevqa.models.blip import BlipCaptioner, BlipMatcher
from codevqa.models.blip.checkpoint import Checkpoint, load_checkpoint
from codevqa.models.blip.plain import PlainCaptionDecoder, PlainTextEncoder, PlainVisionEncoder

PICTURES = [noise_picture(seed) for seed in range(2)]
MATCHES = [MatchRequest(PICTURES[row % 2], text) for row, text in enumerate(("a dog", "two cats in the park", "red"))]
CAPTIONS = [CaptionRequest(PICTURES[seed % 2], (0, 5, 9)[: 1 + seed % 3], seed) for seed in range(12)]


class Doubled(torch.nn.Module):
    """Does twice what a module does, under other names."""

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        found = self.inner(*args, **kwargs)
        return (2 * found[0], *found[1:]) if isinstance(found, tuple) else 2 * found


def matching(folder: Path) -> Checkpoint:
    return load_checkpoint(write_blip(folder, "matcher"), BlipForImageTextRetrieval, device="cpu", dtype=None)


def captioning(folder: Path) -> Checkpoint:
    return load_checkpoint(write_blip(folder, "captioner"), BlipForConditionalGeneration, device="cpu", dtype=None)


def change(block: Any, how: str) -> None:
    """Makes another architecture of a block: one that computes something else, or that has other names."""
    if how == "other numbers":
        block.output.dropout = Doubled(block.output.dropout)  # which a fast pass leaves out
    else:
        block.attention.self = Doubled(block.attention.self)


def says_why(caplog: pytest.LogCaptureFixture, what: str, how: str) -> bool:
    (record,) = caplog.records
    reason = "of the norm away" if how == "other numbers" else "AttributeError: 'Doubled' object has no attribute"
    return record.getMessage().startswith(what) and reason in record.getMessage()


HOW = pytest.mark.parametrize("how", ["other numbers", "other names"])


@HOW
def test_a_text_encoder_that_no_fast_pass_fits(tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture) -> None:
    at = matching(tmp_path)
    before = [match.logit for match in BlipMatcher(at, block=1).match(MATCHES)]
    change(at.model.text_encoder.encoder.layer[1], how)
    assert not caplog.records
    matcher = BlipMatcher(at, block=1)
    assert says_why(caplog, "The text encoder of", how)
    assert isinstance(matcher._text, PlainTextEncoder) and not isinstance(matcher._vision._encoder, PlainVisionEncoder)
    found, expected = matcher.match(MATCHES), BlipMatcher(at, block=1, fast=False).match(MATCHES)
    for one, other, earlier in zip(found, expected, before, strict=True):
        np.testing.assert_allclose(one.relevance, other.relevance, rtol=1e-4, atol=1e-7)
        assert one.logit == pytest.approx(other.logit, abs=1e-5) != pytest.approx(earlier, abs=1e-3)
    assert len(caplog.records) == 1  # being plain when asked for needs no words


@HOW
def test_a_vision_tower_that_no_fast_pass_fits(tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture) -> None:
    at = matching(tmp_path)
    asked = [SimilarityRequest(picture, "a dog") for picture in PICTURES]
    before = BlipMatcher(at, block=1).similarity(asked)
    block = at.model.vision_model.encoder.layers[1]
    if how == "other numbers":
        block.self_attn.dropout = Doubled(block.self_attn.dropout)
    else:
        block.self_attn = Doubled(block.self_attn)
    matcher = BlipMatcher(at, block=1)
    assert says_why(caplog, "The vision tower of", how)
    assert isinstance(matcher._vision._encoder, PlainVisionEncoder) and not isinstance(matcher._text, PlainTextEncoder)
    found, expected = matcher.similarity(asked), BlipMatcher(at, block=1, fast=False).similarity(asked)
    assert found == pytest.approx(expected, abs=1e-5) and found != pytest.approx(before, abs=1e-4)


@HOW
def test_a_caption_decoder_that_no_fast_pass_fits(tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture) -> None:
    at = captioning(tmp_path)
    before = BlipCaptioner(at).token_ids(CAPTIONS)
    assert before == BlipCaptioner(at, fast=False).token_ids(CAPTIONS)
    change(at.model.text_decoder.bert.encoder.layer[1], how)
    captioner = BlipCaptioner(at)
    assert says_why(caplog, "The caption decoder of", how)
    assert isinstance(captioner._decoder, PlainCaptionDecoder)
    assert captioner.token_ids(CAPTIONS) == BlipCaptioner(at, fast=False).token_ids(CAPTIONS) != before


def test_numbers_that_are_none_are_not_near(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    at = captioning(tmp_path)
    with torch.no_grad():
        at.model.text_decoder.bert.encoder.layer[0].output.dense.bias[0] = torch.nan
    assert isinstance(BlipCaptioner(at)._decoder, PlainCaptionDecoder)
    assert "nan of the norm away" in caplog.text


def test_rounding_in_half_precision_is_taken_for_another_arithmetic(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    at = matching(tmp_path)
    with torch.no_grad():
        for weight in at.model.parameters():
            weight *= 5  # far from what training gives: 16 bits are off by as much as the numbers themselves
    half = dataclasses.replace(at, model=at.model.bfloat16(), dtype=torch.bfloat16)
    matcher = BlipMatcher(half, block=1)
    assert not caplog.records
    assert not isinstance(matcher._text, PlainTextEncoder)
    assert not isinstance(matcher._vision._encoder, PlainVisionEncoder)


def test_a_network_that_does_not_fit_in_memory_is_not_tried_another_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def starved(*_: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    at = captioning(tmp_path)
    monkeypatch.setattr("codevqa.models.blip.choice.FastCaptionDecoder", starved)
    with pytest.raises(torch.OutOfMemoryError):
        BlipCaptioner(at)


def test_options_that_there_are_not(tmp_path: Path) -> None:
    folder = write_blip(tmp_path, "captioner")
    with pytest.raises(TypeError, match="blok"):
        BlipCaptioner.from_pretrained(folder, device="cpu", blok=3)  # type: ignore[call-arg]
