"""A hub on this machine: the folders it is given are its repositories, and it counts what it is asked for."""

import hashlib
import json
import os
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

COMMIT = "c0ffee" + "0" * 34


@dataclass
class Hub:
    """What the hub has, and how it fails."""

    url: str
    cache: Path
    repositories: dict[str, dict[str, bytes]]
    """Files by name and repository; ``datasets/owner/name`` is one of data sets."""
    asked: list[str] = field(default_factory=list)
    """``METHOD /path``, and the range where one was asked for."""
    down: bool = False
    breaks_at: int | None = None
    """Bytes of a file after which the connection ends."""
    damages: bool = False
    """Whether what is sent has other bytes than the hub says."""

    @property
    def files(self) -> list[str]:
        """Names of the files that were sent."""
        return [
            request.split("/resolve/")[1].split("/", 1)[1] for request in self.asked if request.startswith("GET /tiny")
        ]

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a process that knows this hub and no other."""
        outside = ("CODEVQA", "OPENAI", "HF_", "TRANSFORMERS_OFFLINE")
        clean = {name: value for name, value in os.environ.items() if not name.startswith(outside)}
        return {**clean, "HF_ENDPOINT": self.url, "HF_HOME": str(self.cache)}

    def command(self, *words: str) -> list[str]:
        """Returns a command line of ours."""
        return [sys.executable, "-m", "codevqa", *words]


@contextmanager
def serve_hub(cache: Path, repositories: dict[str, dict[str, bytes]]) -> Iterator[Hub]:
    """Serves repositories until the block ends."""

    class Handler(_Handler):
        hub = Hub("", cache, repositories)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Handler.hub.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield Handler.hub
        server.shutdown()
        thread.join()


def know_only(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes it the only hub that this process knows."""
    constants = {
        "ENDPOINT": hub.url,
        "HUGGINGFACE_CO_URL_TEMPLATE": f"{hub.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}",
        "HF_HUB_CACHE": str(hub.cache / "hub"),
        "HF_HUB_OFFLINE": False,
    }
    for name, value in constants.items():
        monkeypatch.setattr(f"huggingface_hub.constants.{name}", value)
    monkeypatch.setattr("huggingface_hub.utils._cache_assets.HF_ASSETS_CACHE", hub.cache / "assets")


def cached(cache: Path, repository: str, folder: Path | str, commit: str = COMMIT, *, main: bool = True) -> Path:
    """Puts a folder into the hub's cache as if it had been fetched, by default as what ``main`` names."""
    place = cache / f"models--{repository.replace('/', '--')}"
    shutil.copytree(folder, place / "snapshots" / commit)
    if main:
        (place / "refs").mkdir()
        (place / "refs" / "main").write_text(commit)
    return place / "snapshots" / commit


class _Handler(BaseHTTPRequestHandler):
    hub: Hub

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        path = urlsplit(self.path).path
        if path != "/api/agent-harnesses":  # huggingface_hub's own, once for each cache
            self.hub.asked.append(f"{self.command} {path} {self.headers.get('Range', '')}".strip())
        if self.hub.down:
            self.send_error(503)
            return
        for name, files in self.hub.repositories.items():
            kind = "" if name.startswith("datasets/") else "models/"
            if path.startswith(f"/api/{kind}{name}/tree/"):
                self._send(json.dumps([_about(*entry) for entry in files.items()]).encode(), body=body)
                return
            if path.startswith(f"/api/{kind}{name}"):
                about = {"id": name, "sha": COMMIT, "siblings": [_about(*entry) for entry in files.items()]}
                self._send(json.dumps(about).encode(), body=body)
                return
            file = path.removeprefix(f"/{name}/resolve/").partition("/")[2]
            if path.startswith(f"/{name}/resolve/") and file in files:
                self._send_file(files[file], body=body)
                return
        self.send_error(404)

    def _send(self, data: bytes, *, body: bool) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if body:
            self.wfile.write(data)

    def _send_file(self, data: bytes, *, body: bool) -> None:
        tag = hashlib.sha256(data).hexdigest()
        if self.hub.damages:
            data = bytes(len(data))
        begin = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").split("-")[0])
        self.send_response(206 if begin else 200)
        self.send_header("Content-Length", str(len(data) - begin))
        self.send_header("ETag", f'"{tag}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.end_headers()
        if body:
            stop = self.hub.breaks_at
            self.wfile.write(data[begin : begin + stop if stop else None])

    def log_message(self, *words: object) -> None:
        pass


def _about(file: str, data: bytes) -> dict[str, Any]:
    """What the hub says of a file, alone or in the listing of its repository."""
    digest = hashlib.sha256(data).hexdigest()
    lfs = {"sha256": digest, "oid": digest, "size": len(data), "pointerSize": 100}
    names = {"type": "file", "path": file, "rfilename": file}
    return {**names, "size": len(data), "oid": "0" * 40, "blobId": "0" * 40, "lfs": lfs}
