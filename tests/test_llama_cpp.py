"""Models in GGUF files: a tiny random one written on the spot, against transformers on the same weights."""

from __future__ import annotations

import json
import os
import struct
import sys
from pathlib import Path

import pytest

from codevqa.core.errors import CodeVQAError, ModelError, ModelNotFoundError, SetupError
from codevqa.models.base import GenerationRequest, Message
from codevqa.models.gguf_header import read_header
from codevqa.models.llama_cpp import LlamaCppLM, find

# Texts that llama.cpp's tokenizer and that of transformers cut into the same tokens.
PROMPTS = ["What color is the car?", "yes", "box_x, box_y = get_pos(img,", "Context: a dog on a sofa. a cat"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("gguf", reason="the package gguf, which writes the tiny model, is not installed")
    from tiny_gguf import build_tiny_gguf

    return build_tiny_gguf(tmp_path_factory.mktemp("gguf")).parent


@pytest.fixture(scope="module")
def lm(folder: Path) -> LlamaCppLM:
    pytest.importorskip("xllamacpp", reason="the extra gguf is not installed")
    return LlamaCppLM(folder / "tiny.gguf", threads=1)


def turns(text: str) -> tuple[Message, ...]:
    return (Message("system", "Be brief."), Message("user", text))


def test_greedy_text_is_that_of_transformers_on_the_same_weights(folder: Path, lm: LlamaCppLM) -> None:
    from codevqa.models.causal_lm import TransformersLM

    reference = TransformersLM.from_pretrained(folder, device="cpu")
    requests = [GenerationRequest(prompt, 12) for prompt in PROMPTS]
    requests += [GenerationRequest(turns(prompt), 12) for prompt in PROMPTS]
    expected, found = reference.generate(requests), lm.generate(requests)
    assert [one.prompt_tokens for one in found] == [one.prompt_tokens for one in expected]
    assert len({one.text for one in expected}) == len(requests)
    ended = 0
    for ours, theirs in zip(found, expected, strict=True):
        if ours.completion_tokens == theirs.completion_tokens:
            # A character that is not whole yet is held back by the one and shown as a mark by the other.
            assert theirs.text.rstrip("\ufffd").startswith(ours.text.rstrip("\ufffd"))
            assert len(theirs.text) - len(ours.text) <= 2
        else:
            ended += 1  # at a control token, where transformers goes on
            assert theirs.text.startswith(ours.text)
    assert ended < len(requests) // 2


def test_together_and_again_is_as_one_by_one(lm: LlamaCppLM) -> None:
    requests = [GenerationRequest(prompt, 3 + 4 * i) for i, prompt in enumerate(PROMPTS)]
    requests.append(GenerationRequest(turns("yes"), 9))
    single = [lm.generate([request])[0] for request in requests]
    assert lm.generate(requests) == lm.generate(requests[::-1])[::-1] == single
    assert lm.generate([]) == []


def test_the_beginning_of_a_prompt_is_computed_once(lm: LlamaCppLM, monkeypatch: pytest.MonkeyPatch) -> None:
    reused: list[int] = []
    server = lm._server

    class Counting:
        def handle_completions(self, asked: object, written: object) -> None:
            def told(said: dict[str, dict[str, int]]) -> object:
                if said.get("timings"):
                    reused.append(said["timings"]["cache_n"])
                return written(said)  # type: ignore[operator]

            server.handle_completions(asked, told)

    monkeypatch.setattr(lm, "_server", Counting())
    head = "Context: a dog on a sofa. a cat under the table. " * 3
    other = "img = open_image( box = get_pos(img, " * 3
    questions = [GenerationRequest(f"{text}{end}", 2) for end in "abc" for text in (head, other)]
    lm.generate(questions[:2])
    reused.clear()
    # Two beginnings in turns, as programs and readings come: both stay.
    for question in questions[2:]:
        lm.generate([question])
    assert min(reused) > 30


def test_a_stop_string_and_the_limit_end_a_text(lm: LlamaCppLM) -> None:
    (free,) = lm.generate([GenerationRequest(PROMPTS[2], 24)])
    stop = free.text[6:9]
    (cut,) = lm.generate([GenerationRequest(PROMPTS[2], 24, ("never this", "", stop))])
    assert cut.text == free.text[: free.text.index(stop)]
    assert cut.completion_tokens < free.completion_tokens
    (short,) = lm.generate([GenerationRequest(PROMPTS[2], 5)])
    assert short.completion_tokens == 5 and free.text.startswith(short.text.rstrip("\ufffd"))


def test_a_control_token_ends_a_text(folder: Path, lm: LlamaCppLM) -> None:
    found = lm.generate([GenerationRequest(f"{prompt} {n}", 60) for prompt in PROMPTS for n in "abcdefgh"])
    assert not any(mark in one.text for one in found for mark in ("<|fim_middle|>", "<s>", "<pad>", "</s>"))
    # The network is random and writes each of its 400 tokens now and then.
    assert any(one.completion_tokens < 60 for one in found)


def test_whoever_listens_hears_beginnings_and_the_whole(lm: LlamaCppLM) -> None:
    for prompt in (PROMPTS[2], turns(PROMPTS[2])):
        heard: list[str] = []
        (completion,) = lm.generate([GenerationRequest(prompt, 24, (), on_text=heard.append)])
        assert len(heard) > 1 and heard[-1] == completion.text
        assert all(completion.text.startswith(one) for one in heard)


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (GenerationRequest("", 3), "The prompt is empty"),
        (GenerationRequest((), 3), "The prompt is empty"),
        (GenerationRequest("x", 0), "max_tokens is 0"),
        (GenerationRequest("img = " * 400, 3), r"The prompt is \d+ tokens long; tiny has a context of 512"),
        (GenerationRequest(turns("img = " * 400), 3), r"The prompt is \d+ tokens long; tiny has a context of 512"),
    ],
)
def test_what_cannot_be_continued_is_said(lm: LlamaCppLM, request_: GenerationRequest, says: str) -> None:
    with pytest.raises(ModelError, match=says):
        lm.generate([request_])
    assert lm.generate([GenerationRequest("yes", 3)])[0].completion_tokens == 3  # it goes on afterwards


