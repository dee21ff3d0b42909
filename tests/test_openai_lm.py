"""OpenAILM against an HTTP server that misbehaves on demand."""

import socket
import threading
import time
from typing import Any
from unittest.mock import Mock

import pytest
from engine_kit import RED, engine
from openai_kit import ASK, KEY, Reply, Serve, completion, failure, refusal, streamed, turn

from codevqa.core.errors import ServerError, SetupError
from codevqa.models.openai_lm import OpenAILM
from codevqa.models.protocols import GenerationRequest, Message


def test_completion_request_and_result(serve: Serve) -> None:
    server = serve(lambda path, body, n: completion("one\n# Image 2 two"))
    lm = OpenAILM("m", base_url=server.url, api_key=KEY)
    stop = ("a", "b", "c", "d", "\n# Image", "")
    (result,) = lm.generate([GenerationRequest("Say", 5, stop=stop)])
    assert (result.text, result.prompt_tokens, result.completion_tokens) == ("one", 7, 3)
    path, body, headers = server.seen[0]
    assert path == "/v1/completions"
    assert body == {"model": "m", "prompt": "Say", "max_tokens": 5, "temperature": 0, "stop": ["a", "b", "c", "d"]}
    assert headers["authorization"] == f"Bearer {KEY}"
    assert lm.generate([]) == []


def test_chat_requests(serve: Serve) -> None:
    server = serve(lambda path, body, n: turn(f"{len(body['messages'])} turns"))
    turns = (Message("system", "Be short."), Message("user", "Hi"))
    by_form = OpenAILM("m", base_url=server.url, form="chat")
    assert by_form.generate([ASK])[0].text == "1 turns"
    assert OpenAILM("m", base_url=server.url).generate([GenerationRequest(turns, 5)])[0].text == "2 turns"
    assert [path for path, _, _ in server.seen] == ["/v1/chat/completions"] * 2
    assert server.seen[0][1]["messages"] == [{"role": "user", "content": "Say"}]
    assert server.seen[1][1]["messages"][0] == {"role": "system", "content": "Be short."}
    assert "stop" not in server.seen[0][1]


def test_as_many_as_may_be_are_in_flight_together_and_keep_their_order(serve: Serve) -> None:
    busy, most, together, lock = [0], [0], threading.Barrier(3), threading.Lock()

    def answer(path: str, body: dict[str, Any], n: int) -> Reply:
        with lock:
            busy[0] += 1
            most[0] = max(most[0], busy[0])
        together.wait(10)
        time.sleep(0.01 * (12 - int(body["prompt"])))
        with lock:
            busy[0] -= 1
        return completion(body["prompt"])

    lm = OpenAILM("m", base_url=serve(answer).url, concurrency=3)
    results = lm.generate([GenerationRequest(str(i), 5) for i in range(12)])
    assert [result.text for result in results] == [str(i) for i in range(12)]
    assert most[0] == 3


@pytest.mark.parametrize("status", [408, 429, 503])
def test_passing_failures_are_tried_again(serve: Serve, status: int) -> None:
    server = serve(lambda path, body, n: failure(status, "busy") if n < 3 else completion("ok"))
    assert OpenAILM("m", base_url=server.url).generate([ASK])[0].text == "ok"
    assert len(server.seen) == 3
    error = refusal(OpenAILM("m", base_url=serve(lambda *_: failure(status, "no\nmore")).url, max_retries=1))
    assert error.retryable and f"answered {status} (2 attempts): no more" in str(error)


@pytest.mark.timing
def test_retry_after_is_heeded(serve: Serve) -> None:
    server = serve(lambda path, body, n: failure(429, "busy", {"Retry-After": "1"}) if n == 1 else completion("ok"))
    start = time.monotonic()
    OpenAILM("m", base_url=server.url).generate([ASK])
    assert 1.0 <= time.monotonic() - start < 3


def test_a_server_that_takes_too_long_is_given_up(serve: Serve) -> None:
    server = serve(lambda path, body, n: time.sleep(1) or completion("late"))  # type: ignore[func-returns-value]
    assert "did not answer within 0.3 s" in str(refusal(OpenAILM("m", base_url=server.url, timeout=0.3)))
    assert len(server.seen) == 1


REFUSALS = [
    (failure(401, f"Incorrect API key provided: {KEY}."), "answered 401", "OPENAI_API_KEY"),
    (failure(404, "This is a chat model and not supported"), "answered 404", 'form="chat"'),
    (failure(400, "context is 2048 tokens"), "answered 400: context is 2048 tokens", ""),
    (failure(429, "quota", code="insufficient_quota"), "answered 429: quota", "quota"),
    ((404, "<html>nothing here</html>", {}), "answered 404", "OPENAI_BASE_URL"),
]


