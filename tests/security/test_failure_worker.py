"""A sandbox worker that is killed, and questions that are given up: nobody else pays, and nothing stays behind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import sys
import threading
import tracemalloc

import pytest
from engine_kit import RED, children, engine, held

from codevqa import CodeVQA, Limits
from codevqa.models.base import GenerationRequest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="finds workers as Linux lists them")


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
