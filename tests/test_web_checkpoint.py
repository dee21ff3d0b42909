"""A checkpoint on the web is fetched once and whole, is the file it has to be, and says in one line why it is not."""

from __future__ import annotations

import hashlib
import logging
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from huggingface_hub import constants
from huggingface_hub.utils.tqdm import enable_progress_bars
from tiny import noise_picture
from tiny_lavis import save_lavis, write_vocabulary

from codevqa.core.errors import ModelNotFoundError, SetupError
from codevqa.models.base import MatchRequest
from codevqa.models.blip import BlipMatcher
from codevqa.models.blip.lavis_names import _VOCABULARY, convert_lavis
from codevqa.models.web_checkpoint import WebCheckpoint
from codevqa.presets.checkpoints import missing

BYTES = bytes(range(256)) * 2000


@dataclass
class Site:
    """A server on this machine that has one file, sends parts of it, and can break off."""

    url: str
    content: bytes = BYTES
    breaks_at: int | None = None
    ranges: bool = True
    tag: str = '"one"'
    asked: list[str] = field(default_factory=list)
    """The range that each request was for."""

    def at(self, fragment: str = "") -> WebCheckpoint:
        return WebCheckpoint.at(self.url + fragment)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr(constants, "HF_ASSETS_CACHE", str(tmp_path / "cache"))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = self.headers.get("Range", "")
            shown.asked.append(asked)
            if self.path != "/files/tiny.pth":
                self.send_error(404)
                return
            begin = 0
            if asked and shown.ranges and self.headers.get("If-Range", shown.tag) == shown.tag:
                begin = int(asked.removeprefix("bytes=").removesuffix("-"))
            if begin >= len(shown.content):
                self.send_error(416)
                return
            body = shown.content[begin:]
            self.send_response(206 if begin else 200)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("ETag", shown.tag)
            self.end_headers()
            self.wfile.write(body[: shown.breaks_at])

        def log_message(self, *words: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        shown = Site(f"http://127.0.0.1:{server.server_port}/files/tiny.pth")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield shown
        server.shutdown()
        thread.join()


def refused(checkpoint: WebCheckpoint, kind: type[SetupError] = SetupError) -> str:
    with pytest.raises(kind) as caught:
        checkpoint.fetch()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def begun(checkpoint: WebCheckpoint) -> Path:
    with checkpoint.lock():
        return checkpoint.file.with_name(f"{checkpoint.file.name}.part")


def test_it_is_fetched_once_and_its_progress_shown(site: Site, capfd: pytest.CaptureFixture[str]) -> None:
    enable_progress_bars()  # another test may have run a command that is quiet
    with site.at().lock():
        assert site.at().fetch().read_bytes() == BYTES
    assert "tiny.pth" in capfd.readouterr().err
    site.at().fetch()
    assert site.asked == [""]


def test_what_broke_off_goes_on_where_it_stopped(site: Site) -> None:
    begun(site.at())
    site.breaks_at = 100_000
    said = refused(site.at(), ModelNotFoundError)
    assert site.url in said and "goes on where it stopped" in said
    site.breaks_at = None
    assert site.at().fetch().read_bytes() == BYTES
    came = int(re.findall(r"\d+", site.asked[-1])[0])
    assert 0 < came < 100_000, "asked for the rest only"


@pytest.mark.parametrize("change", ["published anew", "no ranges"])
def test_what_cannot_go_on_begins_again(site: Site, change: str) -> None:
    begun(site.at())
    site.breaks_at = 100_000
    refused(site.at(), ModelNotFoundError)
    site.breaks_at = None
    if change == "no ranges":
        site.ranges = False
    else:
        site.content, site.tag = BYTES[::-1], '"two"'
    assert site.at().fetch().read_bytes() == site.content


def test_a_file_that_was_whole_but_not_put_in_its_place(site: Site) -> None:
    part = begun(site.at())
    part.write_bytes(BYTES)
    part.with_name(f"{part.name}.etag").write_text(site.tag)
    assert site.at().fetch().read_bytes() == BYTES
    assert site.asked == [f"bytes={len(BYTES) - 1}-"]


def test_another_file_than_its_checksum_says(site: Site) -> None:
    wrong, right = hashlib.sha256(b"").hexdigest(), hashlib.sha256(BYTES).hexdigest()
    checkpoint = site.at(f"#sha256={wrong}")
    part = begun(checkpoint)
    said = refused(checkpoint)
    assert wrong in said and right in said
    assert not checkpoint.file.exists() and not part.exists(), "it is not taken for the right one later"
    site.at(f"#sha256={right.upper()}").fetch()
    assert wrong in refused(checkpoint), "a file that is here is looked at too"


def test_the_first_copy_is_trusted_and_later_ones_held_to_it(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    first = site.at()
    begun(first)
    with caplog.at_level(logging.WARNING):
        file = first.fetch()
    assert hashlib.sha256(BYTES).hexdigest() in caplog.text and "trusted" in caplog.text
    file.unlink()
    site.content = BYTES[::-1]
    said = refused(site.at())
    record = next(file.parent.glob("*.sha256"))
    assert str(record) in said and not file.exists()
    record.unlink()
    assert site.at().fetch().read_bytes() == site.content


def test_what_is_not_there_and_nobody_who_answers(site: Site) -> None:
    gone = WebCheckpoint.at(site.url.replace("tiny", "none"))
    begun(gone)
    said = refused(gone, ModelNotFoundError)
    assert "404" in said and str(gone.file) in said, "where to put it by hand"
    assert "again" not in said, "it would not help"
    closed = WebCheckpoint.at("http://127.0.0.1:9/tiny.pth")
    begun(closed)
    assert "127.0.0.1:9" in refused(closed, ModelNotFoundError)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device here that is always full")
def test_a_full_disk(site: Site) -> None:
    begun(site.at()).symlink_to("/dev/full")
    said = refused(site.at())
    assert "No space left" in said and "Make room" in said


def test_a_cache_that_cannot_be_written(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(constants, "HF_ASSETS_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(SetupError, match="HF_HOME"), site.at().lock():
        pass


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("https://host", "names no file"),
        ("https://host/a.pth#md5=1", "no checksum"),
        ("https://host/a.pth#sha256=12", "64"),
    ],
)
def test_an_address_that_cannot_be_one(address: str, told: str) -> None:
    with pytest.raises(SetupError, match=told):
        WebCheckpoint.at(address)


def test_files_of_one_name_do_not_meet() -> None:
    one, other = (WebCheckpoint.at(f"https://{host}/model.pth") for host in ("here", "there"))
    assert one.file.name == other.file.name and one.folder != other.folder


@pytest.fixture
def vocabulary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """BERT's vocabulary, as if it had been fetched from the hub."""
    repository, revision = _VOCABULARY
    folder = tmp_path / "hub" / f"models--{repository.replace('/', '--')}" / "snapshots" / revision
    folder.mkdir(parents=True)
    write_vocabulary(folder / "vocab.txt")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))


