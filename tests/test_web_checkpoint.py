"""A checkpoint on the web is fetched once and whole, is the file it has to be, and says in one line why it is not."""

import hashlib
import logging
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hub_kit import Hub, cached, serve_hub
from huggingface_hub import constants
from tiny import noise_picture, save_lavis, write_vocabulary

from codevqa.core.errors import ModelNotFoundError, SetupError
from codevqa.models.base import MatchRequest
from codevqa.models.blip import BlipMatcher
from codevqa.models.blip.lavis_names import _VOCABULARY, convert_lavis
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
    assert [one.name for one in site.at().file.parent.iterdir()] == [".lock"], "nothing is left that could be taken"
    site.hub.breaks_at = None
    assert fetched(site.at()) == BYTES


def test_another_file_than_its_checksum_says(site: Site) -> None:
    wrong, right = hashlib.sha256(b"").hexdigest(), hashlib.sha256(BYTES).hexdigest()
    checkpoint = site.at(f"#sha256={wrong}")
    said = refused(checkpoint)
    assert wrong in said and right in said and not checkpoint.file.exists()
    fetched(site.at(f"#sha256={right.upper()}"))
    assert wrong in refused(checkpoint), "a file that is here is looked at too"


def test_the_first_copy_is_trusted_and_later_ones_held_to_it(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        fetched(site.at())
    assert hashlib.sha256(BYTES).hexdigest() in caplog.text and "trusted" in caplog.text
    file = site.at().file
    file.unlink()
    site.hold(BYTES[::-1])
    said = refused(site.at())
    record = next(file.parent.glob("*.sha256"))
    assert str(record) in said and not file.exists()
    record.unlink()
    assert fetched(site.at()) == BYTES[::-1]


def test_what_is_not_there_and_nobody_who_answers(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    gone = WebCheckpoint.at(site.url.replace("tiny", "none"))
    said = refused(gone, ModelNotFoundError)
    assert "404" in said and str(gone.file) in said, "where to put it by hand"
    assert "127.0.0.1:9" in refused(WebCheckpoint.at("http://127.0.0.1:9/tiny.pth"), ModelNotFoundError)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device here that is always full")
def test_a_full_disk(site: Site) -> None:
    with site.at().lock():
        site.at().file.with_name("tiny.pth.part").symlink_to("/dev/full")
    said = refused(site.at())
    assert "No space left" in said and "Make room" in said


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
    told: list[str] = []
    fetch([f"blip:{site.url}"], told.append)
    assert f"{len(content) / 1e6:.1f} MB  {site.url}" in told[0]
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
