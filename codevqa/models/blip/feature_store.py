"""Vision features on disk, so that a second run over the same pictures does not encode them again.

One safetensors file a picture, in a folder of the network that computed it::

    <folder>/<fingerprint of weights, settings and precision>/<key of the picture>.safetensors
        features   (1 + patches, width), in the tower's precision
        crc32      of the features' bytes

Files are written whole or not at all (a temporary file, then renamed), so that several processes may share a folder. A
file that is damaged in any way counts as missing. The folder keeps to its bytes: the longest unused files go first.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import tempfile
import threading
import zlib
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from ...core.errors import SetupError
from ..cuda_streams import short_work

DEFAULT_STORE_BYTES = 16 * 2**30
"""Features kept on disk, in bytes: about 13,000 pictures at BLIP-large size in bfloat16."""

_FORMAT = 1
_WAITING = 128
_KEPT_AFTER_PRUNING = 0.9

_log = logging.getLogger(__name__)


def fingerprint(model: Any, processor: Any, dtype: torch.dtype) -> str:
    """Returns a hash of everything the features of a picture depend on but the picture: 32 hexadecimal digits.

    Args:
        model: transformers' vision tower.
        processor: its picture settings.
        dtype: precision it computes in.
    """
    digest = hashlib.sha256()
    config = model.config
    shape = (config.num_attention_heads, config.layer_norm_eps, config.hidden_act, config.image_size, config.patch_size)
    pictures = (processor.resample, processor.rescale_factor, processor.image_mean, processor.image_std)
    digest.update(repr((_FORMAT, str(dtype), shape, pictures)).encode())
    for name, weight in sorted(model.state_dict().items()):
        digest.update(f"{name}{tuple(weight.shape)}".encode())
        digest.update(_bytes(weight))
    return digest.hexdigest()[:32]


class FeatureStore:
    """A folder of features of one network. Reading and writing may go on in several threads.

    Args:
        folder: made if it is not there.
        network: the network's :func:`fingerprint`.
        limit: bytes of all files under ``folder``, other networks' included.

    Raises:
        SetupError: the folder cannot be made or written to.
    """

    def __init__(self, folder: str | os.PathLike[str], network: str, limit: int = DEFAULT_STORE_BYTES) -> None:
        self._root = Path(folder).expanduser()
        self._folder = self._root / network
        self._limit = limit
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self._folder):
                pass
        except OSError as error:
            raise SetupError(
                f"Features cannot be kept in {self._root}: {error.strerror or error}.", hint="Name another folder."
            ) from None
        self._guard = threading.Lock()
        self._held = sum(size for _, size, _ in self._files())
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="codevqa-features")
        self._room = threading.BoundedSemaphore(_WAITING)
        self._last: Future[None] | None = None
        self._failed = False

    def get(self, key: str, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor | None:
        """Returns the features of a picture, on the CPU; None where there are none of that shape, or damaged ones."""
        path = self._path(key)
        try:
            stored: dict[str, torch.Tensor] = load(path.read_bytes())
            features, checksum = stored["features"], int(stored["crc32"])
        except FileNotFoundError:
            return None
        except (OSError, SafetensorError, KeyError, ValueError, RuntimeError):
            self._remove(path)
            return None
        if tuple(features.shape) != shape or features.dtype != dtype or zlib.crc32(_bytes(features)) != checksum:
            self._remove(path)
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # lately used
        return features

    def put(self, key: str, features: torch.Tensor) -> None:
        """Writes the features of a picture, in the background; waits only where many are waiting already."""
        if self._failed:
            return
        self._room.acquire()
        self._last = self._writer.submit(self._write, key, features)

    def flush(self) -> None:
        """Waits until everything given so far is written."""
        if self._last is not None:
            self._last.result()

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}.safetensors"

    def _write(self, key: str, features: torch.Tensor) -> None:
        try:
            if self._failed:
                return
            with short_work(features.device):  # after what makes them
                there = features.detach().cpu().contiguous()
            data = save({"features": there, "crc32": torch.tensor(zlib.crc32(_bytes(there)))})
            path = self._path(key)
            before = path.stat().st_size if path.exists() else 0
            handle, temporary = tempfile.mkstemp(dir=self._folder, suffix=".part")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(data)
                Path(temporary).replace(path)
            except BaseException:
                with contextlib.suppress(OSError):
                    Path(temporary).unlink()
                raise
            with self._guard:
                self._held += len(data) - before
            if self._held > self._limit:
                self._prune()
        except OSError as error:
            # Keeping features is a convenience: a full disk must not end the run.
            self._failed = True
            _log.warning("Features are no longer kept in %s: %s.", self._root, error.strerror or error)
        finally:
            self._room.release()

    def _remove(self, path: Path) -> None:
        with contextlib.suppress(OSError):
            size = path.stat().st_size
            path.unlink()
            with self._guard:
                self._held -= size

    def _files(self) -> list[tuple[float, int, Path]]:
        """When each file was last used, its size and its path; other processes may be removing some."""
        found = []
        for path in self._root.glob("*/*.safetensors"):
            with contextlib.suppress(OSError):
                status = path.stat()
                found.append((status.st_mtime, status.st_size, path))
        return found

    def _prune(self) -> None:
        files = sorted(self._files())
        held = sum(size for _, size, _ in files)
        if held > self._limit:
            for _, size, path in files:
                if held <= _KEPT_AFTER_PRUNING * self._limit:
                    break
                with contextlib.suppress(OSError):
                    path.unlink()
                    held -= size
        with self._guard:
            self._held = held


def _bytes(tensor: torch.Tensor) -> memoryview:
    """The memory of a tensor, whatever its precision: NumPy has no bfloat16."""
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
