"""Clients of the demo that drip, read nothing or are gone: cut in bounded time, while others are served."""

from __future__ import annotations

import contextlib
import re
import secrets
import socket
import subprocess
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
from failure_kit import children, held, resident

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="counts descriptors as Linux does")]

ROOT = Path(__file__).resolve().parent.parent.parent
SECONDS = 3.0
"""What the server grants: the head of a request has a third of it."""
BOUND = 20
"""Seconds until a client is cut at the latest, on a busy machine."""
HOST = b"Host: 127.0.0.1\r\n"
JSON = b"Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
FORM = b"Content-Type: multipart/form-data; boundary=x\r\nContent-Length: 1000\r\n\r\n--x\r\n"
DRIPS = {
    "a head": (b"GET / HTTP/1.1\r\n" + HOST + b"X-Slow: ", b"a"),
    "a question": (b"POST /gradio_api/queue/join HTTP/1.1\r\n" + HOST + JSON, b" "),
    "an upload": (b"POST /gradio_api/upload HTTP/1.1\r\n" + HOST + FORM, b"a"),
    "a body nobody wants": (b"POST /nothing HTTP/1.1\r\n" + HOST + JSON, b" "),
    "a body nobody reads": (b"GET /robots.txt HTTP/1.1\r\n" + HOST + JSON, b" "),
}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with demo_server(receive_seconds=SECONDS, per_minute=1000) as served:
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


def settled(server: int, most: int) -> float:
    """Returns after how many seconds the server holds no more than so many descriptors beside its workers' pipes."""
    began = time.monotonic()
    while held(server).others > most:
        assert time.monotonic() - began < BOUND, f"{held(server)}, not {most}"
        time.sleep(0.1)
    return time.monotonic() - began


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


@pytest.mark.parametrize("close", [b"", b"Connection: close\r\n"], ids=["kept alive", "to be closed"])
def test_a_client_that_reads_nothing_is_cut_and_others_are_served(url: str, server: int, close: bytes) -> None:
    time.sleep(6)  # connections of before are let go
    before = held(server).others
    asset = max(
        re.findall(r'(?:src|href)="\.?/?(assets/[^"]+\.js)"', httpx.get(url, headers={"connection": "close"}).text)
    )
    get = b"GET /" + asset.encode() + b" HTTP/1.1\r\n" + HOST
    with contextlib.ExitStack() as ending:
        for _ in range(8):
            deaf = ending.enter_context(socket.socket())
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.connect(place(url))
            deaf.sendall((get + b"\r\n") * 60 + get + close + b"\r\n")  # more than the system takes off its hands
        time.sleep(1)
        assert held(server).others >= before + 8
        assert httpx.get(f"{url}config", headers={"connection": "close"}).status_code == 200
        settled(server, before)


def test_a_client_that_half_closes_or_resets_its_connection_is_let_go(url: str, server: int) -> None:
    time.sleep(6)
    before = held(server).others
    stream = b"GET /gradio_api/heartbeat/" + secrets.token_hex(6).encode() + b" HTTP/1.1\r\n" + HOST + b"\r\n"
    with contextlib.ExitStack() as ending:
        clients = [ending.enter_context(socket.create_connection(place(url))) for _ in range(9)]
        for client, sent in zip(clients, (b"", b"GET / HT", stream) * 3, strict=True):
            client.sendall(sent)
        time.sleep(0.5)
        for client in clients:
            client.shutdown(socket.SHUT_WR)
        assert settled(server, before) < BOUND


@pytest.mark.timeout(900)
def test_memory_is_flat_over_two_thousand_questions() -> None:
    """Each of a visitor of their own; every other one never comes for the answer."""
    others = children()
    with demo_server(receive_seconds=SECONDS, per_minute=10**6) as url:
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


VANISHED = """
import socket, subprocess, sys, time
sys.path[:0] = {paths!r}
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
import httpx
from demo_kit import demo_server
from failure_kit import children, held
with demo_server(receive_seconds={seconds}) as url:
    (server,) = children()
    httpx.get(url)
    address = httpx.URL(url)
    time.sleep(6)
    before = held(server).others
    clients = [socket.create_connection((address.host, address.port)) for _ in range(5)]
    for number, client in enumerate(clients):
        client.sendall(b"GET /gradio_api/heartbeat/s%d HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\n\\r\\n" % number)
    time.sleep(1)
    assert held(server).others == before + 5
    subprocess.run(["ip", "link", "set", "lo", "down"], check=True)  # as if a cable were pulled
    began = time.monotonic()
    while held(server).others > before and time.monotonic() - began < 60:
        time.sleep(0.5)
    print(held(server).others - before, round(time.monotonic() - began), flush=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    assert httpx.get(url, timeout=30).status_code == 200
"""


def test_clients_whose_machine_is_gone_are_let_go() -> None:
    """In a network of its own, which can be cut: a client that is gone says nothing of it."""
    own = ["unshare", "--user", "--map-root-user", "--net"]
    try:
        able = subprocess.run([*own, "ip", "link", "set", "lo", "up"], capture_output=True, timeout=10).returncode == 0
    except FileNotFoundError:
        able = False
    if not able:
        pytest.skip("no network namespaces here")
    here = Path(__file__).resolve().parent
    code = VANISHED.format(paths=[str(here), str(here.parent), str(here.parent.parent)], seconds=SECONDS)
    done = subprocess.run([*own, sys.executable, "-c", code], capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    left, seconds = map(int, done.stdout.split())
    assert left == 0 and seconds < 40, done.stdout
