"""How long a visitor of the demo waits, as a client of its API sees it: the server is started, asked, and ended.

``python benchmarks/demo_latency.py [PRESET]``. Times depend on the machine; targets for ``mini`` on two cores: first
answer within 10 s of starting the server, later ones within 2 s. Each later round is a new visitor, so that nothing
is answered from what was asked before.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
PATIENCE = 300.0
ROUNDS = 3


@contextmanager
def serving(preset: str) -> Iterator[str]:
    """Starts the demo and yields the address of its page, at once."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "codevqa", "demo", "--preset", preset, "--port", str(port), "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        yield f"http://127.0.0.1:{port}/"
    finally:
        process.terminate()
        process.wait(30)


def wait_for_page(url: str) -> None:
    """Waits until the page is served."""
    until = time.perf_counter() + PATIENCE
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            if time.perf_counter() > until:
                sys.exit(f"no page at {url} after {PATIENCE:.0f} s")
            time.sleep(0.02)


def ask(client: Any, asked: dict[str, Any]) -> float:
    """Asks one question; returns the seconds until its answer was there, the upload of its pictures included."""
    from gradio_client import handle_file

    before = time.perf_counter()
    images = [handle_file(EXAMPLES / name) for name in asked["images"]]
    answer, _ = client.predict(images=images, question=asked["question"], api_name="/ask")
    assert answer, asked["question"]
    return time.perf_counter() - before


def main() -> None:
    """Measures and prints one table."""
    os.environ["HF_HUB_OFFLINE"] = "1"  # the client would tell its maker that it is used
    preset = sys.argv[1] if len(sys.argv) > 1 else "mini"
    questions = [json.loads(line) for line in (EXAMPLES / "questions.jsonl").read_text(encoding="utf-8").splitlines()]
    from gradio_client import Client

    started = time.perf_counter()
    with serving(preset) as url:
        wait_for_page(url)
        page = time.perf_counter() - started
        ask(Client(url, verbose=False), questions[0])
        first = time.perf_counter() - started
        later = []
        for _ in range(ROUNDS):
            visitor = Client(url, verbose=False)
            later += [ask(visitor, one) for one in questions]
    later.sort()
    print(f"preset {preset}, {len(later)} later questions of {ROUNDS} new visitors")
    print(f"page served after              {page:.2f} s")
    print(f"first answer after             {first:.2f} s")
    print(f"later answers: median, longest {statistics.median(later):.2f} s, {later[-1]:.2f} s")


if __name__ == "__main__":
    main()
