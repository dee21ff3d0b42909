"""Model servers that mean harm, or repeat a secret: what they say is bounded, and no key is passed on."""

from __future__ import annotations

import logging
import traceback
from typing import Any

import pytest
from openai_kit import Serve, completion, failure

from codevqa.core.errors import ModelError
from codevqa.models import openai_lm
from codevqa.models.base import GenerationRequest
from codevqa.models.openai_lm import OpenAILM

KEY = "sk-verysecretkey0123456789"
ASK = GenerationRequest("Say", 5)


def refusal(lm: OpenAILM) -> ModelError:
    with pytest.raises(ModelError) as caught:
        lm.generate([ASK])
    assert "\n" not in str(caught.value)
    return caught.value


def test_what_a_server_says_is_one_short_line(serve: Serve) -> None:
    server = serve(lambda path, body, n: failure(400, "no\n" * 10_000))
    assert len(str(refusal(OpenAILM("m", base_url=server.url)))) < 500


@pytest.mark.timeout(20)
def test_a_server_does_not_have_us_wait_for_a_year(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai_lm, "_LONGEST_RETRY_AFTER_S", 0.1)
    server = serve(
        lambda path, body, n: completion("yes") if n > 1 else failure(429, "later", {"Retry-After": "31536000"})
    )
    assert OpenAILM("m", base_url=server.url).generate([ASK])[0].text == "yes"


@pytest.mark.parametrize("said", [5, ["yes"], {"yes": 1}])
def test_what_is_no_text_is_no_answer(serve: Serve, said: Any) -> None:
    server = serve(lambda path, body, n: completion(said))
    assert "did not answer as" in str(refusal(OpenAILM("m", base_url=server.url)))


def test_the_password_of_an_address_is_not_told(serve: Serve) -> None:
    server = serve(lambda path, body, n: failure(400, "no"))
    lm = OpenAILM("m", base_url=server.url.replace("//", "//ada:hunter2hunter2@"))
    assert "hunter2" not in str(refusal(lm)) + repr(lm)


@pytest.mark.parametrize("key", [KEY, "plain token 6789"])
def test_key_is_nowhere(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, key: str
) -> None:
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
