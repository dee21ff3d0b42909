"""The demo served for real, with the embedded models, before those who mean it harm."""

import hashlib
import io
import json
import os
import re
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("gradio", reason="the demo needs Gradio: pip install 'codevqa[demo]'")

from demo_kit import GARDEN, LIMITS, PROGRAM, ROOT, Server, demo_server, raw, upload
from gradio_client import Client, handle_file
from gradio_client.utils import QueueError

META = {"meta": {"_type": "gradio.FileData"}}


def picture(demo: str, name: str = "garden.png", content: bytes = b"") -> dict[str, Any]:
    """Uploads a picture and returns how a client names it."""
    return {"path": upload(demo, name, content or GARDEN.read_bytes()), **META}


def test_the_server_fetches_nothing_for_a_visitor(demo: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"http://127.0.0.1:{listening.getsockname()[1]}/garden.png"
        for meta in ({}, META):
            for extra in ({}, {"url": address}):
                assert raw(demo, "ask", [{"path": address, **meta, **extra}], "Is it?")[0] == "refused 400"
        real = picture(demo) | {"url": address}
        assert raw(demo, "ask", [real], "Is there a cloud?", "codevqa", 0)[0] == "complete"
        for way in (f"file={address}", f"file/{address}", f"proxy={address}"):
            assert httpx.get(f"{demo}gradio_api/{way}").status_code in (403, 404)
        listening.setblocking(False)
        with pytest.raises(BlockingIOError):  # nobody has come
            listening.accept()


def test_no_file_of_the_server_comes_back_through_a_result(demo: str) -> None:
    """Gradio copies out what a dict of this form names; here programs make such dicts, past the static check."""
    secret = ROOT / "setup.cfg"
    setup = f"import json\nfile = json.loads({json.dumps({'path': str(secret), **META})!r})\n"
    asking = 'img = open_image("Image1.jpg")\nanswer = "done"\ntry:\n    query(img, file)\nexcept Exception:\n    pass'
    real = picture(demo)
    for source in (asking, "answer = file", "answer = [file]", "print(file)\nanswer = 'x'"):
        kind, data = raw(demo, "run", setup + source, [real], "")
        assert "file=" not in str(data) and "gradio_api" not in str(data), (kind, data)
        assert all(isinstance(value, str) for value in data), "Gradio takes no text for a file"
        if source is asking:
            assert json.loads(data[1])["calls"][1]["error"]["type"] == "TypeError", "it got this far"
    digest = hashlib.sha256(secret.read_bytes()).hexdigest()
    kept = [path for path in Path(real["path"]).parent.parent.rglob("*") if path.is_file()]
    assert kept and all(hashlib.sha256(path.read_bytes()).hexdigest() != digest for path in kept)


def test_only_uploads_and_examples_are_served(demo: str) -> None:
    real = upload(demo, "garden.png", GARDEN.read_bytes())
    reply = httpx.get(f"{demo}gradio_api/file={real}")
    assert reply.status_code == 200 and reply.content == GARDEN.read_bytes()
    folder = Path(real).parent
    paths = [str(ROOT / "setup.cfg"), "/etc/passwd", "setup.cfg", f"{folder}/../../../../etc/passwd", str(folder)]
    paths += [f"{folder.parent}/..%2f..%2fetc/passwd", f"{folder.parent}/{'0' * 64}/garden.png", str(folder.parent)]
    for path in paths:
        assert httpx.get(f"{demo}gradio_api/file={path}").status_code in (403, 404), path
    assert len(folder.name) == 64, "the folder of an upload cannot be guessed"
    for name in ("page.html", "drawing.svg"):
        real = upload(demo, name, b"<svg onload=alert(1)></svg>")
        reply = httpx.get(f"{demo}gradio_api/file={real}")
        assert reply.headers["content-disposition"].startswith("attachment"), "a browser shows neither"


def test_uploads_are_bounded_and_a_bomb_is_not_decoded(demo: str) -> None:
    from PIL import Image

    packed = io.BytesIO()
    Image.new("1", (20_000, 20_000)).save(packed, "PNG")
    assert len(packed.getvalue()) < LIMITS.upload_bytes
    kind, data = raw(demo, "ask", [picture(demo, "bomb.png", packed.getvalue())], "Is it?", "codevqa", 0)
    assert kind == "error" and re.match(r"bomb.png is (too large|not a picture)", data["error"])
    large = picture(demo, "large.png", b"x" * (LIMITS.upload_bytes + 1))
    kind, data = raw(demo, "ask", [large], "Is it?", "codevqa", 0)
    assert kind == "error" and data["error"].startswith("large.png is too large a file")
    larger = {"files": ("larger.png", b"x" * (LIMITS.upload_request_bytes + 1))}
    assert httpx.post(f"{demo}gradio_api/upload", files=larger).status_code == 413
    body = {"data": ["x" * LIMITS.request_bytes]}
    assert httpx.post(f"{demo}gradio_api/queue/join", json=body).status_code == 413


@pytest.mark.skipif(sys.platform != "linux", reason="limits files of another process")
def test_uploads_fail_while_the_disk_is_full_and_pass_afterwards(server: Server) -> None:
    import resource

    # No file of the process grows beyond a hundred bytes: the system refuses a write as it does on a full disk.
    before = resource.prlimit(server.process, resource.RLIMIT_FSIZE)
    resource.prlimit(server.process, resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        files = {"files": ("garden.png", GARDEN.read_bytes())}
        refused = httpx.post(f"{server.url}gradio_api/upload", files=files, timeout=60)
        assert refused.status_code == 507 and "no room" in refused.json()["detail"], refused.text
    finally:
        resource.prlimit(server.process, resource.RLIMIT_FSIZE, before)
    assert raw(server.url, "run", "answer = 'yes'", [picture(server.url)], "")[1][0] == "yes"


@pytest.mark.skipif(sys.platform != "linux", reason="needs a machine of many loopback addresses")
def test_other_sites_other_names_and_other_machines_are_refused(demo: str) -> None:
    join = f"{demo}gradio_api/call/run"
    body = {"data": [PROGRAM, [], ""]}
    neighbour = "http://localhost:9"
    for origin, status in ((neighbour, 403), ("https://evil.example", 403), ("null", 403), (demo.rstrip("/"), 200)):
        asking = {"access-control-request-method": "POST"}
        for reply in (
            httpx.post(join, json=body, headers={"origin": origin}),
            httpx.get(f"{demo}config", headers={"origin": origin}),
            httpx.options(join, headers={"origin": origin} | asking),
        ):
            assert reply.status_code == (404 if reply.request.method == "OPTIONS" and status == 200 else status)
            assert not [name for name in reply.headers if name.startswith("access-control-")]
    assert httpx.get(demo, headers={"host": "evil.example"}).status_code == 403
    place = httpx.URL(demo)
    assert place.host == "127.0.0.1" and httpx.get(demo).status_code == 200
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", place.port or 0), timeout=10)


def test_no_visitor_plants_an_address(demo: str) -> None:
    """Neither in what they are sent themselves nor in what Gradio keeps for others."""
    evil, told = "evil.example", ("x-forwarded-host", "x-gradio-server", "forwarded", "x-forwarded-server")
    headers = {name: f"host={evil}" if name == "forwarded" else f"http://{evil}" for name in told}
    for sent in (headers | {"x-forwarded-proto": "https", "x-forwarded-port": "9"}, {"host": "localhost:9"}, {}):
        for path in ("config", "gradio_api/info", "gradio_api/info/", ""):
            text = httpx.get(f"{demo}{path}", headers=sent).text
            own = f"http://{sent.get('host', demo.split('/')[2])}"
            assert own in text and evil not in text and ("localhost:9" in text) == ("host" in sent)


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads of another process")
@pytest.mark.slow
def test_two_hundred_visitors_share_a_bounded_number_of_threads(server: Server) -> None:
    def threads() -> int:
        status = Path(f"/proc/{server.process}/status").read_text()
        return int(status.partition("Threads:")[2].split()[0])

    def visit(_: int) -> int:
        place = f"{server.url}gradio_api/call/run"
        event = visitors.post(place, json={"data": ["answer = 'yes'", [], ""]}).json()["event_id"]
        assert "There is no picture" in visitors.get(f"{place}/{event}").text
        return threads()

    own = threads()
    with httpx.Client() as visitors, ThreadPoolExecutor(32) as pool:
        most = max(pool.map(visit, range(200)))
    # What handles requests, and what Gradio calls: 40 each; and the loops of Gradio and of the engine.
    assert most <= own + 2 * 40 + 2 * min(32, (os.cpu_count() or 1) + 4), "a visitor leaves a thread behind"


def test_nobody_passes_the_queue_by(demo: str) -> None:
    """Nor by the number of a handler of the page; behind the queue, page and clients meet the same checks."""
    handlers = httpx.get(f"{demo}config").json()["dependencies"]
    queued = [handler["id"] for handler in handlers if handler["queue"] is not False and handler["backend_fn"]]
    assert len(queued) >= 3
    for number in queued:
        body = {"data": [[], "Is there a cloud?"], "fn_index": number, "session_hash": "a"}
        assert httpx.post(f"{demo}gradio_api/run/predict", json=body).status_code == 404


def test_odd_requests_end_in_no_error_of_the_server(demo: str) -> None:
    """Its end asserts that it had nothing to say."""
    kind = {"content-type": "application/json"}
    unread = (b'{"data": NaN}', b'{"data": [1e999]}', b'{"data": null}', b"[]", b"[" * 9000, b"\xff")
    for body in (*unread, b'{"a": ' + b"1" * 5000, b"{}", b'{"images": [], "shot": 1}'):
        for path in ("queue/join", "call/ask", *(["run/predict"] if body in unread else [])):
            status = httpx.post(f"{demo}gradio_api/{path}", content=body, headers=kind).status_code
            assert status == 400 if body in unread else 400 <= status < 500, body
    for name, *arguments in (
        ("ask", [], 5, "codevqa", 0),
        ("ask", [], "", "codevqa", "x"),
        ("ask", [], "", 5, 0),
        ("run", 5, [], ""),
    ):
        kind_of_event, error = raw(demo, name, *arguments)
        assert kind_of_event == "error" and "/gradio_api/info" in error["error"]


@pytest.mark.slow
def test_strangers_are_kept_out_and_the_queue_is_bounded(tmp_path: Path) -> None:
    with demo_server(tmp_path, auth="ada:lovelace", at_once=1, queue=2) as running:
        server = running.url.rstrip("/")
        assert httpx.get(f"{server}/config").status_code == 401
        upload = {"files": ("x.png", GARDEN.read_bytes())}
        assert httpx.post(f"{server}/gradio_api/upload", files=upload).status_code == 401
        with pytest.raises(ValueError, match="Could not login"):
            Client(server, auth=("ada", "no"), verbose=False)
        client = Client(server, auth=("ada", "lovelace"), verbose=False)
        assert client.predict([handle_file(str(GARDEN))], "Is there a cloud?", api_name="/ask")
        asked = [client.submit("while True: pass", [handle_file(str(GARDEN))], api_name="/run") for _ in range(9)]
        refused = [isinstance(job.exception(60), QueueError) for job in asked]
        assert any(refused) and not all(refused)
