"""One model computes for one caller at a time, be it an engine or a thread of the user's.

A :class:`Turn` stands for parts that two may not use at once, such as a network. Callers get it in the order they came.
Models that share a part share the wait for it.
"""

from __future__ import annotations

import os
import threading

from ..core.errors import SetupError

_moved = threading.Condition()
_lines: dict[int, list[int]] = {}
"""Threads that want a part, by its id, in the order they came: it is the first one's."""
_inside: list[int] = []
"""Threads that have what they wanted, as often as they entered."""


class Turn:
    """The right to use some parts alone, for the length of a ``with`` block. It may be entered again inside.

    It is given in the order in which threads ask. Turns over one part exclude each other, whichever object has them.
    One without parts excludes nobody: for models that any number of threads may call, such as clients of a server.

    Args:
        parts: what only one thread may use at a time.
    """

    def __init__(self, *parts: object) -> None:
        self._parts = {id(part): part for part in parts}  # held, so that an id means no other object
        self._process = os.getpid()

    @property
    def free(self) -> bool:
        """Whether it excludes nobody."""
        return not self._parts

    @property
    def wanted(self) -> bool:
        """Whether somebody waits for one of the parts: who goes on for long should give way."""
        with _moved:
            return any(line[-1] != line[0] for part in self._parts if (line := _lines.get(part)))

    def __enter__(self) -> None:
        if os.getpid() != self._process:  # a fork copies no threads: locks stay shut, and pools never answer
            raise SetupError(
                "A model cannot be used in a process that was forked after it was loaded.",
                hint="Load it there, or start processes with spawn.",
            )
        me = threading.get_ident()
        with _moved:
            # Into all lines at once, so that two who want the same parts never wait for one another; and who is inside
            # goes before all who are not, since they may wait for what it has.
            for line in [_lines.setdefault(part, []) for part in self._parts]:
                taken = bool(line) and line[0] in _inside and line[0] != me
                line.insert(int(taken) if me in _inside else len(line), me)
            try:
                _moved.wait_for(lambda: all(_lines[part][0] == me for part in self._parts))
            except BaseException:  # an interrupt
                self._leave(me)
                raise
            _inside.append(me)

    def __exit__(self, *_: object) -> None:
        with _moved:
            _inside.remove(threading.get_ident())
            self._leave(threading.get_ident())

    def _leave(self, thread: int) -> None:
        for part in self._parts:
            _lines[part].remove(thread)
            if not _lines[part]:
                del _lines[part]
        _moved.notify_all()


def turn_of(model: object) -> Turn:
    """Returns the turn of a model: its attribute ``turn``, else one over the object itself."""
    own = getattr(model, "turn", None)
    return own if isinstance(own, Turn) else Turn(model)


def _forget() -> None:
    global _moved
    _moved = threading.Condition()
    _lines.clear()
    _inside.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)  # models that are loaded in the child have lines of their own
