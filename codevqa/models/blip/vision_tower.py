"""What BLIP's matcher and captioner have in common: the vision tower, and batches that fit in memory.

Both networks are a vision transformer and a BERT-like text transformer that looks at its patches through
cross-attention (Li et al., "BLIP", ICML 2022). The vision tower does most of the work, so what it says of a picture is
computed once and kept (:class:`VisionTower`).
"""

from __future__ import annotations

import gc
import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch

from ...core.errors import ModelError
from ...core.images import Picture
from ..core_pool import Cores
from ..cuda_graphs import free_cached_memory
from .checkpoint import Checkpoint, first_line
from .fast.vision_encoder import VisionForward
from .feature_store import FeatureStore, fingerprint
from .picture_input import PictureReader, threads

DEFAULT_CACHE_BYTES = 256 * 2**20
"""Vision features kept, in bytes: about 150 pictures at BLIP-base size in float32."""

_CPU_PICTURES = 16

_LARGE_TOWER = 1 << 20
"""Weights of a block from which on all cores encode pictures: every weight meets hundreds of patches."""

_T = TypeVar("_T")
_R = TypeVar("_R")


@dataclass
class BlipStats:
    """How much work a network has done, counted since it was loaded."""

    vision_forwards: int = 0
    """Pictures that went through the vision tower."""
    vision_batches: int = 0
    """Batches they went in."""
    features_read: int = 0
    """Pictures whose features were found on disk."""
    text_rows: int = 0
    """Rows of text (match or similarity pairs, captions) computed."""
    text_batches: int = 0
    """Batches they were computed in."""


class VisionTower:
    """The vision transformer, with what it said of recent pictures.

    Features are (1 + grid * grid, width): the CLS embedding, then the patches row by row from the top left.

    Args:
        checkpoint: the network and where it is.
        stats: counts the work.
        cache_bytes: bytes of features kept in memory, where the network is.
        cache_dir: folder where features are kept beyond the run; None for none.
        max_batch: pictures at a time; None chooses by the memory that is free.

    Raises:
        SetupError: the folder cannot be used.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        stats: BlipStats,
        cache_bytes: int,
        *,
        cache_dir: str | os.PathLike[str] | None = None,
        max_batch: int | None = None,
    ) -> None:
        tower = checkpoint.model.vision_model
        self._at = checkpoint
        self._stats = stats
        self._limit = cache_bytes
        self._max_batch = max_batch
        self._reader = PictureReader(checkpoint.processor, checkpoint.device, checkpoint.dtype)
        self._forward = VisionForward(tower, self._reader)
        self._cores = Cores(tower, len(tower.encoder.layers), checkpoint.device, large=_LARGE_TOWER, spread=True)
        self._shape = (1 + checkpoint.grid**2, int(tower.config.hidden_size))
        self._store = (
            FeatureStore(cache_dir, fingerprint(tower, checkpoint.processor, checkpoint.dtype))
            if cache_dir is not None
            else None
        )
        self._kept: OrderedDict[str, torch.Tensor] = OrderedDict()
        self.kept_bytes = 0
        """Bytes of features now kept in memory, at most the limit given."""

    def features(self, pictures: Sequence[Picture]) -> dict[str, torch.Tensor]:
        """Returns the features of each distinct picture by its key, computing those that are not kept.

        On a GPU they may still be under way when this returns, as with any tensor.

        Raises:
            ModelError: the network failed, or one picture alone does not fit in memory.
        """
        found: dict[str, torch.Tensor] = {}
        fresh: dict[str, Picture] = {}
        for picture in pictures:
            kept = self._kept.get(picture.key)
            if kept is not None:
                self._kept.move_to_end(picture.key)
                found[picture.key] = kept
            else:
                fresh[picture.key] = picture
        if not fresh:
            return found
        found.update(self._read(fresh))
        missing = [picture for key, picture in fresh.items() if key not in found]
        self._reader.expect(missing)  # all of them, while the first are encoded
        encoded = in_batches(self._encode, missing, self._batch(), release=self._forward.release)
        for picture, features in zip(missing, encoded, strict=True):
            found[picture.key] = features
            if self._store is not None:
                self._store.put(picture.key, features)
        for key in fresh:
            self._keep(key, found[key])
        return found

    def flush(self) -> None:
        """Waits until the features to be kept on disk are there."""
        if self._store is not None:
            self._store.flush()

    def _read(self, pictures: dict[str, Picture]) -> dict[str, torch.Tensor]:
        """Features found on disk, by key."""
        store = self._store
        if store is None:
            return {}
        stored = threads().map(lambda key: store.get(key, self._shape, self._at.dtype), pictures)
        found = {key: features for key, features in zip(pictures, stored, strict=True) if features is not None}
        self._stats.features_read += len(found)
        return {key: features.to(self._at.device) for key, features in found.items()}

    def _batch(self) -> int:
        if self._max_batch is not None:
            return self._max_batch
        most = self._forward.rows if self._at.device.type == "cuda" else _CPU_PICTURES
        return fitting(self._at.device, self._forward.row_bytes(), most)

    def _encode(self, pictures: Sequence[Picture]) -> Sequence[torch.Tensor]:
        features = self._cores.run(self._encoded, self._reader.read(pictures))
        self._stats.vision_forwards += len(pictures)
        self._stats.vision_batches += 1
        return features

    @torch.inference_mode()
    def _encoded(self, pixels: torch.Tensor) -> Sequence[torch.Tensor]:
        # Copies, or each kept picture would hold its whole batch in memory.
        rows: Sequence[torch.Tensor] = torch.unbind_copy(self._forward(pixels))  # type: ignore[assignment, func-returns-value]
        return list(rows)

    def _keep(self, key: str, features: torch.Tensor) -> None:
        size = features.numel() * features.element_size()
        if size > self._limit:
            return
        self._kept[key] = features
        self.kept_bytes += size
        while self.kept_bytes > self._limit:
            _, oldest = self._kept.popitem(last=False)
            self.kept_bytes -= oldest.numel() * oldest.element_size()


def fitting(device: torch.device, row_bytes: int, most: int) -> int:
    """Returns how many rows to compute at once: at most ``most``, and what half of the free memory holds.

    Half, because other models of the process take memory at the same time.
    """
    free = _free_bytes(device)
    return most if free is None else max(1, min(most, free // 2 // max(1, row_bytes)))


def _free_bytes(device: torch.device) -> int | None:
    """Memory that could be taken now; None where that cannot be told."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        # What PyTorch holds and nobody uses is free too.
        return int(free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device))
    try:
        with Path("/proc/meminfo").open(encoding="ascii") as lines:
            return next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):
        return None


def in_batches(
    run: Callable[[Sequence[_T]], Sequence[_R]],
    rows: Sequence[_T],
    size: int,
    release: Callable[[], None] | None = None,
) -> list[_R]:
    """Runs rows in batches of at most ``size``, halving it whenever memory runs out.

    Args:
        run: computes a batch.
        rows: all of them.
        size: rows in a batch at first.
        release: gives memory back that can be done without; called whenever it runs out.

    Raises:
        ModelError: the network failed, or a single row does not fit in memory.
    """
    results: list[_R] = []
    while len(results) < len(rows):
        batch = rows[len(results) : len(results) + size]
        try:
            results.extend(run(batch))
            continue
        except (RuntimeError, MemoryError) as error:
            if not _out_of_memory(error):
                raise ModelError(f"BLIP failed: {first_line(error)}.") from error
            if len(batch) == 1:
                raise ModelError(
                    "BLIP ran out of memory on a single row.", hint="Free some, or use a smaller model."
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
