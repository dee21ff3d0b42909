"""Workers of the sandbox: runs at once, cancelled, killed, forged and closed harm no other."""

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sandbox_kit import IMAGES, PRIMITIVES, Args, answering

from codevqa.core.errors import ProgramError, ProgramLimitError, ProgramRuntimeError
from codevqa.sandbox import Limits, Sandbox


def test_cancelled_runs_never_harm_others() -> None:
    """Workers of cancelled programs are killed where they compute; the moment decides who has the worker then."""
    source = "x = 0\nfor i in range(3000):\n    x += i\nanswer = query(images[0], 'a')"

    async def main() -> list[Any]:
        chance = random.Random(0)
        async with Sandbox(PRIMITIVES, workers=3) as box:

            async def doomed() -> None:
                for _ in range(60):
                    task = asyncio.create_task(box.run(source, answering, images=IMAGES))
                    await asyncio.sleep(chance.uniform(0, 0.004))
                    task.cancel()
                    await asyncio.wait([task])
                    assert task.cancelled() or task.result().value == "a 1"

            async def healthy() -> list[Any]:
                return [(await box.run(source, answering, images=IMAGES)).value for _ in range(60)]

            results: list[Any] = await asyncio.gather(doomed(), healthy(), doomed(), healthy())
            return results

    assert asyncio.run(asyncio.wait_for(main(), 60)) == [None, ["a 1"] * 60] * 2


def test_closing_ends_programs_under_way() -> None:
    async def main() -> None:
        called = asyncio.Event()
        go_on = asyncio.Event()

        async def host(name: str, args: Args, kwargs: dict[str, Any], line: int | None) -> object:
            called.set()
            await go_on.wait()
            return "a"

        box = Sandbox(PRIMITIVES, Limits(seconds=60), workers=2)
        sources = ("while True: pass", "answer = query(images[0], 'a')", "answer = 'waiting for a worker'")
        tasks = [asyncio.create_task(box.run(source, host, images=IMAGES)) for source in sources]
        await asyncio.wait_for(called.wait(), 10)
        await asyncio.sleep(0.1)
        await asyncio.wait_for(box.aclose(), 5)
        go_on.set()
        ends = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 5)
        assert [type(end) for end in ends] == [ProgramRuntimeError] * 3
        assert (await box.run("answer = 2", answering)).value == 2
        await box.aclose()

    before = set(_workers())
    asyncio.run(main())
    assert not set(_workers()) - before


def _workers() -> list[int]:
    listed = subprocess.run(["ps", "-o", "pid=,args=", "--ppid", str(os.getpid())], capture_output=True, text=True)
    return [int(line.split()[0]) for line in listed.stdout.splitlines() if "monty" in line]


def signalled(how: signal.Signals) -> Callable[[int], object]:
    return lambda worker: os.kill(worker, how)


def forged(answer: bytes) -> Callable[[int], object]:
    return lambda worker: Path(f"/proc/{worker}/fd/1").write_bytes(answer)  # into its pipe


CALL, LOOP = "answer = query(images[0], 'a')", "\nwhile True: pass"


@pytest.mark.skipif(sys.platform != "linux", reason="writes into another process's pipe through /proc")
@pytest.mark.parametrize(
    ("strike", "program", "errors"),
    [
        (signalled(signal.SIGKILL), CALL + LOOP, [ProgramRuntimeError]),
        (signalled(signal.SIGKILL), LOOP, [ProgramRuntimeError]),
        (signalled(signal.SIGSTOP), LOOP, [ProgramLimitError]),
        (forged(b"\x04\0\0\0abcd"), CALL, [ProgramRuntimeError, ProgramLimitError]),
        (forged(b"\0" * 8), CALL, [ProgramRuntimeError, ProgramLimitError]),
        (forged(b'{"a": 1}\n'), CALL, [ProgramRuntimeError, ProgramLimitError]),
    ],
)
def test_a_worker_that_is_killed_or_stopped_or_answers_nonsense_is_typed_and_replaced(
    strike: Callable[[int], object], program: str, errors: list[type[ProgramError]]
) -> None:
    async def struck(*_: object) -> object:
        for worker in set(_workers()) - before:
            strike(worker)
        return "a"

    async def main() -> None:
        async with Sandbox(PRIMITIVES, Limits(seconds=1), workers=1) as box:
            task = asyncio.create_task(box.run(program, struck, images=IMAGES))
            if "query" not in program:
                await asyncio.sleep(0.2)
                await struck()
            with pytest.raises(ProgramError) as caught:
                await task
            assert type(caught.value) in errors
            assert (await box.run("answer = 2", answering)).value == 2

    before = set(_workers())
    asyncio.run(asyncio.wait_for(main(), 30))


@pytest.mark.timeout(30)
def test_a_check_that_hangs_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with Sandbox(PRIMITIVES, Limits(seconds=1.0), workers=1) as box:
            await box.check("answer = 1")
            for pid in set(_workers()) - before:
                os.kill(pid, signal.SIGSTOP)
            with pytest.raises(ProgramLimitError, match="static check"):
                await box.check("answer = 2")
            await box.check("answer = 2 + 1")

    monkeypatch.setattr("codevqa.sandbox.workers.GRACE", 1.0)
    before = set(_workers())
    asyncio.run(asyncio.wait_for(main(), 20))
