"""A LAVIS checkpoint becomes a folder that loads; anything else is refused in one line."""

import importlib
import json
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from blip_kit import Reference
from cli_kit import CommandLine, assert_one_clear_line
from tiny import lavis_weights, noise_picture, save_lavis, write_vocabulary

from codevqa.core.errors import ModelNotFoundError, SetupError
from codevqa.models.base import CaptionRequest
from codevqa.models.blip import BlipCaptioner, BlipMatcher
from codevqa.models.blip.checkpoint import load_checkpoint
from codevqa.models.blip.lavis_names import convert_lavis, rename_lavis


@pytest.fixture
def vocabulary(tmp_path: Path) -> Path:
    return write_vocabulary(tmp_path / "vocab.txt")


@pytest.mark.parametrize("kind", ["matcher", "captioner"])
def test_what_lavis_saves_is_loaded(kind: Literal["matcher", "captioner"], tmp_path: Path, vocabulary: Path) -> None:
    expected = rename_lavis(save_lavis(tmp_path / "model.pth", kind))
    assert convert_lavis(tmp_path / "model.pth", vocabulary, tmp_path / "out") == kind
    ours = load_checkpoint(str(tmp_path / "out"), kind, device="cpu", dtype=None).model
    theirs = Reference(str(tmp_path / "out")).model
    for found, lacking in ((ours.state_dict(), {"text_decoder.cls.predictions.bias"}), (theirs.state_dict(), set())):
        assert all(torch.equal(found[name], weight) for name, weight in expected.items() if name not in lacking)


def test_the_large_tower_has_sixteen_heads(tmp_path: Path, vocabulary: Path) -> None:
    for width, heads in ((1024, 16), (768, 12)):
        save_lavis(tmp_path / "model.pth", "captioner", width=width)
        convert_lavis(tmp_path / "model.pth", vocabulary, tmp_path / str(width))
        config = json.loads((tmp_path / str(width) / "config.json").read_text())
        assert config["vision_config"]["num_attention_heads"] == heads
        assert config["text_config"]["num_attention_heads"] == 12
    large = BlipCaptioner.from_pretrained(str(tmp_path / "1024"), device="cpu")
    assert large.caption([CaptionRequest(noise_picture(0), (0, 5), 1)])


@pytest.mark.usefixtures("hub_cache")
def test_files_that_are_not_lavis_checkpoints(tmp_path: Path, vocabulary: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="No file at"):
        convert_lavis(tmp_path / "none.pth", vocabulary, tmp_path / "out")
    torch.save({"model": {"head.weight": torch.zeros(2)}}, tmp_path / "other.pth")
    with pytest.raises(SetupError, match="not a BLIP matcher or captioner"):
        convert_lavis(tmp_path / "other.pth", None, tmp_path / "out")  # told before any vocabulary is fetched
    for content in (b"no weights", b"hello\n", b"What is this?\n", b"(a.", b"\x80\x02a.", b""):
        (tmp_path / "damaged.pth").write_bytes(content)
        with pytest.raises(SetupError) as caught:
            convert_lavis(tmp_path / "damaged.pth", vocabulary, tmp_path / "out")
        assert "damaged.pth" in str(caught.value)
    torch.save({"model": {"epoch": 3}}, tmp_path / "other.pth")
    with pytest.raises(SetupError, match="holds no weights by name"):
        convert_lavis(tmp_path / "other.pth", vocabulary, tmp_path / "out")
    save_lavis(tmp_path / "model.pth")
    with pytest.raises(ModelNotFoundError, match="--vocabulary"):  # none is given, and none can be fetched
        convert_lavis(tmp_path / "model.pth", None, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_network_with_more_than_a_matcher_has(tmp_path: Path, vocabulary: Path) -> None:
    pretrained = lavis_weights("matcher") | {"text_decoder.bert.embeddings.word_embeddings.weight": torch.zeros(1)}
    torch.save({"model": pretrained}, tmp_path / "model.pth")
    with pytest.raises(SetupError, match=r"model\.pth is not a BLIP"):
        convert_lavis(tmp_path / "model.pth", vocabulary, tmp_path / "out")


def test_a_vocabulary_of_another_checkpoint(tmp_path: Path, vocabulary: Path) -> None:
    save_lavis(tmp_path / "model.pth")
    vocabulary.write_text("\n".join(vocabulary.read_text().split()[:-1]))
    with pytest.raises(SetupError, match="vocabulary"):
        convert_lavis(tmp_path / "model.pth", vocabulary, tmp_path / "out")


def test_the_command(tmp_path: Path, vocabulary: Path, codevqa: CommandLine) -> None:
    save_lavis(tmp_path / "model.pth", "captioner")
    done = codevqa("convert", tmp_path / "model.pth", tmp_path / "out", "--vocabulary", vocabulary)
    assert (done.returncode, done.stdout) == (0, "") and f"captioner: blip:{tmp_path / 'out'}" in done.stderr
    assert BlipCaptioner.from_pretrained(str(tmp_path / "out"), device="cpu").grid == 4
    done = codevqa("convert", tmp_path / "model.pth", tmp_path / "out", "--vocabulary", vocabulary)
    assert_one_clear_line(done, "something at")
    with pytest.raises(ModelNotFoundError, match="codevqa convert"):
        BlipMatcher.from_pretrained(str(tmp_path / "model.pth"))


GOLDEN = Path(__file__).resolve().parents[2] / "shared" / "golden" / "lavis-blip"


@pytest.mark.skipif(not GOLDEN.is_dir(), reason=f"LAVIS's golden results are not at {GOLDEN}")
def test_the_numbers_are_those_of_lavis(tmp_path: Path) -> None:
    script: Any = importlib.import_module("benchmarks.parity")
    parity = script.measure(GOLDEN, tmp_path)
    assert max(parity.itm) < 5e-3 and max(parity.itm[0], parity.itm[2]) < 1e-4
    assert max(parity.itc) < 1e-3
    for maps in (parity.gradcam, parity.relevance):
        assert max(maps) < 1e-2 and max(maps[0], maps[2]) < 1e-5
    assert max(parity.logits) < 1e-2
    assert parity.captions == [True] * 3
    # Too small a difference for the figures above to tell.
    for kind in ("matcher", "captioner"):
        config = json.loads((tmp_path / kind / "config.json").read_text())
        assert config["vision_config"]["layer_norm_eps"] == 1e-6
