"""Caption decoding where asking whether captions have ended costs nothing: on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .caption_steps import CaptionSteps
from .sampling import CaptionRules

_WORTH_MOVING = 0.75
"""Where at most this share of the rows is under way, those that have ended make room."""


class CaptionDecoder:
    """Writes batches of captions. All tensors it is given are where the network is.

    Args:
        model: the captioner's text decoder.
        rules: of every caption.
        kernels: see :class:`.caption_steps.CaptionSteps`.
    """

    batches: Sequence[int] = range(1, 65)
    """Numbers of captions it computes at once, ascending; others are padded to the next."""

    def __init__(self, model: Any, rules: CaptionRules, kernels: Any = None) -> None:
        self.steps = CaptionSteps(model, rules, kernels)

    def release(self) -> None:
        """Gives memory back that can be done without: nothing, on a CPU."""

    @torch.inference_mode()
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
        steps, (rows, patches) = self.steps, index.shape
        batch = steps.blank(rows, patches, masked=counts is not None)
        steps.fill(batch, embeddings, index, counts, numbers)
        steps.begin(batch)
        tokens, places = batch.tokens.clone(), torch.arange(rows)
        for number in range(steps.rules.steps):
            steps.draw(batch, number)
            tokens[places, number] = batch.tokens[:, number]
            left = len(places) - int(batch.done.sum())
            if not left:
                break
            if left <= _WORTH_MOVING * len(places):
                places, batch = places[~batch.done], batch.under_way()
            steps.read(batch, number)
        return tokens

    @torch.inference_mode()
    def prompt_logits(self, embeddings: torch.Tensor) -> torch.Tensor:
        """Returns the logits after each token of the prompt, (prompt tokens, vocabulary), given (patches, width)."""
        batch = self.steps.blank(1, len(embeddings), masked=False)
        index = torch.arange(len(embeddings), device=embeddings.device)[None]
        self.steps.fill(batch, embeddings, index, None, torch.zeros_like(batch.numbers))
        return self.steps.read_prompt(batch)[0]
