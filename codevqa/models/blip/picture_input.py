"""From pictures to the vision tower's input: resized on the CPU by Pillow, normalised where the tower is.

The numbers are those of transformers' BLIP processor, bit for bit. What it does in NumPy arrays, one picture after
another, is split here: Pillow's bicubic resizing, in threads and once for both towers, gives bytes; a
table of the 256 possible values of each channel turns them into normalised numbers on the tower's device.

Batches hold as many rows as half of the free memory does, and fewer wherever that was too many.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from cachetools import LRUCache
from PIL import Image as PILImage

from ...core.errors import ModelError
from ...core.images import Picture
from ..cuda_graphs import free_cached_memory
from ..library_errors import first_line
from ..weights import read_json

_MEAN, _STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
_RESIZED_BYTES = 64 * 2**20

Bytes: TypeAlias = "npt.NDArray[np.uint8]"
_Key: TypeAlias = "tuple[str, int, int]"
"""A picture's, with its size and filter."""


@dataclass(frozen=True)
class PictureSettings:
    """How pictures become a tower's input: a square size, a filter, mean and deviation of each channel."""

    size: int
    resample: int = PILImage.Resampling.BICUBIC
    do_rescale: bool = True
    rescale_factor: float = 1 / 255
    do_normalize: bool = True
    image_mean: Sequence[float] = _MEAN
    image_std: Sequence[float] = _STD

    @classmethod
    def read(cls, folder: Path, size: int) -> PictureSettings:
        """Reads the settings of a checkpoint's folder; where it has none, BLIP's hold.

        Raises:
            OSError, ValueError, TypeError: its file is damaged.
        """
        config: dict[str, Any] = {}
        if (folder / "preprocessor_config.json").is_file():
            config = read_json(folder / "preprocessor_config.json")
        elif (folder / "processor_config.json").is_file():
            config = read_json(folder / "processor_config.json").get("image_processor") or {}
        names = {field.name for field in fields(cls)} - {"size"}
        return cls(size, **{name: value for name, value in config.items() if name in names})


class _Resizing:
    """Resizes pictures in threads, one a core and at most 16, and keeps some for the process's other tower."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(min(16, os.cpu_count() or 1), thread_name_prefix="codevqa-pictures")
        self._lock = threading.Lock()
        self._kept: LRUCache[_Key, tuple[Future[Bytes], int]] = LRUCache(_RESIZED_BYTES, getsizeof=lambda kept: kept[1])

    def resize(self, picture: Picture, size: int, resample: PILImage.Resampling) -> Future[Bytes]:
        """Returns a picture resized, or soon to be."""
        key, count = (picture.key, size, int(resample)), 3 * size * size
        with self._lock:
            future, _ = self._kept.get(key, (None, 0))
            if future is None or (future.done() and future.exception()):
                future = self._threads.submit(_resize, picture, size, resample)
                if count <= self._kept.maxsize:
                    self._kept[key] = future, count
        return future


def _resize(picture: Picture, size: int, resample: PILImage.Resampling) -> Bytes:
    return np.asarray(picture.pixels.resize((size, size), resample))


_resizing = _Resizing()


def _resize_anew() -> None:
    global _resizing
    _resizing = _Resizing()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_resize_anew)  # a child has none of its parent's threads


class PictureReader:
    """Turns pictures into a batch of bytes, and those into the tower's numbers.

    Args:
        settings: the checkpoint's.
        device: where the tower is.
        dtype: the tower's precision.
    """

    def __init__(self, settings: PictureSettings, device: torch.device, dtype: torch.dtype) -> None:
        self.size = settings.size
        self._filter = PILImage.Resampling(int(settings.resample))
        self.device = device
        values = np.arange(256, dtype=np.float64)[:, None].repeat(3, axis=1)
        if settings.do_rescale:
            values *= settings.rescale_factor
        table: npt.NDArray[np.float32] = values.astype(np.float32)
        if settings.do_normalize:
            table -= np.array(settings.image_mean, np.float32)
            table /= np.array(settings.image_std, np.float32)
        # Value by value, the three channels side by side: entry 3 * value + channel.
        self._table = torch.from_numpy(table.reshape(-1)).to(device=device, dtype=dtype)
        self._channel = torch.arange(3, dtype=torch.int32, device=device)

    def read(self, pictures: Sequence[Picture]) -> torch.Tensor:
        """Returns bytes, (pictures, size, size, 3), on the tower's device; the copy there may still be under way."""
        resized = self.expect(pictures)
        batch = torch.empty(
            (len(pictures), self.size, self.size, 3), dtype=torch.uint8, pin_memory=self.device.type == "cuda"
        )
        for future, row in zip(resized, batch.numpy(), strict=True):
            row[...] = future.result()
        return batch.to(self.device, non_blocking=True)

    def expect(self, pictures: Sequence[Picture]) -> list[Future[Bytes]]:
        """Begins to resize pictures that will be read, in threads."""
        return [_resizing.resize(picture, self.size, self._filter) for picture in pictures]

    def normalise(self, pixels: torch.Tensor) -> torch.Tensor:
        """Returns the normalised numbers of bytes whose last dimension is the channels, in the same shape."""
        index = pixels.int() * 3 + self._channel
        return self._table.index_select(0, index.reshape(-1)).view(pixels.shape)


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
