"""Text told as it is written: by the models of this process, and by a server that streams."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from lm_kit import build, ending, llama
from openai_kit import Reply, Serve, completion, event, failure, streamed, turn
from tiny_lm import build_tiny_lm

from codevqa.core.errors import ServerError
from codevqa.models.causal_lm import TransformersLM
from codevqa.models.openai_lm import OpenAILM
from codevqa.models.protocols import Completion, GenerationRequest, LanguageModel, Message

PROMPTS = ["What color is the car?", "yes", "box_x, box_y = get_pos(img,", "Context: a dog on a sofa."]


def listened(lm: LanguageModel, requests: list[GenerationRequest]) -> tuple[list[Completion], list[list[str]]]:
    """Completions, and what was told on the way to each."""
    streams: list[list[str]] = [[] for _ in requests]
    asked = [replace(request, on_text=heard.append) for request, heard in zip(requests, streams, strict=True)]
    return list(lm.generate(asked)), streams


def assert_grows(texts: list[str], whole: str) -> None:
    """Each text told begins the next, and the last is the reply."""
    assert texts[-1] == whole
    assert all(later.startswith(earlier) and later != earlier for earlier, later in pairwise(texts))


# --- models of this process ------------------------------------------------------------------------------------------


@pytest.fixture(params=["packed", "slots", "generate"])
def lm(request: pytest.FixtureRequest) -> TransformersLM:
    return build(llama, request.param)


@pytest.fixture(scope="module")
def plain() -> TransformersLM:
    """Another of the same, which has not heard what the one under test is asked."""
    return build(llama, "generate")


def test_text_is_told_as_it_is_written(lm: TransformersLM, plain: TransformersLM) -> None:
    requests = [GenerationRequest(prompt, 40) for prompt in PROMPTS]
    completions, streams = listened(lm, requests)
    assert completions == plain.generate(requests), "listening changed what is written"
    for reply, heard in zip(completions, streams, strict=True):
        assert_grows(heard, reply.text)
        assert len(heard) >= reply.completion_tokens // 6
        assert len(heard[0]) < len(reply.text) / 2


def test_it_is_told_before_the_rest_is_made(lm: TransformersLM, monkeypatch: pytest.MonkeyPatch) -> None:
    passes = [0]
    embed: Any = lm.model.model.embed_tokens  # once a pass, whoever makes it
    forward = embed.forward

    def counted(*args: Any, **options: Any) -> Any:
        passes[0] += 1
        return forward(*args, **options)

    monkeypatch.setattr(embed, "forward", counted)
    at: list[int] = []
    lm.generate([GenerationRequest(PROMPTS[0], 40, on_text=lambda text: at.append(passes[0]))])
    assert at[0] < passes[0] / 2


def test_a_stop_string_is_never_told_not_even_its_beginning(lm: TransformersLM) -> None:
    free = [lm.generate([GenerationRequest(prompt, 40)])[0].text for prompt in PROMPTS]
    requests = [GenerationRequest(p, 40, (t[len(t) // 2 :][:9],)) for p, t in zip(PROMPTS, free, strict=True)]
    completions, streams = listened(lm, requests)
    for reply, text, request, heard in zip(completions, free, requests, streams, strict=True):
        assert reply.text == text[: text.index(request.stop[0])]
        assert_grows(heard, reply.text)


@pytest.mark.parametrize("way", ["packed", "slots", "generate"])
def test_nothing_is_told_past_an_end_token(way: str) -> None:
    lm = build(ending, way)
    # What might begin a stop string is held back until the end token shows that it does not.
    (ended,) = lm.generate([GenerationRequest(PROMPTS[0], 24)])
    assert ended.completion_tokens < 24
    requests = [GenerationRequest(PROMPTS[0], 24, (ended.text[-2:] + "never",)), GenerationRequest(PROMPTS[1], 14)]
    plain = lm.generate(requests)
    completions, streams = listened(lm, requests)
    assert completions == plain and plain[0] == ended
    for reply, heard in zip(completions, streams, strict=True):
        assert_grows(heard, reply.text)


# --- servers ---------------------------------------------------------------------------------------------------------

FORMS = pytest.mark.parametrize("form", ["completion", "chat"])


@FORMS
def test_pieces_of_a_served_answer(serve: Serve, form: Any) -> None:
    server = serve(lambda path, body, n: streamed("img", " = 1\n", "# Imp", "ort\n# Im", "age 2", chat=form == "chat"))
    lm = OpenAILM("m", base_url=server.url, form=form)
    (result,), (texts,) = listened(lm, [GenerationRequest("Say", 5, ("\n# Image",))])
    assert result == Completion("img = 1\n# Import", 7, 3)
    assert texts == ["img", "img = 1", "img = 1\n# Imp", "img = 1\n# Import"]
    _, body, _ = server.seen[0]
    assert body["stream"] is True and body["stream_options"] == {"include_usage": True}


@FORMS
@pytest.mark.parametrize("first", ["refused", "broken off"])
def test_a_retry_begins_the_text_anew(serve: Serve, form: Any, first: str) -> None:
    chat = form == "chat"
    broken = streamed("wrong", " start", chat=chat, finish=None) if first == "broken off" else failure(503, "busy")
    server = serve(lambda path, body, n: broken if n == 1 else streamed("right", " end", chat=chat))
    (result,), (texts,) = listened(OpenAILM("m", base_url=server.url, form=form), [GenerationRequest("Say", 5)])
    assert result.text == "right end"
    assert texts == (["wrong", "wrong start"] if first == "broken off" else []) + ["right", "right end"]
    assert len(server.seen) == 2


def test_an_error_in_the_midst_of_a_stream(serve: Serve) -> None:
    def failing() -> Iterator[str]:
        yield event({"choices": [{"index": 0, "text": "one", "finish_reason": None}]})
        yield event({"error": {"message": "out of memory", "code": 500}})

    server = serve(lambda path, body, n: (200, failing(), {}))
    with pytest.raises(ServerError, match="out of memory"):
        listened(OpenAILM("m", base_url=server.url, max_retries=0), [GenerationRequest("Say", 5)])


@FORMS
def test_servers_that_do_not_stream(serve: Serve, form: Any) -> None:
    server = serve(lambda path, body, n: turn("whole") if form == "chat" else completion("whole"))
    (result,), (texts,) = listened(OpenAILM("m", base_url=server.url, form=form), [GenerationRequest("Say", 5)])
    assert (result.text, texts, len(server.seen)) == ("whole", ["whole"], 1)


def test_thoughts_are_not_told_and_halves_of_a_character_are_joined(serve: Serve) -> None:
    pieces = ("<th", "ink>", "so\n# Image", "</thi", "nk>", "\n", "red ", "\ud83d", "\ude00", "!")
    server = serve(lambda path, body, n: streamed(*pieces, chat=True))
    lm = OpenAILM("m", base_url=server.url, form="chat")
    (result,), (texts,) = listened(lm, [GenerationRequest("Say", 5, ("\n# Image",))])
    assert result.text == "red \U0001f600!"
    assert texts == ["red ", "red \U0001f600", "red \U0001f600!"]


def test_a_server_that_knows_no_stream_options(serve: Serve) -> None:
    def answer(path: str, body: dict[str, Any], n: int) -> Reply:
        if "stream_options" in body:
            return failure(400, "Unrecognized request argument supplied: stream_options")
        return streamed("a", "b")

    server = serve(answer)
    (result,), (texts,) = listened(OpenAILM("m", base_url=server.url), [GenerationRequest("Say", 5)])
    assert result.text == "ab" and texts == ["a", "ab"] and len(server.seen) == 2


@pytest.mark.slow
def test_a_real_server_streams_what_the_local_model_writes(tmp_path: Path, served: str) -> None:
    folder = build_tiny_lm(tmp_path)
    local = TransformersLM.from_pretrained(folder, device="cpu")
    texts = [GenerationRequest(prompt, 24) for prompt in PROMPTS]
    turns = GenerationRequest((Message("system", "Be short."), Message("user", "What color?")), 24)
    ours = local.generate([*texts, turns])
    texts[1] = replace(texts[1], stop=(ours[1].text[9:13],))
    ours = local.generate([*texts, turns])
    theirs, streams = listened(OpenAILM(str(folder), base_url=served), [*texts, turns])
    # This server keeps the bytes of an unfinished last character to itself.
    assert [c.text.rstrip("\ufffd") for c in theirs] == [c.text.rstrip("\ufffd") for c in ours]
    for reply, heard in zip(theirs, streams, strict=True):
        assert_grows(heard, reply.text)
        assert len(heard) > 3
