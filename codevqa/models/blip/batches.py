"""Batches that fit in memory: as many rows as half of what is free holds, and fewer wherever that was too many."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import torch

from ...core.errors import ModelError
from ..cuda_graphs import free_cached_memory
from ..library_errors import first_line

_T = TypeVar("_T")
_R = TypeVar("_R")


def rows_that_fit(device: torch.device, row_bytes: int, most: int) -> int:
    """Returns how many rows to compute at once: at most ``most``, and what half of the free memory holds.

    Half, because other models of the process take memory at the same time.
    """
    free = _free_bytes(device, 2 * most * row_bytes)
    return most if free is None else max(1, min(most, free // 2 // max(1, row_bytes)))


def _free_bytes(device: torch.device, wanted: int) -> int | None:
    """Memory that could be taken now, counted no further than is wanted; None where that cannot be told."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        # What PyTorch holds and nobody uses is free too, but counting it takes a millisecond.
        if free < wanted:
            free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(free)
    try:
        with Path("/proc/meminfo").open(encoding="ascii") as lines:
            return next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):
        return None


def run_in_batches(
    run: Callable[[Sequence[_T]], Sequence[_R]],
    rows: Sequence[_T],
    size: int,
    release: Callable[[], None] | None = None,
    *,
    what: str = "BLIP",
) -> list[_R]:
    """Runs rows in batches of at most ``size``, halving it whenever memory runs out.

    Args:
        run: computes a batch.
        rows: all of them.
        size: rows in a batch at first.
        release: gives memory back that can be done without; called whenever it runs out. None has nothing to give.
        what: whose network it is, for messages.

    Raises:
        ModelError: the network failed, or a single row does not fit in memory.
    """
    results: list[_R] = []
    while len(results) < len(rows):
        batch = rows[len(results) : len(results) + size]
        try:
            results.extend(run(batch))
            continue
        except (RuntimeError, ValueError, MemoryError) as error:
            if not _out_of_memory(error):
                raise ModelError(f"{what} failed: {first_line(error)}.") from error
            if len(batch) == 1:
                raise ModelError(
                    f"{what} ran out of memory on a single row.", hint="Free some, or use a smaller model."
                ) from error
        # Outside the handler: the traceback would keep the failed batch's tensors alive.
        size = max(1, len(batch) // 2)
        if release is not None:
            release()
        gc.collect()
        free_cached_memory()
    return results


def _out_of_memory(error: BaseException) -> bool:
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(error)
