"""One private loop for callers of every thread: an interrupt reaches what runs on it."""

from __future__ import annotations

import asyncio
import os
import signal
import threading

import pytest

from codevqa.core.loop_thread import LoopThread


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_of_the_caller_cancels_the_work() -> None:
    cancelled = threading.Event()

    async def work() -> None:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    loop = LoopThread("test")
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()  # once the main thread waits for the result
    with pytest.raises(KeyboardInterrupt):
        loop.run(work())
    assert cancelled.wait(5)
    loop.close()
