"""How many models compute in this process right now: one that is alone may use all cores."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["computing"]

_lock = threading.Lock()
_count = 0


@contextmanager
def computing() -> Iterator[int]:
    """Counts a computation for the length of the block; gives how many others were under way when it began."""
    global _count
    with _lock:
        others = _count
        _count += 1
    try:
        yield others
    finally:
        with _lock:
            _count -= 1
