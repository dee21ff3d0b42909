"""What the server knows of each visitor: nothing is shared between two of them, and all of it is forgotten."""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from ..batching.call_cache import Memory
from ..core.answer import Answer
from ..core.errors import InputError
from ..core.images import Picture
from ..engine.watch import Watch
from .limits import DemoLimits

__all__ = ["Allowance", "Visitor", "Visitors"]

MINUTE = 60.0


class Allowance:
    """So many questions a minute, counted over the minute that has just passed.

    Args:
        per_minute: the most that :meth:`take` grants in a minute.
        clock: seconds, ever rising.
    """

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._taken: deque[float] = deque()

    def wait(self) -> float:
        """Returns the seconds until there is one to take; 0 where there is."""
        now = self._clock()
        while self._taken and self._taken[0] <= now - MINUTE:
            self._taken.popleft()
        return self._taken[0] + MINUTE - now if len(self._taken) >= self._per_minute else 0.0

    def take(self) -> None:
        """Takes one."""
        self._taken.append(self._clock())


@dataclass
class Visitor:
    """One visitor: their finished model calls, what they last asked, and what runs for them now."""

    memory: Memory
    allowance: Allowance
    without: Answer | None = None
    """What their last question was answered without a program."""
    pictures: tuple[Picture, ...] = ()
    """The pictures it was about."""
    running: list[Watch] = field(default_factory=list)
    """What runs now: the question, and the baseline beside it."""
    asking: int = 0
    """Questions of the page that have not ended, those that wait for their turn or their models included."""
    turn: int = 0
    """Counts what they asked: a later turn ends an earlier one."""
    latest: int = 0
    """The turn of their newest question, or of the earlier one they look at; one that was stopped has a later turn."""
    seen: float = 0.0

    def begin(self) -> int:
        """Ends what still runs and begins a new turn; returns its number."""
        self.stop()
        self.turn += 1
        return self.turn

    def stop(self) -> bool:
        """Ends what runs; returns whether anything did."""
        running, self.running = self.running, []
        for watch in running:
            watch.cancel()
        return bool(running)


class Visitors:
    """All visitors by session. Used on one event loop.

    Args:
        limits: how many, for how long, and how much for each.
        clock: seconds, ever rising.
    """

    def __init__(self, limits: DemoLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._known: OrderedDict[str, Visitor] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def get(self, session: str) -> Visitor:
        """Returns the visitor of a session: the one known, or a new one in place of whoever was away longest."""
        now = self._clock()
        self._forget_idle(now)
        visitor = self._known.get(session)
        if visitor is None:
            limits = self._limits
            visitor = Visitor(Memory(limits.memory_bytes), Allowance(limits.per_minute, self._clock))
            self._known[session] = visitor
            self._make_room(session)
        visitor.seen = now
        self._known.move_to_end(session)
        return visitor

    def known(self, session: str) -> Visitor | None:
        """Returns the visitor of a session, or None."""
        return self._known.get(session)

    def forget(self, session: str) -> None:
        """Forgets a visitor and ends what runs for them."""
        visitor = self._known.pop(session, None)
        if visitor is not None:
            visitor.stop()

    def clear(self) -> None:
        """Forgets all visitors."""
        for session in list(self._known):
            self.forget(session)

    def admit(self, session: str) -> Visitor:
        """Returns the visitor, who is about to ask something.

        Raises:
            InputError: they asked too much in the last minute.
        """
        visitor = self.get(session)
        if wait := visitor.allowance.wait():
            raise InputError("That was too much at once.", hint=f"Ask again in {wait:.0f} seconds.")
        visitor.allowance.take()
        return visitor

    def _make_room(self, newest: str) -> None:
        """Forgets whoever was away longest; those whose question waits or runs only where everybody's does."""
        while len(self._known) > self._limits.visitors:
            others = [session for session in self._known if session != newest]
            idle = (one for one in others if not (self._known[one].running or self._known[one].asking))
            self.forget(next(idle, others[0]))

    def _forget_idle(self, now: float) -> None:
        for session, visitor in list(self._known.items()):  # longest away first
            if now - visitor.seen < self._limits.idle_seconds:
                break
            self.forget(session)
