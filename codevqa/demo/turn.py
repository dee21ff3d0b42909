"""One turn of a visitor: the question and the baseline beside it, watched together until both end or time is up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from ..core.events import Event, Writing
from ..engine.watch import Watch
from .live import LiveQuestion, PageUpdate
from .visitor import Visitor

__all__ = ["Turn", "follow"]

PACE = 0.1
"""Seconds between two views while a program is being written; everything else is shown at once."""


@dataclass(frozen=True)
class Turn:
    """What runs for one question."""

    main: Watch
    baseline: Watch | None = None

    @property
    def watches(self) -> list[Watch]:
        """The question, and the baseline where it is asked."""
        return [self.main] + ([self.baseline] if self.baseline else [])


async def follow(turn: Turn, live: LiveQuestion, visitor: Visitor, seconds: float) -> AsyncGenerator[PageUpdate, None]:
    """Yields what to show, each time there is something new, until everything has ended.

    Leaving early, as when the visitor has gone, ends the question.

    Args:
        turn: what runs.
        live: shows it.
        visitor: whose turn it is; they can end it, and so does their next one.
        seconds: how long it may take.
    """
    number = visitor.turn
    visitor.running = turn.watches
    shown: PageUpdate | None = None
    try:
        async with aclosing(_events(turn, seconds)) as batches:
            async for batch in batches:
                # Heat maps take time to draw, and other visitors wait for this loop.
                await asyncio.to_thread(_feed, turn, live, batch)
                if live.view != shown:
                    shown = live.view
                    yield shown
        if live.pending:
            live.stopped("Stopped.")
    except TimeoutError:
        live.stopped(f"Stopped: that took more than {seconds:.0f} seconds.")
    finally:
        for watch in turn.watches:
            watch.cancel()
        if visitor.turn == number:
            visitor.running = []
    if live.view != shown:
        yield live.view


def _feed(turn: Turn, live: LiveQuestion, batch: Sequence[tuple[Watch, Event]]) -> None:
    for watch, event in batch:
        (live.feed if watch is turn.main else live.feed_baseline)(event)


async def _events(turn: Turn, seconds: float) -> AsyncGenerator[list[tuple[Watch, Event]], None]:
    """Yields the events of all watches as they come, those that came together as one batch.

    Raises:
        TimeoutError: time was up before the end.
    """
    came: asyncio.Queue[tuple[Watch, Event] | None] = asyncio.Queue()

    async def pump(watch: Watch) -> None:
        try:
            async for event in watch:
                came.put_nowait((watch, event))
        finally:
            came.put_nowait(None)

    pumps = [asyncio.create_task(pump(watch)) for watch in turn.watches]
    left, until, paced = len(pumps), time.monotonic() + seconds, 0.0
    batch: list[tuple[Watch, Event]] = []
    try:
        while left:
            async with asyncio.timeout(until - time.monotonic()):
                items = [await came.get()]
            while not came.empty():
                items.append(came.get_nowait())
            left -= items.count(None)
            batch += [item for item in items if item is not None]
            only_writing = all(isinstance(event, Writing) for _, event in batch)
            if batch and not (only_writing and time.monotonic() < paced):
                yield batch
                batch, paced = [], time.monotonic() + PACE
        if batch:
            yield batch
        for task in pumps:
            task.result()
    finally:
        for task in pumps:
            task.cancel()
