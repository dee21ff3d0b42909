"""Answers that nobody fetches are let go: Gradio keeps all that it had to tell of the last two thousand sessions.

Gradio has no public setting for this, so this reads its private queue. Without it, memory grew by 8 MB for every
thousand small answers that nobody fetched, and a question with its pictures is over a megabyte.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

__all__ = ["Unread"]


class Unread:
    """What Gradio's queue keeps for clients to fetch.

    Args:
        blocks: the page; its queue is looked up when it is needed, since Gradio replaces it.
        seconds: from the end of a session's last event until what is left of it goes.
        clock: seconds, ever rising.
    """

    def __init__(self, blocks: Any, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._blocks, self._seconds, self._clock = blocks, seconds, clock
        self._ended: dict[str, float] = {}
        """When each session was first seen to have nothing under way."""

    def sweep(self) -> None:
        """Forgets the sessions whose time is up. Called on the server's event loop, with each question."""
        queue, now = self._blocks._queue, self._clock()
        under_way = {event.session_hash for event in queue.event_ids_to_events.values()}
        idle = [name for name in queue.pending_messages_per_session if name not in under_way]
        self._ended = {name: self._ended.get(name, now) for name in idle}
        for name, since in self._ended.items():
            if now - since >= self._seconds:
                queue.pending_messages_per_session.pop(name, None)
                queue.pending_event_ids_session.pop(name, None)
