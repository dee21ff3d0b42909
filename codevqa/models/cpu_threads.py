"""How the models of one process share its cores.

Small networks are computed on one core: threads that share a small matrix spend more time waking and waiting than
computing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, ParamSpec, TypeVar

import torch

LARGE = 1 << 23
"""Weights of a layer of a language model from which on all cores compute it: where there are fewer, waiting for one
another eats up what they gain."""

_P = ParamSpec("_P")
_R = TypeVar("_R")

_starting = threading.Lock()
"""Held while a thread starts: what it sets is for a moment what other new threads would begin with."""


def threads(count: int, cores: int, name: str) -> ThreadPoolExecutor:
    """Starts threads that compute with so many cores each; others go on with as many as before."""

    def begin() -> None:
        # A thread that never set its number takes the one set last, at its first computation.
        torch.get_num_threads()
        torch.set_num_threads(cores)

    with _starting:
        before = torch.get_num_threads()
        started = ThreadPoolExecutor(count, name, initializer=begin)
        together = threading.Barrier(count)
        wait([started.submit(together.wait) for _ in range(count)])
        # That also set what threads begin with that have not computed anything yet.
        torch.set_num_threads(before)
    return started


class NetworkThread:
    """The thread that computes a network: the caller's, or on the CPU for a small one its own, which has one core.

    Args:
        network: what is computed.
        blocks: how many blocks it has.
        device: where it is.
        large: weights of a block from which on all cores compute it.
    """

    def __init__(self, network: Any, blocks: int, device: torch.device, large: int = LARGE) -> None:
        weights = sum(weight.numel() for weight in network.parameters())
        self._thread: ThreadPoolExecutor | None = None
        if device.type == "cpu" and weights < large * blocks and torch.get_num_threads() > 1:
            self._thread = threads(1, 1, "codevqa-network")

    def run(self, function: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
        """Returns what the function does, which sets its own modes of PyTorch."""
        if self._thread is None or torch.get_num_threads() == 1:
            return function(*args, **kwargs)
        return self._thread.submit(function, *args, **kwargs).result()
