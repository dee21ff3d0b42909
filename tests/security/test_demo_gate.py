"""What keeps strangers out of the demo, by itself: the gate before the server."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("gradio", reason="the demo needs Gradio: pip install 'codevqa[demo]'")

from codevqa.demo.gate import Gate
from codevqa.demo.limits import DemoLimits
from codevqa.demo.serve import exposed, known_names, loopback

JOIN, UPLOAD = "/gradio_api/queue/join", "/gradio_api/upload"


def through(
    files: Path,
    method: str,
    path: str,
    body: bytes = b"",
    headers: dict[str, str] | None = None,
    *,
    hosts: frozenset[str] = frozenset({"127.0.0.1"}),
    numbers: bool = False,
    **limits: Any,
) -> tuple[int, dict[bytes, bytes], bytes]:
    """Returns status and headers of a request through the gate, and the body that an app behind it received."""
    received: list[bytes] = []
    sent: list[Any] = []
    chunks = [body[i : i + 1000] for i in range(0, len(body), 1000)] or [b""]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        more = True
        while more:
            message = await receive()
            received.append(message["body"])
            more = message["more_body"]
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})

    async def receive() -> Any:
        return {"type": "http.request", "body": chunks.pop(0), "more_body": bool(chunks)}

    async def send(message: Any) -> None:
        sent.append(message)

    told = {"host": "127.0.0.1:7860"} | (headers or {})
    named = [(name.encode(), value.encode()) for name, value in told.items()]
    scope = {"type": "http", "method": method, "path": path, "headers": named}

    async def main() -> None:
        await Gate(app, DemoLimits(**limits), files, hosts, numbers=numbers)(scope, receive, send)

    asyncio.run(main())
    return sent[0]["status"], dict(sent[0]["headers"]), b"".join(received)


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
        ("POST", "/gradio_api/vibe-edit/"),
        ("POST", "/gradio_api/run-history/connect"),
        ("DELETE", "/"),
        ("PUT", "/gradio_api/upload"),
    ],
)
def test_the_gate_keeps_out_the_rest(tmp_path: Path, method: str, path: str) -> None:
    assert through(tmp_path, method, path)[0] in (403, 404)


def test_the_gate_knows_this_server_by_its_names_and_its_own_page(tmp_path: Path) -> None:
    assert through(tmp_path, "GET", "/", headers={"host": "rebound.example:7860"})[0] == 403
    for origin, status in (("https://evil.example", 403), ("null", 403), ("http://127.0.0.1:7860", 200)):
        assert through(tmp_path, "POST", JOIN, b"{}", {"origin": origin})[0] == status


def test_requests_are_bounded(tmp_path: Path) -> None:
    assert through(tmp_path, "POST", JOIN, b"x" * 3000, request_bytes=2000)[0] == 413
    large = DemoLimits(pictures=1, upload_bytes=1000).upload_request_bytes + 1000
    declared = {"content-length": str(large)}
    assert through(tmp_path, "POST", UPLOAD, b"", declared, pictures=1, upload_bytes=1000)[0] == 413
    assert through(tmp_path, "POST", UPLOAD, b"x" * large)[0] == 411, "nobody knows how much is to come"
    chunked = {"content-length": "1", "transfer-encoding": "chunked"}
    assert through(tmp_path, "POST", UPLOAD, b"x", chunked)[0] == 411, "chunks win over a length"
    assert through(tmp_path, "POST", UPLOAD, b"x", {"content-length": "1"})[0] == 200


@pytest.mark.parametrize(
    "path",
    [
        *("http://10.0.0.1/x.png", "HTTPS://example.com/x", " http://a/b", "//a/b", "ftp://a/b", "file:///etc/x"),
        *("/etc/passwd", "x.png", "{}/../x.png", "{}x/x.png", "{}/x\0.png", "{}/x.png", "", "{}/a/" + "x" * 300),
    ],
)
def test_pictures_that_were_not_uploaded_are_refused(tmp_path: Path, path: str) -> None:
    def naming(path: str) -> bytes:
        return json.dumps({"data": [[{"image": {"path": path, "meta": {}}}]]}).encode()

    body = naming(f"{tmp_path}/a/x.png")
    assert through(tmp_path, "POST", JOIN, body)[::2] == (200, body)
    assert through(tmp_path, "POST", JOIN, naming(path.format(tmp_path)))[0] == 400


@pytest.mark.parametrize(
    "body",
    [
        *(b"NaN", b'{"data": NaN}', b'{"data": [1e999]}', b'{"data": null}'),
        *(b"[]", b"[" * 9000, b"\xff", b'{"a": ' + b"1" * 5000),
    ],
)
def test_a_body_that_would_break_the_app_is_refused(tmp_path: Path, body: bytes) -> None:
    for path in ("queue/join", "run/predict", "call/ask", "call/v2/ask"):
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


def test_a_public_server_knows_numbers_and_its_own_names_only(tmp_path: Path) -> None:
    def status(host: str, own: str = "0.0.0.0") -> int:
        names = known_names(own, ["VQA.example.org"])
        return through(tmp_path, "GET", "/", headers={"host": host}, hosts=names, numbers=not loopback(own))[0]

    for known in ("192.168.1.5:7860", "[fe80::1]:7860", "vqa.example.org", f"{socket.gethostname().lower()}:7860"):
        assert status(known) == 200
    assert status("rebound.example:7860") == status("1.2.3.4.rebound.example") == status("") == 403
    assert status("192.168.1.5:7860", own="127.0.0.1") == 403


def test_uploads_are_refused_beyond_what_all_may_store(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.png").write_bytes(b"x" * 90)
    for length, status in ((10, 200), (11, 503)):
        headers = {"content-length": str(length)}
        assert through(tmp_path, "POST", UPLOAD, b"x" * length, headers, stored_bytes=100)[0] == status


def test_uploads_under_way_take_room_already(tmp_path: Path) -> None:
    statuses: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0.2)
        await send({"type": "http.response.start", "status": 200, "headers": []})

    gate = Gate(app, DemoLimits(stored_bytes=100), tmp_path, frozenset({"127.0.0.1"}))

    async def upload() -> None:
        async def send(message: Any) -> None:
            statuses.append(message.get("status", 0))

        headers = [(b"host", b"127.0.0.1"), (b"content-length", b"60")]
        scope = {"type": "http", "method": "POST", "path": UPLOAD, "headers": headers}

        async def receive() -> Any:
            return {"type": "http.disconnect"}

        await gate(scope, receive, send)

    async def main() -> None:
        await asyncio.gather(upload(), upload(), upload())

    asyncio.run(main())
    assert statuses.count(200) <= 1 and 503 in statuses
    asyncio.run(upload())
    assert statuses[-1] == 200


def test_loopback_addresses() -> None:
    assert all(map(loopback, ("127.0.0.1", "127.8.8.8", "localhost", "::1")))
    assert not any(map(loopback, ("0.0.0.0", "192.168.1.5", "::", "example.com")))


def test_what_an_open_address_exposes_is_said() -> None:
    told = exposed("0.0.0.0", ["vqa.example"], login=False)
    assert "without a password" in told and "vqa.example" in told and socket.gethostname().lower() in told
    assert "with the password" in exposed("0.0.0.0", [], login=True)