def test_a_full_context_ends_a_text(folder: Path) -> None:
    pytest.importorskip("xllamacpp", reason="the extra gguf is not installed")
    small = LlamaCppLM(folder / "tiny.gguf", threads=1, context=256)
    assert small.context == 256
    (found,) = small.generate([GenerationRequest("img = " * 60 + PROMPTS[2], 500)])
    assert found.prompt_tokens + found.completion_tokens <= 256


def test_the_port_that_the_library_opens_refuses_strangers(lm: LlamaCppLM) -> None:
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    address = lm._server.listening_address
    assert address.startswith("http://127.0.0.1:")
    asked = Request(
        f"{address}/completion", json.dumps({"prompt": "yes"}).encode(), {"Content-Type": "application/json"}
    )
    with pytest.raises(HTTPError) as caught, urlopen(asked, timeout=20):
        pass
    assert caught.value.code == 401
    caught.value.close()


def test_a_model_without_a_chat_template_says_so(tmp_path: Path) -> None:
    pytest.importorskip("gguf", reason="the package gguf, which writes the tiny model, is not installed")
    pytest.importorskip("xllamacpp", reason="the extra gguf is not installed")
    from tiny_gguf import build_tiny_gguf

    plain = LlamaCppLM(build_tiny_gguf(tmp_path, chat_template=None), threads=1, name="plain")
    assert not plain.chat and plain.name == "plain"
    with pytest.raises(SetupError, match="plain has no chat template"):
        plain.generate([GenerationRequest(turns("yes"), 3)])


