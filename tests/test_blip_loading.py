"""Loading BLIP checkpoints, each fault told in one line; and features of a collection's pictures, computed once."""

import json
import logging
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from blip_kit import captioner, load
from blip_kit import load as matcher
from hub_kit import cached
from safetensors.torch import load_file, save_file
from test_collection import fill
from tiny import noise_picture, write_blip
from tiny_detector import write_clip

from codevqa.collections.collection import Collection, StoredPicture
from codevqa.collections.disk_memory import FEATURES, memory_at
from codevqa.core.errors import ModelNotFoundError, SetupError
from codevqa.models import feature_store
from codevqa.models.blip import BlipMatcher
from codevqa.models.blip.checkpoint import load_checkpoint
from codevqa.models.contrastive import ContrastiveMatcher
from codevqa.models.feature_store import FeatureStore
from codevqa.models.protocols import CaptionRequest, MatchRequest, SimilarityRequest
from codevqa.models.weights import Linear
from codevqa.models.weights import fill as fill_network

PAIRS = [MatchRequest(noise_picture(0), "two cats in the park"), MatchRequest(noise_picture(1), "a dog")]
CAPTIONS = [CaptionRequest(noise_picture(0), None, 1), CaptionRequest(noise_picture(1), (0, 5, 9))]


@pytest.fixture(scope="module")
def matcher_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_blip(tmp_path_factory.mktemp("blip") / "matcher", "matcher")


@pytest.fixture(scope="module")
def captioner_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_blip(tmp_path_factory.mktemp("blip") / "captioner", "captioner", seed=1)


def test_loading_is_quiet_and_needs_no_transformers(matcher_folder: str, captioner_folder: str, tmp_path: Path) -> None:
    # Pre-training leaves weights that no network needs.
    shutil.copytree(matcher_folder, tmp_path / "matcher")
    weights = tmp_path / "matcher" / "model.safetensors"
    save_file({**load_file(weights), "left.over": torch.zeros(1)}, weights, {"format": "pt"})
    code = (
        "import sys; from codevqa.models.blip import BlipCaptioner as C, BlipMatcher as M;"
        "M.from_pretrained(sys.argv[1], device='cpu', block=1); C.from_pretrained(sys.argv[2], device='cpu');"
        "assert not {'transformers', 'torch._dynamo', 'huggingface_hub.file_download'} & set(sys.modules)"
    )
    command = [sys.executable, "-W", "error", "-c", code, str(tmp_path / "matcher"), captioner_folder]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_half_precision_on_disk_is_float32_on_the_cpu(tmp_path: Path) -> None:
    folder = write_blip(tmp_path / "half", "matcher", dtype=torch.float16)
    loaded = matcher(folder)
    assert loaded.computes == "float32 on cpu"
    whole = loaded.match(PAIRS)
    coarse = matcher(folder, dtype="bfloat16").match(PAIRS)
    assert [match.logit for match in coarse] == pytest.approx([match.logit for match in whole], abs=0.2)
    with pytest.raises(SetupError, match="precision"):
        matcher(folder, dtype="int8")


def test_a_tokenizer_without_the_opening_tokens(matcher_folder: str, captioner_folder: str, tmp_path: Path) -> None:
    bare = write_blip(tmp_path / "matcher", "matcher", special_tokens=False)
    matches, expected = matcher(bare).match(PAIRS), matcher(matcher_folder).match(PAIRS)
    assert [match.logit for match in matches] == pytest.approx([match.logit for match in expected], abs=1e-6)
    bare = write_blip(tmp_path / "captioner", "captioner", seed=1, special_tokens=False)
    assert captioner(bare).caption(CAPTIONS) == captioner(captioner_folder).caption(CAPTIONS)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
@pytest.mark.parametrize("part", [0, 0.5])
def test_a_folder_that_lacks_a_file_or_half_of_it(tmp_path: Path, name: str, part: float) -> None:
    folder = write_blip(tmp_path / "matcher", "matcher")
    (tmp_path / "matcher" / "vocab.txt").unlink()
    path = tmp_path / "matcher" / name
    if part:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    else:
        path.unlink()
    with pytest.raises(SetupError if part else ModelNotFoundError) as caught:
        matcher(folder)
    assert folder in str(caught.value)