@pytest.mark.parametrize(("reply", "says", "hint"), REFUSALS)
def test_refusals_are_final(serve: Serve, reply: Reply, says: str, hint: str) -> None:
    server = serve(lambda path, body, n: reply)
    error = refusal(OpenAILM("m", base_url=server.url, api_key=KEY))
    assert len(server.seen) == 1
    assert says in str(error)
    assert hint in error.hint
    assert not error.retryable
    assert isinstance(error, ServerError) == (reply[0] != 400), "a request that is refused is no server that is down"


SILENT = [
    (turn(None, "length"), "wrote no text within 5 tokens. Raise query.max_tokens"),
    (turn("<think>\nHm. Red?"), "wrote only thoughts within 5 tokens. Raise query.max_tokens"),
    (turn("[THINK]Hm. Red?[/THINK]"), "wrote only thoughts within 5 tokens. Raise query.max_tokens"),
    (turn("", reasoning_content="Hm. Red?"), "wrote only thoughts within 5 tokens. Raise query.max_tokens"),
    (turn("The pers", "content_filter"), "withheld text: its content filter stepped in."),
    (turn([{"type": "refusal", "refusal": "No."}], refusal="No."), "refused to answer: No."),
    (turn(None, tool_calls=[{"id": "1"}], finish="tool_calls"), "called a tool in place of an answer."),
    (turn(""), "wrote nothing."),
    (turn(None), "wrote nothing."),
]


@pytest.mark.parametrize(("reply", "message"), SILENT)
def test_an_answer_without_text_says_why(serve: Serve, reply: Reply, message: str) -> None:
    server = serve(lambda path, body, n: reply)
    error = refusal(OpenAILM("m", base_url=server.url, form="chat"))
    assert message in str(error) and not isinstance(error, ServerError) and not error.retryable
    assert len(server.seen) == 1


SPOKEN = [
    (turn("<think>Hm. Red?</think>\n\nred"), "red"),
    (turn("<seed:think>Hm. Red?</seed:think>\n\nred"), "red"),
    (turn("Hm. Red?</think>red"), "red"),  # the template opened the thoughts
    (turn("use <think> and </think> so"), "use <think> and </think> so"),
    (
        turn([{"type": "thinking", "thinking": []}, {"type": "text", "text": "r"}, {"type": "text", "text": "ed"}]),
        "red",
    ),
    (turn("a\ud800b"), "a\ufffdb"),
]


@pytest.mark.parametrize(("reply", "text"), SPOKEN)
def test_the_text_of_an_answer_is_without_thoughts(serve: Serve, reply: Reply, text: str) -> None:
    server = serve(lambda path, body, n: reply)
    (result,) = OpenAILM("m", base_url=server.url, form="chat").generate([ASK])
    assert result.text == text
    result.text.encode()


@pytest.mark.parametrize(
    "message",
    [
        (400, "System role not supported"),
        (400, "Conversation roles must alternate user/assistant/user"),
        (500, "Jinja Exception: System role not supported"),
        (400, "No: disk full"),
    ],
)
def test_a_template_without_a_system_turn_is_told_it_by_the_user(serve: Serve, message: tuple[int, str]) -> None:
    def answer(path: str, body: dict[str, Any], n: int) -> Reply:
        roles = [entry["role"] for entry in body["messages"]]
        return failure(*message) if "system" in roles else turn(body["messages"][0]["content"])

    server = serve(answer)
    lm = OpenAILM("m", base_url=server.url)
    turns = (Message("system", "Be short."), Message("user", "Hi"), Message("assistant", "Ho"), Message("user", "So"))
    if "disk" in message[1]:
        assert message[1] in str(refusal(lm, GenerationRequest(turns, 5)))
        return
    assert [result.text for result in lm.generate([GenerationRequest(turns, 5)])] == ["Be short.\n\nHi"]
    assert [entry["role"] for entry in server.seen[1][1]["messages"]] == ["user", "assistant", "user"]
    lm.generate([GenerationRequest(turns, 5)])
    assert len(server.seen) == 3, "it is remembered"


@pytest.mark.parametrize("usage", [[], {"prompt_tokens": "7"}, {"prompt_tokens": -1}, {"prompt_tokens": True}])
def test_tokens_that_nobody_counted_are_estimated_and_marked(serve: Serve, usage: Any) -> None:
    server = serve(lambda path, body, n: (200, {**completion("red and blue")[1], "usage": usage}, {}))
    (result,) = OpenAILM("m", base_url=server.url).generate([GenerationRequest("What?", 5)])
    assert (result.text, result.prompt_tokens, result.completion_tokens, result.estimated) == (
        "red and blue",
        2,
        3,
        True,
    )
    with engine(OpenAILM("m", base_url=server.url)) as vqa:
        cost = vqa.ask(RED, "What?").cost
    assert cost is not None and 6 < cost.estimated_tokens < cost.prompt_tokens, "the reader counted its own"


