"""The client of model servers holds: busy servers, time, cancelling, broken streams, proxies, secrets."""

import asyncio
import base64
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from email.utils import formatdate
from typing import Any

import pytest
from engine_kit import RED, engine
from openai_kit import ASK, KEY, Reply, Serve, completion, event, failure, raw, refusal, streamed, turn

from codevqa.core.errors import EngineClosedError, ServerError, SetupError
from codevqa.core.events import Answered
from codevqa.core.notices import current
from codevqa.models.openai_lm import OpenAILM
from codevqa.models.protocols import GenerationRequest

PINGS = (b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n", b": ping\n\n")


def seconds_of(work: Any) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


# --- busy ------------------------------------------------------------------------------------------------------------

BUSY = [
    (failure(429, "busy", {"Retry-After": "1"}), 1.0),
    (failure(500, "busy", {"retry-after-ms": "600", "Retry-After": "9"}), 0.6),
    (failure(429, "Rate limit reached. Please try again in 1.2s. Visit us."), 1.2),
    (failure(429, "Please retry after 900 milliseconds"), 0.9),
    (failure(503, "Loading model"), 0.1),
]


@pytest.mark.timing
@pytest.mark.parametrize(("reply", "seconds"), BUSY)
def test_a_busy_server_is_waited_for_as_long_as_it_asks(serve: Serve, reply: Reply, seconds: float) -> None:
    server = serve(lambda path, body, n: reply if n == 1 else completion("ok"))
    lm = OpenAILM("m", base_url=server.url, max_retries=0)
    assert seconds <= seconds_of(lambda: lm.generate([ASK])) < seconds + 1.5


LONG = [
    (failure(429, "no", {"Retry-After": "90"}), "90 s"),
    (failure(429, "no", {"Retry-After": formatdate(time.time() + 10**6, usegmt=True)}), " s"),
    (failure(429, "no", {"retry-after-ms": "90000"}), "90 s"),
    (failure(429, "Please try again in 1h2m3.5s."), "3724 s"),
]


@pytest.mark.parametrize(("reply", "heard"), LONG)
def test_a_server_that_is_busy_for_long_is_given_up_at_once(serve: Serve, reply: Reply, heard: str) -> None:
    server = serve(lambda path, body, n: reply)
    error = refusal(OpenAILM("m", base_url=server.url))
    assert "answered 429 and asks to wait" in str(error) and f"{heard}, longer than max_wait" in str(error)
    assert error.retryable and len(server.seen) == 1


def test_the_waits_of_a_request_have_an_end(serve: Serve) -> None:
    server = serve(lambda path, body, n: failure(503, "Loading model"))
    lm = OpenAILM("m", base_url=server.url, max_wait=0.5)
    assert 0.5 <= seconds_of(lambda: refusal(lm)) < 3
    assert 2 <= len(server.seen) <= 4


# --- time ------------------------------------------------------------------------------------------------------------

ENDLESS = [
    (b"HTTP/1.1 200 OK\r\n", b"X-A: b\r\n"),
    (b"HTTP/1.1 103 Early Hints\r\n\r\n",),
    (b"HTTP/1.1 2", b"0"),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"0"),
    PINGS,
]


@pytest.mark.parametrize("pieces", ENDLESS)
def test_heads_and_frames_without_end_are_given_up_in_time(pieces: tuple[bytes, ...]) -> None:
    with raw(*pieces, pause=0.02) as url:
        lm = OpenAILM("m", base_url=url, timeout=0.4)
        assert seconds_of(lambda: refusal(lm)) < 2
        lm.timeout = 30.0
        asking = threading.Thread(target=refused_when_closed, args=(lm,))
        asking.start()
        time.sleep(0.3)
        lm.close()
        assert seconds_of(lambda: asking.join(10)) < 1.5


def refused_when_closed(lm: OpenAILM) -> None:
    with pytest.raises(EngineClosedError):
        lm.generate([ASK] * 40)


def test_the_check_of_a_server_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codevqa.models.openai_client._CONNECT_S", 0.4)
    with raw(*ENDLESS[0], pause=0.02) as url:
        assert seconds_of(OpenAILM("m", base_url=url).check) < 2


# --- cancelling ------------------------------------------------------------------------------------------------------