def test_a_header_says_what_the_model_is(folder: Path, lm: LlamaCppLM) -> None:
    header = read_header(folder / "tiny.gguf")
    assert header.control_tokens == ("<pad>", "<s>", "</s>", "<|fim_middle|>")
    assert header.context == 512 and "assistant" in header.chat_template
    assert lm.chat and (lm.name, lm.context) == ("tiny", 512)


def damaged(folder: Path) -> dict[str, tuple[bytes, str]]:
    text = b"\x05\0\0\0\0\0\0\0hello"
    return {
        "text": (b"not a model at all", "is not a GGUF file"),
        "empty": (b"", "is not a GGUF file"),
        "version": (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "has GGUF version 1"),
        "short": (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text[:9], "breaks off"),
        "kind": (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text + struct.pack("<I", 77), "cannot be read"),
        "nested": (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text + struct.pack("<IIQ", 9, 9, 1) * 9, "cannot be read"),
        "list": (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text + struct.pack("<IIQ", 9, 4, 1 << 60), "cannot be read"),
        "long": (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1 << 60), "cannot be read"),
    }


def test_a_file_that_is_no_model_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="No GGUF file at"):
        LlamaCppLM(tmp_path / "none.gguf")
    for name, (content, says) in damaged(tmp_path).items():
        path = tmp_path / f"{name}.gguf"
        path.write_bytes(content)
        with pytest.raises(ModelNotFoundError, match=says) as caught:
            LlamaCppLM(path)
        assert "\n" not in str(caught.value)


def test_what_llama_cpp_cannot_load_is_one_clear_line(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp", reason="the extra gguf is not installed")
    path = tmp_path / "bare.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 0))
    with pytest.raises(ModelNotFoundError, match=r"llama\.cpp cannot load"):
        LlamaCppLM(path)


def test_without_the_package_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(SetupError, match=r"pip install 'codevqa\[gguf\]'"):
        LlamaCppLM.from_pretrained("nobody/nothing/model.gguf")


def test_a_file_of_the_hub_is_fetched_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    asked: list[tuple[str, str]] = []

    def download(repository: str, file: str) -> str:
        asked.append((repository, file))
        if repository != "some/repository":
            raise OSError("no network\nand more")
        return str(tmp_path / file)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    assert find("some/repository/one.gguf") == tmp_path / "one.gguf"
    assert asked == [("some/repository", "one.gguf")]
    for local in ("one.gguf", "./a/b/one.gguf", "/a/b/one.gguf", "~/a/one.gguf", tmp_path / "a" / "b.gguf"):
        find(local)
    assert len(asked) == 1
    with pytest.raises(ModelNotFoundError, match="the hub gives none: no network") as caught:
        find("other/repository/one.gguf")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("options", [{"context": 0}, {"threads": 0}, {"prefix_cache_bytes": -1}])
def test_numbers_out_of_range_are_refused(tmp_path: Path, options: dict[str, int]) -> None:
    with pytest.raises(CodeVQAError, match="must be positive"):
        LlamaCppLM(tmp_path / "none.gguf", **options)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_real_coder_writes_a_program() -> None:
    pytest.importorskip("xllamacpp", reason="the extra gguf is not installed")
    given = os.environ.get("CODEVQA_REAL_LM")
    if not given or not (Path(given) / "model.gguf").is_file():
        pytest.skip("CODEVQA_REAL_LM names no folder with a model.gguf")
    from codevqa.core.settings import WriterSettings
    from codevqa.prompts import load
    from codevqa.writing.prompt_forms import extract_program
    from codevqa.writing.writer import Writer

    real = LlamaCppLM(Path(given) / "model.gguf")
    assert real.chat
    writer = Writer(real, load("gqa"), None, WriterSettings(form="chat", selection="fixed", shots=4))
    request, _ = writer.request("Is the car left of the tree?", "image")
    (completion,) = real.generate([request])
    source = extract_program(completion.text)
    compile(source, "program", "exec")
    assert all(word in source for word in ("answer =", "img, ", "car", "tree")) and "<|" not in completion.text
