"""The demo's engines and its server: what is loaded and when, the port, the environment, how it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from service_kit import ROOT, VISITOR, StubEngines, asked, last_view, service

from codevqa.core.errors import ModelNotFoundError, SetupError
from codevqa.demo import serve as serve_module
from codevqa.demo.engines import Engines, lacking
from codevqa.presets.configuration import Configuration, Layer

# -- engines ---------------------------------------------------------------------------------------------------------


def test_an_engine_is_loaded_once_for_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[str] = []
    engine = StubEngines()

    def load(configuration: Configuration) -> StubEngines:
        loads.append(configuration.preset)
        time.sleep(0.1)
        return engine

    monkeypatch.setattr("codevqa.engine.codevqa.CodeVQA.from_configuration", load)
    engines = Engines("mini")
    got: list[Any] = []
    threads = [threading.Thread(target=lambda: got.append(engines.get("mini"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert loads == ["mini"] and got == [engine] * 4
    assert engines.loaded("mini") and not engines.loaded("base")
    engines.close()
    assert engine.closed


def test_a_load_that_failed_is_tried_again_and_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes: list[Any] = [SetupError("no disk"), SetupError("still none"), StubEngines()]

    def load(configuration: Configuration) -> Any:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr("codevqa.engine.codevqa.CodeVQA.from_configuration", load)
    engines = Engines("mini")
    reported: list[str] = []
    said = threading.Event()

    def report(text: str) -> None:
        reported.append(text)
        said.set()

    engines.start(report)
    assert said.wait(10) and reported == ["no disk"]
    with pytest.raises(SetupError, match="still none"):
        engines.get("mini")
    assert engines.get("mini") is not None


def test_a_visitor_never_makes_the_server_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "codevqa.engine.codevqa.CodeVQA.from_configuration", lambda configuration: pytest.fail("loaded")
    )
    monkeypatch.setattr(
        "codevqa.demo.engines.missing",
        lambda spec: "" if ":@" in spec else "not downloaded yet: needs the network once",
    )
    engines = Engines("mini")
    assert lacking(engines.configuration("mini")) == {}
    with pytest.raises(ModelNotFoundError, match=r"blip-itm-base-coco@\w+, .*all-mpnet-base-v2 \(not downloaded yet"):
        engines.get("base")
    shown = {value: text for text, value in engines.choices()}
    assert shown["base"] == "base (models not on this machine)"
    assert shown["paper"] == "paper (needs --language-model)"
    with pytest.raises(SetupError, match="--language-model"):
        engines.get("paper")
    told = Engines("mini", layers=[Layer("given", {"language_model": "openai:x"})]).choices()
    assert ("paper (models not on this machine)", "paper") in told
    view = asyncio.run(last_view(service(tmp_path, engines).serve(asked(tmp_path, preset="base"), VISITOR)))
    assert "Salesforce/blip-itm-base-coco" in view.message
    view = asyncio.run(last_view(service(tmp_path, engines).serve(asked(tmp_path, preset="nope"), VISITOR)))
    assert "No preset" in view.message and "nope" in view.message


# -- serving ---------------------------------------------------------------------------------------------------------


def test_a_port_that_is_taken_is_said_and_without_one_the_next_is_taken() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(SetupError, match=rf"port {port}: it is taken. Give another with --port"):
            serve_module._free_port("127.0.0.1", port)
    with pytest.raises(SetupError, match=r"Cannot listen on 192\.0\.2\.1, port 0: "):
        serve_module._free_port("192.0.2.1", 0)
    assert serve_module._free_port("127.0.0.1", None) in range(7860, 7871)
    assert serve_module._free_port("127.0.0.1", 0) > 0


@pytest.mark.parametrize("auth", ["", "name", "name:", ":word"])
def test_half_a_login_is_refused_before_anything_is_loaded(auth: str) -> None:
    with pytest.raises(SetupError, match="must be NAME:PASSWORD"):
        serve_module.main(auth=auth, say=print)


def test_without_gradio_one_line_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve_module, "find_spec", lambda name: None)
    with pytest.raises(SetupError, match=r"pip install 'codevqa\[demo\]'"), serve_module.serving():
        pass


def test_the_environment_is_put_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADIO_ALLOWED_PATHS", "/home")
    for name in ("HF_HUB_OFFLINE", "FORWARDED_ALLOW_IPS"):
        monkeypatch.delenv(name, raising=False)
    with serve_module._environment(tmp_path, offline=True):
        assert os.environ["GRADIO_ANALYTICS_ENABLED"] == "False"
        assert os.environ["HF_HUB_OFFLINE"] == "1"
        assert os.environ["GRADIO_ALLOWED_PATHS"] == ""
        assert os.environ["FORWARDED_ALLOW_IPS"] == "", "nobody says whose a request is"
    assert os.environ["GRADIO_ALLOWED_PATHS"] == "/home"
    assert "HF_HUB_OFFLINE" not in os.environ
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "10.0.0.1")
    with serve_module._environment(tmp_path, offline=False):
        assert "HF_HUB_OFFLINE" not in os.environ
        assert os.environ["FORWARDED_ALLOW_IPS"] == "10.0.0.1", "but who runs the demo"


def test_the_command_line_stays_light() -> None:
    code = "import sys, codevqa.cli.main, codevqa.demo; print('gradio' in sys.modules, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.split() == ["False", "False"]


FIRST = """
import sys
from codevqa.demo.serve import Engines, serving
begun = []
Engines.start = lambda self, say: begun.append("codevqa.demo.page" in sys.modules)
with serving() as served:
    print(served.url, begun, {"torch", "transformers"} & sys.modules.keys())