def test_an_interrupt_ends_requests_and_starts_none(serve: Serve) -> None:
    ended, over = threading.Semaphore(0), threading.Event()

    def endless() -> Any:
        try:
            while not over.wait(0.02):
                yield ": ping\n\n"
        finally:
            ended.release()

    server = serve(lambda path, body, n: (200, endless(), {}))
    lm = OpenAILM("m", base_url=server.url, concurrency=4)
    with engine(lm) as vqa:
        asyncio.run(given_up(vqa, server))
        assert all(ended.acquire(timeout=2) for _ in server.seen), "a connection is still open"
        count = len(server.seen)
        closing = threading.Timer(0.3, vqa.close)
        closing.start()
        began = time.monotonic()
        with pytest.raises(EngineClosedError):
            vqa.ask(RED, "Is it closed?")
        assert time.monotonic() - began < 2
    assert all(ended.acquire(timeout=2) for _ in server.seen[count:])
    over.set()


async def given_up(vqa: Any, server: Any) -> None:
    asking = [asyncio.create_task(vqa.ask_async(RED, f"Is it {n}?")) for n in range(8)]
    while not server.seen:
        await asyncio.sleep(0.02)
    await asyncio.sleep(0.3)  # a first batch may be smaller
    count = len(server.seen)
    for task in asking:
        task.cancel()
    await asyncio.gather(*asking, return_exceptions=True)
    await asyncio.sleep(1.0)
    assert len(server.seen) == count, "a request was started that nobody waits for"


def test_one_that_is_given_up_leaves_the_others_of_its_batch(serve: Serve) -> None:
    let = threading.Event()

    def answer(path: str, body: dict[str, Any], n: int) -> Reply:
        let.wait(10 if "zebra" in body["prompt"] else 0.5)
        return completion("answer = 'yes'")

    async def ask(vqa: Any) -> str:
        first = asyncio.create_task(vqa.ask_async(RED, "Is it first?"))
        while not server.seen:  # while it is under way, the others gather for the next batch
            await asyncio.sleep(0.02)
        left, kept = (asyncio.create_task(vqa.ask_async(RED, f"Is it {name}?")) for name in ("a zebra", "kept"))
        while len(server.seen) < 3:
            await asyncio.sleep(0.02)
        left.cancel()
        await first
        return str((await kept).text)

    server = serve(answer)
    with engine(OpenAILM("m", base_url=server.url, form="completion")) as vqa:
        assert seconds_of(lambda: asyncio.run(ask(vqa))) < 8
    let.set()


def test_a_name_that_is_looked_up_for_ever_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    over, asked = threading.Event(), threading.Event()

    def look_up(*_: Any, **__: Any) -> Any:
        asked.set()
        over.wait(20)
        raise OSError("no such name")

    monkeypatch.setattr("socket.getaddrinfo", look_up)
    lm = OpenAILM("m", base_url="http://models.example/v1")

    def close() -> None:
        asked.wait()
        lm.close()

    threading.Thread(target=close).start()
    began = time.monotonic()
    with pytest.raises(EngineClosedError):
        lm.generate([ASK])
    assert time.monotonic() - began < 2
    monkeypatch.setattr("codevqa.models.openai_client._CONNECT_S", 0.3)
    with pytest.raises(ServerError, match="Cannot reach the model server"):
        OpenAILM("m", base_url="http://models.example/v1").check()
    over.set()


def test_a_slow_answer_holds_up_no_other(serve: Serve) -> None:
    let = threading.Event()

    def answer(path: str, body: dict[str, Any], n: int) -> Reply:
        assert "slow" not in str(body) or let.wait(10)
        return turn("answer = 'yes'")

    async def ask(vqa: Any) -> list[str]:
        slow = asyncio.create_task(vqa.ask_async(RED, "Is it slow?"))
        while not server.seen:
            await asyncio.sleep(0.02)
        quick = [await vqa.ask_async(RED, f"Is it {number}?") for number in range(3)]
        let.set()
        return [each.text for each in (*quick, await slow)]

    server = serve(answer)
    with engine(OpenAILM("m", base_url=server.url)) as vqa:
        assert seconds_of(lambda: asyncio.run(ask(vqa))) < 8, "they waited for it"


# --- streams ---------------------------------------------------------------------------------------------------------


def listening(heard: list[str]) -> GenerationRequest:
    return GenerationRequest("Say", 5, on_text=heard.append)


def test_a_stream_that_ends_without_a_finish_is_asked_for_whole(serve: Serve) -> None:
    def cut() -> Any:
        yield event({"choices": [{"index": 0, "text": "who", "finish_reason": None}]})
        yield "data: [DONE]\n\n"

    server = serve(lambda path, body, n: (200, cut(), {}) if "stream" in body else completion("whole"))
    heard: list[str] = []
    lm = OpenAILM("m", base_url=server.url, max_retries=0)
    assert lm.generate([listening(heard)])[0].text == "whole" == heard[-1]
    assert "stream_options" not in server.seen[1][1]
    lm.generate([listening(heard)])
    assert "stream" in server.seen[2][1], "the next may stream again"