def test_a_mistake_of_ours_is_not_told_as_the_server_s(serve: Serve) -> None:
    broken = Mock(side_effect=AttributeError("our own"))
    server = serve(lambda path, body, n: streamed("r", "ed"))
    with pytest.raises(AttributeError, match="our own"):
        OpenAILM("m", base_url=server.url).generate([GenerationRequest("Say", 5, on_text=broken)])


def test_nothing_listens() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://user:password@127.0.0.1:{free.getsockname()[1]}/v1"
    start = time.monotonic()
    error = refusal(OpenAILM("m", base_url=url), *[ASK] * 40)
    assert time.monotonic() - start < 20
    assert "Cannot reach the model server at http://127.0.0.1" in str(error)
    assert "refused" in str(error)
    assert "password" not in str(error)


def test_parameters_a_model_refuses_are_left_out(serve: Serve) -> None:
    def answer(path: str, body: dict[str, Any], n: int) -> Reply:
        for name in ("max_tokens", "temperature"):
            if name in body:
                return failure(400, f"no {name}", param=name, code="unsupported_parameter")
        return turn(str(body["max_completion_tokens"]))

    server = serve(answer)
    lm = OpenAILM("m", base_url=server.url, form="chat")
    assert lm.generate([ASK])[0].text == "5"
    assert len(server.seen) == 3
    lm.generate([ASK])
    assert len(server.seen) == 4
    always = serve(lambda path, body, n: failure(400, "no", param="temperature", code="unsupported_value"))
    refusal(OpenAILM("m", base_url=always.url))
    assert len(always.seen) == 2


REFUSED = [
    ("max_tokens", 400, "litellm: Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens'."),
    ("temperature", 400, "Unsupported parameter: 'temperature' is not supported with this model."),
    ("temperature", 422, "Input validation error: `temperature` must be strictly positive"),
    ("stop", 400, "Argument not supported on this model: stop"),
    ("stop", 500, "Unknown argument: stop"),
]


@pytest.mark.parametrize(("name", "status", "words"), REFUSED)
def test_a_refused_parameter_is_known_by_its_name_alone(serve: Serve, name: str, status: int, words: str) -> None:
    server = serve(lambda path, body, n: failure(status, words) if name in body else completion("ok"))
    lm = OpenAILM("m", base_url=server.url)
    for _ in range(2):
        assert lm.generate([GenerationRequest("Say", 5, stop=("\nQ:",))])[0].text == "ok"
    assert len(server.seen) == 3, "it is learnt once"
    body = server.seen[-1][1]
    assert body.get("max_completion_tokens", body.get("max_tokens")) == 5
    assert {"temperature", "stop"} - {name} <= body.keys()


@pytest.mark.parametrize(
    "words", ["max_tokens is too large: 5. This model supports at most 4 tokens.", "Please stop, we are full", "no"]
)
def test_what_is_no_refusal_of_a_parameter_leaves_it_in(serve: Serve, words: str) -> None:
    server = serve(lambda path, body, n: failure(400, words))
    lm = OpenAILM("m", base_url=server.url)
    assert words.rstrip(".") in str(refusal(lm, GenerationRequest("Say", 5, stop=("x",)))) and len(server.seen) == 1


def test_a_parameter_that_was_named_by_the_way_is_sent_again(serve: Serve) -> None:
    server = serve(lambda path, body, n: failure(400, "Unsupported: stop") if n < 3 else completion("ok"))
    lm = OpenAILM("m", base_url=server.url)
    request = GenerationRequest("Say", 5, stop=("x",))
    assert "Unsupported" in str(refusal(lm, request))
    lm.generate([request])
    assert ["stop" in body for _, body, _ in server.seen] == [True, False, True]


@pytest.mark.parametrize(
    "address", ["http://[::1", "http://a\nb/v1", "hunter2@h", "ftp://h/v1", "http://h:99999/v1", "http://a..b/"]
)
def test_an_address_that_is_none_is_one_line(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if "\n" not in address:
        monkeypatch.setenv("OPENAI_BASE_URL", address)
    with pytest.raises(SetupError, match="OPENAI_BASE_URL") as caught:
        OpenAILM("m", base_url=address if "\n" in address else None)
    assert "hunter2" not in str(caught.value)
    with pytest.raises(SetupError, match="OPENAI_API_KEY"):
        OpenAILM("m", base_url="http://127.0.0.1:9", api_key="sk-\u00e9")


def test_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(SetupError, match="OPENAI_API_KEY"):
        OpenAILM("gpt-4.1-mini")
    assert "api.openai.com" in repr(OpenAILM("gpt-4.1-mini", api_key=KEY))
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    assert "127.0.0.1:9" in repr(OpenAILM("m"))
    for wrong in ({"form": "poem"}, {"timeout": 0}, {"max_retries": -1}, {"concurrency": 0}):
        with pytest.raises(SetupError):
            OpenAILM("m", **wrong)
