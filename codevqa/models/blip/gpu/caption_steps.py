"""The steps of caption decoding on a GPU: nothing here waits for the device, so that they can be recorded.

The same tokens as ``generate`` gives, without what it spends around them: keys and values of earlier tokens lie in
memory taken once, those of the patches are computed once for every patch that some caption sees and then gathered, and
a padded batch attends to no padding (transformers 5 drops BLIP's cross-attention mask).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from ..caption_network import CaptionNetwork, DecoderLayer, Weights
from ..sampling import CaptionRules, draw
from . import kernels


@dataclass
class CaptionBatch:
    """A batch of captions being written: everything that changes, or differs between rows."""

    own: torch.Tensor
    """Keys and values of the captions' tokens, (layers, rows, 2, heads, max length, depth)."""
    seen: torch.Tensor
    """Keys and values of the patches, (layers, rows, patches, 2, heads, depth)."""
    hidden_patches: torch.Tensor | None
    """Added to attention scores, (rows, 1, 1, patches), -inf for padding; None where there is none."""
    numbers: torch.Tensor
    """A number in [0, 1) for each step of each row, float64, (rows, steps); below 0 in rows decoded greedily."""
    tokens: torch.Tensor
    """What was drawn, (rows, steps)."""
    done: torch.Tensor
    """Rows that have ended, (rows,)."""
    logits: torch.Tensor | None = None
    """Of the next token, (rows, vocabulary)."""


