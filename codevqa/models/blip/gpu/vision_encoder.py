"""The vision transformer on a GPU: small batches are replayed as CUDA graphs."""

from __future__ import annotations

import logging
from typing import Any

import torch

from ...cuda_graphs import Recorded, Recorder, avoid_cudnn_attention, bucket, enabled
from ...library_errors import first_line
from ..picture_input import PictureReader
from ..vision_encoder import VisionEncoder

_log = logging.getLogger(__name__)

_RECORDED_ROWS = (1, 2, 4, 8, 16)
"""Batches padded and replayed."""


class GpuVisionEncoder(VisionEncoder):
    """The forward pass of one vision tower.

    Args:
        tower: the network's; its weights are read, never copied.
        reader: what gives it pixels.
    """

    def __init__(self, tower: Any, reader: PictureReader) -> None:
        super().__init__(tower, reader)
        self._graphs: dict[int, Recorded] = {}
        self._records = enabled(reader.device)
        self._record = Recorder(reader.device)
        avoid_cudnn_attention(reader.device)

    @property
    def rows(self) -> int:
        """Pictures worth computing at once.

        An H200 takes as long for each of 16 as of 64; but launched kernel by kernel, a small batch may not keep it busy
        while other threads compute as well.
        """
        return _RECORDED_ROWS[-1] if self._records else super().rows

    @torch.inference_mode()
    def __call__(self, pixels: torch.Tensor) -> torch.Tensor:
        """Returns features, (pictures, 1 + patches, width), of bytes, (pictures, size, size, 3).

        Raises:
            torch.OutOfMemoryError: the batch does not fit.
        """
        size = bucket(len(pixels), _RECORDED_ROWS) if self._records else None
        graph = self._recorded(pixels, size) if size is not None else None
        if graph is None:
            return self.forward(pixels)
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
                    self._record, self.forward, pixels.new_zeros((size, *pixels.shape[1:]))
                )
            except RuntimeError as error:
                # The same work without a graph is slower and nothing else; what is wrong beyond that it will say.
                _log.warning("Small batches of pictures are not recorded as a CUDA graph: %s.", first_line(error))
                self._records = False
        return graph
