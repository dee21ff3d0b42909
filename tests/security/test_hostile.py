"""Pictures, checkpoints and servers that mean harm: what they hold is bounded and never run; no key is passed on."""

import contextlib
import gzip
import io
import json
import logging
import os
import pickle
import shutil
import struct
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from data_files import drawn, png
from openai_kit import KEY, Serve, completion, failure, refusal
from PIL import Image, PngImagePlugin
from tiny_lm import build_tiny_lm

from codevqa.core import images
from codevqa.core.errors import CodeVQAError, ImageError
from codevqa.core.images import load_picture
from codevqa.models.blip import BlipMatcher
from codevqa.models.blip.lavis_names import convert_lavis
from codevqa.models.causal_lm import TransformersLM
from codevqa.models.causal_lm.network import LlamaNetwork
from codevqa.models.openai_lm import OpenAILM
from codevqa.models.retrieval import SentenceRetriever


@pytest.mark.timeout(20)
def test_frames_are_not_counted() -> None:
    # A directory of four entries a frame, each pointing to the next: Pillow would look for each in all before it.
    frames, size = 40_000, 2 + 4 * 12 + 4
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, 1) for tag in (256, 257, 273, 279))
    places = (8 + size * number for number in range(1, frames + 1))
    data = b"II*\0\x08\0\0\0" + b"".join(struct.pack("<H", 4) + entries + struct.pack("<I", at) for at in places)
    with pytest.raises(ImageError, match="is animated"):
        load_picture(data)


@pytest.mark.parametrize("side", [9_000, 50_000])
def test_decompression_bomb_is_refused_before_it_is_decoded(side: int) -> None:
    # A real PNG header that claims side x side pixels, and no data behind it: decoding would say "damaged".
    header = io.BytesIO()
    PngImagePlugin.putchunk(header, b"IHDR", side.to_bytes(4, "big") * 2 + b"\x08\x02\x00\x00\x00")
    PngImagePlugin.putchunk(header, b"IDAT", b"")
    with pytest.raises(ImageError, match="too large"):
        load_picture(b"\x89PNG\r\n\x1a\n" + header.getvalue())


