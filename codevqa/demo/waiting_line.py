"""The line that questions wait in, first come first served, so that each can be told how many are before it."""

from __future__ import annotations

import asyncio

from ..core.errors import InputError
from .limits import DemoLimits

__all__ = ["Place", "WaitingLine"]


class Place:
    """One question's place in the line."""

    def __init__(self, line: WaitingLine) -> None:
        self._line = line

    @property
    def before(self) -> int:
        """Questions that have to end before this one's turn; 0 when it is."""
        return self._line.before(self)

    async def moved(self) -> None:
        """Waits until somebody has left the line."""
        await self._line.moved()

    def leave(self) -> None:
        """Ends the turn, or the wait for it. Safe to call twice."""
        self._line.leave(self)


class WaitingLine:
    """Lets so many questions be worked on at once and so many wait. Used on one event loop.

    Args:
        limits: how many.
    """

    def __init__(self, limits: DemoLimits) -> None:
        self._at_once = limits.at_once
        self._longest = limits.at_once + limits.queue
        self._places: list[Place] = []
        self._moved = asyncio.Event()

    def join(self) -> Place:
        """Returns the last place.

        Raises:
            InputError: the line is full.
        """
        if len(self._places) >= self._longest:
            waiting = len(self._places) - self._at_once
            raise InputError(f"The server is busy: {waiting} questions are waiting.", hint="Ask again in a while.")
        place = Place(self)
        self._places.append(place)
        return place

    def before(self, place: Place) -> int:
        """Returns how many have to leave before a place's turn."""
        return max(0, self._places.index(place) - self._at_once + 1)

    def leave(self, place: Place) -> None:
        """Takes a place out of the line."""
        if place in self._places:
            self._places.remove(place)
            self.stir()

    def stir(self) -> None:
        """Has all who wait look again."""
        self._moved.set()
        self._moved = asyncio.Event()

    async def moved(self) -> None:
        """Waits until somebody has left."""
        await self._moved.wait()
