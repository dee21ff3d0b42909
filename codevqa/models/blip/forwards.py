"""What computes BLIP's three networks: the faces that transformers' own forward passes and the fast ones share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch


class VisionEncoder(Protocol):
    """The forward pass of a vision tower."""

    @property
    def rows(self) -> int:
        """Pictures worth computing at once on a GPU."""

    def row_bytes(self) -> int:
        """Returns about how much memory one picture of a batch needs while it is computed."""

    def __call__(self, pixels: torch.Tensor) -> torch.Tensor:
        """Returns features, (pictures, 1 + patches, width), of bytes, (pictures, size, size, 3).

        Raises:
            torch.OutOfMemoryError: the batch does not fit.
        """

    def first_features(self, pixels: torch.Tensor, count: int) -> torch.Tensor:
        """Returns the features, (pictures, count, width), of pictures that have no more than those patches.

        As a whole they say nothing of the picture; they cost little, and go through all of the network.
        """

    def release(self) -> None:
        """Gives memory back that can be done without."""


class TextEncoder(Protocol):
    """The forward pass of a matcher's text encoder. Token ids, masks and weights are given on the CPU."""

    def row_bytes(self, patches: int, tokens: int) -> int:
        """Returns about how much memory one (picture, text) pair needs while GradCAM is computed."""

    def first_token(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Returns the first token's last embedding, (rows, width), of texts alone: (rows, tokens) ids and mask."""

    def gradcam(
        self, ids: torch.Tensor, mask: torch.Tensor, features: Sequence[torch.Tensor], owners: Sequence[int]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Computes GradCAM of every token and the logits of the ITM head, both float32.

        Args:
            ids: tokens, (rows, tokens).
            mask: 1 for tokens, 0 for padding, likewise.
            features: of each distinct picture, (1 + patches, width).
            owners: for each text the index of its picture; texts of one picture are side by side.

        Returns:
            Maps, (rows, tokens, patches) without the CLS embedding, zero for padding; and logits, (rows, 2): no match,
            match.
        """

    def relevance(
        self,
        ids: torch.Tensor,
        mask: torch.Tensor,
        weights: torch.Tensor,
        features: Sequence[torch.Tensor],
        owners: Sequence[int],
    ) -> torch.Tensor:
        """Computes GradCAM averaged over tokens, and the margin of the head.

        Args:
            ids: tokens, (rows, tokens).
            mask: 1 for tokens, 0 for padding, likewise.
            weights: how much each token counts, likewise, float32.
            features: of each distinct picture, (1 + patches, width).
            owners: for each text the index of its picture; texts of one picture are side by side.

        Returns:
            (rows, patches + 1): each row's map and then its margin, "match" minus "no match".
        """
        return averaged(*self.gradcam(ids, mask, features, owners), weights)

    def release(self) -> None:
        """Gives memory back that can be done without: nothing, unless an implementation keeps some."""
        return


class CaptionDecoder(Protocol):
    """What writes captions. All tensors it is given are where the network is."""

    @property
    def batches(self) -> Sequence[int]:
        """Numbers of captions it computes at once, ascending; others are padded to the next."""

    def row_bytes(self, patches: int) -> int:
        """Returns about how much memory one caption of so many patches needs."""

    def write(
        self, embeddings: torch.Tensor, index: torch.Tensor, counts: torch.Tensor | None, numbers: torch.Tensor
    ) -> torch.Tensor:
        """Writes a batch of captions.

        Args:
            embeddings: of all patches that some caption sees, (patches, width).
            index: for each caption its patches among those, (captions, patches a caption).
            counts: how many of them each caption sees, the first ones, (captions,); None where it is all.
            numbers: in [0, 1), float64, (captions, steps); below 0 in captions decoded greedily.

        Returns:
            Tokens, (captions, steps), on the CPU; those after the end are padding.

        Raises:
            torch.OutOfMemoryError: the batch does not fit.
        """

    def prompt_logits(self, embeddings: torch.Tensor) -> torch.Tensor:
        """Returns the logits after each token of the prompt, (prompt tokens, vocabulary), given (patches, width)."""

    def release(self) -> None:
        """Gives memory back that can be done without."""


def averaged(maps: torch.Tensor, logits: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Returns what :meth:`TextEncoder.relevance` returns, of what :meth:`TextEncoder.gradcam` returns."""
    relevance = torch.einsum("rt,rtp->rp", weights.to(maps.device), maps)
    return torch.cat([relevance, logits[:, 1:] - logits[:, :1]], 1)