@pytest.mark.parametrize("kind", ["EPS", "PPM", "ICO", "PCX", "TGA", "SGI"])
def test_formats_nobody_asks_about_are_not_opened(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "photo.png"
    drawn().save(path, kind)
    with pytest.raises(ImageError, match="is not a picture this can read"):
        load_picture(path)
    with Image.open(path) as opened, pytest.raises(ImageError, match="Use PNG") if kind != "ICO" else nullcontext():
        load_picture(opened)


@pytest.mark.parametrize("size", [(1, images.MAX_SIDE + 1), (images.MAX_SIDE + 1, 1)])
def test_a_thread_of_pixels_is_refused_before_it_is_decoded(size: tuple[int, int]) -> None:
    data = png(Image.new("1", size))
    with pytest.raises(ImageError, match=r"too large .*32,768 a side"):
        load_picture(data)


def test_a_file_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.png"
    with path.open("wb") as handle:
        handle.write(png(drawn()))
        handle.truncate(images.MAX_BYTES + 1)
    with pytest.raises(ImageError, match="too large a file"):
        load_picture(path)
    monkeypatch.setattr(images, "MAX_BYTES", 10)
    with pytest.raises(ImageError, match="too large a file"):
        load_picture(png(drawn()))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
@pytest.mark.timeout(20)
def test_a_pipe_is_no_picture_and_nobody_waits_for_its_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.png")
    with pytest.raises(ImageError, match="is not a file"):
        load_picture(tmp_path / "a.png")


WEIGHTS = Path(__file__).resolve().parents[2] / "codevqa" / "mini" / "weights"


class Touch:
    """Unpickled, it makes a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def refused(load: Callable[[], object], trap: Path) -> None:
    with pytest.raises(CodeVQAError) as caught:
        load()
    assert not trap.exists(), "it was run"
    message = str(caught.value)
    assert "\n" not in message and "weights_only" not in message and "trust_remote_code" not in message, message


@pytest.mark.parametrize("how", ["pickle", "torch"])
@pytest.mark.parametrize("part", ["language model", "matcher", "file of LAVIS"])
def test_a_pickle_that_runs_code(tmp_path: Path, part: str, how: str) -> None:
    trap, folder = tmp_path / "trap", tmp_path / "model"
    shutil.copytree(WEIGHTS / "matcher", folder) if part == "matcher" else build_tiny_lm(folder)
    for weights in folder.glob("*.safetensors"):
        weights.unlink()
    file, vocabulary = folder / "pytorch_model.bin", folder / "vocab.txt"
    state = {"model": {"head.weight": torch.zeros(2)}, "more": Touch(trap)}
    torch.save(state, file) if how == "torch" else file.write_bytes(pickle.dumps(state, protocol=2))
    vocabulary.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n")
    loads: dict[str, Callable[[], object]] = {
        "language model": lambda: TransformersLM.from_pretrained(folder, device="cpu"),
        "matcher": lambda: BlipMatcher.from_pretrained(str(folder), device="cpu"),
        "file of LAVIS": lambda: convert_lavis(file, vocabulary, tmp_path / "out"),
    }
    refused(loads[part], trap)
    with contextlib.suppress(RuntimeError):  # what comes after the code is no checkpoint
        torch.load(file, weights_only=False)
    assert trap.exists(), "the attack itself is wrong"


def bring(folder: Path, trap: Path, imports: str = "") -> None:
    (folder / "own.py").write_text(f"import os\nos.mkdir({str(trap)!r})\n{imports}\n")


def edit(file: Path, **changes: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def test_a_language_model_that_brings_code(tmp_path: Path) -> None:
    trap, folder = tmp_path / "trap", build_tiny_lm(tmp_path / "lm")
    bring(folder, trap, "from transformers import LlamaForCausalLM as Own, LlamaConfig as Config")
    edit(folder / "config.json", auto_map={"AutoModelForCausalLM": "own.Own", "AutoConfig": "own.Config"})
    known = TransformersLM.from_pretrained(folder, device="cpu")
    assert isinstance(known.model, LlamaNetwork) and not trap.exists(), "the architecture is one that is known"
    edit(folder / "config.json", model_type="own")
    refused(lambda: TransformersLM.from_pretrained(folder, device="cpu"), trap)


def test_a_tokenizer_that_brings_code(tmp_path: Path) -> None:
    trap, folder = tmp_path / "trap", build_tiny_lm(tmp_path / "lm")
    bring(folder, trap, "from transformers import BertTokenizer as Own")
    edit(folder / "tokenizer_config.json", tokenizer_class="Own", auto_map={"AutoTokenizer": ["own.Own", "own.Own"]})
    with contextlib.suppress(CodeVQAError):  # or it is read as a tokenizer that is known
        TransformersLM.from_pretrained(folder, device="cpu")
    assert not trap.exists()


def test_a_retriever_that_brings_code(tmp_path: Path) -> None:
    trap, folder = tmp_path / "trap", tmp_path / "retriever"
    shutil.copytree(WEIGHTS / "retriever", folder)
    bring(folder, trap)
    modules = json.loads((folder / "modules.json").read_text())
    modules[0]["type"] = "own.Own"
    (folder / "modules.json").write_text(json.dumps(modules))
    refused(lambda: SentenceRetriever.from_pretrained(folder), trap)


@pytest.mark.timeout(20)
def test_a_server_does_not_have_us_wait_for_a_year(serve: Serve) -> None:
    server = serve(lambda path, body, n: failure(429, "later", {"Retry-After": "31536000"}))
    error = refusal(OpenAILM("m", base_url=server.url))
    assert "asks to wait 31536000 s, longer than max_wait: later" in str(error) and len(server.seen) == 1


@pytest.mark.parametrize("user", ["ada:hunter2@", "ada:hu@hunter2@", "hunter2@", ""])
@pytest.mark.parametrize("query", ["?api_key=hunter2", ""])
def test_an_address_keeps_its_secrets(serve: Serve, caplog: pytest.LogCaptureFixture, user: str, query: str) -> None:
    caplog.set_level(logging.DEBUG)
    server = serve(lambda path, body, n: failure(400, "hunter2 is wrong" if query else "no"))
    lm = OpenAILM("m", base_url=server.url.replace("//", f"//{user}") + query)
    assert "hunter2" not in str(refusal(lm)) + repr(lm) + caplog.text
    assert server.url in repr(lm)
    path, _, headers = server.seen[0]
    assert path == f"/v1/completions{query}"
    assert ("authorization" in headers) == bool(user)


@pytest.mark.parametrize("coding", ["br", "gzip", "deflate", "zstd", "gzip, gzip"])
def test_a_packed_answer_is_not_unpacked(serve: Serve, coding: str) -> None:
    bomb = gzip.compress(bytes(1 << 22))
    server = serve(lambda path, body, n: (200, bomb, {"Content-Encoding": coding}))
    assert f"packed its answer ('{coding}')" in str(refusal(OpenAILM("m", base_url=server.url)))
    assert server.seen[0][2]["accept-encoding"] == "identity"


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_takes_neither_prompt_nor_key_elsewhere(serve: Serve, status: int) -> None:
    other = serve(lambda path, body, n: completion("mine now"))
    server = serve(lambda path, body, n: (status, "", {"Location": f"{other.url}/completions?key=secret"}))
    error = refusal(OpenAILM("m", base_url=server.url, api_key=KEY))
    assert f"answered {status}, which points elsewhere: {other.url}/completions. Set OPENAI_BASE_URL" in str(error)
    assert (len(server.seen), other.seen) == (1, [])


NO_TEXT = '{"choices": [{"text": {"yes": 1}, "finish_reason": "stop"}]}'


@pytest.mark.parametrize(
    "body",
    ['{"choices": ' + "[" * 200_000, "9" * 200_000, '{"choices": 5}', '{"choices": []}', "null", "<html>hi", NO_TEXT],
)
def test_what_nobody_could_read_is_no_answer(serve: Serve, body: str) -> None:
    server = serve(lambda path, request, n: (200, body, {"Content-Type": "application/json"}))
    assert "did not answer as an OpenAI-compatible server" in str(refusal(OpenAILM("m", base_url=server.url)))


@pytest.mark.parametrize(
    "error", [{"code": [1], "param": {}, "message": "no\ud800"}, ["no"], {"message": {"a": 1}}, "no\n" * 10_000]
)
def test_refusals_of_any_form_are_one_short_line(serve: Serve, error: Any) -> None:
    server = serve(lambda path, body, n: (400, {"error": error}, {}))
    message = str(refusal(OpenAILM("m", base_url=server.url)))
    assert "answered 400" in message and message.encode() and len(message) < 500
    server = serve(lambda path, body, n: (200, {"error": error}, {}))
    assert f"m at {server.url} failed" in str(refusal(OpenAILM("m", base_url=server.url)))


@pytest.mark.parametrize("key", [KEY, "plain token 6789"])
def test_key_stays(serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, key: str) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", key)
    caplog.set_level(logging.DEBUG)
    server = serve(lambda path, body, n: failure(401, f"Incorrect API key provided: {key} (or sk-very****6789)"))
    lm = OpenAILM("m", base_url=server.url)
    error = refusal(lm)
    assert server.seen[0][2]["authorization"] == f"Bearer {key}"
    shown = [str(error), repr(error), error.message, error.hint, repr(lm), str(error.record())]
    shown += ["".join(traceback.format_exception(error)), caplog.text]
    for text in shown:
        assert key not in text
        assert "6789" not in text
    assert "[API key]" in str(error)