@pytest.mark.parametrize("form", ["completion", "chat"])
def test_two_who_watch_a_server_with_room_for_one_stream_get_whole_programs(serve: Serve, form: Any) -> None:
    newest = [0]

    def stream(chat: bool, number: int) -> Any:
        for piece in ("answer = 'ye", "s' if 1 < 2 and 2 < 1", " else 'no'"):
            if newest[0] != number:  # as llama-cpp-python's server does when any other request comes
                yield "data: [DONE]\n\n"
                return
            content = {"delta": {"content": piece}} if chat else {"text": piece}
            yield event({"choices": [{"index": 0, **content, "finish_reason": None}]})
            time.sleep(0.1)
        last: dict[str, Any] = {"delta": {}} if chat else {"text": ""}
        yield event({"choices": [{"index": 0, **last, "finish_reason": "stop"}]})
        yield "data: [DONE]\n\n"

    def answer(path: str, body: dict[str, Any], n: int) -> Reply:
        newest[0] = n
        whole = "answer = 'yes' if 1 < 2 and 2 < 1 else 'no'"
        if body.get("stream"):
            return 200, stream("messages" in body, n), {}
        return turn(whole) if "messages" in body else completion(whole)

    server = serve(answer)
    with engine(OpenAILM("m", base_url=server.url, form=form)) as vqa:
        for _ in range(2):  # what is remembered is whole as well
            watches = [vqa.watch(RED, f"Is it {number}?") for number in range(3)]
            for watch in watches:
                answered = list(watch)[-1]
                assert isinstance(answered, Answered)
                assert answered.answer.text == "no" and not answered.answer.trace.attempts
    assert any("stream" not in body for _, body, _ in server.seen), "no stream was broken"


@pytest.mark.parametrize(
    "piece",
    [
        'data: {"error": {"message": "slot was evicted"}}',
        'error: {"code": 500, "message": "slot was evicted"}',
        'data: {"object": "error", "message": "slot was evicted"}',
    ],
)
def test_an_error_within_a_stream_is_in_the_words_of_the_server(serve: Serve, piece: str) -> None:
    server = serve(lambda path, body, n: (200, iter([f"{piece}\n\n", "data: [DONE]\n\n"]), {}))
    with pytest.raises(ServerError, match="failed: slot was evicted"):
        OpenAILM("m", base_url=server.url).generate([listening([])])


@pytest.mark.timing
def test_a_long_stream_takes_time_in_proportion_to_its_length(serve: Serve) -> None:
    server = serve(lambda path, body, n: streamed(*["ab"] * int(body["prompt"]), chat=False))
    lm = OpenAILM("m", base_url=server.url)

    def ask(count: int) -> None:
        (result,) = lm.generate([GenerationRequest(str(count), 5, on_text=lambda text: None)])
        assert result.text == "ab" * count

    assert seconds_of(lambda: ask(40_000)) < 8 * seconds_of(lambda: ask(10_000)) + 0.5


# --- proxies ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def proxies(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    return monkeypatch


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("dead", [True, False])
def test_a_proxy_in_the_way_is_named(serve: Serve, proxies: pytest.MonkeyPatch, scheme: str, dead: bool) -> None:
    server = serve(lambda path, body, n: (403, "<html>no</html>", {}))
    proxies.setenv("ALL_PROXY", "http://u:hunter2@127.0.0.1:9" if dead else server.url.removesuffix("/v1"))
    error = str(refusal(OpenAILM("m", base_url=f"{scheme}://model.invalid/v1", max_retries=0)))
    assert "through the proxy of ALL_PROXY" in error and "Mend or unset ALL_PROXY" in error and "hunter2" not in error
    assert ("refused" if dead else "403") in error


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:9", "ftp://127.0.0.1:9", "http://[::1"])
def test_a_proxy_that_cannot_be_used_is_one_line(serve: Serve, proxies: pytest.MonkeyPatch, proxy: str) -> None:
    proxies.setenv("HTTP_PROXY", proxy)
    if not proxy.startswith("socks"):
        with pytest.raises(SetupError, match="Cannot use the proxy of HTTP_PROXY"):
            OpenAILM("m", base_url="http://model.invalid/v1")
    server = serve(lambda path, body, n: completion("ok"))
    for host in ("127.0.0.1", "localhost"):
        assert OpenAILM("m", base_url=server.url.replace("127.0.0.1", host)).generate([ASK])[0].text == "ok"
    for names in ("model.invalid", "other, *.invalid", ".invalid", "*"):
        proxies.setenv("NO_PROXY", names)
        OpenAILM("m", base_url="http://model.invalid/v1")


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_certificates_that_cannot_be_read_are_one_line(
    serve: Serve, proxies: pytest.MonkeyPatch, tmp_path: Any, content: str | None
) -> None:
    file = tmp_path / "own.pem"
    if content is not None:
        file.write_text(content)
    proxies.setenv("SSL_CERT_FILE", str(file))
    with pytest.raises(SetupError, match="Cannot read the certificates of SSL_CERT_FILE"):
        OpenAILM("m", base_url="https://model.invalid/v1")
    server = serve(lambda path, body, n: completion("ok"))
    assert OpenAILM("m", base_url=server.url).generate([ASK])[0].text == "ok"


