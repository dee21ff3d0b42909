"""A disk that is full under the demo: uploads are refused in one line, and served again once there is room."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("gradio", reason="the demo needs Gradio: pip install 'codevqa[demo]'")

import httpx
from cli_kit import GARDEN
from server_kit import serve

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="limits files of another process")]


@contextmanager
def full(process: int) -> Iterator[None]:
    """No file of the process grows beyond a hundred bytes: the system refuses a write as it does on a full disk."""
    import resource

    before = resource.prlimit(process, resource.RLIMIT_FSIZE)
    resource.prlimit(process, resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        yield
    finally:
        resource.prlimit(process, resource.RLIMIT_FSIZE, before)


def upload(url: str) -> httpx.Response:
    files = {"files": ("garden.png", GARDEN.read_bytes())}
    return httpx.post(f"{url}gradio_api/upload", files=files, timeout=60)


def test_uploads_fail_while_the_disk_is_full_and_pass_afterwards(tmp_path: Path) -> None:
    with serve(tmp_path) as server:
        while "listening" not in server.output:  # what it prints goes to a file as well
            time.sleep(0.05)
        with full(server.process.pid):
            refused = upload(server.url)
            assert refused.status_code == 507 and "no room" in refused.json()["detail"], refused.text
            assert httpx.get(f"{server.url}config", timeout=60).status_code == 200
        assert "Traceback" not in server.output
        path = upload(server.url).json()[0]
        picture = {"path": path, "meta": {"_type": "gradio.FileData"}}
        body = {"data": ["answer = 'yes'", [picture], ""]}
        event = httpx.post(f"{server.url}gradio_api/call/run", json=body, timeout=60).json()["event_id"]
        assert '["yes"' in httpx.get(f"{server.url}gradio_api/call/run/{event}", timeout=60).text
