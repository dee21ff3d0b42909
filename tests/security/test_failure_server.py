"""A model server that dies, hangs, drips or never stops: a typed error in bounded time, then the next is served."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from engine_kit import RED, engine
from openai_kit import Reply, Serve, completion, event

from codevqa import CodeVQA
from codevqa.core.errors import ServerError
from codevqa.core.events import Failed, Writing
from codevqa.models import server_reply
from codevqa.models.openai_lm import OpenAILM

BOUND = 20
"""Seconds until a server is given up at the latest, on a busy machine."""


def model(url: str, **options: Any) -> OpenAILM:
    return OpenAILM("m", base_url=url, api_key="k", form="completion", **{"timeout": 1.0, "max_retries": 0} | options)


def refused(vqa: CodeVQA, question: str = "Hold") -> ServerError:
    with pytest.raises(ServerError) as caught:
        vqa.ask(RED, question)
    return caught.value


@contextmanager
def raw(*pieces: bytes, pause: float) -> Iterator[str]:
    """A server that sends the first piece once and the last for ever, and pauses between."""
    over = threading.Event()

    def serve() -> None:
        while not over.is_set():
            client, _ = listening.accept()
            threading.Thread(target=drip, args=(client,), daemon=True).start()

    def drip(client: socket.socket) -> None:
        with client:
            client.recv(65536)
            try:
                for piece in pieces[:-1]:
                    client.sendall(piece)
                while not over.wait(pause):
                    client.sendall(pieces[-1])
            except OSError:  # the client has given up
                pass

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        over.set()


JSON = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 999999999\r\n\r\n"
EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
EMPTY = event({"choices": []}).encode()
WORD = event({"choices": [{"index": 0, "text": "answer = 1\n", "finish_reason": None}]}).encode()


@pytest.mark.slow
@pytest.mark.parametrize("listened", [False, True])
@pytest.mark.parametrize("pieces", [(JSON, b" "), (EVENTS, b": ping\n\n"), (EVENTS, EMPTY), (EVENTS, WORD)])
def test_a_server_that_never_comes_to_an_end_is_given_up(pieces: tuple[bytes, ...], listened: bool) -> None:
    with raw(*pieces, pause=0.05) as url, engine(model(url, timeout=0.3)) as vqa:
        began = time.monotonic()
        if listened:
            events = list(vqa.watch(RED, "Is it?"))
            assert isinstance(events[-1], Failed) and events[-1].error.type == "ServerError", events[-1]
            assert any(isinstance(one, Writing) for one in events) == (pieces[-1] is WORD)
        else:
            assert "did not answer" in str(refused(vqa, "Is it?"))
        assert time.monotonic() - began < BOUND


def test_a_server_that_dies_in_an_answer_is_asked_again_once_it_is_back(serve: Serve) -> None:
    def answer(path: str, body: dict[str, Any], number: int) -> Reply:
        if number < 3:
            raise ConnectionError  # the connection ends
        return completion("answer = 'from the server'")

    with engine(model(serve(answer).url, max_retries=1)) as vqa:
        assert "Cannot reach the model server" in str(refused(vqa))
        assert vqa.ask(RED, "What is it?").text == "from the server"


def test_an_answer_without_end_takes_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_reply, "_MOST", 1 << 20)
    with raw(JSON, b" " * (1 << 18), pause=0) as url, engine(model(url, timeout=20.0)) as vqa:
        began = time.monotonic()
        assert "over 1 MB" in str(refused(vqa))
        assert time.monotonic() - began < BOUND