"""


def test_the_page_waits_for_the_libraries_of_models() -> None:
    done = subprocess.run([sys.executable, "-c", FIRST], capture_output=True, text=True, timeout=500, check=True)
    assert done.stdout.startswith("http://127.0.0.1:") and done.stdout.endswith("/ [True] set()\n"), done.stdout


@pytest.mark.slow
@pytest.mark.timing  # by itself: what imports PyTorch beside others holds every thread for seconds
@pytest.mark.parametrize("seconds", [0.0, 0.2, 0.4, 0.8, 1.5])
@pytest.mark.parametrize("loading", ["the page", "the models"])
def test_an_interrupt_while_it_loads_ends_it_within_two_seconds(tmp_path: Path, loading: str, seconds: float) -> None:
    with subprocess.Popen(
        [sys.executable, "app.py", "--no-browser", "--port", "0"],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        while not list(tmp_path.glob("codevqa-demo-*")):  # then it has begun
            assert process.poll() is None
            time.sleep(0.01)
        if loading == "the models":
            assert process.stderr is not None and "listening" in process.stderr.readline()
        time.sleep(seconds)
        process.send_signal(signal.SIGINT)
        try:
            _, rest = process.communicate(timeout=2 + 3)  # a busy machine takes its time
        finally:
            process.kill()
    assert process.returncode in (130, 0) and "Traceback" not in rest
    assert not list(tmp_path.glob("codevqa-demo-*"))


@pytest.mark.slow
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_app_py_serves_says_where_and_ends_cleanly(tmp_path: Path, ending: signal.Signals) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    words = [sys.executable, "app.py", "--no-browser", "--port", "0"]
    with subprocess.Popen(
        words,
        cwd=ROOT,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        # Where the tests run in the background of a shell, interrupts are ignored, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            assert line.startswith("codevqa: listening on http://127.0.0.1:")
            port = line.split(":")[3].split("/")[0]
            taken = subprocess.run([*words[:-1], port], cwd=ROOT, capture_output=True, text=True, env=environment)
            assert taken.returncode == 2 and taken.stdout == ""
            assert (
                taken.stderr
                == f"codevqa: Cannot listen on 127.0.0.1, port {port}: it is taken. Give another with --port.\n"
            )
            assert list(tmp_path.glob("codevqa-demo-*"))
            process.send_signal(ending)
            rest = process.stderr.read()
            assert process.wait(30) == 0, rest
        finally:
            process.kill()
    assert rest == "codevqa: ended\n"
    assert not list(tmp_path.glob("codevqa-demo-*")), "uploads are deleted"
