"""BLIP's fast forward passes give transformers' numbers, from the pixels of a picture to GradCAM of every token."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from blip_kit import PICTURES, SHAPE, TEXTS, apart, features_of, load, own_features, requests_by_layout
from PIL import Image as PILImage
from tiny import GRID, noise_picture, write_blip

import codevqa
from codevqa.core.images import Picture, load_picture
from codevqa.models.base import Map, MatchRequest, SimilarityRequest
from codevqa.models.blip import BlipMatcher
from codevqa.models.blip import picture_input as blip_pictures
from codevqa.models.blip.fast.text_encoder import FastTextEncoder, PictureBatch
from codevqa.models.blip.picture_input import PictureReader

MINI = Path(codevqa.__file__).parent / "mini" / "weights" / "matcher"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_blip(tmp_path_factory.mktemp("blip") / "matcher", "matcher")


def photo(seed: int, width: int = 200, height: int = 150) -> Picture:
    noise = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return load_picture(PILImage.fromarray(noise))


# Pictures


@pytest.mark.parametrize("size", [(40, 30), (200, 150), (32, 32), (7, 300), (1, 1), (3, 3)])
def test_numbers_are_the_processors_bit_for_bit(folder: str, size: tuple[int, int]) -> None:
    matcher = load(folder)
    at = matcher._at
    pictures = [photo(seed, *size) for seed in range(3)]
    reader = PictureReader(at.processor, at.device, torch.float32)
    found = reader.normalise(reader.read(pictures)).permute(0, 3, 1, 2)
    # Arrays with the channels named, as the processor cannot tell them in a picture of three pixels.
    images = [np.asarray(picture.pixels) for picture in pictures]
    expected = at.processor(images=images, input_data_format="channels_last", return_tensors="pt")["pixel_values"]
    if min(size) > 3:
        assert torch.equal(found, expected)
    assert found.shape == (3, 3, 8 * GRID, 8 * GRID) and torch.isfinite(found).all()


def test_other_picture_settings_are_followed(folder: str) -> None:
    processor = load(folder)._at.processor
    processor.image_mean, processor.image_std, processor.rescale_factor = [0.1, 0.2, 0.3], [0.5, 0.6, 0.7], 1 / 128
    processor.resample = PILImage.Resampling.BILINEAR
    reader = PictureReader(processor, torch.device("cpu"), torch.float32)
    found = reader.normalise(reader.read([photo(0)])).permute(0, 3, 1, 2)
    assert torch.equal(found, processor(images=[photo(0).pixels], return_tensors="pt")["pixel_values"])


def test_a_picture_is_resized_once_for_both_towers(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blip_pictures, "_resized", blip_pictures._Resized(10**6))
    resized: list[str] = []
    guard = threading.Lock()
    resize = PILImage.Image.resize

    def counted(self: Any, *args: Any, **options: Any) -> Any:
        with guard:
            resized.append("")
        return resize(self, *args, **options)

    monkeypatch.setattr(PILImage.Image, "resize", counted)
    for matcher in (load(folder), load(folder)):
        matcher.similarity([SimilarityRequest(picture, "a dog") for picture in PICTURES])
        assert matcher.stats.vision_forwards == len(PICTURES)
    assert len(resized) == len(PICTURES)


def test_resized_pictures_keep_to_their_bytes() -> None:
    kept = blip_pictures._Resized(2 * 48)
    for name in "abc":
        kept.keep((name, 4, 0), np.zeros((4, 4, 3), np.uint8))
        kept.keep((name, 4, 0), np.zeros((4, 4, 3), np.uint8))
    assert [kept.get((name, 4, 0)) is not None for name in "abc"] == [False, True, True]
    assert kept.get(("a", 4, 0)) is None and kept._kept.currsize == 96


def test_pictures_are_resized_once_and_before_their_batch(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blip_pictures, "_resized", blip_pictures._Resized(2**20))
    resized: list[str] = []
    read: list[int] = []
    resize, reading = PictureReader._resize, PictureReader.read

    def counted(reader: PictureReader, picture: Picture) -> Any:
        resized.append(picture.key)
        return resize(reader, picture)

    def noted(reader: PictureReader, pictures: Any) -> torch.Tensor:
        blip_pictures.threads().submit(int).result()  # what was begun earlier has been begun
        read.append(len(resized) + len(blip_pictures._resized.underway))
        return reading(reader, pictures)

    monkeypatch.setattr(PictureReader, "_resize", counted)
    monkeypatch.setattr(PictureReader, "read", noted)
    pictures = [noise_picture(seed) for seed in range(40, 47)]
    load(folder, max_batch=2)._vision.features(pictures)
    assert sorted(resized) == sorted(picture.key for picture in pictures)
    assert len(read) == 4 and read[0] >= 7


# The vision tower


@pytest.mark.parametrize("fast", [True, False])
def test_features_are_those_of_transformers(folder: str, fast: bool) -> None:
    matcher = load(folder, fast=fast)
    for pictures in (PICTURES, [photo(7)]):
        assert apart(features_of(matcher, pictures), own_features(matcher, pictures)) < 1e-5


def test_features_of_the_mini_weights() -> None:
    pictures = [photo(seed) for seed in range(3)]
    assert apart(features_of(load(str(MINI)), pictures), features_of(load(str(MINI), fast=False), pictures)) < 1e-5


def relative(found: Any, expected: Any) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


@pytest.mark.slow
def test_features_in_bfloat16_are_as_near_as_transformers() -> None:
    pictures = [photo(seed) for seed in range(4)]
    expected = features_of(load(str(MINI), fast=False), pictures).numpy()
    ours, theirs = (
        relative(features_of(load(str(MINI), dtype="bfloat16", fast=fast), pictures).numpy(), expected)
        for fast in (True, False)
    )
    assert ours < 0.01 and ours < 1.2 * theirs


def test_the_network_is_left_as_it_was_loaded(folder: str) -> None:
    matcher = load(folder)
    before = own_features(matcher, PICTURES[:1])
    matcher.match([MatchRequest(PICTURES[0], "a dog")])
    assert torch.equal(before, own_features(matcher, PICTURES[:1]))
    assert type(matcher._at.model.vision_model.encoder.layers[0].self_attn).__name__ == "BlipAttention"


# Texts


@pytest.fixture(params=["as chosen", "absorbed", "projected"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param != "as chosen":
        monkeypatch.setattr(FastTextEncoder, "absorbs", lambda *_: request.param == "absorbed")
    yield request.param


def same_maps(fast: BlipMatcher, plain: BlipMatcher, requests: list[MatchRequest]) -> None:
    """Checks GradCAM of every token, and the logits; the plain one computes each text alone."""
    for request, (maps, logits) in zip(requests, fast.token_maps(requests), strict=True):
        ((expected, expected_logits),) = plain.token_maps([request])
        np.testing.assert_allclose(maps, expected, rtol=0, atol=2e-5 * expected.max())
        np.testing.assert_allclose(logits, expected_logits, rtol=0, atol=3e-5)


@pytest.mark.parametrize("layout", ["one each", "even", "uneven"])
@pytest.mark.parametrize("block", [0, 1, 2])
def test_gradcam_is_that_of_transformers(folder: str, way: str, layout: str, block: int) -> None:
    requests = requests_by_layout(layout)
    same_maps(load(folder, block=block), load(folder, block=block, fast=False), requests)


def test_gradcam_of_the_mini_weights(way: str) -> None:
    requests = [MatchRequest(photo(seed), text) for seed in range(2) for text in ("a red ball", "is there a green cat")]
    same_maps(load(str(MINI), block=2), load(str(MINI), block=2, fast=False), requests)


MINI_REQUESTS = [
    MatchRequest(photo(seed), text) for seed in range(4) for text in ("a red ball", "is there a green cat")
]


@pytest.fixture(scope="module")
def exact_maps() -> list[tuple[Map, Map]]:
    return load(str(MINI), block=2, fast=False).token_maps(MINI_REQUESTS)


@pytest.fixture(scope="module")
def plain_error(exact_maps: list[tuple[Map, Map]]) -> float:
    """How far transformers' own GradCAM in bfloat16 is from that in float32."""
    plain = load(str(MINI), block=2, dtype="bfloat16", fast=False).token_maps(MINI_REQUESTS)
    return float(np.mean([relative(found[0], one[0]) for found, one in zip(plain, exact_maps, strict=True)]))