# --- secrets ---------------------------------------------------------------------------------------------------------

SHORT = "q7w9z"


def coded(key: str, before: str = "") -> str:
    return base64.b64encode(f"{before}{key}".encode()).decode()


@pytest.mark.parametrize("key", [KEY, SHORT])
@pytest.mark.parametrize(
    "echo",
    [
        lambda key: f"Wrong: {key}!",
        lambda key: f"Wrong: {key[: len(key) // 2]} and {key[len(key) // 2 :]}" if len(key) > 8 else key,
        lambda key: coded(key),
        lambda key: coded(key, "Bearer "),
        lambda key: coded(key, "user:"),
    ],
)
def test_a_key_that_the_server_repeats_is_not_shown(serve: Serve, key: str, echo: Any) -> None:
    server = serve(lambda path, body, n: failure(401, echo(key)))
    error = str(refusal(OpenAILM("m", base_url=server.url, api_key=key)))
    shifts = [coded(key, " " * shift)[shift + 1 : -4] for shift in range(3)]
    for text in (key, *shifts):
        size = min(8, max(4, len(text) // 2))
        assert not [text[n : n + size] for n in range(len(text) - size + 1) if text[n : n + size] in error]
    assert "[API key]" in error and "answered 401" in error


def test_a_version_in_the_address_is_no_secret(serve: Serve) -> None:
    server = serve(lambda path, body, n: failure(404, "No version 2024-02-01"))
    error = str(refusal(OpenAILM("m", base_url=f"{server.url}?api-version=2024-02-01")))
    assert "No version 2024-02-01" in error


def test_an_answer_that_is_nothing_is_no_success(serve: Serve) -> None:
    server = serve(lambda path, body, n: completion("") if "prompt" in body else turn(""))
    lm = OpenAILM("m", base_url=server.url)
    assert "wrote nothing" in str(refusal(lm, GenerationRequest("Say", 5)))
    assert lm.generate([GenerationRequest("Say", 5, ("\n",))])[0].text == "", "the stop came at once"


@pytest.mark.parametrize("workers", [4, 16])
def test_a_server_that_answers_one_at_a_time_answers_all(serve: Serve, workers: int) -> None:
    alone = threading.Lock()

    def answer(path: str, body: dict[str, Any], n: int) -> Any:
        with alone:
            time.sleep(0.12)
        return completion("ok")

    lm = OpenAILM("m", base_url=serve(answer).url, timeout=0.3)
    with ThreadPoolExecutor(workers) as threads:
        assert [each[0].text for each in threads.map(lambda _: lm.generate([ASK]), range(20))] == ["ok"] * 20


def test_time_begins_when_the_server_is_done_with_what_was_sent_before(serve: Serve) -> None:
    alone = threading.Lock()

    def answer(path: str, body: dict[str, Any], n: int) -> Any:
        with alone:
            time.sleep(0.4)
        return completion("ok")

    lm = OpenAILM("m", base_url=serve(answer).url, timeout=0.6)
    assert [each.text for each in lm.generate([ASK, ASK])] == ["ok", "ok"]


def test_a_busy_server_is_named_while_it_is_waited_for(serve: Serve) -> None:
    server = serve(lambda path, body, n: failure(429, "busy", {"Retry-After": "1"}) if n == 1 else completion("ok"))
    asking = threading.Thread(target=lambda: OpenAILM("m", base_url=server.url).generate([ASK]))
    asking.start()
    until = time.monotonic() + 0.9
    while not current() and time.monotonic() < until:
        time.sleep(0.01)
    assert current() == "the server asks to wait 1 s: busy"
    asking.join()
    assert not current()
