"""A checkpoint of LAVIS, on disk or on the web, is fetched once and whole, and becomes a folder that loads."""

import hashlib
import importlib
import json
import logging
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from blip_kit import Reference
from cli_kit import CommandLine, assert_one_clear_line
from hub_kit import Hub, cached, serve_hub
from huggingface_hub import constants
from tiny import lavis_weights, noise_picture, save_lavis, write_vocabulary

from codevqa.core.errors import ModelNotFoundError, SetupError
from codevqa.models.blip import BlipCaptioner, BlipMatcher
from codevqa.models.blip.checkpoint import load_checkpoint
from codevqa.models.blip.lavis_names import _VOCABULARY, convert_lavis, rename_lavis
from codevqa.models.protocols import CaptionRequest, MatchRequest
from codevqa.models.web_checkpoint import WebCheckpoint
from codevqa.presets.checkpoints import fetch, missing

BYTES = bytes(range(256)) * 2000


class Site:
    """A server on this machine that has one file, and can break off."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.url = f"{hub.url}/files/resolve/main/tiny.pth"

    def at(self, fragment: str = "") -> WebCheckpoint:
        return WebCheckpoint.at(self.url + fragment)

    def hold(self, content: bytes) -> None:
        self.hub.repositories["files"]["tiny.pth"] = content
        self.hub.asked.clear()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr(constants, "HF_ASSETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with serve_hub(tmp_path, {"files": {"tiny.pth": BYTES}}) as hub:
        yield Site(hub)


def fetched(checkpoint: WebCheckpoint) -> bytes:
    with checkpoint.lock():
        return checkpoint.fetch().read_bytes()


def refused(checkpoint: WebCheckpoint, kind: type[SetupError] = SetupError) -> str:
    with pytest.raises(kind) as caught:
        fetched(checkpoint)
    return str(caught.value)


def test_it_is_fetched_once(site: Site) -> None:
    assert fetched(site.at()) == fetched(site.at()) == BYTES
    assert len(site.hub.asked) == 1


def test_half_a_file_is_none(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)  # between attempts
    site.hub.breaks_at = 1_000
    assert site.url in refused(site.at(), ModelNotFoundError)
    assert [path.name for path in site.at().file.parent.iterdir()] == [".lock"], "nothing is left that could be taken"
    site.hub.breaks_at = None
    assert fetched(site.at()) == BYTES


def test_another_file_than_its_checksum_says(site: Site) -> None:
    wrong, right = hashlib.sha256(b"").hexdigest(), hashlib.sha256(BYTES).hexdigest()
    checkpoint = site.at(f"#sha256={wrong}")
    message = refused(checkpoint)
    assert wrong in message and right in message and not checkpoint.file.exists()
    fetched(site.at(f"#sha256={right.upper()}"))
    assert wrong in refused(checkpoint), "a file that is here is looked at too"


def test_the_first_copy_is_trusted_and_later_ones_held_to_it(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        fetched(site.at())
    assert hashlib.sha256(BYTES).hexdigest() in caplog.text and "trusted" in caplog.text
    file = site.at().file
    file.unlink()
    site.hold(BYTES[::-1])
    message = refused(site.at())
    record = next(file.parent.glob("*.sha256"))
    assert str(record) in message and not file.exists()
    record.unlink()
    assert fetched(site.at()) == BYTES[::-1]


def test_what_is_not_there_and_nobody_who_answers(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    gone = WebCheckpoint.at(site.url.replace("tiny", "none"))
    message = refused(gone, ModelNotFoundError)
    assert "404" in message and str(gone.file) in message, "where to put it by hand"
    assert "127.0.0.1:9" in refused(WebCheckpoint.at("http://127.0.0.1:9/tiny.pth"), ModelNotFoundError)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device here that is always full")
def test_a_full_disk(site: Site) -> None:
    with site.at().lock():
        site.at().file.with_name("tiny.pth.part").symlink_to("/dev/full")
    message = refused(site.at())
    assert "No space left" in message and "Make room" in message


@pytest.mark.parametrize("address", ["https://host", "https://host/a.pth#md5=1", "https://host/a.pth#sha256=12"])
def test_an_address_that_cannot_be_one(address: str) -> None:
    with pytest.raises(SetupError):
        WebCheckpoint.at(address)


@pytest.fixture
def vocabulary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """BERT's vocabulary, as if it had been fetched from the hub."""
    repository, revision = _VOCABULARY
    (tmp_path / "bert").mkdir()
    write_vocabulary(tmp_path / "bert" / "vocab.txt")
    cached(tmp_path / "hub", repository, tmp_path / "bert", revision, main=False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))


@pytest.mark.usefixtures("vocabulary")
def test_a_matcher_by_its_address(site: Site, tmp_path: Path) -> None:
    save_lavis(tmp_path / "tiny.pth")
    content = (tmp_path / "tiny.pth").read_bytes()
    site.hold(content)
    assert "network" in missing(f"blip:{site.url}")
    lines: list[str] = []
    fetch([f"blip:{site.url}"], lines.append)
    assert f"{len(content) / 1e6:.1f} MB  {site.url}" in lines[0]
    shutil.rmtree(site.at().file.parent)
    site.hub.asked.clear()
    convert_lavis(tmp_path / "tiny.pth", write_vocabulary(tmp_path / "vocab.txt"), tmp_path / "by-hand")
    pairs = [MatchRequest(noise_picture(0), "two cats in the park"), MatchRequest(noise_picture(1), "a dog")]

    def logits(name: str) -> list[float]:
        return [match.logit for match in BlipMatcher.from_pretrained(name, device="cpu", block=1).match(pairs)]

    by_hand = logits(str(tmp_path / "by-hand"))
    with ThreadPoolExecutor(2) as pool:  # as two processes would
        assert list(pool.map(logits, [site.url] * 2)) == [by_hand] * 2
    assert missing(f"blip:{site.url}") == ""
    site.at().file.unlink()
    assert logits(site.url) == by_hand and len(site.hub.asked) == 1, "the folder that was made of it suffices"
    save_lavis(tmp_path / "tiny.pth", seed=1)
    content = (tmp_path / "tiny.pth").read_bytes()
    site.hold(content)
    checksum = hashlib.sha256(content).hexdigest()
    assert logits(f"{site.url}#sha256={checksum}") != by_hand, "it was made of another version of the file"