class CaptionSteps:
    """The network that writes captions, step by step, and the rules it writes them by.

    Args:
        model: the captioner's text decoder. Weights applied to the same input are copied side by side.
        rules: of every caption.
    """

    def __init__(self, model: Any, rules: CaptionRules) -> None:
        self.network = network = CaptionNetwork(model, rules)
        self.rules = rules
        layers = network.layers
        self._projections = [_joined(layer.caption.query, layer.caption.key, layer.caption.value) for layer in layers]
        # Keys and values of the patches in all layers.
        self._seen = _joined(*(weights for layer in layers for weights in (layer.picture.key, layer.picture.value)))
        self._kernels = rules.max_length <= kernels.LONGEST and kernels.usable(network.like, network.depth)

    def row_bytes(self, patches: int) -> int:
        """Returns about how much memory one caption of so many patches needs."""
        return self.network.row_bytes(patches, copies=4)  # keys and values of all layers at a time

    def blank(self, rows: int, patches: int, masked: bool) -> CaptionBatch:
        """Returns memory for a batch of captions, each of at most ``patches`` patches; every row is done.

        Batches are padded with rows that are computed though nobody filled them, so all of it is numbers.
        """
        network, rules, like = self.network, self.rules, self.network.like
        layers, heads, depth = len(network.layers), network.heads, network.depth
        return CaptionBatch(
            like.new_zeros((layers, rows, 2, heads, rules.max_length, depth)),
            like.new_zeros((layers, rows, patches, 2, heads, depth)),
            like.new_zeros((rows, 1, 1, patches)) if masked else None,
            like.new_zeros((rows, rules.steps), dtype=torch.float64),
            torch.full((rows, rules.steps), rules.pad, device=like.device),
            torch.ones(rows, dtype=torch.bool, device=like.device),
        )

    def blank_logits(self, rows: int) -> torch.Tensor:
        """Returns room for the logits of a batch, (rows, vocabulary)."""
        return self.network.like.new_zeros((rows, self.network.vocabulary))

    def fill(
        self,
        batch: CaptionBatch,
        embeddings: torch.Tensor,
        index: torch.Tensor,
        counts: torch.Tensor | None,
        numbers: torch.Tensor,
    ) -> None:
        """Puts captions into the first rows of a batch, and says of the others that they are done.

        Args:
            batch: the batch.
            embeddings: of all patches that some caption sees, (patches, width).
            index: for each caption its patches among those, (captions, patches a caption).
            counts: how many of them each caption sees, the first ones, (captions,); None where it is all.
            numbers: in [0, 1), float64, (captions, steps); below 0 in captions decoded greedily.
        """
        rows, count = index.shape
        network = self.network
        shape = (rows, count, len(network.layers), 2, network.heads, network.depth)
        # All layers in three launches.
        projected = functional.linear(embeddings, *self._seen).index_select(0, index.reshape(-1)).view(shape)
        batch.seen[:, :rows, :count] = projected.permute(2, 0, 1, 3, 4, 5)
        batch.numbers[:rows] = numbers
        batch.done[:rows] = False
        batch.done[rows:] = True
        if batch.hidden_patches is not None and counts is not None:
            beyond = torch.arange(count, device=index.device) >= counts[:, None]
            batch.hidden_patches[:rows, 0, 0] = embeddings.new_zeros(beyond.shape).masked_fill(beyond, -torch.inf)

    def read_prompt(self, batch: CaptionBatch) -> torch.Tensor:
        """Returns the logits after each token of the prompt, (rows, prompt tokens, vocabulary)."""
        return self.network.logits(self._after_prompt(batch))

    def begin(self, batch: CaptionBatch) -> None:
        """Reads the prompt."""
        batch.logits = self.network.logits(self._after_prompt(batch)[:, -1])

    def step(self, batch: CaptionBatch, number: int) -> None:
        """Draws the token of one step, from 0, and reads it unless it is the last."""
        rules, network = self.rules, self.network
        assert batch.logits is not None
        if number < rules.first_end:
            batch.logits[:, rules.end] = -torch.inf
        token = draw(batch.logits, batch.numbers[:, number : number + 1], rules.top_k, rules.temperature)
        token.masked_fill_(batch.done, rules.pad)
        batch.tokens[:, number] = token
        batch.done |= token == rules.end
        if number + 1 < rules.steps:
            position = len(rules.prompt) + number
            hidden = self._read(batch, network.embedded(token, position)[:, None], position)
            batch.logits = network.logits(hidden[:, 0])

    def _after_prompt(self, batch: CaptionBatch) -> torch.Tensor:
        """The last hidden state of each token of the prompt, (rows, prompt tokens, width)."""
        return self._read(batch, self.network.embedded_prompt().repeat(len(batch.done), 1, 1), 0)

    def _read(self, batch: CaptionBatch, hidden: torch.Tensor, start: int) -> torch.Tensor:
        """Runs the blocks over tokens at positions from ``start`` on: one each row, or the prompt.

        Args:
            batch: whose keys and values are completed.
            hidden: embedded tokens, (rows, tokens, width).
            start: position of the first.
        """
        parts = zip(self.network.layers, self._projections, batch.own, batch.seen, strict=True)
        for layer, projection, own, seen in parts:
            hidden = self._block(layer, projection, hidden, own, seen, batch.hidden_patches, start)
        return hidden

    def _block(
        self,
        layer: DecoderLayer,
        projection: Weights,
        hidden: torch.Tensor,
        own: torch.Tensor,
        seen: torch.Tensor,
        hidden_patches: torch.Tensor | None,
        start: int,
    ) -> torch.Tensor:
        caption, picture = layer.caption, layer.picture
        mixed = self._attend_own(functional.linear(hidden, *projection), own, start)
        hidden = caption.norm(functional.linear(mixed, *caption.out) + hidden)
        mixed = self._attend_seen(functional.linear(hidden, *picture.query), seen, hidden_patches)
        hidden = picture.norm(functional.linear(mixed, *picture.out) + hidden)
        wide = layer.activation(functional.linear(hidden, *layer.widen))
        return layer.norm(functional.linear(wide, *layer.narrow) + hidden)

    def _attend_own(self, joined: torch.Tensor, own: torch.Tensor, start: int) -> torch.Tensor:
        """From queries, keys and values side by side to what attention to the caption brings, (rows, tokens, width)."""
        rows, count, _ = joined.shape
        joined = joined.view(rows, count, 3, self.network.heads, self.network.depth)
        if self._kernels:
            return kernels.attend_own(joined, own, start)
        stop = start + count
        own[:, :, :, start:stop] = joined[:, :, 1:].permute(0, 2, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(
            joined[:, :, 0].transpose(1, 2), own[:, 0, :, :stop], own[:, 1, :, :stop], is_causal=count > 1
        )
        return _merged(mixed)

    def _attend_seen(self, queries: torch.Tensor, seen: torch.Tensor, hidden: torch.Tensor | None) -> torch.Tensor:
        """What attention to the patches brings, shaped as the queries, (rows, tokens, width)."""
        if self._kernels:
            return kernels.attend_seen(queries, seen, hidden)
        mixed = functional.scaled_dot_product_attention(
            queries.view(*queries.shape[:2], self.network.heads, self.network.depth).transpose(1, 2),
            seen[:, :, 0].transpose(1, 2),
            seen[:, :, 1].transpose(1, 2),
            attn_mask=hidden,
        )
        return _merged(mixed)


def _merged(mixed: torch.Tensor) -> torch.Tensor:
    """From (rows, heads, tokens, depth) to (rows, tokens, width)."""
    return mixed.transpose(1, 2).flatten(2)


def _joined(*several: Weights) -> Weights:
    """Several projections of the same input as one."""
    matrices, biases = zip(*several, strict=True)
    return torch.cat(matrices).detach(), torch.cat(biases).detach()
