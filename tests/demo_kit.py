"""Serves the demo in a process of its own, as one visitor or many meet it, and watches whom it talks to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from traffic_kit import outside, seen, watched

from codevqa.demo import DemoLimits

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "examples" / "pictures"
GARDEN = PICTURES / "garden.png"
NARROW: dict[str, Any] = {"upload_bytes": 200_000, "pixels": 500_000, "pictures": 12}
LIMITS = DemoLimits(**NARROW)
"""Of the demo that most tests share."""
PROGRAM = 'img = open_image("Image1.jpg")\nanswer = query(img, "What color is the cloud?")'
SCRIPT = """
import json, sys, threading
from codevqa.demo import serve_page
from codevqa.demo.limits import DemoLimits
limits, auth = json.loads(sys.argv[1])
def say(text):
    for thread in threading.enumerate():
        if thread.name == "codevqa-load":
            thread.join()
    print(text, flush=True)
serve_page(port=0, browser=False, limits=DemoLimits(**limits), auth=auth, say=say)
"""


@dataclass(frozen=True)
class Server:
    """A demo that runs in a process of its own."""

    url: str
    process: int
    output_path: Path
    """What it printed."""


@contextmanager
def demo_server(folder: Path, auth: str | None = None, **limits: Any) -> Iterator[Server]:
    """Serves the demo with these limits, once its models are loaded, with its notes in a folder.

    Ends it then, and asserts that it had nothing to say and talked to no other machine.
    """
    keep_out = ("CODEVQA", "OPENAI", "GRADIO", "HF_")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(keep_out)}
    output_path, log = folder / "said", folder / "traffic"
    with (
        output_path.open("wb") as output,
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, json.dumps([limits, auth])],
            cwd=ROOT,
            env=watched(log, clean),
            stdout=output,
            stderr=subprocess.STDOUT,
        ) as process,
    ):
        try:
            while not (first := output_path.read_text()).endswith("\n"):
                assert process.poll() is None, first
                time.sleep(0.05)
            assert first.startswith("listening on http://127.0.0.1:"), first
            yield Server(first.split()[2], process.pid, output_path)
            process.terminate()
            process.wait(60)
        finally:
            process.kill()
    assert output_path.read_text() == f"{first}ended\n"
    assert "socket.bind 127.0.0.1" in seen(log), "the log sees what the server does"
    assert outside(log) == []


def garden() -> Any:
    """Returns the picture as the client uploads it."""
    from gradio_client import handle_file

    return handle_file(str(GARDEN))


def upload(demo: str, name: str, content: bytes) -> str:
    """Returns where the demo keeps an uploaded file."""
    reply = httpx.post(f"{demo}gradio_api/upload", files={"files": (name, content)})
    assert reply.status_code == 200, reply.text
    return str(reply.json()[0])


def raw(demo: str, endpoint: str, *arguments: Any) -> tuple[str, Any]:
    """Calls an endpoint as somebody would who does not use the client; returns the last event and its data."""
    reply = httpx.post(f"{demo}gradio_api/call/{endpoint}", json={"data": arguments})
    if reply.status_code != 200:
        return f"refused {reply.status_code}", reply.json()["detail"]
    text = httpx.get(f"{demo}gradio_api/call/{endpoint}/{reply.json()['event_id']}", timeout=60).text
    kind, _, data = text.strip().split("\n\n")[-1].partition("\n")
    return kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))
