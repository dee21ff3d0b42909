"""What BLIP's matcher and captioner have in common: the vision tower, which sees each picture once.

Both networks are a vision transformer and a BERT-like text transformer that looks at its patches through
cross-attention (Li et al., "BLIP", ICML 2022). The vision tower does most of the work, so what it says of a picture is
computed once and kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from cachetools import LRUCache
from torch.nn import functional

from ...collections.collection import StoredPicture
from ...core.images import Picture
from ..cpu_threads import NetworkThread
from ..cuda_graphs import avoid_cudnn_attention
from ..feature_store import FeatureStores
from ..gpu_lock import lock_on
from .checkpoint import Checkpoint
from .picture_input import PictureReader, run_in_batches

DEFAULT_CACHE_BYTES = 256 * 2**20
"""Vision features kept, in bytes: about 150 pictures at BLIP-base size in float32."""

_CPU_PICTURES, _GPU_PICTURES = 16, 64

_LARGE_TOWER = 1 << 20
"""Weights of a block from which on all cores encode pictures: every weight meets hundreds of patches."""


@dataclass
class BlipStats:
    """How much work a network has done, counted since it was loaded."""

    vision_forwards: int = 0
    """Pictures that went through the vision tower."""
    vision_batches: int = 0
    """Batches they went in."""
    text_rows: int = 0
    """Rows of text (match or similarity pairs, captions) computed."""
    text_batches: int = 0
    """Batches they were computed in."""


class BlipModel:
    """A network over a vision tower, with what that said of recent pictures.

    Features are (1 + grid * grid, width): the CLS embedding, then the patches row by row from the top left.

    Args:
        checkpoint: the network and where it is.
        text: its text transformer.
        max_batch: rows, and pictures, at a time; None takes what is usual on the device.
        feature_cache_bytes: bytes of features kept in memory, where the network is.
    """

    def __init__(self, checkpoint: Checkpoint, text: Any, *, max_batch: int | None, feature_cache_bytes: int) -> None:
        self.name = checkpoint.name
        self.grid = checkpoint.grid
        self.stats = BlipStats()
        self.turn = lock_on(checkpoint.device, checkpoint.model, checkpoint.tokenizer)
        self._at = checkpoint
        self._max_batch = max_batch
        config, tower = checkpoint.model.config, checkpoint.model.vision_model
        self._thread = NetworkThread(text, config.text_config.num_hidden_layers, checkpoint.device)
        self._vision_thread = NetworkThread(
            tower, config.vision_config.num_hidden_layers, checkpoint.device, large=_LARGE_TOWER
        )
        self._reader = PictureReader(checkpoint.pictures, checkpoint.device, checkpoint.dtype)
        avoid_cudnn_attention(checkpoint.device)
        shape = (checkpoint.grid**2 + 1, config.vision_config.hidden_size)
        self._stores = FeatureStores(tower, checkpoint.pictures, shape=shape)
        self._kept: LRUCache[str, torch.Tensor] = LRUCache(feature_cache_bytes, getsizeof=lambda kept: kept.nbytes)

    @property
    def computes(self) -> str:
        """Precision and device."""
        return self._at.computes

    def _features(self, pictures: Sequence[Picture], *, keep: bool = True) -> dict[str, torch.Tensor]:
        """Returns the features of each distinct picture by its key, computing those that are not kept.

        On a GPU they may still be under way when this returns, as with any tensor. Without ``keep`` those of
        collections are kept on disk alone.

        Raises:
            ModelError: the network failed, or one picture alone does not fit in memory.
        """
        by_key = {image.key: kept for image in pictures if (kept := self._kept.get(image.key)) is not None}
        for key, features in self._stores.read(image for image in pictures if image.key not in by_key).items():
            by_key[key] = features.to(self._at.device)
            if keep:
                self._keep(key, by_key[key])
        missing = list({image.key: image for image in pictures if image.key not in by_key}.values())
        self._reader.expect(missing)  # all of them, while the first are encoded
        usual = _GPU_PICTURES if self._at.device.type == "cuda" else _CPU_PICTURES
        encoded = run_in_batches(self._encode, missing, self._max_batch or usual)
        for picture, features in zip(missing, encoded, strict=True):
            by_key[picture.key] = features
            if keep or not isinstance(picture, StoredPicture):
                self._keep(picture.key, features)
        self._stores.add(missing, by_key)
        return by_key

    def expect(self, pictures: Sequence[Picture]) -> None:
        """Begins to read pictures that will be asked about next, in threads, where no features of them are kept."""
        self._reader.expect(self._stores.missing(pictures))

    def keep_features(self) -> None:
        """Writes to disk what features of collections are still in memory alone."""
        self._stores.save()

    def _keep(self, key: str, features: torch.Tensor) -> None:
        if features.nbytes <= self._kept.maxsize:
            self._kept[key] = features

    def _encode(self, pictures: Sequence[Picture]) -> Sequence[torch.Tensor]:
        features = self._vision_thread.run(self._run_tower, self._reader.read(pictures))
        self.stats.vision_forwards += len(pictures)
        self.stats.vision_batches += 1
        return features

    def _count_rows(self, rows: int) -> None:
        self.stats.text_rows += rows
        self.stats.text_batches += 1

    @torch.inference_mode()
    def _run_tower(self, pixels: torch.Tensor) -> Sequence[torch.Tensor]:
        # Copies, or each kept picture would hold its whole batch in memory.
        rows: Sequence[torch.Tensor] = torch.unbind_copy(encode(self._at.model.vision_model, pixels, self._reader))  # type: ignore[assignment, func-returns-value]
        return list(rows)


def encode(tower: Any, pixels: torch.Tensor, reader: PictureReader) -> torch.Tensor:
    """Returns features, (pictures, 1 + patches, width), of bytes, (pictures, size, size, 3), that a reader gave.

    Raises:
        torch.OutOfMemoryError: the batch does not fit.
    """
    embeddings = tower.embeddings
    kernel = embeddings.patch_embedding.weight  # (width, 3, patch, patch)
    side = kernel.shape[-1]
    grid = pixels.shape[1] // side
    patches = pixels[:, : grid * side, : grid * side].reshape(len(pixels), grid, side, grid, side, 3)
    numbers = reader.normalise(patches.permute(0, 1, 3, 2, 4, 5))
    # A convolution whose stride is its size is one matrix product: patches row by row from the top left.
    patches = functional.linear(
        numbers.reshape(len(pixels), grid * grid, -1),
        kernel.permute(0, 2, 3, 1).reshape(len(kernel), -1),
        embeddings.patch_embedding.bias,
    )
    first = embeddings.class_embedding.to(patches.dtype).expand(len(pixels), 1, -1)
    hidden = torch.cat([first, patches], dim=1)
    hidden += embeddings.position_embedding.to(hidden.dtype)
    for block in tower.encoder.layers:
        hidden += _attend_patches(block.self_attn, block.layer_norm1(hidden))
        hidden += block.mlp(block.layer_norm2(hidden))
    features: torch.Tensor = tower.post_layernorm(hidden)
    return features


def _attend_patches(attention: Any, hidden: torch.Tensor) -> torch.Tensor:
    rows, length, width = hidden.shape
    heads = attention.num_heads
    qkv = attention.qkv(hidden).view(rows, length, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
    mixed = functional.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], scale=attention.scale)
    return attention.projection(mixed.transpose(1, 2).reshape(rows, length, width))  # type: ignore[no-any-return]
