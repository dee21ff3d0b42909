"""Starts the demo as a user does, in a process and a folder of its own, and watches whom it talks to."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from traffic_kit import seen, watched


@dataclass(frozen=True)
class Server:
    """A demo that runs in a process of its own."""

    url: str
    process: subprocess.Popen[bytes] = field(repr=False)
    folder: Path
    """Where it runs; output and traffic are noted here."""

    @property
    def output(self) -> str:
        """Everything it printed."""
        return (self.folder / "output").read_text(encoding="utf-8", errors="replace")

    @property
    def traffic(self) -> list[str]:
        """``EVENT HOST`` of everything its Python code looked up, connected to or opened."""
        return seen(self.folder / "traffic")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def serve(folder: Path, *words: str) -> Iterator[Server]:
    """Runs ``codevqa demo`` with nothing set that would keep it from talking to the world, and waits for its page."""
    keep_out = ("CODEVQA", "OPENAI", "GRADIO", "HF_")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(keep_out)}
    port = free_port()
    command = [sys.executable, "-m", "codevqa", "demo", "--port", str(port), "--no-browser", *words]
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            command, cwd=folder, env=watched(folder / "traffic", clean), stdout=output, stderr=subprocess.STDOUT
        )
        server = Server(f"http://127.0.0.1:{port}/", process, folder)
        try:
            wait_for_page(server)
            yield server
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def wait_for_page(server: Server, seconds: float = 300) -> None:
    """Waits until the page is served.

    Raises:
        AssertionError: the server ended, or does not answer in time; with what it printed.
    """
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        assert server.process.poll() is None, server.output
        try:
            with urllib.request.urlopen(server.url, timeout=5) as response:
                if response.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)
    raise AssertionError(f"no page after {seconds:.0f} s\n{server.output}")
