"""What a network made of pictures, kept on disk for the next question: safetensors files, a few dozen MB each.

Pictures of a collection say where (:attr:`.StoredPicture.memory`), and the memory there lists the files. A file is
written beside its name and moved there, so a process that is killed leaves none that is half written. One that is
damaged is removed, and what it held is computed again: each picture's features have a checksum. Where the disk is full,
nothing is kept.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import math
import sys
import threading
import time
import uuid
import zlib
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn

from ..collections.collection import StoredPicture
from ..collections.disk_memory import FEATURES, DiskMemory, cannot_keep
from ..core.errors import SetupError
from ..core.images import Picture

_log = logging.getLogger(__name__)
FILE_BYTES = 32 << 20
"""Bytes of features in one file, about."""
FILE_SECONDS = 5.0
"""Seconds after which features are written, however few: a process that is killed loses no more."""
_ABANDONED = 3600
"""Seconds after which a file that nobody lists has no writer any more."""


class FeatureStore:
    """Features of pictures by one network, by the pictures' keys. Any thread may use it.

    Args:
        memory: lists the files. Several processes may add some.
        network: names what makes the features.
        small: whether they are so small that all are held in memory, too.
        shape: of the features of a picture, where that is known; others are taken for damaged.
    """

    def __init__(
        self, memory: DiskMemory, network: str, *, small: bool = False, shape: tuple[int, ...] | None = None
    ) -> None:
        self._memory, self._network = memory, network
        self._folder = memory.folder / FEATURES / network
        self._lock = threading.RLock()
        self._new: dict[str, torch.Tensor] = {}
        self._leaving: dict[str, torch.Tensor] = {}
        self._written: Future[Path] | None = None
        """The file to come of :attr:`_leaving`."""
        self._due = math.inf
        """When what is new is to be written."""
        self._here: dict[str, torch.Tensor] | None = None
        self._files = self._listed()
        self._shape = shape
        self._full = False
        listed = set(self._files.values())
        for file in self._folder.glob("*") if self._folder.is_dir() else ():
            with suppress(OSError):
                if file not in listed and file.stat().st_mtime < time.time() - _ABANDONED:
                    file.unlink()
        if small:
            self._here = self.read(list(self._files))

    def __contains__(self, key: str) -> bool:
        return key in self._new or key in self._leaving or key in self._files

    def read(self, keys: Iterable[str]) -> dict[str, torch.Tensor]:
        """Returns the features that are here, by key, on the CPU."""
        features: dict[str, torch.Tensor] = {}
        by_file: dict[Path, list[str]] = {}
        with self._lock:
            for key in keys:
                waiting = self._new.get(key, self._leaving.get(key))
                if waiting is not None:
                    features[key] = waiting
                elif self._here is not None:
                    features.update({key: self._here[key]} if key in self._here else {})
                elif key in self._files:
                    by_file.setdefault(self._files[key], []).append(key)
            for file, wanted in by_file.items():
                try:
                    features |= _read_features(file, wanted, self._shape)
                except (OSError, SafetensorError) as error:
                    self._remove(file, error)
        return features

    def add(self, features: Mapping[str, torch.Tensor]) -> None:
        """Keeps features of one shape, some in memory until a file is full or :meth:`save` is called."""
        with self._lock:
            new = {key: tensor.detach() for key, tensor in features.items() if key not in self}
            if not new or (self._full and self._here is None):
                return
            if next(iter(new.values())).is_cuda:  # a copy for all of them: each waits for the GPU
                new = dict(zip(new, torch.stack(list(new.values())).cpu().unbind(), strict=True))
            if self._here is not None:
                self._here |= new
            if not self._full:
                self._due = self._due if self._new else time.monotonic() + FILE_SECONDS
                self._new |= new
            size = sum(tensor.nbytes for tensor in self._new.values())
            if self._new and (size >= FILE_BYTES or time.monotonic() >= self._due):
                self._write()

    def save(self) -> None:
        """Writes what is still in memory, and waits for it."""
        with self._lock:
            self._write()
            self._settle()

    def _listed(self) -> dict[str, Path]:
        return {key: self._folder / name for key, name in self._memory.features(self._network).items()}

    def _write(self) -> None:
        """Begins to write what is new, in a thread, once the file before is there."""
        self._settle()
        if self._new:
            self._leaving, self._new = {key: tensor.contiguous() for key, tensor in self._new.items()}, {}
            self._written = _writer.submit(_write_features, self._memory, self._network, self._folder, self._leaving)

    def _settle(self) -> None:
        """Waits for the file that is being written."""
        written, self._written = self._written, None
        try:
            if written is not None:
                written.result()
                self._files = self._listed()  # another process may have written some of them before
        except (OSError, SafetensorError, SetupError) as error:
            self._full = True
            cannot_keep(self._memory.folder, error)
        self._leaving = {}

    def _remove(self, file: Path, error: Exception) -> None:
        _log.warning("Features in %s are damaged or gone and computed again: %s", file, error)
        self._files = {key: other for key, other in self._files.items() if other != file}
        self._memory.drop_features(self._network, file.name)
        with suppress(OSError):
            file.unlink()


class FeatureStores:
    """The shelves of one network, one for each collection. Any thread may use them.

    Args:
        network: what makes the features. Others, or in another precision, have other shelves.
        about: what else they depend on, such as how pictures are resized.
        small, shape: see :class:`FeatureStore`.
    """

    def __init__(
        self, network: nn.Module, about: object = "", *, small: bool = False, shape: tuple[int, ...] | None = None
    ) -> None:
        self._network, self._about, self._small, self._shape = network, about, small, shape
        self._name = ""
        self._stores: dict[DiskMemory, FeatureStore] = {}

    def read(self, pictures: Iterable[Picture]) -> dict[str, torch.Tensor]:
        """Returns what is kept of pictures of collections, by key, on the CPU."""
        features: dict[str, torch.Tensor] = {}
        for shelf, keys in self._of(pictures).items():
            features |= shelf.read(keys)
        return features

    def add(self, pictures: Iterable[Picture], features: Mapping[str, torch.Tensor]) -> None:
        """Keeps what was made of those pictures that are of collections."""
        for shelf, keys in self._of(pictures).items():
            shelf.add({key: features[key] for key in keys})

    def missing(self, pictures: Sequence[Picture]) -> list[Picture]:
        """Returns the pictures of which nothing is kept."""
        kept = {key for shelf, keys in self._of(pictures).items() for key in keys if key in shelf}
        return [picture for picture in pictures if picture.key not in kept]

    def save(self) -> None:
        """Writes what is still in memory."""
        for shelf in list(self._stores.values()):
            shelf.save()

    def _of(self, pictures: Iterable[Picture]) -> dict[FeatureStore, dict[str, None]]:
        """Returns pictures of collections by their shelves, each once."""
        by_shelf: dict[FeatureStore, dict[str, None]] = {}
        for picture in pictures:
            if isinstance(picture, StoredPicture):
                by_shelf.setdefault(self._at(picture.memory), {})[picture.key] = None
        return by_shelf

    def _at(self, memory: DiskMemory) -> FeatureStore:
        with _lock:
            if memory not in self._stores:
                self._name = self._name or _fingerprint(self._network, self._about)
                # A matcher and a captioner may have the same tower.
                shelf = _stores.get((memory, self._name)) or self._new_store(memory)
                self._stores[memory] = _stores[memory, self._name] = shelf
            return self._stores[memory]

    def _new_store(self, memory: DiskMemory) -> FeatureStore:
        return FeatureStore(memory, self._name, small=self._small, shape=self._shape)


_lock = threading.Lock()
_stores: WeakValueDictionary[tuple[DiskMemory, str], FeatureStore] = WeakValueDictionary()
"""Those of this process, by the memory that lists them and the network."""


def _trim() -> None:
    """Gives freed memory back to the system. Otherwise gaps between features that stay can hold gigabytes."""
    if sys.platform == "linux":
        with suppress(AttributeError, OSError):  # a C library other than glibc
            ctypes.CDLL(None).malloc_trim(0)


_writer = ThreadPoolExecutor(1, thread_name_prefix="codevqa-features")
"""Writes while the network computes what the next file will hold."""


def _write_features(memory: DiskMemory, network: str, folder: Path, features: dict[str, torch.Tensor]) -> Path:
    file = folder / f"{uuid.uuid4().hex}.safetensors"
    part = file.with_suffix(".part")

    def write(keys: list[str]) -> None:
        new = {key: features[key] for key in keys}
        folder.mkdir(parents=True, exist_ok=True)
        save_file(new, part, {key: _checksum(tensor) for key, tensor in new.items()})
        part.replace(file)

    try:
        memory.add_features(network, file.name, {key: tensor.nbytes for key, tensor in features.items()}, write)
    except (OSError, SafetensorError, SetupError):
        for name in (part, file):
            with suppress(OSError):
                name.unlink()
        raise
    _trim()
    return file


def _read_features(file: Path, keys: Iterable[str], shape: tuple[int, ...] | None) -> dict[str, torch.Tensor]:
    with safe_open(file, "pt") as kept:
        sums = kept.metadata() or {}
        # Copies: what is mapped would count as memory, and for as long as one of them lives.
        features = {key: kept.get_tensor(key).clone() for key in keys}
    if any(_checksum(tensor) != sums.get(key) for key, tensor in features.items()):
        raise SafetensorError("a checksum is wrong")
    if shape is not None and any(tensor.shape != shape for tensor in features.values()):
        raise SafetensorError("a shape is wrong")
    return features


def _checksum(features: torch.Tensor) -> str:
    content: Any = features.reshape(-1).view(torch.uint8).numpy()
    return f"{zlib.crc32(content):08x}"


def _fingerprint(network: nn.Module, about: object) -> str:
    """Returns a name that another network, or the same in another precision, does not have."""
    digest = hashlib.sha256(str(about).encode())
    for name, weights in network.named_parameters():
        # Of all bytes in their order: a second for each gigabyte.
        check = _checksum(weights.detach().cpu().contiguous())
        digest.update(f"{name} {tuple(weights.shape)} {weights.dtype} {weights.device.type} {check}".encode())
    return digest.hexdigest()[:16]
