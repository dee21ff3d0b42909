"""Recording work on a GPU as a CUDA graph, and replaying it: one launch in place of hundreds.

Small batches of a transformer spend most of their time launching kernels; a replay does not. Recording is for tensors
of fixed shapes: callers pad their rows to one of a few sizes.

On, unless the environment variable ``CODEVQA_CUDA_GRAPHS`` is "0". What is known to go wrong:

- A recording knows addresses, not tensors. Each tensor from outside that it reads or writes must be kept. Otherwise
  others get its memory, and the next recording, which empties PyTorch's cache, unmaps it: an illegal memory access.
- Recordings that share a capture stream share, thread by thread, one cuBLAS workspace, which PyTorch from 2.12 on frees
  when any one of the graphs is destroyed (pytorch/pytorch#193402); replays of the others then read memory that is gone.
  So each set of recordings has a stream of its own, and is destroyed as a whole.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import torch

_T = TypeVar("_T")

CAPTURING = threading.RLock()
"""Held while any model records a graph, and by what would disturb that: another recording, freeing cached memory."""

_WARM_UPS = 2
_VARIABLE = "CODEVQA_CUDA_GRAPHS"


def graphs_enabled(device: torch.device) -> bool:
    """Whether work on a device is recorded: on a GPU, unless the environment says no when a model is made."""
    return device.type == "cuda" and os.environ.get(_VARIABLE) != "0"


def avoid_cudnn_attention(device: torch.device) -> None:
    """Keeps fused attention of this process off cuDNN's kernels, if ``device`` is a GPU.

    PyTorch 2.11 prefers them on Hopper and Blackwell, where illegal memory accesses, failures now and then and wrong
    results have been seen (pytorch/pytorch#169849, #190321, #193893). For the process, not around each call:
    ``sdpa_kernel`` sets and restores flags that all threads share, so that models on two threads would undo each
    other's choice.
    """
    if device.type == "cuda":
        torch.backends.cuda.enable_cudnn_sdp(False)


class Recorder:
    """Records functions for one model, all on a capture stream of its own.

    Args:
        device: the GPU.
        share_memory: recordings use the same memory for what they make on their way; what a function returns is then
            gone with the next replay of another one.
    """

    def __init__(self, device: torch.device, *, share_memory: bool = False) -> None:
        self._device, self._share_memory = device, share_memory
        self._stream: torch.cuda.Stream | None = None
        self._pool: Any = None

    def __call__(
        self, function: Callable[[], _T], undo: Callable[[], None] | None = None
    ) -> tuple[Callable[[], None], _T]:
        """Records a function without arguments; returns what replays it, and what it returned: the replays' output.

        The function must not wait for the GPU nor draw random numbers, and reads and writes tensors where they are.

        Args:
            function: what to record; it is called a few times before that.
            undo: puts back what a call has changed; None where another call does no harm.

        Raises:
            torch.OutOfMemoryError: the recording does not fit.
        """
        graph = torch.cuda.CUDAGraph()
        with CAPTURING, torch.cuda.device(self._device):
            if self._stream is None:
                self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            stream = self._stream
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                # Libraries make their handles and workspaces on a first call, which a recording must not see.
                for _ in range(_WARM_UPS):
                    function()
                    if undo is not None:
                        undo()
            torch.cuda.current_stream().wait_stream(stream)
            # Models on other threads go on allocating meanwhile: only what this thread does is watched.
            with torch.cuda.graph(graph, pool=self._pool, stream=stream, capture_error_mode="thread_local"):
                output = function()
            if self._share_memory and self._pool is None:
                self._pool = graph.pool()

        def replay(kept: object = function) -> None:
            # What the function refers to is what the recording reads and writes: it must live as long.
            graph.replay()

        return replay, output


def free_cached_memory() -> None:
    """Gives memory that PyTorch keeps for later back to the GPU, where there is one."""
    if torch.cuda.is_available():
        with CAPTURING:
            torch.cuda.empty_cache()
