"""How many requests are under way at once: as many as make the server answer faster."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from threading import Condition

from .http_backend import Exchange

_FIRST = 2
_GAIN = 1.1
"""How much faster a server must answer twice as many requests, for so many to be sent."""
_HOLD = 8
"""How many rounds pass before more are tried again."""
_LOOK_S = 0.2
"""How often a request that waits for its slot looks whether it was cancelled."""


class Slots:
    """Doubles the requests under way while that makes the server faster, up to ``most``."""

    def __init__(self, most: int) -> None:
        self._most, self._limit, self._base = most, min(_FIRST, most), min(_FIRST, most)
        self._free = Condition()
        self._under_way: dict[Exchange, None] = {}  # in the order they were sent
        self._waiting = 0
        self._rate = 0.0
        self._restart(1)

    @contextmanager
    def take(self, exchange: Exchange) -> Iterator[tuple[Exchange, ...]]:
        """Waits for a slot, and holds it for the block; returns the requests that were sent before and still run.

        Raises:
            CancelledError: the request was cancelled meanwhile.
        """
        with self._free:
            self._waiting += 1
            while len(self._under_way) >= self._limit and not exchange.cancelled():
                self._free.wait(_LOOK_S)
            self._waiting -= 1
            if exchange.cancelled():
                self._free.notify()
                raise CancelledError
            ahead = tuple(self._under_way)
            self._under_way[exchange] = None
        answered = False
        try:
            yield ahead
            answered = True
        finally:
            with self._free:
                full = len(self._under_way) >= self._limit
                del self._under_way[exchange]
                if answered:
                    self._measure(full)
                self._free.notify(max(1, min(self._waiting, self._limit - len(self._under_way))))

    def _measure(self, full: bool) -> None:
        """Counts an answer; after each round, compares its rate with that of fewer requests."""
        if not full and not self._waiting:  # the server was not the one that was waited for
            self._restart(1)
            return
        self._answers += 1
        if self._answers < self._round:
            return
        rate, grew = self._answers / max(time.monotonic() - self._begun, 1e-9), self._limit > self._base
        if grew and rate < self._rate * _GAIN:
            self._limit = self._base
            self._restart(_HOLD)
            return
        self._base, self._rate = self._limit, rate
        self._limit = min(2 * self._limit, self._most)
        self._restart(1)

    def _restart(self, rounds: int) -> None:
        self._answers, self._round, self._begun = 0, self._limit * rounds, time.monotonic()
