"""BLIP's vision transformer as one plain forward.

The same numbers as transformers' ``BlipVisionModel`` up to rounding (float32: 1e-5 of the features' scale), without the
P x P attention matrices: fused attention, one matrix product for the patches, no gradients.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from .picture_input import PictureReader


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
        hidden += _attend(block.self_attn, block.layer_norm1(hidden))
        hidden += block.mlp(block.layer_norm2(hidden))
    features: torch.Tensor = tower.post_layernorm(hidden)
    return features


def _attend(attention: Any, hidden: torch.Tensor) -> torch.Tensor:
    rows, length, width = hidden.shape
    heads = attention.num_heads
    qkv = attention.qkv(hidden).view(rows, length, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
    mixed = functional.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], scale=attention.scale)
    return attention.projection(mixed.transpose(1, 2).reshape(rows, length, width))  # type: ignore[no-any-return]
