"""Servers on loopback for tests of the OpenAI client: one that answers as a test says, and ``transformers serve``."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from codevqa.core.errors import ModelError
from codevqa.models.protocols import GenerationRequest

Reply = tuple[int, Any, dict[str, str]]
Answer = Callable[[str, dict[str, Any], int], Reply]


KEY = "sk-verysecretkey0123456789"
ASK = GenerationRequest("Say", 5)
USAGE = {"prompt_tokens": 7, "completion_tokens": 3}


def completion(text: str) -> Reply:
    return 200, {"choices": [{"index": 0, "text": text, "finish_reason": "stop"}], "usage": USAGE}, {}


def turn(text: Any, finish: str = "stop", logprobs: Any = None, **more: Any) -> Reply:
    message = {"role": "assistant", "content": text, **more}
    choice = {"index": 0, "message": message, "finish_reason": finish, "logprobs": logprobs}
    return 200, {"choices": [choice], "usage": USAGE}, {}


def failure(status: int, message: str, headers: dict[str, str] | None = None, **more: str) -> Reply:
    return status, {"error": {"message": message, "type": "error", **more}}, headers or {}


def event(body: dict[str, Any]) -> str:
    return f"data: {json.dumps(body)}\n\n"


def streamed(*texts: str, chat: bool = False, finish: str | None = "stop") -> Reply:
    """An answer in pieces, with the usage after the last; without ``finish`` it breaks off."""
    return 200, pieces(texts, chat, finish), {}


def pieces(texts: Sequence[str], chat: bool, finish: str | None) -> Iterator[str]:
    for text in texts:
        content = {"delta": {"content": text}} if chat else {"text": text}
        yield event({"choices": [{"index": 0, **content, "finish_reason": None}], "usage": None})
    if finish is not None:
        yield event(
            {"choices": [{"index": 0, "delta" if chat else "text": {} if chat else "", "finish_reason": finish}]}
        )
        yield event({"choices": [], "usage": USAGE})
        yield "data: [DONE]\n\n"


def refusal(model: Any, *requests: Any) -> ModelError:
    """The error with which a model refuses requests, which is one line."""
    with pytest.raises(ModelError) as caught:
        (model.look if hasattr(model, "look") else model.generate)(requests or [ASK])
    return caught.value


class FakeServer(ThreadingHTTPServer):
    """A server on loopback that answers each request by ``answer(path, body, number)`` and keeps what it was sent."""

    daemon_threads = True
    request_queue_size = 256
    port = 0

    def __init__(self, answer: Answer) -> None:
        super().__init__(("127.0.0.1", self.port), Handler)
        self.answer = answer
        self.seen: list[tuple[str, dict[str, Any], dict[str, str]]] = []
        self.checks = 0
        self.models: list[str] | None = None
        """What it lists; None refuses to."""
        self.lock = threading.Lock()
        self.url = f"http://127.0.0.1:{self.server_address[1]}/v1"
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()


Serve = Callable[[Answer], FakeServer]


class Handler(BaseHTTPRequestHandler):
    server: FakeServer

    def do_GET(self) -> None:
        self.server.checks += 1
        if self.server.models is None or self.path != "/v1/models":
            self.send_error(404)
            return
        data = json.dumps({"object": "list", "data": [{"id": name} for name in self.server.models]}).encode()
        with contextlib.suppress(ConnectionError):  # the client has given up
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.seen.append((self.path, body, {k.lower(): v for k, v in self.headers.items()}))
            number = len(self.server.seen)
        status, reply, headers = self.server.answer(self.path, body, number)
        if isinstance(reply, Iterator):
            self.stream(status, reply)
            return
        data = reply if isinstance(reply, bytes) else (reply if isinstance(reply, str) else json.dumps(reply)).encode()
        try:
            self.send_response(status)
            kind = "text/html" if isinstance(reply, str) else "application/json"
            for name, value in {"Content-Type": kind, "Content-Length": str(len(data)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)
        except ConnectionError:  # the client has given up
            pass

    def do_CONNECT(self) -> None:
        """Refuses to be a proxy."""
        self.send_error(403)

    def stream(self, status: int, pieces: Iterator[str]) -> None:
        """Sends an event stream piece by piece; it ends with the connection."""
        try:
            self.send_response(status)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            for piece in pieces:
                self.wfile.write(piece.encode())
                self.wfile.flush()
        except ConnectionError:
            pass

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextlib.contextmanager
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


@contextlib.contextmanager
def transformers_serve(log: Path) -> Iterator[str]:
    """Runs ``transformers serve`` and gives its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(Path(sys.executable).with_name("transformers")), "serve", "--device", "cpu", "--port", str(port)]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment, start_new_session=True)
    try:
        deadline = time.monotonic() + 300
        while not _listens(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"transformers serve did not start:\n{log.read_text()[-2000:]}")
            time.sleep(0.25)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0
