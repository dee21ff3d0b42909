"""BLIP's fast forward passes give transformers' numbers; features are kept, on disk too, and batches are bounded."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image as PILImage
from safetensors.torch import load_file
from tiny import GRID, noise_picture, write_blip

import codevqa
from codevqa.core.errors import ModelError, SetupError
from codevqa.core.images import Picture, load_picture
from codevqa.models.base import Map, MatchRequest, SimilarityRequest
from codevqa.models.blip import BlipMatcher
from codevqa.models.blip import picture_input as blip_pictures
from codevqa.models.blip.batches import rows_that_fit
from codevqa.models.blip.fast.text_encoder import FastTextEncoder, PictureBatch
from codevqa.models.blip.fast.vision_encoder import FastVisionEncoder
from codevqa.models.blip.feature_store import FeatureStore, fingerprint
from codevqa.models.blip.gpu.text_encoder import GpuTextEncoder
from codevqa.models.blip.gpu.vision_encoder import GpuVisionEncoder
from codevqa.models.blip.picture_input import PictureReader
from codevqa.models.blip.vision_tower import BlipStats, VisionTower
from codevqa.models.cuda_graphs import avoid_cudnn_attention, bucket, enabled

MINI = Path(codevqa.__file__).parent / "mini" / "weights" / "matcher"
BLOCK = 1
PICTURES = [noise_picture(seed) for seed in range(5)]
TEXTS = ["a dog", "is there any yellow ball on the large car", "two cats in the park", "red", "the small tree"]
SHAPE = (1 + GRID**2, 32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_blip(tmp_path_factory.mktemp("blip") / "matcher", "matcher")


def load(name: str, **options: Any) -> BlipMatcher:
    return BlipMatcher.from_pretrained(name, device="cpu", **{"block": BLOCK, **options})


def photo(seed: int, width: int = 200, height: int = 150) -> Picture:
    noise = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return load_picture(PILImage.fromarray(noise))


def own_features(matcher: BlipMatcher, pictures: list[Picture]) -> torch.Tensor:
    """What transformers' own processor and vision model say."""
    at = matcher._at
    batch = at.processor(images=[picture.pixels for picture in pictures], return_tensors="pt")
    with torch.no_grad():
        features: torch.Tensor = at.model.vision_model(pixel_values=batch["pixel_values"].to(at.dtype))[0]
    return features


def features_of(matcher: BlipMatcher, pictures: list[Picture]) -> torch.Tensor:
    found = matcher._vision.features(pictures)
    return torch.stack([found[picture.key].float() for picture in pictures])


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


# The vision tower


def apart(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found - expected).abs().max() / expected.abs().max())


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


# Texts


def requests_by_layout(layout: str) -> list[MatchRequest]:
    """One text a picture, as many on each, or different numbers; several lengths in each."""
    if layout == "one each":
        return [MatchRequest(picture, text) for picture, text in zip(PICTURES, TEXTS, strict=True)]
    if layout == "even":
        return [MatchRequest(picture, text) for picture in PICTURES[:2] for text in TEXTS]
    return [MatchRequest(PICTURES[index * index % 4], TEXTS[index % 5]) for index in range(7)]


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


# Features on disk


def tower(folder: str, store: Path, **options: Any) -> tuple[VisionTower, BlipStats]:
    stats = BlipStats()
    return VisionTower(load(folder, **options)._at, stats, feature_cache_bytes=0, feature_cache_dir=store), stats


def test_features_survive_on_disk(folder: str, tmp_path: Path) -> None:
    first = load(folder, feature_cache_dir=tmp_path / "new" / "features")
    requests = [MatchRequest(picture, "a dog") for picture in PICTURES]
    expected = first.match(requests)
    first._vision.flush()
    files = sorted((tmp_path / "new" / "features").rglob("*"))
    assert sorted(file.stem for file in files if file.is_file()) == sorted(picture.key for picture in PICTURES)
    assert set(load_file(files[-1])) == {"features", "crc32"}

    second = load(folder, feature_cache_dir=tmp_path / "new" / "features")
    found = second.match(requests)
    assert (second.stats.vision_forwards, second.stats.features_read) == (0, len(PICTURES))
    for one, other in zip(expected, found, strict=True):
        assert one.logit == other.logit and np.array_equal(one.relevance, other.relevance)