@pytest.fixture
def words(tmp_path: Path) -> Path:
    return write_vocabulary(tmp_path / "vocab.txt")


@pytest.mark.parametrize("kind", ["matcher", "captioner"])
def test_what_lavis_saves_is_loaded(kind: Literal["matcher", "captioner"], tmp_path: Path, words: Path) -> None:
    expected = rename_lavis(save_lavis(tmp_path / "model.pth", kind))
    assert convert_lavis(tmp_path / "model.pth", words, tmp_path / "out") == kind
    ours = load_checkpoint(str(tmp_path / "out"), kind, device="cpu", dtype=None).model
    theirs = Reference(str(tmp_path / "out")).model
    for state, lacking in ((ours.state_dict(), {"text_decoder.cls.predictions.bias"}), (theirs.state_dict(), set())):
        assert all(torch.equal(state[name], weight) for name, weight in expected.items() if name not in lacking)


def test_the_large_tower_has_sixteen_heads(tmp_path: Path, words: Path) -> None:
    for width, heads in ((1024, 16), (768, 12)):
        save_lavis(tmp_path / "model.pth", "captioner", width=width)
        convert_lavis(tmp_path / "model.pth", words, tmp_path / str(width))
        config = json.loads((tmp_path / str(width) / "config.json").read_text())
        assert config["vision_config"]["num_attention_heads"] == heads
        assert config["text_config"]["num_attention_heads"] == 12
    large = BlipCaptioner.from_pretrained(str(tmp_path / "1024"), device="cpu")
    assert large.caption([CaptionRequest(noise_picture(0), (0, 5), 1)])


@pytest.mark.usefixtures("hub_cache")
def test_files_that_are_not_lavis_checkpoints(tmp_path: Path, words: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="No file at"):
        convert_lavis(tmp_path / "none.pth", words, tmp_path / "out")
    torch.save({"model": {"head.weight": torch.zeros(2)}}, tmp_path / "other.pth")
    with pytest.raises(SetupError, match="not a BLIP matcher or captioner"):
        convert_lavis(tmp_path / "other.pth", None, tmp_path / "out")  # told before any vocabulary is fetched
    for content in (b"no weights", b"hello\n", b"What is this?\n", b"(a.", b"\x80\x02a.", b""):
        (tmp_path / "damaged.pth").write_bytes(content)
        with pytest.raises(SetupError) as caught:
            convert_lavis(tmp_path / "damaged.pth", words, tmp_path / "out")
        assert "damaged.pth" in str(caught.value)
    torch.save({"model": {"epoch": 3}}, tmp_path / "other.pth")
    with pytest.raises(SetupError, match="holds no weights by name"):
        convert_lavis(tmp_path / "other.pth", words, tmp_path / "out")
    save_lavis(tmp_path / "model.pth")
    with pytest.raises(ModelNotFoundError, match="--vocabulary"):  # none is given, and none can be fetched
        convert_lavis(tmp_path / "model.pth", None, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_network_with_more_than_a_matcher_has(tmp_path: Path, words: Path) -> None:
    pretrained = lavis_weights("matcher") | {"text_decoder.bert.embeddings.word_embeddings.weight": torch.zeros(1)}
    torch.save({"model": pretrained}, tmp_path / "model.pth")
    with pytest.raises(SetupError, match=r"model\.pth is not a BLIP"):
        convert_lavis(tmp_path / "model.pth", words, tmp_path / "out")


def test_a_vocabulary_of_another_checkpoint(tmp_path: Path, words: Path) -> None:
    save_lavis(tmp_path / "model.pth")
    words.write_text("\n".join(words.read_text().split()[:-1]))
    with pytest.raises(SetupError, match="vocabulary"):
        convert_lavis(tmp_path / "model.pth", words, tmp_path / "out")


def test_the_command(tmp_path: Path, words: Path, codevqa: CommandLine) -> None:
    save_lavis(tmp_path / "model.pth", "captioner")
    done = codevqa("convert", tmp_path / "model.pth", tmp_path / "out", "--vocabulary", words)
    assert (done.returncode, done.stdout) == (0, "") and f"captioner: blip:{tmp_path / 'out'}" in done.stderr
    assert BlipCaptioner.from_pretrained(str(tmp_path / "out"), device="cpu").grid == 4
    done = codevqa("convert", tmp_path / "model.pth", tmp_path / "out", "--vocabulary", words)
    assert_one_clear_line(done, "something at")
    with pytest.raises(ModelNotFoundError, match="codevqa convert"):
        BlipMatcher.from_pretrained(str(tmp_path / "model.pth"))


GOLDEN = Path(__file__).resolve().parents[2] / "shared" / "golden" / "lavis-blip"


@pytest.mark.skipif(not GOLDEN.is_dir(), reason=f"LAVIS's golden results are not at {GOLDEN}")
def test_the_numbers_are_those_of_lavis(tmp_path: Path) -> None:
    script: Any = importlib.import_module("benchmarks.parity")
    parity = script.measure_parity(GOLDEN, tmp_path)
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
