"""A sandbox worker that is killed, stopped or filled: a marked fallback in bounded time, and the next is served."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
import time
import tracemalloc

import pytest
from failure_kit import RED, children, engine, held, resident

from codevqa import CodeVQA
from codevqa.models.base import GenerationRequest
from codevqa.models.fakes import ScriptedLM

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="finds workers as Linux lists them")

CALLING = "answer = query(img, 'Is it lit?')"
LONG = "answer = 'yes'\nwhile True:\n    pass"
BOUND = 20
"""Seconds: the limit of the program, the patience with its worker, and a slow machine."""


def writer(programs: dict[str, str]) -> ScriptedLM:
    """Writes the program that a word of the question asks for."""

    def write(request: GenerationRequest) -> str:
        question = str(request.prompt).rsplit(": ", 1)[-1]
        return next((program for word, program in programs.items() if word in question), "answer = 'yes'")

    return ScriptedLM(write, name="writer")


OTHERS: set[int] = set()
"""Workers of engines that other tests keep open."""


@pytest.fixture(autouse=True)
def others() -> None:
    OTHERS.clear()
    OTHERS.update(children())


def workers() -> frozenset[int]:
    return children() - OTHERS


def strike(how: signal.Signals) -> None:
    for worker in workers():
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, how)


def test_a_check_whose_worker_is_killed_says_nothing_of_the_program() -> None:
    lines = "\n".join(f"x{n} = [a + {n} for a in (1, 2, 3) if a > {n}]" for n in range(1200))
    with engine(writer({})) as vqa:
        assert vqa.run(RED, "answer = 1").text == "1"  # there are workers now
        timer = threading.Timer(0.03, lambda: strike(signal.SIGKILL))  # while it is checked
        timer.start()
        assert vqa.run(RED, f"{lines}\nanswer = 2").text == "2"
        timer.join()


@pytest.mark.slow
@pytest.mark.parametrize(
    "program",
    [
        "answer = x = 'a'\nwhile True:\n    x += x",
        "answer = 'a' * 90_000_000",
    ],
)
def test_a_program_that_fills_its_worker_leaves_nothing_behind(program: str) -> None:
    with engine(writer({"large": program}), workers=1) as vqa:
        vqa.ask(RED, "Is it large?")
        before, size = held(), resident()
        began = time.monotonic()
        for _ in range(5):
            lost = vqa.ask(RED, "Is it large?")
            assert lost.fallback and lost.error is not None
            assert lost.error.type in ("ProgramLimitError", "ProgramAnswerError"), lost.error
            assert "never sets" not in lost.error.message and vqa.ask(RED, "Is it?").text == "yes"
        assert time.monotonic() - began < 5 * BOUND
        after = held()
        assert len(workers()) <= 2 and after.others <= before.others
        assert resident() - size < 100


@pytest.mark.slow
def test_fifty_questions_given_up_leave_no_process_no_descriptor_and_no_memory() -> None:
    async def given_up(vqa: CodeVQA, count: int) -> None:
        for number in range(count):
            asking = asyncio.create_task(vqa.ask_async(RED, f"Is it {'lit' if number % 2 else 'long'}?"))
            await asyncio.sleep(0.01 * (number % 5))
            asking.cancel()
            with contextlib.suppress(asyncio.CancelledError):  # one that was quicker has its answer
                assert (await asking).text == "yes"

    with engine(writer({})) as vqa:  # what the interpreter's library opens once a process
        vqa.ask(RED, "Is it?")
    before = held()
    with engine(writer({"lit": CALLING, "long": LONG})) as vqa:
        asyncio.run(given_up(vqa, 10))
        _rested(vqa)
        warm = held()
        tracemalloc.start()
        asyncio.run(given_up(vqa, 10))
        _rested(vqa)
        size = tracemalloc.get_traced_memory()[0]
        asyncio.run(given_up(vqa, 50))
        _rested(vqa)
        grown = tracemalloc.get_traced_memory()[0] - size
        tracemalloc.stop()
        after = held()
        assert len(workers()) <= 4 and after.others <= warm.others
        assert grown < 200 * 1024, f"{grown:,} bytes of 50 questions"
        assert vqa.ask(RED, "Is it?").text == "yes"
    assert held() == before


def _rested(vqa: CodeVQA) -> None:
    """Waits until as many programs run as fit: every worker was given back."""
    assert [vqa.ask(RED, f"Is it {number}?").text for number in range(4)] == ["yes"] * 4
    held()
