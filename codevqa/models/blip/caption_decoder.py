"""Caption decoding on the CPU, where every row and every token costs, and asking whether captions have ended does not.

The same captions as transformers' ``generate`` writes, without what it spends around them:

- Keys and values of the patches are computed once for every patch that some caption sees, and then gathered; a padded
  batch attends to no padding (transformers 5 drops BLIP's cross-attention mask).
- Rows that end make room at once: the last rows under way move into their places, so that those under way are always
  the first, and each step computes them alone.
- Keys and values lie head by head, so that attention is two products of small matrices for all rows and heads at once;
  with one query a row that takes half of what a fused attention takes.
- Until they look at their patches, all captions read the same prompt: it is computed once. Of the last block only what
  follows the prompt matters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from .caption_network import CaptionNetwork, DecoderLayer
from .sampling import CaptionRules, draw

_ROWS = 64


@dataclass
class _Rows:
    """Captions being written: those under way first."""

    own: torch.Tensor
    """Keys and values of the captions' tokens, (layers, 2, rows, heads, max length, depth)."""
    seen: torch.Tensor
    """Keys and values of the patches, (layers, 2, rows, heads, patches, depth)."""
    hidden_patches: torch.Tensor | None
    """Added to attention scores, (rows, heads, 1, patches), -inf for padding; None where there is none."""
    numbers: torch.Tensor
    """A number in [0, 1) for each step of each row, (rows, steps); below 0 in rows decoded greedily."""
    places: torch.Tensor
    """Which caption each row is, (rows,)."""
    count: int
    """Rows under way."""

    def leave_out(self, ended: torch.Tensor, length: int, hidden: torch.Tensor) -> torch.Tensor:
        """Moves rows under way into the places of those that have ended.

        Args:
            ended: (rows under way,).
            length: tokens each caption has keys and values of.
            hidden: what else there is of each row, (rows under way, ...).

        Returns:
            That of the rows which stay, in their new order.
        """
        stay = int(self.count - ended.sum())
        free = ended[:stay].nonzero()[:, 0]
        moved = stay + (~ended[stay:]).nonzero()[:, 0]
        self.count = stay
        # Row by row: slices are copied faster than what an index names, and seldom many rows move at once.
        memories = (self.own[..., :length, :], self.seen)
        for to, source in zip(free.tolist(), moved.tolist(), strict=True):
            for memory in memories:
                memory[:, :, to] = memory[:, :, source]
        for rows in (self.hidden_patches, self.numbers, self.places, hidden):
            if rows is not None and len(moved):
                rows[free] = rows[moved]
        return hidden[:stay]