@pytest.mark.slow
def test_gradcam_in_bfloat16_is_as_near_as_transformers(
    way: str, exact_maps: list[tuple[Map, Map]], plain_error: float
) -> None:
    ours = []
    found = load(str(MINI), block=2, dtype="bfloat16").token_maps(MINI_REQUESTS)
    for (maps, logits), (expected, expected_logits) in zip(found, exact_maps, strict=True):
        ours.append(relative(maps, expected))
        np.testing.assert_allclose(logits, expected_logits, rtol=0, atol=0.06)
    assert max(ours) < 0.04 and np.mean(ours) < 1.3 * plain_error


@pytest.mark.parametrize("fast", [True, False])
def test_similarity_is_that_of_transformers(folder: str, fast: bool) -> None:
    matcher = load(folder, fast=fast)
    at = matcher._at
    found = matcher.similarity([SimilarityRequest(picture, text) for picture in PICTURES for text in TEXTS])
    with torch.no_grad():
        cls = at.model.vision_proj(own_features(matcher, PICTURES)[:, 0])
        texts = []
        for text in TEXTS:
            encoded = at.tokenizer(text, return_tensors="pt")
            hidden = at.model.text_encoder(**{k: encoded[k] for k in ("input_ids", "attention_mask")}).last_hidden_state
            texts.append(at.model.text_proj(hidden[0, 0]))
    expected = torch.nn.functional.cosine_similarity(cls[:, None], torch.stack(texts)[None], dim=-1)
    assert found == pytest.approx(expected.flatten().tolist(), abs=1e-5)


