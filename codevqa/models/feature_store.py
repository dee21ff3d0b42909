"""What a network made of pictures, kept on disk for the next question: safetensors files, a few dozen MB each.

Pictures of a collection say where (:attr:`.StoredPicture.feature_folder`). A file is written beside its name and
moved there, so a process that is killed leaves none that is half written. One that is damaged is removed, and
what it held is computed again: each picture's features have a checksum. Where the disk is full, nothing is kept.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
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

from ..collections.catalogue import cannot_keep
from ..collections.collection import StoredPicture
from ..core.images import Picture

_log = logging.getLogger(__name__)
FILE_BYTES = 32 << 20
"""Bytes of features in one file, about."""
_ABANDONED = 3600
"""Seconds after which a file that is still being written has no writer any more."""


class FeatureStore:
    """Features of pictures, by the pictures' keys. Any thread may use it.

    Args:
        folder: where they are kept; files of several processes may lie there.
        small: whether they are so small that all are held in memory, too.
    """

    def __init__(self, folder: Path, *, small: bool = False) -> None:
        self._folder = folder
        self._lock = threading.RLock()
        self._new: dict[str, torch.Tensor] = {}
        self._leaving: dict[str, torch.Tensor] = {}
        self._written: Future[Path] | None = None
        """The file to come of :attr:`_leaving`."""
        self._here: dict[str, torch.Tensor] | None = None
        self._files: dict[str, Path] = {}
        self._full = False
        for file in sorted(folder.glob("*.safetensors")):
            try:
                with safe_open(file, "pt") as kept:
                    self._files.update(dict.fromkeys(kept.keys(), file))
            except (OSError, SafetensorError) as error:
                self._remove(file, error)
        for part in folder.glob("*.part"):
            with suppress(OSError):
                if part.stat().st_mtime < time.time() - _ABANDONED:
                    part.unlink()
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
                    features |= _read_features(file, wanted)
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
                self._new |= new
            if sum(tensor.nbytes for tensor in self._new.values()) >= FILE_BYTES:
                self._write()

    def save(self) -> None:
        """Writes what is still in memory, and waits for it."""
        with self._lock:
            self._write()
            self._settle()

    def _write(self) -> None:
        """Begins to write what is new, in a thread, once the file before is there."""
        self._settle()
        if self._new:
            self._leaving, self._new = {key: tensor.contiguous() for key, tensor in self._new.items()}, {}
            self._written = _writer.submit(_write_features, self._folder, self._leaving)

    def _settle(self) -> None:
        """Waits for the file that is being written."""
        written, self._written = self._written, None
        try:
            if written is not None:
                self._files.update(dict.fromkeys(self._leaving, written.result()))
        except (OSError, SafetensorError) as error:
            self._full = True
            cannot_keep(self._folder.parents[1], error)
        self._leaving = {}

    def _remove(self, file: Path, error: Exception) -> None:
        _log.warning("Features in %s are damaged or gone and computed again: %s", file, error)
        self._files = {key: other for key, other in self._files.items() if other != file}
        with suppress(OSError):
            file.unlink()


class FeatureStores:
    """The shelves of one network, one for each collection. Any thread may use them.

    Args:
        network: what makes the features. Others, or in another precision, have other shelves.
        about: what else they depend on, such as how pictures are resized.
        small: see :class:`FeatureStore`.
    """

    def __init__(self, network: nn.Module, about: object = "", *, small: bool = False) -> None:
        self._network, self._about, self._small = network, about, small
        self._name = ""
        self._stores: dict[Path, FeatureStore] = {}

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
                by_shelf.setdefault(self._at(picture.feature_folder), {})[picture.key] = None
        return by_shelf

    def _at(self, place: Path) -> FeatureStore:
        with _lock:
            if place not in self._stores:
                self._name = self._name or _fingerprint(self._network, self._about)
                folder = place / self._name
                # A matcher and a captioner may have the same tower.
                shelf = _stores.get(folder) or FeatureStore(folder, small=self._small)
                self._stores[place] = _stores[folder] = shelf
            return self._stores[place]


_lock = threading.Lock()
_stores: WeakValueDictionary[Path, FeatureStore] = WeakValueDictionary()
"""Those of this process, by their folders."""


def _trim() -> None:
    """Gives freed memory back to the system. Otherwise gaps between features that stay can hold gigabytes."""
    if sys.platform == "linux":
        with suppress(AttributeError, OSError):  # a C library other than glibc
            ctypes.CDLL(None).malloc_trim(0)


_writer = ThreadPoolExecutor(1, thread_name_prefix="codevqa-features")
"""Writes while the network computes what the next file will hold."""


def _write_features(folder: Path, features: dict[str, torch.Tensor]) -> Path:
    file = folder / f"{uuid.uuid4().hex}.safetensors"
    part = file.with_suffix(".part")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        save_file(features, part, {key: _checksum(tensor) for key, tensor in features.items()})
        part.replace(file)
    except (OSError, SafetensorError):
        with suppress(OSError):
            part.unlink()
        raise
    _trim()
    return file


def _read_features(file: Path, keys: Iterable[str]) -> dict[str, torch.Tensor]:
    with safe_open(file, "pt") as kept:
        sums = kept.metadata() or {}
        # Copies: what is mapped would count as memory, and for as long as one of them lives.
        features = {key: kept.get_tensor(key).clone() for key in keys}
    if any(_checksum(tensor) != sums.get(key) for key, tensor in features.items()):
        raise SafetensorError("a checksum is wrong")
    return features


def _checksum(features: torch.Tensor) -> str:
    content: Any = features.reshape(-1).view(torch.uint8).numpy()
    return f"{zlib.crc32(content):08x}"


def _fingerprint(network: nn.Module, about: object) -> str:
    """Returns a name that another network, or the same in another precision, does not have."""
    digest = hashlib.sha256(str(about).encode())
    for name, weights in network.named_parameters():
        flat = weights.detach().reshape(-1)
        some = flat[:: max(1, flat.numel() // 64)].float().cpu().numpy()
        total = int(flat.view(torch.uint8).sum(dtype=torch.int64))  # exact, so in whatever order it is added up
        digest.update(f"{name} {tuple(weights.shape)} {weights.dtype} {weights.device.type} {total}".encode())
        digest.update(some.tobytes())
    return digest.hexdigest()[:16]
