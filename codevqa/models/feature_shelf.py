"""What a network made of pictures, kept on disk for the next question: safetensors files, a few dozen MB each.

Pictures of a collection say where (:attr:`codevqa.core.collection.StoredPicture.shelf`). A file is written beside its
name and moved there, so a process that is killed leaves none that is half written. One that is damaged is removed, and
what it held is computed again; where the disk is full, nothing is kept.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import sys
import threading
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn

_log = logging.getLogger(__name__)
FILE_BYTES = 32 << 20
"""Bytes of features in one file, about."""


class FeatureShelf:
    """Features of pictures, by the pictures' keys. Any thread may use it.

    Args:
        folder: where they are kept; files of several processes may lie there.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.RLock()
        self._new: dict[str, torch.Tensor] = {}
        self._bytes = 0
        self._files: dict[str, Path] = {}
        self._full = False
        for file in sorted(folder.glob("*.safetensors")):
            try:
                with safe_open(file, "pt") as kept:
                    self._files.update(dict.fromkeys(kept.keys(), file))
            except (OSError, SafetensorError) as error:
                self._remove(file, error)

    def __contains__(self, key: str) -> bool:
        return key in self._new or key in self._files

    def read(self, keys: Iterable[str]) -> dict[str, torch.Tensor]:
        """Returns the features that are here, by key, on the CPU."""
        found: dict[str, torch.Tensor] = {}
        by_file: dict[Path, list[str]] = {}
        with self._lock:
            for key in keys:
                if key in self._new:
                    found[key] = self._new[key]
                elif key in self._files:
                    by_file.setdefault(self._files[key], []).append(key)
            for file, wanted in by_file.items():
                try:
                    with safe_open(file, "pt") as kept:
                        # Copies: what is mapped would count as memory, and for as long as one of them lives.
                        found.update({key: kept.get_tensor(key).clone() for key in wanted})
                except (OSError, SafetensorError) as error:
                    self._remove(file, error)
        return found

    def add(self, made: Mapping[str, torch.Tensor]) -> None:
        """Keeps features, some in memory until a file is full or :meth:`save` is called."""
        with self._lock:
            for key, features in made.items():
                if not self._full and key not in self:
                    self._new[key] = features.detach().cpu().contiguous()
                    self._bytes += features.nbytes
            if self._bytes >= FILE_BYTES:
                self.save()

    def save(self) -> None:
        """Writes what is still in memory."""
        with self._lock:
            new, self._new, self._bytes = self._new, {}, 0
            if not new:
                return
            file = self._folder / f"{uuid.uuid4().hex}.safetensors"
            part = file.with_suffix(".part")
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
                save_file(new, part)
                part.replace(file)
            except (OSError, SafetensorError) as error:
                self._full = True
                _log.warning("Features of pictures cannot be kept in %s: %s", self._folder, error)
                with suppress(OSError):
                    part.unlink()
                return
            self._files.update(dict.fromkeys(new, file))
        del new
        _trim()

    def _remove(self, file: Path, error: Exception) -> None:
        _log.warning("Features in %s are damaged and computed again: %s", file, error)
        self._files = {key: one for key, one in self._files.items() if one != file}
        with suppress(OSError):
            file.unlink()


class Shelves:
    """The shelves of one network, one for each collection.

    Args:
        network: what makes the features. Others, or in another precision, have other shelves.
    """

    def __init__(self, network: nn.Module) -> None:
        self._network = network
        self._name = ""
        self._shelves: dict[Path, FeatureShelf] = {}

    def of(self, place: Path) -> FeatureShelf:
        """Returns the shelf of a collection."""
        if place not in self._shelves:
            self._name = self._name or _fingerprint(self._network)
            self._shelves[place] = FeatureShelf(place / self._name)
        return self._shelves[place]

    def save(self) -> None:
        """Writes what is still in memory."""
        for shelf in self._shelves.values():
            shelf.save()


def _trim() -> None:
    """Gives freed memory back to the system: features that stay keep what was freed between them else, up to GBs."""
    if sys.platform == "linux":
        with suppress(AttributeError, OSError):  # a C library other than glibc
            ctypes.CDLL(None).malloc_trim(0)


def _fingerprint(network: nn.Module) -> str:
    """Returns a name that another network, or the same in another precision, does not have."""
    made = hashlib.sha256()
    for name, weights in network.named_parameters():
        flat = weights.detach().reshape(-1)
        some = flat[:: max(1, flat.numel() // 64)].float().cpu().numpy()
        made.update(f"{name} {tuple(weights.shape)} {weights.dtype} {weights.device.type}".encode() + some.tobytes())
    return made.hexdigest()[:16]
