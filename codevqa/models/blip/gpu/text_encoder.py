"""The matcher's text encoder on a GPU: GradCAM recorded for a few numbers of rows and tokens, and replayed.

It is some five hundred small kernels, which take longer to launch than to run.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import torch

from ...cuda_graphs import Recorded, Recorder, bucket, enabled
from ...library_errors import first_line
from ..text_encoder import Pictures, TextEncoder, averaged

_ROWS = (1, 2, 4, 8, 16, 32, 64, 128)
"""Numbers of rows recorded; a batch is padded to the next."""
_TOKENS = 8
"""Texts are padded to multiples of so many tokens."""

_log = logging.getLogger(__name__)


class GpuTextEncoder(TextEncoder):
    """The forward pass of a matcher's text encoder.

    Args:
        encoder: the network's; its weights are read, never copied.
        head: from the first token's embedding to (rows, 2) logits: no match, match.
        block: text block, counted from 0, whose cross-attention GradCAM reads.
        length: embeddings of a picture, CLS included.
    """

    def __init__(self, encoder: Any, head: Any, block: int, length: int) -> None:
        super().__init__(encoder, head, block)
        self._length = length
        self._record = Recorder(self.like.device)
        self._kept: dict[tuple[int, int], Recorded] = {}
        self._records = enabled(self.like.device)

    def relevance(
        self,
        ids: torch.Tensor,
        mask: torch.Tensor,
        weights: torch.Tensor,
        features: Sequence[torch.Tensor],
    ) -> torch.Tensor:
        """Computes GradCAM averaged over tokens, and the margin of the head; see :meth:`.TextEncoder.relevance`."""
        rows, tokens = ids.shape
        size = bucket(rows, _ROWS)
        recorded = None if size is None else self._recorded(size, -(-tokens // _TOKENS) * _TOKENS)
        if recorded is None:  # launched
            return super().relevance(ids, mask, weights, features)
        for held, given in zip(recorded.inputs[:3], (ids, mask, weights), strict=True):
            held[:rows].zero_()
            held[:rows, :tokens].copy_(given.pin_memory(), non_blocking=True)
        with torch.inference_mode():
            pictures = recorded.inputs[3][:rows, : self._length]
            torch._foreach_copy_(list(pictures.unbind(0)), list(features))
        return recorded()[:rows]

    def release(self) -> None:
        """Forgets the recordings, which hold memory."""
        self._kept.clear()

    def _recorded(self, rows: int, tokens: int) -> Recorded | None:
        """The graph for so many rows and tokens; None where this GPU, or its memory, does not allow one."""
        found = self._kept.get((rows, tokens))
        if found is None and self._records:
            like = self.like
            inputs = (
                torch.zeros((rows, tokens), dtype=torch.int64, device=like.device),
                torch.ones((rows, tokens), dtype=torch.int64, device=like.device),
                torch.zeros((rows, tokens), device=like.device),
                # Lengths that are multiples of eight numbers have faster matrix products.
                like.new_zeros((rows, -(-self._length // 8) * 8, self.width)),
            )
            try:
                found = self._kept[rows, tokens] = Recorded(self._record, self._relevance, *inputs)
            except RuntimeError as error:
                # The same work without a graph is slower and nothing else; what is wrong beyond that it will say.
                _log.warning("GradCAM is not recorded as a CUDA graph: %s.", first_line(error))
                self._records = False
        return found

    def _relevance(
        self, ids: torch.Tensor, mask: torch.Tensor, weights: torch.Tensor, features: torch.Tensor
    ) -> torch.Tensor:
        return averaged(*self.gradcam_of(ids, mask, Pictures.padded(features, self._length)), weights)