def test_the_other_kind_of_checkpoint(matcher_folder: str, captioner_folder: str, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"not a whole BLIP matcher: .* missing"):
        matcher(captioner_folder)
    with pytest.raises(SetupError, match=r"not a whole BLIP captioner: .* missing"):
        captioner(matcher_folder)
    other = Path(shutil.copytree(matcher_folder, tmp_path / "bert"))
    (other / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(SetupError, match="'bert' network, not BLIP"):
        matcher(str(other))


@pytest.mark.usefixtures("hub_cache")
def test_no_such_folder_and_no_network(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="No folder at"):
        matcher(str(tmp_path / "nothing"))
    with pytest.raises(ModelNotFoundError, match="named"):
        matcher("")
    for kind in (matcher, captioner):
        with pytest.raises(ModelNotFoundError) as caught:
            kind("nobody/has-no-such-blip")
        assert "nobody/has-no-such-blip" in str(caught.value)


def test_a_device_that_is_not_there(matcher_folder: str) -> None:
    with pytest.raises(SetupError, match="device"):
        BlipMatcher.from_pretrained(matcher_folder, device="abacus")
    with pytest.raises(SetupError, match="cuda:77"):
        BlipMatcher.from_pretrained(matcher_folder, device="cuda:77")


@pytest.mark.parametrize(("owner", "epsilon"), [("Salesforce", 1e-6), ("somebody", 1e-5)])
def test_the_hub_s_own_compute_as_lavis(owner: str, epsilon: float, matcher_folder: str, hub_cache: Path) -> None:
    snapshot = cached(hub_cache, f"{owner}/blip-itm-base-coco", matcher_folder, "a" * 40)
    config = json.loads((snapshot / "config.json").read_text())
    config["vision_config"]["layer_norm_eps"] = 1e-5
    (snapshot / "config.json").write_text(json.dumps(config))
    at = load_checkpoint(f"{owner}/blip-itm-base-coco", "matcher", device="cpu", dtype=None)
    norms = [layer.eps for layer in at.model.vision_model.modules() if isinstance(layer, torch.nn.LayerNorm)]
    assert norms == [epsilon] * 5


def test_a_revision_of_the_hub(matcher_folder: str, hub_cache: Path, tmp_path: Path) -> None:
    other = write_blip(tmp_path / "other", "matcher", seed=7)
    cached(hub_cache, "some/blip", matcher_folder, "a" * 40)
    cached(hub_cache, "some/blip", other, "b" * 40, main=False)
    for name, folder in (("some/blip", matcher_folder), (f"some/blip@{'b' * 40}", other)):
        loaded, expected = matcher(name), matcher(folder)
        assert loaded.name == name
        assert [match.logit for match in loaded.match(PAIRS)] == [match.logit for match in expected.match(PAIRS)]
    with pytest.raises(ModelNotFoundError, match="some/blip@none"):
        matcher("some/blip@none")


def test_weights_in_a_pickle_are_read(matcher_folder: str, hub_cache: Path, tmp_path: Path) -> None:
    folder = tmp_path / "pickled"
    shutil.copytree(matcher_folder, folder)
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    cached(hub_cache, "some/blip", str(folder), "a" * 40)
    matches, expected = matcher("some/blip").match(PAIRS), matcher(matcher_folder).match(PAIRS)
    assert [match.logit for match in matches] == [match.logit for match in expected]


@pytest.fixture
def pictures(tmp_path: Path) -> tuple[StoredPicture, ...]:
    return Collection(fill(tmp_path / "photos", 5), index=tmp_path / "index").open()


def files(pictures: tuple[StoredPicture, ...]) -> list[Path]:
    return sorted(
        (pictures[0].memory.folder / FEATURES).glob("*/*.safetensors"), key=lambda request: request.stat().st_size
    )


def margins(folder: str, pictures: Any, **options: Any) -> tuple[list[float], list[float], int]:
    matcher = load(folder, **options)
    logits = [match.logit for match in matcher.match([MatchRequest(picture, "a red ball") for picture in pictures])]
    scores = matcher.similarity([SimilarityRequest(picture, "a red ball") for picture in pictures])
    matcher.keep_features()
    return logits, scores, matcher.stats.vision_forwards


def test_a_tower_sees_each_picture_once_and_an_embedding_needs_no_features(tmp_path: Path, pictures: Any) -> None:
    folder = write_blip(tmp_path / "m", "matcher")
    first = margins(folder, pictures)
    assert first[2] == 5 and margins(folder, pictures) == (*first[:2], 0)
    small, large = files(pictures)
    large.unlink()
    matcher = load(folder)
    again = matcher.similarity([SimilarityRequest(picture, "a red ball") for picture in pictures])
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
            save_file({picture.key: torch.ones(3) for picture in pictures}, file)
        else:
            middle = len(content) // 2 if how == "value" else 4
            damaged = content[:-99] if how == "truncated" else content[:middle] + b"\xf1" * 4 + content[middle + 4 :]
            file.write_bytes(damaged)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            logits = [
                match.logit for match in matcher.match([MatchRequest(picture, "a red ball") for picture in pictures])
            ]
            assert logits == pytest.approx(first[0], abs=1e-6)
        assert margins(folder, pictures)[0] == pytest.approx(first[0], abs=1e-6)
    assert margins(folder, pictures)[2] == 0


def test_a_full_disk_costs_one_warning(
    tmp_path: Path, pictures: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = write_blip(tmp_path / "m", "matcher")
    whole = margins(folder, ())  # nothing is kept yet

    def full(*arguments: Any) -> None:
        arguments[1].write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(feature_store, "save_file", full)
    with caplog.at_level(logging.WARNING):
        first, again = margins(folder, pictures), margins(folder, pictures)
    assert whole[2] == 0 and first == again and first[2] == 5
    assert len(caplog.records) == 1 and "No space left" in caplog.text
    assert not list((pictures[0].memory.folder / FEATURES).glob("*/*"))


def test_half_precision_survives_and_processes_add_to_one_another(tmp_path: Path) -> None:
    features = {str(number): torch.randn(3, 4).to(torch.bfloat16) for number in range(4)}
    memory = memory_at(tmp_path)
    first, other = FeatureStore(memory, "a"), FeatureStore(memory, "a")
    first.add({key: features[key] for key in "01"})
    other.add({key: features[key] for key in "123"})
    first.save()
    other.save()
    read = FeatureStore(memory, "a").read("0123x")
    held = [key for file in (tmp_path / FEATURES).glob("*/*") for key in load_file(file)]
    assert sorted(held) == sorted(features), "each once"
    assert read.keys() == features.keys() and all(torch.equal(read[key], features[key]) for key in features)
    assert {features.dtype for features in read.values()} == {torch.bfloat16}


def test_clip_embeds_a_picture_of_a_collection_once(tmp_path: Path, pictures: Any) -> None:
    folder = write_clip(tmp_path / "clip")
    asked = [SimilarityRequest(picture, "a cat") for picture in pictures]
    first = ContrastiveMatcher.from_pretrained(folder, device="cpu")
    scores = first.similarity(asked)
    first.keep_features()
    again = ContrastiveMatcher.from_pretrained(folder, device="cpu")
    again._of_pictures = None  # type: ignore[assignment, method-assign]
    assert again.similarity(asked) == scores


@pytest.mark.parametrize(("width", "cores"), [(8, 1), (3000, 2)], ids=["small", "large"])
def test_small_weights_are_converted_on_one_core(width: int, cores: int) -> None:
    used = []

    class Weight:
        shape = torch.Size((width, width))

        def to(self, dtype: torch.dtype) -> torch.Tensor:
            used.append(torch.get_num_threads())
            return torch.zeros(self.shape, dtype=dtype)

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        weights: Any = {"weight": Weight()}
        assert not fill_network(Linear(width, width, bias=False), weights, torch.float32)
    finally:
        torch.set_num_threads(before)
    assert used == [cores]
