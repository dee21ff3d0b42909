"""What keeps strangers out of the demo, by itself: the gate before the server."""

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
from codevqa.demo.serve import known_names, loopback

JOIN, UPLOAD = "/gradio_api/queue/join", "/gradio_api/upload"


async def passed(gate: Gate, method: str, path: str, body: bytes, headers: dict[str, str]) -> Any:
    """Returns the start of the gate's answer to a request."""
    sent: list[Any] = []
    chunks = [body[i : i + 1000] for i in range(0, len(body), 1000)] or [b""]

    async def receive() -> Any:
        return {"type": "http.request", "body": chunks.pop(0), "more_body": bool(chunks)}

    async def send(message: Any) -> None:
        sent.append(message)

    named = [(name.encode(), value.encode()) for name, value in ({"host": "127.0.0.1:7860"} | headers).items()]
    await gate({"type": "http", "method": method, "path": path, "headers": named}, receive, send)
    return sent[0]


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

    async def app(scope: Any, receive: Any, send: Any) -> None:
        more = True
        while more:
            message = await receive()
            received.append(message["body"])
            more = message["more_body"]
        await send({"type": "http.response.start", "status": 200, "headers": []})

    gate = Gate(app, DemoLimits(**limits), files, hosts, numbers=numbers)
    start = asyncio.run(passed(gate, method, path, body, headers or {}))
    return start["status"], dict(start["headers"]), b"".join(received)


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
        *(("GET", "/monitoring"), ("GET", "/docs"), ("DELETE", "/"), ("PUT", "/gradio_api/upload")),
        *(("POST", "/gradio_api/run/ask"), ("POST", "/gradio_api/component_server")),
        *(
            ("GET", f"/gradio_api/file={url}")
            for url in ("https://example.com/x", " HTTP://example.com/x", "//a.com/x")
        ),
        *(("GET", f"/gradio_api/{way}") for way in ("proxy=http://127.0.0.1:22/", "file/https://example.com/x")),
        ("GET", "/gradio_api/file=file:///etc/passwd"),
    ],
)
def test_the_gate_keeps_out_the_rest(tmp_path: Path, method: str, path: str) -> None:
    assert through(tmp_path, method, path)[0] in (403, 404)


def test_an_upload_says_how_long_it_is(tmp_path: Path) -> None:
    assert through(tmp_path, "POST", UPLOAD, b"x")[0] == 411, "nobody knows how much is to come"
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


def test_passwords_are_tried_one_after_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codevqa.demo.gate.LOGIN", 0.05)
    under_way: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        under_way.append(1)
        assert len(under_way) == 1
        await asyncio.sleep(0.01)
        await send({"type": "http.response.start", "status": 400, "headers": []})
        under_way.pop()

    gate = Gate(app, DemoLimits(), tmp_path, frozenset({"127.0.0.1"}))

    async def attempts() -> None:
        await asyncio.gather(*(passed(gate, "POST", "/login", b"password=a", {}) for _ in range(4)))

    began = time.monotonic()
    asyncio.run(attempts())
    assert time.monotonic() - began >= 0.2


def test_a_public_server_knows_numbers_and_its_own_names_only(tmp_path: Path) -> None:
    def status(host: str, own: str = "0.0.0.0") -> int:
        names = known_names(own, ["VQA.example.org"])
        return through(tmp_path, "GET", "/", headers={"host": host}, hosts=names, numbers=not loopback(own))[0]

    for known in ("192.168.1.5:7860", "[fe80::1]:7860", "vqa.example.org", f"{socket.gethostname().lower()}:7860"):
        assert status(known) == 200
    assert status("rebound.example:7860") == status("1.2.3.4.rebound.example") == status("") == 403
    assert status("192.168.1.5:7860", own="127.0.0.1") == 403


def test_a_proxy_says_by_which_scheme_only_where_its_name_was_set(tmp_path: Path) -> None:
    scopes: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        scopes.append(scope)
        await send({"type": "http.response.start", "status": 200, "headers": []})

    names = frozenset({"vqa.example.org"})
    gate = Gate(app, DemoLimits(), tmp_path, frozenset({"127.0.0.1"}) | names, proxies=names)
    for host, sent, scheme in (
        ("vqa.example.org", "https", "https"),
        ("vqa.example.org", "javascript", "http"),
        ("127.0.0.1:7860", "https", "http"),
    ):
        headers = {"host": host, "x-forwarded-proto": sent, "x-forwarded-host": "evil.example", "cookie": "a=b"}
        asyncio.run(passed(gate, "GET", "/config", b"", headers))
        assert scopes[-1]["scheme"] == scheme
        assert dict(scopes[-1]["headers"]) == {b"host": host.encode(), b"cookie": b"a=b"}


def test_uploads_are_refused_beyond_what_all_may_store(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.png").write_bytes(b"x" * 90)
    for length, status in ((10, 200), (11, 503)):
        headers = {"content-length": str(length)}
        assert through(tmp_path, "POST", UPLOAD, b"x" * length, headers, stored_bytes=100)[0] == status


def test_uploads_under_way_take_room_already(tmp_path: Path) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0.2)
        await send({"type": "http.response.start", "status": 200, "headers": []})

    gate = Gate(app, DemoLimits(stored_bytes=100), tmp_path, frozenset({"127.0.0.1"}))

    async def uploads(count: int) -> list[int]:
        declared = {"content-length": "60"}
        starts = await asyncio.gather(*(passed(gate, "POST", UPLOAD, b"", declared) for _ in range(count)))
        return [start["status"] for start in starts]

    statuses = asyncio.run(uploads(3))
    assert statuses.count(200) <= 1 and 503 in statuses
    assert asyncio.run(uploads(1)) == [200]
