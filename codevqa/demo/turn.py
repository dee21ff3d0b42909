"""One turn of a visitor: the question and the baseline beside it, watched together until both end or time is up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from ..batching.call_cache import Memory
from ..core.answer import Answer
from ..core.events import Event, Writing
from ..engine.watch import Watch
from .live import LiveQuestion, PageUpdate

__all__ = ["Turn", "Visitor", "follow"]

PACE = 0.1
"""Seconds between two views while a program is being written; everything else is shown at once."""


@dataclass(eq=False)
class Turn:
    """One question, from when it comes in to its end."""

    watches: list[Watch] = field(default_factory=list)
    """What runs for it: the question, and the baseline beside it."""
    ended: bool = False
    replaced: bool = False
    """Whether its visitor turned to another question, which the page shows now."""

    def begin(self, watches: list[Watch]) -> None:
        """Takes what runs for it; this is ended at once where the question has ended meanwhile."""
        self.watches = watches
        if self.ended:
            self.end()

    def end(self, *, replaced: bool = False) -> None:
        """Ends it, also while it waits."""
        self.ended, self.replaced = True, self.replaced or replaced
        for watch in self.watches:
            watch.cancel()


@dataclass
class Visitor:
    """What the server knows of one visitor. Nothing is shared between two of them."""

    memory: Memory
    """Their finished model calls."""
    turns: list[Turn] = field(default_factory=list)
    """What they asked and has not ended."""
    without: Answer | None = None
    """What their last question was answered without a program."""
    pictures: tuple[str, ...] = ()
    """Keys of the pictures it was about."""

    def end(self, *, replaced: bool = False) -> bool:
        """Ends what they asked; returns whether there was anything."""
        for turn in self.turns:
            turn.end(replaced=replaced)
        return bool(self.turns)


async def follow(turn: Turn, live: LiveQuestion, seconds: float) -> AsyncGenerator[PageUpdate, None]:
    """Yields what to show, each time there is something new, until everything has ended.

    Args:
        turn: what runs; leaving early ends it.
        live: shows it.
        seconds: how long it may take.
    """
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
    if live.view != shown:
        yield live.view


def _feed(turn: Turn, live: LiveQuestion, batch: Sequence[tuple[Watch, Event]]) -> None:
    for watch, event in batch:
        (live.feed if watch is turn.watches[0] else live.feed_baseline)(event)


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
