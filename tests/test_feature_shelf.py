"""What networks made of a collection's pictures is computed once, and never taken from a damaged or another's file."""

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from blip_kit import load
from safetensors.torch import save_file
from test_collection import fill
from tiny import write_blip
from tiny_detector import write_clip

from codevqa.core.collection import Collection, StoredPicture
from codevqa.models import feature_shelf
from codevqa.models.base import MatchRequest, SimilarityRequest
from codevqa.models.contrastive import ContrastiveMatcher
from codevqa.models.feature_shelf import FeatureShelf


@pytest.fixture
def pictures(tmp_path: Path) -> tuple[StoredPicture, ...]:
    return Collection(fill(tmp_path / "photos", 5), index=tmp_path / "index").open()


def files(pictures: tuple[StoredPicture, ...]) -> list[Path]:
    return sorted(pictures[0].shelf.glob("*/*.safetensors"), key=lambda one: one.stat().st_size)


def margins(folder: str, pictures: Any, **options: Any) -> tuple[list[float], list[float], int]:
    matcher = load(folder, **options)
    found = [one.logit for one in matcher.match([MatchRequest(one, "a red ball") for one in pictures])]
    scores = matcher.similarity([SimilarityRequest(one, "a red ball") for one in pictures])
    matcher.keep_features()
    return found, scores, matcher.stats.vision_forwards


def test_a_tower_sees_each_picture_once_and_an_embedding_needs_no_features(tmp_path: Path, pictures: Any) -> None:
    folder = write_blip(tmp_path / "m", "matcher")
    first = margins(folder, pictures)
    assert first[2] == 5 and margins(folder, pictures) == (*first[:2], 0)
    small, large = files(pictures)
    large.unlink()
    matcher = load(folder)
    again = matcher.similarity([SimilarityRequest(one, "a red ball") for one in pictures])
    assert again == first[1] and matcher.stats.vision_forwards == 0 and small.stat().st_size < 3_000


def test_another_network_or_other_picture_settings_take_nothing(tmp_path: Path, pictures: Any) -> None:
    folder = write_blip(tmp_path / "m", "matcher")
    margins(folder, pictures)
    other = load(folder)
    with torch.no_grad():  # one weight of thousands
        other._at.model.vision_model.encoder.layers[0].mlp.fc1.weight[3, 5] += 1
    other.match([MatchRequest(pictures[0], "a red ball")])
    assert other.stats.vision_forwards == 1
    (Path(folder) / "preprocessor_config.json").write_text('{"image_mean": [0.5, 0.5, 0.5]}')
    assert margins(folder, pictures)[2] == 5


@pytest.mark.parametrize("how", ["header", "truncated", "value", "without sums", "gone"])
def test_a_damaged_file_is_made_anew(how: str, tmp_path: Path, pictures: Any, caplog: pytest.LogCaptureFixture) -> None:
    folder = write_blip(tmp_path / "m", "matcher")
    first = margins(folder, pictures)
    matcher = load(folder)
    matcher.match([MatchRequest(pictures[0], "a red ball")])  # it knows the files, and not what is in them
    for file in files(pictures):
        content = file.read_bytes()
        if how == "gone":
            file.unlink()
        elif how == "without sums":
            save_file({one.key: torch.ones(3) for one in pictures}, file)
        else:
            middle = len(content) // 2 if how == "value" else 4
            damaged = content[:-99] if how == "truncated" else content[:middle] + b"\xf1" * 4 + content[middle + 4 :]
            file.write_bytes(damaged)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            found = [one.logit for one in matcher.match([MatchRequest(one, "a red ball") for one in pictures])]
            assert found == pytest.approx(first[0], abs=1e-6)
        assert margins(folder, pictures)[0] == pytest.approx(first[0], abs=1e-6)
    assert margins(folder, pictures)[2] == 0


def test_a_full_disk_costs_one_warning(
    tmp_path: Path, pictures: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = write_blip(tmp_path / "m", "matcher")
    whole = margins(folder, ())  # nothing is kept yet

    def full(*given: Any) -> None:
        given[1].write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(feature_shelf, "save_file", full)
    with caplog.at_level(logging.WARNING):
        first, again = margins(folder, pictures), margins(folder, pictures)
    assert whole[2] == 0 and first == again and first[2] == 5
    assert len(caplog.records) == 1 and "No space left" in caplog.text
    assert not list(pictures[0].shelf.glob("*/*"))


def test_half_precision_survives_and_processes_add_to_one_another(tmp_path: Path) -> None:
    place = tmp_path / "codevqa-features" / "a"
    made = {str(number): torch.randn(3, 4).to(torch.bfloat16) for number in range(4)}
    one, other = FeatureShelf(place), FeatureShelf(place)
    one.add({key: made[key] for key in "01"})
    other.add({key: made[key] for key in "123"})
    one.save()
    other.save()
    read = FeatureShelf(place).read("0123x")
    assert read.keys() == made.keys() and all(torch.equal(read[key], made[key]) for key in made)
    assert {features.dtype for features in read.values()} == {torch.bfloat16}


def test_clip_embeds_a_picture_of_a_collection_once(tmp_path: Path, pictures: Any) -> None:
    folder = write_clip(tmp_path / "clip")
    asked = [SimilarityRequest(one, "a cat") for one in pictures]
    first = ContrastiveMatcher.from_pretrained(folder, device="cpu")
    scores = first.similarity(asked)
    first.keep_features()
    again = ContrastiveMatcher.from_pretrained(folder, device="cpu")
    again._of_pictures = None  # type: ignore[assignment, method-assign]
    assert again.similarity(asked) == scores
