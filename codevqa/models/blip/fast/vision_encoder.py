"""BLIP's vision transformer as one plain forward over the weights that transformers loaded.

The same numbers as transformers' ``BlipVisionModel`` up to rounding (float32: 1e-5 of the features' scale), without the
P x P attention matrices: fused attention, one matrix product for the patches, no gradients. On a GPU residuals are
added and normalised at once, and batches are replayed as CUDA graphs.
"""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch.nn import functional

from ...cuda_graphs import Recorded, Recorder, avoid_cudnn_attention, bucket, enabled
from ..checkpoint import first_line
from ..gpu import kernels as blip_kernels
from ..picture_input import PictureReader

_log = logging.getLogger(__name__)

_HALVES = (torch.bfloat16, torch.float16)

_RECORDED_ROWS = (1, 2, 4, 8, 16)
"""Batches padded and replayed."""
_ROWS = 64


class VisionForward:
    """The forward pass of one vision tower.

    Args:
        tower: transformers' ``BlipVisionModel``; its weights are read, never copied.
        reader: what gives it pixels.
    """

    def __init__(self, tower: Any, reader: PictureReader) -> None:
        self._tower = tower
        self._reader = reader
        self._graphs: dict[int, Recorded] = {}
        self._records = enabled(reader.device)
        self._record = Recorder(reader.device)
        like = tower.embeddings.position_embedding
        self._fast = blip_kernels.usable(like)
        # GELU by its tanh within the matrix product: in 16 bits what that changes is lost in rounding.
        self._gelu = self._fast and like.dtype in _HALVES and tower.config.hidden_act == "gelu"
        avoid_cudnn_attention(reader.device)

    @property
    def rows(self) -> int:
        """Pictures worth computing at once on a GPU.

        An H200 takes as long for each of 16 as of 64; but launched kernel by kernel, a small batch may not keep it busy
        while other threads compute as well.
        """
        return _RECORDED_ROWS[-1] if self._records else _ROWS

    def row_bytes(self) -> int:
        """Returns about how much memory one picture of a batch needs while it is computed."""
        config = self._tower.config
        patches = (config.image_size // config.patch_size) ** 2 + 1
        # Input, residual and output; queries, keys, values; both sides of the activation.
        per_patch = 6 * config.hidden_size + 2 * config.intermediate_size
        return int(patches * per_patch * self._tower.embeddings.position_embedding.element_size())

    @torch.inference_mode()
    def __call__(self, pixels: torch.Tensor) -> torch.Tensor:
        """Returns features, (pictures, 1 + patches, width), of bytes, (pictures, size, size, 3).

        Raises:
            torch.OutOfMemoryError: the batch does not fit.
        """
        size = bucket(len(pixels), _RECORDED_ROWS) if self._records else None
        graph = self._recorded(pixels, size) if size is not None else None
        if graph is None:
            return self._forward(pixels)
        graph.inputs[0][: len(pixels)].copy_(pixels, non_blocking=True)
        return graph()[: len(pixels)]

    def release(self) -> None:
        """Forgets the recorded graphs, which hold memory."""
        self._graphs.clear()

    def _recorded(self, pixels: torch.Tensor, size: int) -> Recorded | None:
        """The graph for so many rows; None where this GPU, or its memory, does not allow one."""
        graph = self._graphs.get(size)
        if graph is None:
            try:
                graph = self._graphs[size] = Recorded(
                    self._record, self._forward, pixels.new_zeros((size, *pixels.shape[1:]))
                )
            except RuntimeError as error:
                # The same work without a graph is slower and nothing else; what is wrong beyond that it will say.
                _log.warning("Small batches of pictures are not recorded as a CUDA graph: %s.", first_line(error))
                self._records = False
        return graph

    def _forward(self, pixels: torch.Tensor) -> torch.Tensor:
        tower = self._tower
        hidden = self._embed(pixels)
        blocks = tower.encoder.layers
        # Each sum is normalised by what reads it next, which is the next block's first norm after a block's second sum.
        following = [block.layer_norm1 for block in blocks[1:]] + [tower.post_layernorm]
        normed: torch.Tensor = blocks[0].layer_norm1(hidden)
        for block, norm in zip(blocks, following, strict=True):
            normed = self._added(hidden, _attend(block.self_attn, normed), block.layer_norm2)
            normed = self._added(hidden, self._mlp(block.mlp, normed), norm)
        return normed

    def _mlp(self, mlp: Any, normed: torch.Tensor) -> torch.Tensor:
        if not self._gelu:
            return mlp(normed)  # type: ignore[no-any-return]
        first = mlp.fc1
        wide = torch._addmm_activation(first.bias, normed.flatten(0, 1), first.weight.t(), use_gelu=True)
        return mlp.fc2(wide).view(normed.shape)  # type: ignore[no-any-return]

    def _added(self, hidden: torch.Tensor, more: torch.Tensor, norm: Any) -> torch.Tensor:
        """Adds to the residual in place, and returns its norm."""
        if self._fast:
            return blip_kernels.add_norm(hidden, more, norm.weight, norm.bias, norm.eps, keep_sum=True)
        hidden += more
        return norm(hidden)  # type: ignore[no-any-return]

    def _embed(self, pixels: torch.Tensor) -> torch.Tensor:
        """Patches, row by row from the top left, after the CLS embedding; positions added."""
        embeddings = self._tower.embeddings
        kernel = embeddings.patch_embedding.weight  # (width, 3, patch, patch)
        side = kernel.shape[-1]
        grid = pixels.shape[1] // side
        patches = pixels[:, : grid * side, : grid * side].reshape(len(pixels), grid, side, grid, side, 3)
        numbers = self._reader.normalise(patches.permute(0, 1, 3, 2, 4, 5))
        # A convolution whose stride is its size is one matrix product.
        patches = functional.linear(
            numbers.reshape(len(pixels), grid * grid, -1),
            kernel.permute(0, 2, 3, 1).reshape(len(kernel), -1),
            embeddings.patch_embedding.bias,
        )
        first = embeddings.class_embedding.to(patches.dtype).expand(len(pixels), 1, -1)
        hidden = torch.cat([first, patches], dim=1)
        hidden += embeddings.position_embedding.to(hidden.dtype)
        return hidden


def _attend(attention: Any, hidden: torch.Tensor) -> torch.Tensor:
    rows, length, width = hidden.shape
    heads = attention.num_heads
    qkv = attention.qkv(hidden).view(rows, length, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
    mixed = functional.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], scale=attention.scale)
    return attention.projection(mixed.transpose(1, 2).reshape(rows, length, width))  # type: ignore[no-any-return]
