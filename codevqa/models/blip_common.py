"""What BLIP's matcher and captioner have in common: the vision tower, and batches that fit in memory.

Both networks are a vision transformer and a BERT-like text transformer that looks at its patches through
cross-attention (Li et al., "BLIP", ICML 2022). The vision tower does most of the work, so what it says of a picture is
computed once and kept (:class:`VisionTower`).
"""

from __future__ import annotations

import gc
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import nn

from ..errors import ModelError
from ..images import Picture
from .blip_checkpoint import Checkpoint, first_line

DEFAULT_CACHE_BYTES = 256 * 2**20
"""Vision features kept, in bytes: about 150 pictures at BLIP-base size in float32."""

_VISION_BATCH = 16

_T = TypeVar("_T")
_R = TypeVar("_R")


@dataclass
class BlipStats:
    """How much work a network has done, counted since it was loaded."""

    vision_forwards: int = 0
    """Pictures that went through the vision tower."""
    text_rows: int = 0
    """Rows of text (match or similarity pairs, captions) computed."""


class _FusedAttention(nn.Module):
    """The vision tower's self-attention through PyTorch's fused kernel: the same numbers without the P x P matrices."""

    def __init__(self, eager: Any) -> None:
        super().__init__()
        self.qkv = eager.qkv
        self.projection = eager.projection
        self.heads = int(eager.num_heads)
        self.scale = float(eager.scale)

    def forward(self, hidden_states: torch.Tensor, **_: object) -> tuple[torch.Tensor, None]:
        rows, length, width = hidden_states.shape
        qkv = self.qkv(hidden_states).view(rows, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], scale=self.scale)
        return self.projection(mixed.transpose(1, 2).reshape(rows, length, width)), None


def fuse_attention(vision_model: Any) -> None:
    """Replaces the eager self-attention of each block; weights and their names stay."""
    for layer in vision_model.encoder.layers:
        if not isinstance(layer.self_attn, _FusedAttention):
            layer.self_attn = _FusedAttention(layer.self_attn)


class VisionTower:
    """The vision transformer, with what it said of recent pictures.

    Features are (1 + grid * grid, width): the CLS embedding, then the patches row by row from the top left.
    """

    def __init__(self, checkpoint: Checkpoint, stats: BlipStats, cache_bytes: int) -> None:
        fuse_attention(checkpoint.model.vision_model)
        self._checkpoint = checkpoint
        self._stats = stats
        self._limit = cache_bytes
        self._kept: OrderedDict[str, torch.Tensor] = OrderedDict()
        self.kept_bytes = 0
        """Bytes of features now kept, at most the limit given."""

    def features(self, pictures: Sequence[Picture]) -> dict[str, torch.Tensor]:
        """Returns the features of each distinct picture by its key, computing those that are not kept.

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
        for (key, _), encoded in zip(
            fresh.items(), in_batches(self._encode, list(fresh.values()), _VISION_BATCH), strict=True
        ):
            found[key] = encoded
            self._keep(key, encoded)
        return found

    @torch.inference_mode()
    def _encode(self, pictures: Sequence[Picture]) -> list[torch.Tensor]:
        at = self._checkpoint
        batch = at.processor(images=[picture.pixels for picture in pictures], return_tensors="pt")
        pixels = batch["pixel_values"].to(device=at.device, dtype=at.dtype)
        features = at.model.vision_model(pixel_values=pixels).last_hidden_state
        self._stats.vision_forwards += len(pictures)
        # Copies, or each kept picture would hold its whole batch in memory.
        return [row.clone() for row in features]

    def _keep(self, key: str, features: torch.Tensor) -> None:
        size = features.numel() * features.element_size()
        if size > self._limit:
            return
        self._kept[key] = features
        self.kept_bytes += size
        while self.kept_bytes > self._limit:
            _, oldest = self._kept.popitem(last=False)
            self.kept_bytes -= oldest.numel() * oldest.element_size()


def in_batches(run: Callable[[Sequence[_T]], Sequence[_R]], rows: Sequence[_T], size: int) -> list[_R]:
    """Runs rows in batches of at most ``size``, halving it whenever memory runs out.

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
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    return results


def _out_of_memory(error: BaseException) -> bool:
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(error)
