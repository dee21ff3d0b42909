"""Model servers that mean harm, or repeat a secret: what they say is bounded, and no key is passed on."""

import gzip
import logging
import traceback
from typing import Any

import pytest
from openai_kit import ASK, KEY, Serve, completion, failure, refusal

from codevqa.models import openai_client
from codevqa.models.openai_lm import OpenAILM


@pytest.mark.timeout(20)
def test_a_server_does_not_have_us_wait_for_a_year(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai_client, "_LONGEST_RETRY_AFTER_S", 0.1)
    server = serve(
        lambda path, body, n: completion("yes") if n > 1 else failure(429, "later", {"Retry-After": "31536000"})
    )
    assert OpenAILM("m", base_url=server.url).generate([ASK])[0].text == "yes"


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
    assert f"answered {status}, which points elsewhere: {other.url}/completions. Set base_url" in str(error)
    assert (len(server.seen), other.seen) == (1, [])


NO_TEXT = '{"choices": [{"text": {"yes": 1}, "finish_reason": "stop"}]}'


@pytest.mark.parametrize(
    "body",
    ['{"choices": ' + "[" * 200_000, "9" * 200_000, '{"choices": 5}', '{"choices": []}', "null", "<html>hi", NO_TEXT],
)
def test_what_nobody_could_read_is_no_answer(serve: Serve, body: str) -> None:
    server = serve(lambda path, given, n: (200, body, {"Content-Type": "application/json"}))
    assert "did not answer as an OpenAI-compatible server" in str(refusal(OpenAILM("m", base_url=server.url)))


@pytest.mark.parametrize(
    "error", [{"code": [1], "param": {}, "message": "no\ud800"}, ["no"], {"message": {"a": 1}}, "no\n" * 10_000]
)
def test_refusals_of_any_form_are_one_short_line(serve: Serve, error: Any) -> None:
    server = serve(lambda path, body, n: (400, {"error": error}, {}))
    told = str(refusal(OpenAILM("m", base_url=server.url)))
    assert "answered 400" in told and told.encode() and len(told) < 500
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
