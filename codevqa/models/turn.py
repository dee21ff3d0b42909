"""One model computes for one caller at a time, be it an engine or a thread of the user's.

A :class:`Turn` stands for parts that two may not use at once, such as a network. Callers get it in the order they came.
Models that share a part share the wait for it.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections import deque
from contextlib import ExitStack
from weakref import WeakValueDictionary

from ..core.errors import SetupError

__all__ = ["Turn", "turn_of"]

_numbers = itertools.count()


class _Line:
    """Those who want one part, in the order they came; it is the first one's."""

    def __init__(self, part: object) -> None:
        self.part = part  # held, so that its id means no other object as long as this line is found by it
        self.number = next(_numbers)
        self.threads: deque[int] = deque()
        self._moved = threading.Condition()
        self._depth = 0
        """How often the first has entered again."""

    def enter(self) -> None:
        """Waits until the part is this thread's."""
        me = threading.get_ident()
        with self._moved:
            if self.threads and self.threads[0] == me:
                self._depth += 1
                return
            self.threads.append(me)
            try:
                self._moved.wait_for(lambda: self.threads[0] == me)
            except BaseException:  # an interrupt
                self.threads.remove(me)
                self._moved.notify_all()
                raise

    def leave(self) -> None:
        """Hands the part to the next in line."""
        with self._moved:
            if self._depth:
                self._depth -= 1
            else:
                self.threads.popleft()
                self._moved.notify_all()


_lines: WeakValueDictionary[int, _Line] = WeakValueDictionary()
"""By the part's id. A line lives as long as a turn that needs it, and no longer."""
_guard = threading.Lock()


class Turn:
    """The right to use some parts alone, for the length of a ``with`` block. It may be entered again inside.

    It is given in the order in which threads ask. Turns over one part exclude each other, whichever object has them.
    One without parts excludes nobody: for models that any number of threads may call, such as clients of a server.

    Args:
        parts: what only one thread may use at a time.
    """

    def __init__(self, *parts: object) -> None:
        with _guard:
            lines = [_lines.setdefault(id(part), _Line(part)) for part in parts]
        # Always in the same order: two threads that want the same parts never wait for one another.
        self._lines = sorted(dict.fromkeys(lines), key=lambda line: line.number)
        self._process = os.getpid()

    @property
    def wanted(self) -> bool:
        """Whether somebody waits for one of the parts: who goes on for long should give way."""
        return any(len(line.threads) > 1 for line in self._lines)

    def __enter__(self) -> None:
        if os.getpid() != self._process:  # a fork copies no threads: locks stay shut, and pools never answer
            raise SetupError(
                "A model cannot be used in a process that was forked after it was loaded.",
                hint="Load it there, or start processes with spawn.",
            )
        with ExitStack() as entered:
            for line in self._lines:
                line.enter()
                entered.callback(line.leave)
            entered.pop_all()

    def __exit__(self, *_: object) -> None:
        for line in self._lines:
            line.leave()


def turn_of(model: object) -> Turn:
    """Returns the turn of a model: its attribute ``turn``, else one over the object itself."""
    own = getattr(model, "turn", None)
    return own if isinstance(own, Turn) else Turn(model)


def _forget() -> None:
    global _guard
    _guard = threading.Lock()
    _lines.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)  # models that are loaded in the child have lines of their own
