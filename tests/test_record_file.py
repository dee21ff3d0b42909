"""The file of recorded calls: no kill or second writer loses a result, no secret gets in, other files are refused."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from record_kit import ABOUT, RED

from codevqa import Question, Settings
from codevqa.core.errors import InputError, SetupError
from codevqa.eval.run.calls import CallStore
from codevqa.eval.run.record import record_engine, recorded_settings, replay_engine
from codevqa.eval.run.recorded_models import RecordedCaptioner
from codevqa.models.base import CaptionRequest
from codevqa.models.fakes import FakeCaptioner
from codevqa.presets.configuration import configure
from codevqa.prompts import load as load_prompts


def test_of_two_writers_the_first_result_stands(tmp_path: Path) -> None:
    """Two processes on one file: here two connections, whose models disagree."""
    barrier = threading.Barrier(4)
    found: dict[str, list[str]] = {}
    requests = [CaptionRequest(RED, (1,), seed) for seed in range(40)]

    def work(name: str) -> None:
        store = CallStore(tmp_path / "calls.sqlite")
        recorded = RecordedCaptioner(store, ABOUT, FakeCaptioner(lambda request: f"{name} {request.seed}"))
        barrier.wait()
        order = random.Random(name).sample(requests, len(requests))
        seen = {one: recorded.caption([one])[0] for one in order}
        found[name] = [seen[one] for one in requests]
        store.close()

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4 and len(set(map(tuple, found.values()))) == 1
    replay = CallStore(tmp_path / "calls.sqlite", read_only=True)
    assert RecordedCaptioner(replay, ABOUT).caption(requests) == found["a"]
    replay.close()


def test_a_kill_loses_no_result_that_was_seen(tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
from PIL import Image
from codevqa.eval.run.calls import CallStore
from codevqa.eval.run.recorded_models import RecordedCaptioner
from codevqa.core.images import load_picture
from codevqa.models.base import CaptionRequest
from codevqa.models.fakes import FakeCaptioner
red = load_picture(Image.new("RGB", (60, 40), "red"))
store = CallStore(Path(sys.argv[1]))
captioner = RecordedCaptioner(store, {"name": "m", "model": "m", "settings": {}}, FakeCaptioner(lambda r: f"c{r.seed}"))
for seed in range(10**9):
    print(seed, *captioner.caption([CaptionRequest(red, (1,), seed)]), flush=True)
"""
    path = tmp_path / "calls.sqlite"
    process = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    seen = [next(process.stdout) for _ in range(150)]
    os.kill(process.pid, signal.SIGKILL)
    seen += process.stdout.readlines()
    process.wait()
    process.stdout.close()
    pairs = [line.split() for line in seen if line.endswith("\n")]
    store = CallStore(path, read_only=True)
    requests = [CaptionRequest(RED, (1,), int(seed)) for seed, _ in pairs]
    assert RecordedCaptioner(store, ABOUT).caption(requests) == [caption for _, caption in pairs]
    store.close()
    store = CallStore(path)
    assert RecordedCaptioner(store, ABOUT, FakeCaptioner("late")).caption([CaptionRequest(RED, (1,), 10**8)]) == [
        "late"
    ]
    store.close()


class _Server(BaseHTTPRequestHandler):
    """A model server that says its own address and the key it was given, as a careless one may."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status = 401 if "refuse" in body["prompt"] else 200
        if status == 200:
            reply: dict[str, Any] = {
                "id": "c", "object": "text_completion", "created": 0, "model": "m",
                "choices": [{"index": 0, "text": "answer = 'yes'", "finish_reason": "stop", "logprobs": None}],
            }  # fmt: skip
        else:
            given = self.headers["Authorization"].removeprefix("Bearer ")
            reply = {"error": {"message": f"bad key {given}", "type": "error"}}
        data = json.dumps(reply).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize(
    ("user", "query"), [("", ""), ("user:hunter2hunter2@", ""), ("user:hu@hunter2@", "?api_key=hunter2hunter2")]
)
def test_no_key_or_password_gets_into_the_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: str, query: str
) -> None:
    from codevqa.presets import presets

    key = "sk-verysecretkey0123456789"
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://{user}127.0.0.1:{server.server_port}/v1{query}"
    mini = presets.PRESETS["mini"]
    options = {**mini.options, "language_model": {"api_key": key, "base_url": address, "max_retries": 0}}
    served = dataclasses.replace(mini, name="served", language_model="openai-completion:some-model", options=options)
    monkeypatch.setattr(presets, "PRESETS", {**presets.PRESETS, "served": served})
    try:
        with record_engine(tmp_path, configure("served")) as vqa:
            assert vqa.ask(RED, "Is it red?").text == "yes"
            (refused,) = vqa.ask_many([Question(RED, "Does it refuse?")])
            assert refused.error is not None and "bad key" in refused.error.message
            vqa.writer.language_model.model.close()  # type: ignore[attr-defined]
            stored = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    finally:
        server.shutdown()
        server.server_close()
    assert b"some-model" in stored and b"bad key" in stored and str(server.server_port).encode() in stored
    assert key.encode() not in stored and b"hunter2" not in stored


def test_files_that_cannot_be_used_are_told_from_one_another(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"{tmp_path} holds no recorded calls"):
        replay_engine(tmp_path)
    path = tmp_path / "calls.sqlite"
    path.write_text("Not a database, but long enough to be looked at as one by whoever opens it." * 20)
    for read_only in (True, False):
        with pytest.raises(InputError, match="is no record of calls"):
            CallStore(path, read_only=read_only)
    path.unlink()
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE mine (x)")
    other.close()
    for read_only in (True, False):
        with pytest.raises(InputError, match="is no record of calls"):
            CallStore(path, read_only=read_only)
    path.unlink()
    CallStore(path).close()
    with pytest.raises(InputError, match="does not say which preset"):
        recorded_settings(tmp_path)
    with pytest.raises(InputError, match="records no models"):
        replay_engine(tmp_path, settings=Settings(), prompts=load_prompts("gqa"))
    with sqlite3.connect(path) as newer:
        newer.execute("PRAGMA user_version = 2")
    newer.close()
    with pytest.raises(InputError, match="is of format 2, not 1"):
        CallStore(path, read_only=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(SetupError, match="Cannot make"):
        CallStore(tmp_path / "file" / "calls.sqlite")
