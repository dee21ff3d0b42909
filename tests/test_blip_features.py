"""BLIP's features are computed once and kept, on disk too, and batches are bounded by the memory there is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from blip_kit import PICTURES, SHAPE, TEXTS, load, requests_by_layout
from safetensors.torch import load_file
from tiny import GRID, noise_picture, write_blip

from codevqa.core.errors import ModelError, SetupError
from codevqa.models.base import MatchRequest, SimilarityRequest
from codevqa.models.blip.batches import rows_that_fit
from codevqa.models.blip.fast.text_encoder import FastTextEncoder
from codevqa.models.blip.fast.vision_encoder import FastVisionEncoder
from codevqa.models.blip.feature_store import FeatureStore, fingerprint
from codevqa.models.blip.vision_tower import BlipStats, VisionTower


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
