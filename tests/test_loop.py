"""One private loop for callers of every thread: interrupts, cancelling and closing reach what runs on it."""

from __future__ import annotations

import asyncio
import gc
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from codevqa.core.loop_thread import LoopThread


class Work:
    """Runs until it is cancelled, and says so."""

    def __init__(self) -> None:
        self.started = threading.Event()
        self.cancelled = threading.Event()

    async def __call__(self) -> None:
        try:
            self.started.set()
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    thread = LoopThread("test-loop")
    yield thread
    thread.close()


def test_an_interrupt_of_the_caller_cancels_the_work(loop: LoopThread) -> None:
    work, main = Work(), threading.get_ident()

    def interrupt() -> None:
        work.started.wait(5)
        time.sleep(0.3)  # until the main thread waits for the result
        signal.pthread_kill(main, signal.SIGINT)

    # Where the tests run in the background of a shell, interrupts are ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=interrupt)
    try:
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            loop.run(work())
    finally:
        thread.join()
        signal.signal(signal.SIGINT, before)
    assert work.cancelled.wait(5)


def test_work_that_its_caller_cancels_as_the_loop_closes_ends_in_silence(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(5):  # whichever comes first
        loop = LoopThread("test")
        future = loop.submit(asyncio.sleep(30))
        loop.run(asyncio.sleep(0))
        future.cancel()
        loop.close()
        del future, loop
        gc.collect()
    assert caplog.records == []