def test_a_stored_picture_is_read_bit_for_bit_in_bfloat16(folder: str, tmp_path: Path) -> None:
    writer, _ = tower(folder, tmp_path, dtype="bfloat16")
    written = writer.features(PICTURES)
    writer.flush()
    reader, stats = tower(folder, tmp_path, dtype="bfloat16")
    for key, features in reader.features(PICTURES).items():
        assert features.dtype == torch.bfloat16 and torch.equal(features, written[key])
    assert stats.vision_forwards == 0


def damage_cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def damage_flip(data: bytes) -> bytes:
    return data[:-40] + bytes([data[-40] ^ 1]) + data[-39:]


def damage_empty(data: bytes) -> bytes:
    return b""


def damage_header(data: bytes) -> bytes:
    return b"\xff" * 8 + data[8:]


@pytest.mark.parametrize("damage", [damage_cut, damage_flip, damage_empty, damage_header])
def test_a_damaged_file_is_computed_again(folder: str, tmp_path: Path, damage: Any) -> None:
    writer, _ = tower(folder, tmp_path)
    expected = writer.features(PICTURES)
    writer.flush()
    (path,) = tmp_path.rglob(f"{PICTURES[2].key}.safetensors")
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    again, stats = tower(folder, tmp_path)
    found = again.features(PICTURES)
    again.flush()
    assert (stats.vision_forwards, stats.features_read) == (1, len(PICTURES) - 1)
    torch.testing.assert_close(found[PICTURES[2].key], expected[PICTURES[2].key], rtol=0, atol=1e-5)
    assert load_file(path)["features"].shape == SHAPE


def test_each_network_and_precision_has_its_own_features(folder: str, tmp_path: Path) -> None:
    other = write_blip(tmp_path / "other", "matcher", seed=9)
    prints = set()
    for name, dtype in ((folder, None), (folder, "bfloat16"), (other, None)):
        at = load(name, dtype=dtype)._at
        prints.add(fingerprint(at.model.vision_model, at.processor, at.dtype))
        at.processor.image_mean = [0.5, 0.5, 0.5]
        prints.add(fingerprint(at.model.vision_model, at.processor, at.dtype))
    assert len(prints) == 6
    at = load(folder)._at
    assert fingerprint(at.model.vision_model, at.processor, at.dtype) in prints


def test_the_folder_keeps_to_its_bytes(tmp_path: Path) -> None:
    features = torch.zeros(10, 10)
    store = FeatureStore(tmp_path, "one", limit=10**9)
    store.put("size", features)
    store.flush()
    size = next(tmp_path.rglob("*.safetensors")).stat().st_size
    other = FeatureStore(tmp_path, "two", limit=4 * size)  # both networks count
    for index in range(6):
        other.put(str(index), features)
        other.flush()
        assert sum(file.stat().st_size for file in tmp_path.rglob("*.safetensors")) <= 4 * size
    assert other.get("5", (10, 10), torch.float32) is not None
    assert store.get("size", (10, 10), torch.float32) is None
    assert not list(tmp_path.rglob("*.part"))


def test_features_of_another_shape_are_not_taken(tmp_path: Path) -> None:
    store = FeatureStore(tmp_path, "one")
    store.put("a", torch.zeros(3, 4))
    store.flush()
    assert store.get("a", (3, 4), torch.float32) is not None
    assert store.get("a", (3, 5), torch.float32) is None
    assert store.get("a", (3, 4), torch.float32) is None  # and is gone
    assert store.get("never", (3, 4), torch.float32) is None


def test_a_full_disk_ends_the_keeping_and_not_the_run(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise OSError(28, "No space left on device")

    matcher = load(folder, feature_cache_dir=tmp_path)
    monkeypatch.setattr("codevqa.models.blip.feature_store.tempfile.mkstemp", full)
    scores = matcher.similarity([SimilarityRequest(picture, "a dog") for picture in PICTURES])
    matcher._vision.flush()
    matcher.similarity([SimilarityRequest(noise_picture(99), "a dog")])
    assert len(scores) == len(PICTURES)
    assert [record.getMessage() for record in caplog.records] == [
        f"Features are no longer kept in {tmp_path}: No space left on device."
    ]


def test_a_folder_that_cannot_be_used(folder: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SetupError, match="Features cannot be kept in"):
        load(folder, feature_cache_dir=tmp_path / "file")


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
