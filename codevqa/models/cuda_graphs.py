"""Recording work on a GPU as a CUDA graph, and replaying it: one launch in place of hundreds.

Small batches of a transformer spend most of their time launching kernels; a replay does not. Recording is for tensors
of fixed shapes: callers pad their rows to one of a few sizes.

Off unless the environment variable ``CODEVQA_CUDA_GRAPHS`` is "1". What is known to go wrong: all recordings of a
process share a capture stream and so, thread by thread, one cuBLAS workspace, which PyTorch from 2.12 on frees when any
one of the graphs is destroyed (pytorch/pytorch#193402); replays of the others then read memory that is gone.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import torch

CAPTURING = threading.RLock()
"""Held while any model records a graph, and by what would disturb that: another recording, freeing cached memory."""

_WARM_UPS = 2
_VARIABLE = "CODEVQA_CUDA_GRAPHS"


def enabled(device: torch.device) -> bool:
    """Whether work on a device is recorded: on a GPU, where the environment asks for it when a model is made."""
    return device.type == "cuda" and os.environ.get(_VARIABLE) == "1"


def avoid_cudnn_attention(device: torch.device) -> None:
    """Keeps fused attention of this process off cuDNN's kernels, if ``device`` is a GPU.

    PyTorch 2.11 prefers them on Hopper and Blackwell, where illegal memory accesses, failures now and then and wrong
    results have been seen (pytorch/pytorch#169849, #190321, #193893). For the process, not around each call:
    ``sdpa_kernel`` sets and restores flags that all threads share, so that models on two threads would undo each
    other's choice.
    """
    if device.type == "cuda":
        torch.backends.cuda.enable_cudnn_sdp(False)


class Recorded:
    """A function of tensors, recorded for the shapes it was first given.

    Args:
        function: from tensors to one tensor, without waiting for the GPU and without random numbers.
        inputs: examples of its arguments, on the GPU; they are copied.

    Raises:
        torch.OutOfMemoryError: the recording does not fit.
    """

    def __init__(self, function: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> None:
        self._inputs = tuple(tensor.clone() for tensor in inputs)
        device = inputs[0].device
        self._graph = torch.cuda.CUDAGraph()
        with CAPTURING, torch.cuda.device(device):
            side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                # Libraries make their handles and workspaces on a first call, which a recording must not see.
                for _ in range(_WARM_UPS):
                    function(*self._inputs)
            torch.cuda.current_stream().wait_stream(side)
            # Models on other threads go on allocating meanwhile: only what this thread does is watched.
            with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
                self._output = function(*self._inputs)

    def __call__(self, *inputs: torch.Tensor) -> torch.Tensor:
        """Returns the result for other values of the same shapes, or of fewer rows in each; valid until the next call.

        Rows are the first dimension. Rows that are not given keep older values.
        """
        for held, given in zip(self._inputs, inputs, strict=True):
            held[: len(given)].copy_(given, non_blocking=True)
        self._graph.replay()
        return self._output


def bucket(rows: int, sizes: tuple[int, ...]) -> int | None:
    """Returns the smallest size that holds so many rows; None where there is none."""
    return next((size for size in sizes if size >= rows), None)


def free_cached_memory() -> None:
    """Gives memory that PyTorch keeps for later back to the GPU, where there is one."""
    if torch.cuda.is_available():
        with CAPTURING:
            torch.cuda.empty_cache()
