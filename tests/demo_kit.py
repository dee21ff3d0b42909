"""Serves the demo in a process of its own: Gradio leaves event loops open, which is no concern of the tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from codevqa.demo import DemoLimits

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "examples" / "pictures"
GARDEN = PICTURES / "garden.png"
NARROW: dict[str, Any] = {"upload_bytes": 200_000, "pixels": 500_000, "pictures": 3}
LIMITS = DemoLimits(**NARROW)
"""Of the demo that most tests share."""
PROGRAM = 'img = open_image("Image1.jpg")\nanswer = query(img, "What color is the cloud?")'
SCRIPT = """
import json, sys, threading
from codevqa.demo import DemoLimits, main
limits, auth = json.loads(sys.argv[1])
def say(text):
    for thread in threading.enumerate():  # what loads opens files and threads, which some tests count
        if thread.name == "codevqa-load":
            thread.join()
    print(text, flush=True)
main(port=0, browser=False, limits=DemoLimits(**limits), auth=auth, say=say)
"""


@contextmanager
def demo_server(auth: str | None = None, **limits: Any) -> Iterator[str]:
    """Serves the demo with these limits and yields its address once its models are loaded.

    Ends it then, and asserts that it had nothing to say.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GRADIO")}
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, json.dumps([limits, auth])],
        cwd=ROOT,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        assert process.stdout is not None
        try:
            first = process.stdout.readline()
            assert first.startswith("listening on http://127.0.0.1:"), first
            yield first.split()[2]
            process.terminate()
            said, _ = process.communicate(timeout=60)
        finally:
            process.kill()
    assert said == "ended\n", said


def garden() -> Any:
    """Returns the picture as the client uploads it."""
    from gradio_client import handle_file

    return handle_file(str(GARDEN))


def upload(demo: str, name: str, content: bytes) -> str:
    """Returns where the demo keeps an uploaded file."""
    reply = httpx.post(f"{demo}gradio_api/upload", files={"files": (name, content)})
    assert reply.status_code == 200, reply.text
    return str(reply.json()[0])


def raw(demo: str, endpoint: str, **arguments: Any) -> tuple[str, Any]:
    """Calls an endpoint as somebody would who does not use the client; returns the last event and its data."""
    reply = httpx.post(f"{demo}gradio_api/call/v2/{endpoint}", json=arguments)
    if reply.status_code != 200:
        return f"refused {reply.status_code}", reply.json()["detail"]
    event = reply.json()["event_id"]
    text = httpx.get(f"{demo}gradio_api/call/{endpoint}/{event}", timeout=60).text
    kind, _, data = text.strip().split("\n\n")[-1].partition("\n")
    return kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))
