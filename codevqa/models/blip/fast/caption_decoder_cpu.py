"""Caption decoding on the CPU, where every row and every token costs, and asking whether captions have ended does not.

The same decoder as :class:`.blip_decode.CaptionDecoder` over the same weights, with what only a CPU can do:

- Rows that end make room at once: the last rows under way move into their places, so that those under way are always
  the first, and each step computes them alone.
- Keys and values lie head by head, so that attention is two products of small matrices for all rows and heads at once;
  with one query a row that takes half of what a fused attention takes.
- Until they look at their patches, all captions read the same prompt: it is computed once. Of the last block only what
  follows the prompt matters.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional

from .caption_decoder import CaptionDecoder, DecoderLayer
from .sampling import draw


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


class CaptionWriter:
    """Writes batches of captions on the CPU.

    Args:
        decoder: the network and its rules.
    """

    def __init__(self, decoder: CaptionDecoder) -> None:
        self._decoder = decoder
        self._scale = decoder.depth**-0.5

    def write(
        self,
        patches: torch.Tensor,
        index: torch.Tensor,
        counts: torch.Tensor | None,
        numbers: torch.Tensor,
    ) -> torch.Tensor:
        """Writes a batch of captions.

        Args:
            patches: embeddings of all patches that some caption sees, (patches, width).
            index: for each caption its patches among those, (captions, patches a caption).
            counts: how many of them each caption sees, the first ones, (captions,); None where it is all.
            numbers: in [0, 1), float64, (captions, steps); below 0 in captions decoded greedily.

        Returns:
            Tokens, (captions, steps); those after the end are padding.
        """
        rules = self._decoder.rules
        rows = self._begin(patches, index, counts, numbers)
        tokens = torch.full(numbers.shape, rules.pad)
        hidden = self.read_prompt(rows)
        for number in range(rules.steps):
            token = self.draw(rows, hidden, number)
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

    def _begin(
        self, patches: torch.Tensor, index: torch.Tensor, counts: torch.Tensor | None, numbers: torch.Tensor
    ) -> _Rows:
        decoder = self._decoder
        rows, room = index.shape
        heads, layers = decoder.heads, decoder.layers
        shape = (len(layers), 2, rows, heads)
        seen = patches.new_empty((*shape, room, decoder.depth))
        # Where in a patch's keys and values of a layer, (2, heads, depth), those of each head begin.
        starts = torch.arange(2 * heads).view(2, 1, heads, 1)
        where = (index[:, None] * (2 * heads) + starts).flatten()
        for layer, kept in zip(layers, seen, strict=True):
            projected = functional.linear(patches, *layer.seen).view(-1, decoder.depth)
            torch.index_select(projected, 0, where, out=kept.view(-1, decoder.depth))
        hidden_patches = None
        if counts is not None:
            beyond = (torch.arange(room) >= counts[:, None])[:, None, None].expand(-1, heads, -1, -1)
            hidden_patches = patches.new_zeros(beyond.shape).masked_fill_(beyond, -torch.inf)
        own = patches.new_empty((*shape, decoder.rules.max_length, decoder.depth))
        return _Rows(own, seen, hidden_patches, numbers.clone(), torch.arange(rows), rows)

    def draw(self, rows: _Rows, hidden: torch.Tensor, number: int) -> torch.Tensor:
        """Draws the token of one step, from 0, of each row under way after its last hidden state."""
        rules = self._decoder.rules
        logits = self._decoder.logits(hidden)
        if number < rules.first_end:
            logits[:, rules.end] = -torch.inf
        return draw(logits, rows.numbers[: rows.count, number : number + 1], rules.top_k, rules.temperature)

    def read_prompt(self, rows: _Rows) -> torch.Tensor:
        """Reads the prompt; returns the last hidden state of its last token, (rows, width)."""
        decoder = self._decoder
        hidden = decoder.embedded_prompt()[None]  # all rows have this in common
        count = hidden.shape[1]
        ahead = torch.full((count, count), -torch.inf, dtype=hidden.dtype).triu_(1)
        for place, layer in enumerate(decoder.layers):
            asking = slice(-1, None) if place + 1 == len(decoder.layers) else slice(None)
            joined = functional.linear(hidden, *layer.own).view(*hidden.shape[:2], 3, decoder.heads, decoder.depth)
            own = rows.own[place]
            own[..., :count, :] = joined[:, :, 1:].permute(2, 0, 3, 1, 4)
            own = own[:, : len(hidden), :, :count]
            hidden = hidden[:, asking]
            mixed = self._attend(joined[:, asking, 0], own, ahead[asking])
            hidden = self._look(layer, hidden, mixed, rows, place)
        return hidden[:, 0]

    def read(self, rows: _Rows, token: torch.Tensor, position: int) -> torch.Tensor:
        """Reads one token of each row under way; returns its last hidden state, (rows, width)."""
        decoder = self._decoder
        hidden = decoder.embedded(token, position)[:, None]
        for place, layer in enumerate(decoder.layers):
            joined = functional.linear(hidden, *layer.own).view(-1, 1, 3, decoder.heads, decoder.depth)
            own = rows.own[place, :, : rows.count, :, : position + 1]
            own[..., position, :] = joined[:, 0, 1:].transpose(0, 1)
            hidden = self._look(layer, hidden, self._attend(joined[:, :, 0], own, None), rows, place)
        return hidden[:, 0]

    def _look(
        self, layer: DecoderLayer, hidden: torch.Tensor, mixed: torch.Tensor, rows: _Rows, place: int
    ) -> torch.Tensor:
        """A block after its attention to the caption, of which ``mixed`` is what it brings."""
        hidden = layer.own_norm(functional.linear(mixed, *layer.own_out).add_(hidden))
        queries = functional.linear(hidden, *layer.look).view(*hidden.shape[:2], self._decoder.heads, -1)
        hidden_patches = rows.hidden_patches
        mixed = self._attend(
            queries.expand(rows.count, -1, -1, -1),
            rows.seen[place, :, : rows.count],
            None if hidden_patches is None else hidden_patches[: rows.count],
        )
        hidden = layer.seen_norm(functional.linear(mixed, *layer.seen_out).add_(hidden))
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
