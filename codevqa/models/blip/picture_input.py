"""From pictures to the vision tower's input: resized on the CPU by Pillow, normalised where the tower is.

The numbers are those of transformers' BLIP processor, bit for bit. What it does in NumPy arrays, one picture after
another, is split here: Pillow's bicubic resizing, in threads and once for both towers, gives bytes; a
table of the 256 possible values of each channel turns them into normalised numbers on the tower's device.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from cachetools import LRUCache
from PIL import Image as PILImage

from ...core.images import Picture
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
        given: dict[str, Any] = {}
        if (folder / "preprocessor_config.json").is_file():
            given = read_json(folder / "preprocessor_config.json")
        elif (folder / "processor_config.json").is_file():
            given = read_json(folder / "processor_config.json").get("image_processor") or {}
        names = {one.name for one in fields(cls)} - {"size"}
        return cls(size, **{name: value for name, value in given.items() if name in names})


class _Resizing:
    """Resizes pictures in threads, one a core and at most 16, and keeps some for the process's other tower."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(min(16, os.cpu_count() or 1), thread_name_prefix="codevqa-pictures")
        self._lock = threading.Lock()
        self._kept: LRUCache[_Key, tuple[Future[Bytes], int]] = LRUCache(_RESIZED_BYTES, getsizeof=lambda kept: kept[1])

    def resized(self, picture: Picture, size: int, resample: PILImage.Resampling) -> Future[Bytes]:
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
        return [_resizing.resized(picture, self.size, self._filter) for picture in pictures]

    def normalise(self, pixels: torch.Tensor) -> torch.Tensor:
        """Returns the normalised numbers of bytes whose last dimension is the channels, in the same shape."""
        index = pixels.int() * 3 + self._channel
        return self._table.index_select(0, index.reshape(-1)).view(pixels.shape)
