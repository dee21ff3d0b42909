"""Clients of the demo that drip or leave: cut in bounded time, others are served, memory stays flat."""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psutil
import pytest

pytest.importorskip("gradio", reason="the demo needs Gradio: pip install 'codevqa[demo]'")

from demo_kit import demo_server
from failure_kit import children, resident

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="counts descriptors as Linux does")]

ROOT = Path(__file__).resolve().parent.parent.parent
SECONDS = 3.0
"""What the server grants."""
BOUND = 20
"""Seconds until a client is cut at the latest, on a busy machine."""
HOST = b"Host: 127.0.0.1\r\n"
JSON = b"Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
FORM = b"Content-Type: multipart/form-data; boundary=x\r\nContent-Length: 1000\r\n\r\n--x\r\n"
DRIPS = {
    "a question": (b"POST /gradio_api/queue/join HTTP/1.1\r\n" + HOST + JSON, b" "),
    "an upload": (b"POST /gradio_api/upload HTTP/1.1\r\n" + HOST + FORM, b"a"),
    "a body nobody wants": (b"POST /nothing HTTP/1.1\r\n" + HOST + JSON, b" "),
}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with demo_server(receive_seconds=SECONDS) as served:
        httpx.get(served)
        yield served


@pytest.fixture(scope="module")
def server(url: str) -> int:
    """The process that serves."""
    port = place(url)[1]  # other tests of this process may have a server of their own
    listening = {one: psutil.Process(one).net_connections("tcp") for one in children()}
    (process,) = (one for one, links in listening.items() if any(link.laddr.port == port for link in links))
    return process


def place(url: str) -> tuple[str, int]:
    address = httpx.URL(url)
    assert address.port is not None
    return address.host, address.port


def test_a_client_that_sends_a_byte_now_and_then_is_cut_and_others_are_served(url: str) -> None:
    lasted: dict[str, float] = {}

    def drip(name: str, head: bytes, byte: bytes) -> None:
        began = time.monotonic()
        with socket.create_connection(place(url), timeout=0.3) as slow, contextlib.suppress(ConnectionError):
            slow.sendall(head)
            while time.monotonic() - began < 2 * BOUND:
                slow.sendall(byte)
                with contextlib.suppress(TimeoutError):
                    if not slow.recv(4096):
                        break
        lasted[name] = time.monotonic() - began

    threads = [threading.Thread(target=drip, args=(name, *sent)) for name, sent in DRIPS.items()]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert httpx.get(f"{url}config", timeout=10).status_code == 200
    assert lasted.keys() == DRIPS.keys() and max(lasted.values()) < BOUND, lasted


@pytest.mark.timeout(900)
def test_memory_is_flat_over_two_thousand_questions() -> None:
    """Each of a visitor of their own; every other one never comes for the answer."""
    others = children()
    with demo_server(receive_seconds=SECONDS) as url:
        (server,) = children() - others
        with httpx.Client(base_url=url, timeout=60) as client, ThreadPoolExecutor(4) as threads:
            garden = (ROOT / "examples" / "pictures" / "garden.png").read_bytes()
            path = client.post("gradio_api/upload", files={"files": ("garden.png", garden)}).json()[0]
            picture = {"path": path, "meta": {"_type": "gradio.FileData"}}

            def ask(number: int) -> None:
                body = {"data": [f"answer = {number}", [picture], "", "mini"]}
                event = client.post("gradio_api/call/run", json=body).json()["event_id"]
                if number % 2:
                    assert f'"{number}"' in client.get(f"gradio_api/call/run/{event}").text

            size = {}
            for done in (500, 1000, 1500, 2000):
                list(threads.map(ask, range(done - 500, done)))
                size[done] = round(resident(server), 1)
        assert size[2000] - size[500] < 15, size
