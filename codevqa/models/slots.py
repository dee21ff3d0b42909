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
_BURST_S = 0.5
"""Requests that are sent in this time may reach the server in any order."""
_LOOK_S = 0.2
"""How often a request that waits for its slot looks whether it was cancelled."""


class Slots:
    """Doubles the requests under way while that makes the server faster, up to ``most``."""

    def __init__(self, most: int) -> None:
        self._most, self._limit, self._base = most, min(_FIRST, most), min(_FIRST, most)
        self._free = Condition()
        self._under_way: set[Exchange] = set()
        self._burst: list[Exchange] = []
        self._opened = -_BURST_S
        self._waiting = 0
        self._rate = 0.0
        self._restart(1)

    @contextmanager
    def take(self, exchange: Exchange) -> Iterator[list[Exchange]]:
        """Holds a slot for the block; returns the requests that were sent before and at about the same time.

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
            if (now := time.monotonic()) - self._opened > _BURST_S:
                self._burst, self._opened = [*self._under_way], now
            ahead = self._burst
            ahead.append(exchange)
            self._under_way.add(exchange)
        answered = False
        try:
            yield ahead
            answered = True
        finally:
            with self._free:
                full = len(self._under_way) >= self._limit
                self._under_way.remove(exchange)
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
