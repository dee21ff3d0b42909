"""Small networks on one core: threads that share a small matrix spend more time waking and waiting than computing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

import torch

from .cpu_threads import LARGE, compute_with, computing

_starting = threading.Lock()
"""Held while a thread starts: what it sets is for a moment what other new threads would begin with."""

_P = ParamSpec("_P")
_R = TypeVar("_R")


class Cores:
    """Where a network's batches are computed: on the CPU, small ones in a thread that uses one core.

    Args:
        network: what is computed.
        blocks: how many blocks it has.
        device: where it is.
        large: weights of a block from which on all cores compute it.
        spread: whether all cores compute it also where nothing else is being computed. That costs more in all, and is
            sooner there.
    """

    def __init__(
        self, network: Any, blocks: int, device: torch.device, large: int = LARGE, *, spread: bool = False
    ) -> None:
        self._spread = spread
        weights = sum(weight.numel() for weight in network.parameters())
        self._thread: ThreadPoolExecutor | None = None
        if device.type != "cpu" or weights >= large * blocks:
            return
        with _starting:
            cores = torch.get_num_threads()
            if cores > 1:
                self._thread = ThreadPoolExecutor(1, "codevqa-blip-core", initializer=compute_with, initargs=(1,))
                self._thread.submit(int).result()
                # That also set what threads begin with that have not computed anything yet.
                torch.set_num_threads(cores)

    def run(self, function: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
        """Returns what the function does, which sets its own modes of PyTorch."""
        with computing() as others:
            if self._thread is None or torch.get_num_threads() == 1 or (self._spread and not others):
                return function(*args, **kwargs)
            return self._thread.submit(function, *args, **kwargs).result()