@pytest.mark.usefixtures("vocabulary")
def test_a_matcher_by_its_address(site: Site, tmp_path: Path) -> None:
    save_lavis(tmp_path / "tiny.pth")
    site.content = (tmp_path / "tiny.pth").read_bytes()
    assert "network" in missing(f"blip:{site.url}")
    convert_lavis(tmp_path / "tiny.pth", write_vocabulary(tmp_path / "vocab.txt"), tmp_path / "by-hand")
    pairs = [MatchRequest(noise_picture(0), "two cats in the park"), MatchRequest(noise_picture(1), "a dog")]
    by_hand = BlipMatcher.from_pretrained(str(tmp_path / "by-hand"), device="cpu", block=1).match(pairs)

    def load(_: int) -> BlipMatcher:
        return BlipMatcher.from_pretrained(site.url, device="cpu", block=1)

    with ThreadPoolExecutor(2) as pool:  # as two processes would
        loaded = list(pool.map(load, range(2)))
    assert site.asked == [""], "fetched once"
    assert [match.logit for match in loaded[0].match(pairs)] == [match.logit for match in by_hand]
    assert loaded[0].name == site.url and missing(f"blip:{site.url}") == ""
    site.at().file.unlink()
    assert load(0).name == site.url and site.asked == [""], "the folder that was made of it suffices"


@pytest.mark.usefixtures("vocabulary")
def test_another_version_than_the_folder_was_made_of(site: Site, tmp_path: Path) -> None:
    for seed in (0, 1):
        save_lavis(tmp_path / f"{seed}.pth", seed=seed)
    site.content = (tmp_path / "0.pth").read_bytes()
    pair = [MatchRequest(noise_picture(0), "two cats in the park")]
    old = BlipMatcher.from_pretrained(site.url, device="cpu", block=1).match(pair)
    site.content = (tmp_path / "1.pth").read_bytes()
    site.at().file.unlink()
    checksum = hashlib.sha256(site.content).hexdigest()
    new = BlipMatcher.from_pretrained(f"{site.url}#sha256={checksum}", device="cpu", block=1).match(pair)
    assert new[0].logit != old[0].logit