class CpuCaptionDecoder:
    """Writes batches of captions on the CPU. Implements :class:`.caption_network.CaptionDecoder`.

    Args:
        model: the captioner's text decoder.
        rules: of every caption.
    """

    batches = range(1, _ROWS + 1)

    def __init__(self, model: Any, rules: CaptionRules) -> None:
        self.network = CaptionNetwork(model, rules)
        self._rules = rules
        self._scale = self.network.depth**-0.5

    def row_bytes(self, patches: int) -> int:
        """Returns about how much memory one caption of so many patches needs."""
        return self.network.row_bytes(patches)

    def release(self) -> None:
        """Keeps nothing."""

    @torch.inference_mode()
    def write(
        self, embeddings: torch.Tensor, index: torch.Tensor, counts: torch.Tensor | None, numbers: torch.Tensor
    ) -> torch.Tensor:
        """Writes a batch of captions; see :class:`.caption_network.CaptionDecoder`."""
        rules = self._rules
        rows = self._begin(embeddings, index, counts, numbers)
        tokens = torch.full(numbers.shape, rules.pad)
        hidden = self._read_prompt(rows)[:, -1]
        for number in range(rules.steps):
            token = self._draw(rows, hidden, number)
            tokens[rows.places[: rows.count], number] = token
            if number + 1 == rules.steps:
                break
            length = len(rules.prompt) + number
            ended = token == rules.end
            if bool(ended.any()):
                token = rows.leave_out(ended, length, token)
                if not rows.count:
                    break
            hidden = self.read(rows, token, length)
        return tokens

    @torch.inference_mode()
    def prompt_logits(self, embeddings: torch.Tensor) -> torch.Tensor:
        """Returns the logits after each token of the prompt, (prompt tokens, vocabulary), given (patches, width)."""
        numbers = torch.empty(1, self._rules.steps)
        rows = self._begin(embeddings, torch.arange(len(embeddings))[None], None, numbers)
        return self.network.logits(self._read_prompt(rows, every=True))[0]

    def _begin(
        self, embeddings: torch.Tensor, index: torch.Tensor, counts: torch.Tensor | None, numbers: torch.Tensor
    ) -> _Rows:
        network = self.network
        rows, room = index.shape
        heads, layers, depth = network.heads, network.layers, network.depth
        shape = (len(layers), 2, rows, heads)
        seen = embeddings.new_empty((*shape, room, depth))
        # Where in a patch's keys, or values, of a layer, (heads, depth), those of each head begin.
        where = (index[:, None] * heads + torch.arange(heads).view(1, heads, 1)).flatten()
        for layer, kept in zip(layers, seen, strict=True):
            for weights, part in zip((layer.picture.key, layer.picture.value), kept, strict=True):
                projected = functional.linear(embeddings, *weights).view(-1, depth)
                torch.index_select(projected, 0, where, out=part.view(-1, depth))
        hidden_patches = None
        if counts is not None:
            beyond = (torch.arange(room) >= counts[:, None])[:, None, None].expand(-1, heads, -1, -1)
            hidden_patches = embeddings.new_zeros(beyond.shape).masked_fill_(beyond, -torch.inf)
        own = embeddings.new_empty((*shape, self._rules.max_length, depth))
        return _Rows(own, seen, hidden_patches, numbers.clone(), torch.arange(rows), rows)

    def _draw(self, rows: _Rows, hidden: torch.Tensor, number: int) -> torch.Tensor:
        """Draws the token of one step, from 0, of each row under way after its last hidden state."""
        rules = self._rules
        logits = self.network.logits(hidden)
        if number < rules.first_end:
            logits[:, rules.end] = -torch.inf
        return draw(logits, rows.numbers[: rows.count, number : number + 1], rules.top_k, rules.temperature)

    def _read_prompt(self, rows: _Rows, *, every: bool = False) -> torch.Tensor:
        """Reads the prompt; returns the last hidden state, (rows, tokens, width), of its last token or of every one."""
        network = self.network
        hidden = network.embedded_prompt()[None]  # all rows have this in common
        count = hidden.shape[1]
        ahead = torch.full((count, count), -torch.inf, dtype=hidden.dtype).triu_(1)
        for place, layer in enumerate(network.layers):
            last = place + 1 == len(network.layers) and not every
            asking = slice(-1, None) if last else slice(None)
            queries, keys, values = self._projected(layer, hidden)
            own = rows.own[place]
            own[0, ..., :count, :], own[1, ..., :count, :] = keys.transpose(1, 2), values.transpose(1, 2)
            own = own[:, : len(hidden), :, :count]
            mixed = self._attend(queries[:, asking], own, ahead[asking])
            hidden = self._look(layer, hidden[:, asking], mixed, rows, place)
        return hidden

    def read(self, rows: _Rows, token: torch.Tensor, position: int) -> torch.Tensor:
        """Reads one token of each row under way; returns its last hidden state, (rows, width)."""
        hidden = self.network.embedded(token, position)[:, None]
        for place, layer in enumerate(self.network.layers):
            queries, keys, values = self._projected(layer, hidden)
            own = rows.own[place, :, : rows.count, :, : position + 1]
            own[0, ..., position, :], own[1, ..., position, :] = keys[:, 0], values[:, 0]
            hidden = self._look(layer, hidden, self._attend(queries, own, None), rows, place)
        return hidden[:, 0]

    def _projected(self, layer: DecoderLayer, hidden: torch.Tensor) -> list[torch.Tensor]:
        """Queries, keys and values of the caption's tokens, each (rows, tokens, heads, depth)."""
        shape = (*hidden.shape[:2], self.network.heads, self.network.depth)
        own = layer.caption
        return [functional.linear(hidden, *weights).view(shape) for weights in (own.query, own.key, own.value)]

    def _look(
        self, layer: DecoderLayer, hidden: torch.Tensor, mixed: torch.Tensor, rows: _Rows, place: int
    ) -> torch.Tensor:
        """A block after its attention to the caption, of which ``mixed`` is what it brings."""
        own, picture = layer.caption, layer.picture
        hidden = own.norm(functional.linear(mixed, *own.out).add_(hidden))
        queries = functional.linear(hidden, *picture.query).view(*hidden.shape[:2], self.network.heads, -1)
        hidden_patches = rows.hidden_patches
        mixed = self._attend(
            queries.expand(rows.count, -1, -1, -1),
            rows.seen[place, :, : rows.count],
            None if hidden_patches is None else hidden_patches[: rows.count],
        )
        hidden = picture.norm(functional.linear(mixed, *picture.out).add_(hidden))
        wide = layer.activation(functional.linear(hidden, *layer.widen))
        return layer.norm(functional.linear(wide, *layer.narrow).add_(hidden))

    def _attend(self, queries: torch.Tensor, kept: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """Attention.

        Args:
            queries: (rows, tokens, heads, depth).
            kept: keys and values, (2, rows, heads, length, depth).
            bias: added to the scores, as broadcast to (rows, heads, tokens, length).

        Returns:
            What it brings, (rows, tokens, width).
        """
        rows, count, heads, depth = queries.shape
        asked = queries.transpose(1, 2)
        keys, values = kept
        if queries.dtype != torch.float32:  # scores need the precision
            return (
                functional.scaled_dot_product_attention(asked, keys, values, attn_mask=bias).transpose(1, 2).flatten(2)
            )
        length = keys.shape[2]
        keys, values = keys.flatten(0, 1), values.flatten(0, 1)
        if bias is None:
            offset, beta = keys.new_empty(1), 0
        else:
            offset, beta = bias.expand(rows, heads, count, length).reshape(-1, count, length), 1
        asked = asked.reshape(rows * heads, count, depth)
        scores = torch.baddbmm(offset, asked, keys.transpose(1, 2), beta=beta, alpha=self._scale)
        mixed = torch.bmm(scores.softmax(-1), values)
        return mixed.view(rows, heads, count, depth).transpose(1, 2).reshape(rows, count, heads * depth)
