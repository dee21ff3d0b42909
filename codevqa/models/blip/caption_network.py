"""BLIP's caption decoder as bare weights, which the decoders for CPU and GPU both read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import torch
from torch.nn import functional

from .sampling import CaptionRules

Weights: TypeAlias = "tuple[torch.Tensor, torch.Tensor]"
"""A projection's matrix and bias."""


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


@dataclass(frozen=True)
class LayerNorm:
    """A layer norm's weights."""

    weight: torch.Tensor
    bias: torch.Tensor
    eps: float

    @classmethod
    def of(cls, module: Any) -> LayerNorm:
        """Returns those of a module."""
        return cls(module.weight, module.bias, float(module.eps))

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        """Returns the norm."""
        return functional.layer_norm(hidden, self.weight.shape, self.weight, self.bias, self.eps)


@dataclass(frozen=True)
class Attention:
    """Weights of one attention and what follows it."""

    query: Weights
    key: Weights
    value: Weights
    out: Weights
    norm: LayerNorm

    @classmethod
    def of(cls, module: Any) -> Attention:
        """Returns those of a module."""
        own, output = module.self, module.output
        return cls(
            _weights(own.query),
            _weights(own.key),
            _weights(own.value),
            _weights(output.dense),
            LayerNorm.of(output.LayerNorm),
        )


@dataclass(frozen=True)
class DecoderLayer:
    """Weights of one block."""

    caption: Attention
    """To the caption's own tokens."""
    picture: Attention
    """To the patches."""
    widen: Weights
    activation: Callable[[torch.Tensor], torch.Tensor]
    narrow: Weights
    norm: LayerNorm

    @classmethod
    def of(cls, layer: Any) -> DecoderLayer:
        """Returns those of a module."""
        return cls(
            Attention.of(layer.attention),
            Attention.of(layer.crossattention),
            _weights(layer.intermediate.dense),
            layer.intermediate.intermediate_act_fn,
            _weights(layer.output.dense),
            LayerNorm.of(layer.output.LayerNorm),
        )


class CaptionNetwork:
    """The network that writes captions.

    Args:
        model: the captioner's text decoder; its weights are read, never copied.
        rules: of every caption.
    """

    def __init__(self, model: Any, rules: CaptionRules) -> None:
        config = model.config
        self.heads = int(config.num_attention_heads)
        self.depth = int(config.hidden_size) // self.heads
        self.layers = [DecoderLayer.of(layer) for layer in model.bert.encoder.layer]
        self._embeddings = model.bert.embeddings
        self._embedding_norm = LayerNorm.of(self._embeddings.LayerNorm)
        self._head = model.cls.predictions
        self._prompt = torch.tensor(rules.prompt, device=self.like.device)
        self._max_length = rules.max_length

    @property
    def like(self) -> torch.Tensor:
        """A tensor on the network's device, of its precision."""
        weight: torch.Tensor = self._embeddings.word_embeddings.weight
        return weight

    @property
    def vocabulary(self) -> int:
        """How many tokens there are."""
        return int(self._head.decoder.weight.shape[0])

    def row_bytes(self, patches: int, copies: int = 2) -> int:
        """Returns about how much memory one caption needs.

        Args:
            patches: it sees.
            copies: of its patches' keys and values that are in memory at a time.
        """
        numbers = len(self.layers) * 2 * self.heads * self.depth * (self._max_length + copies * patches)
        # Logits and what sampling makes of them.
        return int(numbers * self.like.element_size()) + self.vocabulary * 32

    def embedded_prompt(self) -> torch.Tensor:
        """Returns the prompt's embeddings, (prompt tokens, width)."""
        embedded = self._embeddings.word_embeddings.weight[self._prompt]
        embedded = embedded + self._embeddings.position_embeddings.weight[: len(self._prompt)]
        return self._embedding_norm(embedded)

    def embedded(self, token: torch.Tensor, position: int) -> torch.Tensor:
        """Returns the embeddings, (rows, width), of a token a row, (rows,)."""
        embedded = functional.embedding(token, self._embeddings.word_embeddings.weight)
        embedded = embedded + self._embeddings.position_embeddings.weight[position]
        return self._embedding_norm(embedded)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Returns the logits of what follows, (..., vocabulary), from last hidden states, (..., width)."""
        head = self._head
        transform = head.transform
        hidden = transform.LayerNorm(functional.gelu(transform.dense(hidden)))
        return functional.linear(hidden, head.decoder.weight, head.decoder.bias)


def _weights(module: Any) -> Weights:
    return module.weight, module.bias
