"""How the models of one process share its cores."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["LARGE", "compute_with", "computing"]

LARGE = 1 << 23
"""Weights of a layer of a language model from which on all cores compute it: where there are fewer, waiting for one
another eats up what they gain."""

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


def compute_with(cores: int) -> None:
    """Makes this thread compute with so many cores from now on."""
    # A thread that has never asked takes the number of whoever set one last, at its first computation.
    torch.get_num_threads()
    torch.set_num_threads(cores)
