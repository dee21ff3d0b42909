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
_RESIZED_BYTES = 256 * 2**20

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


class _Resized:
    """Pictures lately resized, shared by every tower of the process: matcher and captioner want the same."""

    def __init__(self, limit: int) -> None:
        self._kept: LRUCache[_Key, Bytes] = LRUCache(limit, getsizeof=lambda pixels: pixels.nbytes)
        self._lock = threading.Lock()

        self.underway: dict[_Key, Future[Bytes]] = {}
        """Pictures that are being resized."""

    def get(self, key: _Key) -> Bytes | None:
        with self._lock:
            return self._kept.get(key)

    def keep(self, key: _Key, pixels: Bytes) -> None:
        with self._lock:
            if pixels.nbytes <= self._kept.maxsize:
                self._kept[key] = pixels


_resized = _Resized(_RESIZED_BYTES)
_threads: ThreadPoolExecutor | None = None
_threads_guard = threading.Lock()


def _forget_threads() -> None:
    global _resized, _threads, _threads_guard
    _resized, _threads, _threads_guard = _Resized(_RESIZED_BYTES), None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)  # a child has none of its parent's threads


def threads() -> ThreadPoolExecutor:
    """Returns the threads that read and resize pictures, one a core and at most 16."""
    global _threads
    with _threads_guard:
        if _threads is None:
            _threads = ThreadPoolExecutor(min(16, os.cpu_count() or 1), thread_name_prefix="codevqa-pictures")
        return _threads


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
        self.expect(pictures)
        batch = torch.empty(
            (len(pictures), self.size, self.size, 3), dtype=torch.uint8, pin_memory=self.device.type == "cuda"
        )
        for picture, row in zip(pictures, batch.numpy(), strict=True):
            row[...] = self._pixels(picture)
        return batch.to(self.device, non_blocking=True)

    def expect(self, pictures: Sequence[Picture]) -> None:
        """Begins to resize pictures that will be read, in threads."""
        for picture in pictures if len(pictures) > 1 else ():
            key = self._key(picture)
            if key not in _resized.underway and _resized.get(key) is None:
                future = threads().submit(self._resize, picture)
                _resized.underway[key] = future
                future.add_done_callback(lambda _, key=key: _resized.underway.pop(key, None))  # type: ignore[misc]

    def normalise(self, pixels: torch.Tensor) -> torch.Tensor:
        """Returns the normalised numbers of bytes whose last dimension is the channels, in the same shape."""
        index = pixels.int() * 3 + self._channel
        return self._table.index_select(0, index.reshape(-1)).view(pixels.shape)

    def _key(self, picture: Picture) -> _Key:
        return picture.key, self.size, int(self._filter)

    def _pixels(self, picture: Picture) -> Bytes:
        """A picture resized: kept, under way, or resized here."""
        key = self._key(picture)
        underway = _resized.underway.get(key)
        found = underway.result() if underway is not None else _resized.get(key)
        return self._resize(picture) if found is None else found

    def _resize(self, picture: Picture) -> Bytes:
        pixels = np.asarray(picture.pixels.resize((self.size, self.size), self._filter))
        _resized.keep(self._key(picture), pixels)
        return pixels
