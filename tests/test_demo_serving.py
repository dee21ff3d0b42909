"""The demo's server: what it refuses to start with, how it ends."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli_kit import ROOT

from codevqa.core.errors import SetupError
from codevqa.demo import serve


def test_a_port_that_is_taken_and_an_address_of_another_machine_are_said() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(SetupError, match=f"Cannot listen on 127.0.0.1, port {port}: "):
            serve.serve_page(port=port, say=print)
    with pytest.raises(SetupError, match=r"Cannot listen on 192\.0\.2\.1, port 0: "):
        serve.serve_page(host="192.0.2.1", say=print)


@pytest.mark.parametrize("auth", ["", "name", "name:", ":word"])
def test_half_a_login_is_refused(auth: str) -> None:
    with pytest.raises(SetupError, match="must be NAME:PASSWORD"):
        serve.serve_page(auth=auth, say=print)


def test_a_configuration_that_cannot_answer_is_refused() -> None:
    with pytest.raises(SetupError, match="--lm"):
        serve.serve_page("paper", say=print)


def test_without_gradio_one_line_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "find_spec", lambda name: None)
    with pytest.raises(SetupError, match=r"pip install 'codevqa\[demo\]'"):
        serve.serve_page(say=print)


@pytest.mark.slow
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("loading", ["the page", "the models"])
def test_app_py_ends_at_once_and_deletes_uploads_whatever_it_loads(
    tmp_path: Path, loading: str, ending: signal.Signals
) -> None:
    with subprocess.Popen(
        [sys.executable, "app.py", "--no-browser", "--port", "0"],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stderr=subprocess.PIPE,
        text=True,
        # Where the tests run in the background of a shell, interrupts are ignored, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        assert process.stderr is not None
        try:
            while not list(tmp_path.glob("codevqa-demo-*")):  # then it has begun
                assert process.poll() is None
                time.sleep(0.01)
            if loading == "the models":
                assert process.stderr.readline().startswith("codevqa: listening on http://127.0.0.1:")
            time.sleep(0.3)
            process.send_signal(ending)
            _, errors = process.communicate(timeout=2 + 3)  # a busy machine takes its time
        finally:
            process.kill()
    assert (process.returncode, errors) == (0, "codevqa: ended\n")
    assert not list(tmp_path.glob("codevqa-demo-*"))
