"""What tests share: engines over the embedded models, the command line, Ray, a sandbox, servers, a browser.

Each process of the tests computes on one core, as do the processes that it starts, and none of them asks the hub, or
writes into its cache.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch is imported, so before anything imports it
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_ASSETS_CACHE", f"{tempfile.gettempdir()}/codevqa-tests")
os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="codevqa-tests-")  # nothing is remembered from before
atexit.register(shutil.rmtree, os.environ["XDG_CACHE_HOME"], ignore_errors=True)
os.environ.setdefault("TYPER_USE_RICH", "0")  # read when typer is imported, which others do as well

if TYPE_CHECKING:
    from browser_kit import Visitor
    from cli_kit import CommandLine, Engines
    from demo_kit import Server
    from gradio_client import Client
    from openai_kit import Answer, FakeServer, Serve
    from playwright.sync_api import Browser
    from sandbox_kit import Kit

    from codevqa import CodeVQA


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Where only what measures time is run, modules without such a test are not even imported."""
    if collection_path.suffix != ".py" or not str(config.option.markexpr).startswith("timing"):
        return None
    return "mark.timing" not in collection_path.read_text(encoding="utf-8") or None


# -- engines and commands ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def engines() -> Iterator[Engines]:
    """Engines of presets that stay open, in place of ``CodeVQA.from_preset``."""
    from cli_kit import Engines

    kept = Engines()
    yield kept
    kept.close()


@pytest.fixture(scope="session")
def mini(engines: Engines) -> CodeVQA:
    """The engine over the embedded models."""
    return engines("mini")


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    """Ray as the engine starts it, shared by the tests of one file."""
    from codevqa.eval.ray import connect_ray

    module, owned = connect_ray(None)
    assert owned
    yield module
    module.shutdown()


@pytest.fixture
def no_actor_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """No test leaves an actor behind, however its run ended."""
    yield
    if "ray" in request.fixturenames:
        module = request.getfixturevalue("ray")
        deadline = time.monotonic() + 90
        while module.available_resources().get("CPU") != module.cluster_resources()["CPU"]:
            assert time.monotonic() < deadline, "an actor holds its CPU still"
            time.sleep(0.1)


@pytest.fixture(scope="session")
def codevqa(engines: Engines) -> CommandLine:
    """The command line in this process."""
    from cli_kit import CommandLine

    return CommandLine(engines)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Interrupts reach the test: where the tests run in the background of a shell, they are ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="module")
def kit() -> Iterator[Kit]:
    """A started sandbox, shared by the tests of one file."""
    from sandbox_kit import Kit

    kit = Kit()
    yield kit
    kit.close()


# -- servers -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Starts servers on loopback that answer the OpenAI client as a test says."""
    from openai_kit import FakeServer

    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    running: list[FakeServer] = []

    def start(answer: Answer) -> FakeServer:
        running.append(FakeServer(answer))
        return running[-1]

    yield start
    for server in running:
        server.shutdown()
        server.server_close()


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the hub's files, and no way to the hub."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return tmp_path / "hub"


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a ``transformers serve`` process."""
    from openai_kit import transformers_serve

    with transformers_serve(tmp_path_factory.mktemp("served") / "output") as address:
        yield address


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The demo with the embedded models and narrow limits. One for all tests: visitors share nothing."""
    from demo_kit import NARROW, demo_server

    with demo_server(tmp_path_factory.mktemp("demo"), **NARROW) as running:
        yield running


@pytest.fixture
def demo(server: Server) -> str:
    """Address of that demo."""
    return server.url


@pytest.fixture
def client(demo: str) -> Client:
    """A visitor of that demo."""
    from gradio_client import Client

    return Client(demo, verbose=False)


# -- a browser ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium. Playwright's event loop lives as long as it: nothing else in a module that uses it may run one."""
    from browser_kit import FLAGS, chromium, need_browser

    need_browser()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        yield running
        running.close()


@pytest.fixture
def visit(browser: Browser, server: Server) -> Iterator[Callable[..., Visitor]]:
    """Makes visitors of the demo, with the page open."""
    from pages_kit import visiting

    with visiting(browser, server) as visit:
        yield visit
