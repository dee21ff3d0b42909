"""Many visitors of the demo: memory stays flat."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

pytest.importorskip("gradio", reason="the demo needs Gradio: pip install 'codevqa[demo]'")

from demo_kit import demo_server
from failure_kit import children, resident

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="counts descriptors as Linux does")]

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.timeout(900)
def test_memory_is_flat_over_many_visitors() -> None:
    others = children()
    with demo_server() as url:
        (server,) = children() - others
        with httpx.Client(base_url=url, timeout=60) as client, ThreadPoolExecutor(4) as threads:
            garden = (ROOT / "examples" / "pictures" / "garden.png").read_bytes()
            path = client.post("gradio_api/upload", files={"files": ("garden.png", garden)}).json()[0]
            picture = {"path": path, "meta": {"_type": "gradio.FileData"}}

            def ask(number: int) -> None:
                body = {"data": [f"answer = {number}", [picture], ""]}
                event = client.post("gradio_api/call/run", json=body).json()["event_id"]
                assert f'"{number}"' in client.get(f"gradio_api/call/run/{event}").text

            size = {}
            for done in (200, 400, 600):
                list(threads.map(ask, range(done - 200, done)))
                size[done] = round(resident(server), 1)
        assert size[600] - size[400] < 5, size  # the first hundreds fill bounded memories
