"""What keeps strangers out of the demo, by itself: the gate before the server, and the room for uploads."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("gradio", reason="the demo needs Gradio: pip install 'codevqa[demo]'")

from gate_kit import through

from codevqa.demo import serve as serve_module
from codevqa.demo.gate import Gate
from codevqa.demo.limits import DemoLimits
from codevqa.demo.serve import loopback
from codevqa.demo.uploads import Uploads


@pytest.mark.parametrize(
    "path", ["/", "/config", "/assets/index.js", "/gradio_api/info", "/gradio_api/file=/tmp/x.png"]
)
def test_the_gate_lets_through_what_the_page_needs(tmp_path: Path, path: str) -> None:
    status, headers, _ = through(tmp_path, "GET", path)
    assert status == 200
    assert b"connect-src 'self'" in headers[b"content-security-policy"]
    assert headers[b"x-content-type-options"] == b"nosniff"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/monitoring"),
        ("GET", "/gradio_api/deep_link"),
        ("GET", "/gradio_api/runs"),
        ("GET", "/gradio_api/proxy=http://127.0.0.1:22/"),
        ("GET", "/gradio_api/file=https://example.com/x"),
        ("GET", "/gradio_api/file= HTTP://example.com/x"),
        ("GET", "/gradio_api/file=file:///etc/passwd"),
        ("GET", "/gradio_api/file=//example.com/x"),
        ("GET", "/gradio_api/file/https://example.com/x"),
        ("GET", "/docs"),
        ("POST", "/gradio_api/run/ask"),
        ("POST", "/gradio_api/api/ask"),
        ("POST", "/gradio_api/component_server"),
        ("POST", "/gradio_api/run-history/connect"),
        ("DELETE", "/"),
        ("PUT", "/gradio_api/upload"),
    ],
)
def test_the_gate_keeps_out_the_rest(tmp_path: Path, method: str, path: str) -> None:
    assert through(tmp_path, method, path)[0] in (403, 404)


def test_the_gate_knows_this_server_by_its_names_and_its_own_page(tmp_path: Path) -> None:
    join = "/gradio_api/queue/join"
    assert through(tmp_path, "GET", "/", headers={"host": "rebound.example:7860"})[0] == 403
    assert through(tmp_path, "POST", join, b"{}", {"origin": "https://evil.example"})[0] == 403
    assert through(tmp_path, "POST", join, b"{}", {"origin": "null"})[0] == 403
    assert through(tmp_path, "POST", join, b"{}", {"origin": "http://127.0.0.1:7860"})[0] == 200


def test_the_gate_bounds_requests_and_refuses_addresses_of_pictures(tmp_path: Path) -> None:
    join, upload = "/gradio_api/queue/join", "/gradio_api/upload"

    def naming(path: str) -> bytes:
        return json.dumps({"data": [[{"image": {"path": path, "meta": {}}}]]}).encode()

    body = naming(f"{tmp_path}/a/x.png")
    assert through(tmp_path, "POST", join, body) == (200, through(tmp_path, "POST", join)[1], body)
    for path in (
        "http://10.0.0.1/x.png",
        "HTTPS://example.com/x",
        " http://a/b",
        "//a/b",
        "ftp://a/b",
        "file:///etc/x",
    ):
        assert through(tmp_path, "POST", join, naming(path))[0] == 400
    assert through(tmp_path, "POST", join, b"x" * 3000, request_bytes=2000)[0] == 413
    assert through(tmp_path, "POST", join, b"{}", {"content-length": "3000"}, request_bytes=2000)[0] == 413
    large = DemoLimits(pictures=1, upload_bytes=1000).upload_request_bytes + 1000
    declared = {"content-length": str(large)}
    assert through(tmp_path, "POST", upload, b"", declared, pictures=1, upload_bytes=1000)[0] == 413
    assert through(tmp_path, "POST", upload, b"x" * large)[0] == 411, "nobody knows how much is to come"
    chunked = {"content-length": "1", "transfer-encoding": "chunked"}
    assert through(tmp_path, "POST", upload, b"x", chunked)[0] == 411, "chunks win over a length"
    assert through(tmp_path, "POST", upload, b"x", {"content-length": "1"})[0] == 200


def test_pictures_that_were_not_uploaded_are_refused(tmp_path: Path) -> None:
    for path in (
        "/etc/passwd",
        "x.png",
        f"{tmp_path}/../x.png",
        f"{tmp_path}x/x.png",
        f"{tmp_path}/x\0.png",
        "",
        f"{tmp_path}/{'x' * 300}",
    ):
        body = json.dumps({"data": [[{"path": path}]]}).encode()
        assert through(tmp_path, "POST", "/gradio_api/call/ask", body)[0] == 400, path


@pytest.mark.parametrize(
    "body",
    [
        b"NaN",
        b'{"data": NaN}',
        b'{"data": [1e999]}',
        b'{"data": null}',
        b"[]",
        b"[" * 9000,
        b"\xff",
        b'{"a": ' + b"1" * 5000,
    ],
)
def test_a_body_that_would_break_the_app_is_refused(tmp_path: Path, body: bytes) -> None:
    for path in ("queue/join", "call/ask", "call/v2/ask"):
        assert through(tmp_path, "POST", f"/gradio_api/{path}", body)[0] == 400


def test_wrong_passwords_are_tried_one_after_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codevqa.demo.gate.WRONG", 0.1)
    under_way: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        under_way.append(1)
        assert len(under_way) == 1
        right = b"right" in (await receive())["body"]
        await asyncio.sleep(0.01)
        await send({"type": "http.response.start", "status": 200 if right else 400, "headers": []})
        await send({"type": "http.response.body", "body": b""})
        under_way.pop()

    gate = Gate(app, DemoLimits(), tmp_path, frozenset({"127.0.0.1"}))

    async def attempt(password: bytes) -> float:
        scope = {"type": "http", "method": "POST", "path": "/login", "headers": [(b"host", b"127.0.0.1")]}

        async def receive() -> Any:
            return {"type": "http.request", "body": b"password=" + password}

        async def send(message: Any) -> None:
            pass

        await gate(scope, receive, send)
        return time.monotonic()

    async def main() -> list[float]:
        return await asyncio.gather(*map(attempt, (b"wrong", b"bad", b"right")))

    first, second, third = asyncio.run(main())
    assert second - first >= 0.1 and third > second


def test_the_access_log_tells_nothing_of_what_was_asked(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "codevqa.demo.access"):
        for path in ("file=/tmp/secret.png", "call/ask/secret", "heartbeat/secret", "secret\nforged 200"):
            through(tmp_path, "GET", f"/gradio_api/{path}")
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 4 and all("GET /gradio_api/" in line and "\n" not in line for line in told)
    assert not [line for line in told[:3] if "secret" in line]


def test_a_body_that_does_not_come_is_not_waited_for(tmp_path: Path) -> None:
    for path in ("/gradio_api/queue/join", "/gradio_api/upload"):
        status, _, body = through(tmp_path, "POST", path, b"", {"content-length": "9"}, slow=5, receive_seconds=0.05)
        assert (status, body) == (408, b"")


def test_a_public_server_knows_numbers_and_its_own_names_only(tmp_path: Path) -> None:
    def status(host: str, own: str = "0.0.0.0") -> int:
        names = serve_module._names(own, ["VQA.example.org"])
        return through(tmp_path, "GET", "/", headers={"host": host}, hosts=names, numbers=not loopback(own))[0]

    for known in ("192.168.1.5:7860", "[fe80::1]:7860", "vqa.example.org", f"{socket.gethostname().lower()}:7860"):
        assert status(known) == 200
    assert status("rebound.example:7860") == status("1.2.3.4.rebound.example") == status("") == 403
    assert status("192.168.1.5:7860", own="127.0.0.1") == 403


def test_the_oldest_pictures_go_first_and_fresh_ones_stay(tmp_path: Path) -> None:
    for place, age in enumerate((500, 300, 400, 0)):
        path = tmp_path / str(place) / "x.png"
        path.parent.mkdir()
        path.write_bytes(b"x" * 100)
        os.utime(path, (time.time() - age,) * 2)

    def left() -> list[str]:
        return sorted(path.parent.name for path in tmp_path.rglob("*.png"))

    async def upload(count: int) -> bool:
        async with Uploads(tmp_path, DemoLimits(stored_bytes=400)).room(count) as granted:
            return granted

    assert asyncio.run(upload(0)) and left() == ["0", "1", "2", "3"]
    assert asyncio.run(upload(150)) and left() == ["1", "3"]
    assert not asyncio.run(upload(301)) and left() == ["3"]


@pytest.mark.parametrize("at_once", [2, 10])
def test_what_is_on_its_way_takes_room_already(tmp_path: Path, at_once: int) -> None:
    uploads = Uploads(tmp_path, DemoLimits(stored_bytes=100))

    async def upload() -> bool:
        async with uploads.room(60) as granted:
            await asyncio.sleep(0.05)
            return granted

    async def main() -> list[bool]:
        return list(await asyncio.gather(*(upload() for _ in range(at_once))))

    assert sum(asyncio.run(main())) == 1
    assert asyncio.run(upload())


def test_loopback_addresses() -> None:
    assert all(map(loopback, ("127.0.0.1", "127.8.8.8", "localhost", "::1")))
    assert not any(map(loopback, ("0.0.0.0", "192.168.1.5", "::", "example.com")))


def test_what_an_open_address_exposes_is_said() -> None:
    told = serve_module._exposed("0.0.0.0", 7860, DemoLimits(), ["vqa.example"], False)
    for words in ("no password", "pictures and questions", "run programs in the sandbox", "7860", "without encryption"):
        assert words in told
    assert "vqa.example" in told and socket.gethostname().lower() in told
    assert "and knows the password" in serve_module._exposed("0.0.0.0", 7860, DemoLimits(), [], True)
