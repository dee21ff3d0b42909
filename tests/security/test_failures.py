"""Model servers that die or hang, workers that are killed, full disks: one clear error, and nobody else pays for it."""

import asyncio
import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from cli_kit import GARDEN, environment
from engine_kit import RED, children, engine, held
from openai_kit import Reply, Serve, completion, event, raw

from codevqa import CodeVQA, Limits
from codevqa.core.errors import ServerError
from codevqa.core.events import Failed, Writing
from codevqa.models import server_reply
from codevqa.models.openai_lm import OpenAILM
from codevqa.models.protocols import GenerationRequest

BOUND = 20
"""Seconds until a server is given up at the latest, on a busy machine."""


def model(url: str, **options: Any) -> OpenAILM:
    return OpenAILM("m", base_url=url, api_key="k", form="completion", **{"timeout": 1.0, "max_retries": 0} | options)


def refused(vqa: CodeVQA, question: str = "Hold") -> ServerError:
    with pytest.raises(ServerError) as caught:
        vqa.ask(RED, question)
    return caught.value


JSON = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 999999999\r\n\r\n"
EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
EMPTY = event({"choices": []}).encode()
WORD = event({"choices": [{"index": 0, "text": "answer = 1\n", "finish_reason": None}]}).encode()


@pytest.mark.slow
@pytest.mark.parametrize("listened", [False, True])
@pytest.mark.parametrize("pieces", [(JSON, b" "), (EVENTS, b": ping\n\n"), (EVENTS, EMPTY), (EVENTS, WORD)])
def test_a_server_that_never_comes_to_an_end_is_given_up(pieces: tuple[bytes, ...], listened: bool) -> None:
    with raw(*pieces, pause=0.05) as url, engine(model(url, timeout=0.3)) as vqa:
        began = time.monotonic()
        if listened:
            events = list(vqa.watch(RED, "Is it?"))
            assert isinstance(events[-1], Failed) and events[-1].error.type == "ServerError", events[-1]
            assert any(isinstance(event, Writing) for event in events) == (pieces[-1] is WORD)
        else:
            assert "did not answer" in str(refused(vqa, "Is it?"))
        assert time.monotonic() - began < BOUND


def test_a_server_that_dies_in_an_answer_is_asked_again_once_it_is_back(serve: Serve) -> None:
    back = threading.Event()

    def answer(path: str, body: dict[str, Any], number: int) -> Reply:
        if not back.is_set():
            raise ConnectionError  # the connection ends
        return completion("answer = 'from the server'")

    with engine(model(serve(answer).url, max_retries=1)) as vqa:
        assert "Cannot reach the model server" in str(refused(vqa))
        back.set()
        assert vqa.ask(RED, "What is it?").text == "from the server"


def test_an_answer_without_end_takes_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_reply, "_MOST", 1 << 20)
    with raw(JSON, b" " * (1 << 18), pause=0) as url, engine(model(url, timeout=20.0)) as vqa:
        began = time.monotonic()
        assert "over 1 MB" in str(refused(vqa))
        assert time.monotonic() - began < BOUND


linux = pytest.mark.skipif(sys.platform != "linux", reason="finds workers as Linux lists them")


@linux
def test_a_check_whose_worker_is_killed_says_nothing_of_the_program() -> None:
    def strike() -> None:
        for worker in children() - others:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(worker), signal.SIGKILL)

    lines = "\n".join(f"x{n} = [a + {n} for a in (1, 2, 3) if a > {n}]" for n in range(1200))
    others = children()
    with engine() as vqa:
        assert vqa.run(RED, "answer = 1").text == "1"  # there are workers now
        timer = threading.Timer(0.03, strike)  # while it is checked
        timer.start()
        assert vqa.run(RED, f"{lines}\nanswer = 2").text == "2"
        timer.join()


@linux
@pytest.mark.slow
def test_fifty_questions_given_up_leave_no_process_no_descriptor_and_no_memory() -> None:
    def write(request: GenerationRequest) -> str:
        question = str(request.prompt).rsplit(": ", 1)[-1]
        if "long" in question:
            return "answer = 'yes'\nwhile True:\n    pass"
        return "answer = query(img, 'Is it lit?')" if "lit" in question else "answer = 'yes'"

    async def given_up(vqa: CodeVQA, count: int) -> None:
        for number in range(count):
            asking = asyncio.create_task(vqa.ask_async(RED, f"Is it {'lit' if number % 2 else 'long'}?"))
            await asyncio.sleep(0.01 * (number % 5))
            asking.cancel()
            with contextlib.suppress(asyncio.CancelledError):  # one that was quicker has its answer
                assert (await asking).text == "yes"
        # As many programs run as fit: every worker was given back.
        answers = await asyncio.gather(*(vqa.ask_async(RED, f"Is it {number}?") for number in range(4)))
        assert [answer.text for answer in answers] == ["yes"] * 4
        gc.collect()

    with engine("answer = 'yes'") as vqa:  # what the interpreter's library opens once a process
        vqa.ask(RED, "Is it?")
    gc.collect()
    before = held()[::2]  # threads may end late
    with engine(write, repairs=0, workers=2, limits=Limits(seconds=0.5)) as vqa:
        asyncio.run(given_up(vqa, 10))
        tracemalloc.start()
        asyncio.run(given_up(vqa, 10))
        size = tracemalloc.get_traced_memory()[0]
        asyncio.run(given_up(vqa, 50))
        grown = tracemalloc.get_traced_memory()[0] - size
        tracemalloc.stop()
        assert len(children() - before[0]) <= 4
        assert grown < 200 * 1024, f"{grown:,} bytes of 50 questions"
    gc.collect()
    assert held()[::2] == before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize(
    "words", [("models",), pytest.param(("run", "-", GARDEN, "--quiet", "--json"), marks=pytest.mark.slow)], ids=len
)
def test_output_that_cannot_be_written_is_status_one(words: tuple[object, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "codevqa", *map(str, words)]
        to: Any = {"stdout": full, "stderr": subprocess.PIPE, "text": True, "env": environment(), "timeout": 500}
        done = subprocess.run(command, input="answer = 'yes'", check=False, **to)
    assert done.returncode == 1, done.stderr
    assert done.stderr.startswith("codevqa: No space left on device") and done.stderr.count("\n") == 1, done.stderr