def test_relevance_is_averaged_alike(folder: str) -> None:
    requests = requests_by_layout("uneven")
    fast, plain = load(folder).match(requests), load(folder, fast=False).match(requests)
    for one, other in zip(fast, plain, strict=True):
        np.testing.assert_allclose(one.relevance, other.relevance, rtol=1e-4, atol=1e-7)
        assert one.logit == pytest.approx(other.logit, abs=3e-5)


def test_few_texts_project_their_queries_and_many_the_patches(folder: str) -> None:
    encoder = load(folder)._text
    assert isinstance(encoder, FastTextEncoder)
    features = torch.zeros(2, *SHAPE)
    assert encoder.absorbs(PictureBatch(list(features), [0, 1]), 6)
    assert not encoder.absorbs(PictureBatch(list(features), [0] * 20 + [1] * 20), 6)


def test_pictures_are_copied_only_where_texts_are_uneven() -> None:
    features = [torch.full((3, 2), float(picture)) for picture in range(2)]
    even, uneven = PictureBatch(features, [0, 0, 1, 1]), PictureBatch(features, [0, 1, 1])
    assert even.texts_each == 2 and even.rows() is even.features
    assert uneven.texts_each == 1 and uneven.rows()[:, 0, 0].tolist() == [0, 1, 1]
    assert PictureBatch(features, [1, 0]).rows()[:, 0, 0].tolist() == [1, 0]


def test_only_what_is_asked_for_is_computed(folder: str) -> None:
    matcher = load(folder)
    seen: dict[int, tuple[bool, int]] = {}
    for index, layer in enumerate(matcher._at.model.text_encoder.encoder.layer):

        def note(_: Any, __: Any, output: torch.Tensor, index: int = index) -> None:
            seen[index] = output.requires_grad, output.shape[1]

        layer.output.dense.register_forward_hook(note)
    matcher.match([MatchRequest(PICTURES[0], "a dog")])
    # Gradients from GradCAM's block on; of the last block, the first of [ENC] a dog [SEP] alone.
    assert seen == {0: (False, 4), 1: (True, 4), 2: (True, 1)}
    matcher.similarity([SimilarityRequest(PICTURES[0], "a dog")])
    assert seen == {0: (False, 4), 1: (False, 4), 2: (False, 1)}
