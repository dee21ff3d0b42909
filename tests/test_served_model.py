"""What a server lists: said where it does not know a model, and where no server or no model is named."""

import contextlib
import time
from collections.abc import Iterator

import pytest
from cli_kit import GARDEN, CommandLine, assert_one_clear_line
from openai_kit import FakeServer, Serve, failure, refusal, turn

from codevqa import CodeVQA
from codevqa.core.errors import SetupError
from codevqa.models import served_model
from codevqa.models.openai_lm import OpenAILM

API = ("ask", GARDEN, "-q", "Is there a dog?", "--preset", "api")
PROGRAM = '```python\nanswer = query(img, "Is there a dog?")\n```'


def talks(path: str, body: dict, n: int) -> tuple:  # type: ignore[type-arg]
    """Writes a program, and says yes of a picture."""
    return turn("yes" if isinstance(body["messages"][-1]["content"], list) else PROGRAM)


@pytest.fixture
def nobody_at_the_usual_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_model, "USUAL_PORTS", {9: "Ollama"})


@contextlib.contextmanager
def usual(monkeypatch: pytest.MonkeyPatch, server: FakeServer) -> Iterator[int]:
    """Lets a server listen at the usual port of Ollama."""
    port = server.server_address[1]
    monkeypatch.setattr(served_model, "USUAL_PORTS", {9: "vLLM", port: "Ollama"})
    yield port


@pytest.mark.parametrize(
    ("status", "words"), [(404, 'model "qwen3-vl" not found'), (400, "The model `qwen3-vl` does not exist")]
)
def test_a_name_that_the_server_does_not_know_is_said_with_those_there_are(
    serve: Serve, status: int, words: str
) -> None:
    server = serve(lambda *_: failure(status, words))
    server.models = [*(f"m{number}" for number in range(9)), "qwen3-vl:8b"]
    error = refusal(OpenAILM("qwen3-vl", base_url=server.url))
    assert words in error.message
    assert error.hint == "Did you mean qwen3-vl:8b? The server has: m0, m1, m2, m3, m4, m5, m6, m7 and 2 more."
    server.models = ["qwen3-vl"]
    assert "The server has" not in str(refusal(OpenAILM("qwen3-vl", base_url=server.url)))


def test_a_refusal_of_something_else_does_not_blame_the_name(serve: Serve) -> None:
    server = serve(lambda *_: failure(400, "This model's maximum context length is 8 tokens"))
    server.models = ["other"]
    assert "other" not in str(refusal(OpenAILM("mine", base_url=server.url))) and server.checks == 0


def test_a_server_on_this_machine_is_offered_by_name(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, codevqa: CommandLine
) -> None:
    server = serve(talks)
    server.models = ["qwen3-vl:8b", "llava"]
    with usual(monkeypatch, server) as port:
        address = f"OPENAI_BASE_URL=http://127.0.0.1:{port}/v1"
        offered = f"Ollama answers on this machine: set {address} (models: qwen3-vl:8b, llava)."
        assert_one_clear_line(codevqa(*API), f"--model NAME. {offered}")
        assert_one_clear_line(codevqa(*API, "--model", "x"), f"No server is set for the model x. {offered}")
        with pytest.raises(SetupError, match="Ollama answers"):
            monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
            CodeVQA.from_preset("api", model="x")
        server.models = None  # something else listens there
        assert_one_clear_line(codevqa(*API, "--model", "x"), "Set OPENAI_BASE_URL, such as http://127.0.0.1:11434/v1")


def test_the_models_of_the_server_that_is_set_are_offered(serve: Serve, codevqa: CommandLine) -> None:
    server = serve(talks)
    server.models = ["qwen3-vl:8b"]
    done = codevqa(*API, OPENAI_BASE_URL=server.url)
    assert_one_clear_line(done, f"--model NAME. {server.url} has: qwen3-vl:8b.")


def test_no_server_holds_up_the_message(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    server = serve(talks)

    class Slow(list[str]):
        def __iter__(self) -> Iterator[str]:
            time.sleep(3)
            return super().__iter__()

    server.models = Slow(["late"])
    with usual(monkeypatch, server):
        started = time.monotonic()
        assert served_model.local_servers() == {}
        assert time.monotonic() - started < 1


@pytest.mark.usefixtures("nobody_at_the_usual_ports")
def test_api_needs_nothing_but_its_server(serve: Serve, codevqa: CommandLine) -> None:
    server = serve(talks)
    for method in ("codevqa", "direct"):
        done = codevqa(*API, "--model", "m", "--method", method, "--quiet", OPENAI_BASE_URL=server.url)
        assert (done.returncode, done.stdout, done.stderr) == (0, "yes\n", "")
    done = codevqa(*API, "--model", "m", OPENAI_BASE_URL="http://127.0.0.1:9/v1")
    assert_one_clear_line(done, "Is it running, and is OPENAI_BASE_URL right?", 1)
    done = codevqa(*API, "--model", "m", "--set", "language_model.base_url=http://127.0.0.1:9/v1")
    assert_one_clear_line(done, "is language_model.base_url right?", 1)
