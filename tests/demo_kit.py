"""Serves the demo in a process of its own: Gradio leaves event loops open, which is no concern of the tests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = """
import json, sys
from codevqa.demo import DemoLimits, serving
limits, login = json.loads(sys.argv[1])
with serving("mini", port=0, limits=DemoLimits(**limits), login=login and tuple(login), say=print) as served:
    print(served.url, flush=True)
    sys.stdin.read()
print("ended")
"""


@contextmanager
def demo_server(login: tuple[str, str] | None = None, **limits: Any) -> Iterator[str]:
    """Serves the demo with these limits and yields its address; ends it, and asserts that it had nothing to say."""
    words = [sys.executable, "-c", SCRIPT, json.dumps([limits, login])]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GRADIO")}
    with subprocess.Popen(
        words,
        cwd=ROOT,
        env=environment,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        try:
            assert url.startswith("http://127.0.0.1:"), url + process.stdout.read()
            yield url
            said, _ = process.communicate(timeout=60)
        finally:
            process.send_signal(signal.SIGKILL)
    assert said == "ended\n", said
