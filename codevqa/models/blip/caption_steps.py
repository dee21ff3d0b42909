"""The steps of caption decoding: nothing here waits for the device, so that a GPU can record them.

The same tokens as transformers' ``generate`` gives, without what it spends around them: keys and values of earlier
tokens lie in memory taken once, those of the patches are computed once for every patch that some caption sees and then
gathered, and a padded batch attends to no padding (transformers 5 drops BLIP's cross-attention mask).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from ..weights import join_projections
from .tokens import CaptionRules, draw

_OWN, _SEEN = (0, 2, 1, 3, 4, 5), (0, 3, 1, 4, 2, 5)
"""How keys and values lie in memory on a CPU: head by head, as its matrix products read them."""


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

    def under_way(self, places: torch.Tensor) -> CaptionBatch:
        """Returns the rows that have not ended as a batch, a view of this one, whose first rows they become.

        Args:
            places: which caption each row is; follows the rows.
        """
        count = int((~self.done).sum())
        # Ended rows in the way, and as many beyond that go on: they change places.
        ended = self.done[:count].nonzero()[:, 0]
        moved = count + (~self.done[count:]).nonzero()[:, 0]
        for memory in (self.own, self.seen):  # of an ended row nobody reads keys and values again
            for to, source in zip(ended.tolist(), moved.tolist(), strict=True):
                memory[:, to] = memory[:, source]
        for rows in (self.hidden_patches, self.numbers, self.tokens, self.done, places):
            if rows is not None and len(moved):
                rows[torch.cat([ended, moved])] = rows[torch.cat([moved, ended])]
        hidden = None if self.hidden_patches is None else self.hidden_patches[:count]
        kept = (self.numbers[:count], self.tokens[:count], self.done[:count])
        return CaptionBatch(self.own[:, :count], self.seen[:, :count], hidden, *kept)


class CaptionSteps:
    """The network that writes captions, step by step, and the rules it writes them by.

    Args:
        model: the captioner's text decoder. Weights applied to the same input are put side by side in memory.
        rules: of every caption.
        kernels: :mod:`.gpu.kernels`, which are used where they can be.
    """

    def __init__(self, model: Any, rules: CaptionRules, kernels: Any = None) -> None:
        self.rules = rules
        self.heads = int(model.config.num_attention_heads)
        self.depth = int(model.config.hidden_size) // self.heads
        self.layers: list[Any] = list(model.bert.encoder.layer)
        self._embeddings = model.bert.embeddings
        self._head = model.cls.predictions
        self._prompt = torch.tensor(rules.prompt, device=self.like.device)
        own = [layer.attention.self for layer in self.layers]
        self._projections = [join_projections(module.query, module.key, module.value) for module in own]
        # Keys and values of the patches in all layers.
        seen = [layer.crossattention.self for layer in self.layers]
        self._seen = join_projections(*(projection for module in seen for projection in (module.key, module.value)))
        usable = (
            kernels is not None
            and rules.max_length <= kernels.LONGEST
            and kernels.attention_usable(self.like, self.depth)
        )
        self._kernels = kernels if usable else None

    @property
    def like(self) -> torch.Tensor:
        """A tensor on the network's device, of its precision."""
        weight: torch.Tensor = self._embeddings.word_embeddings.weight
        return weight

    @property
    def vocabulary(self) -> int:
        """How many tokens there are."""
        return int(self._head.decoder.weight.shape[0])

    def row_bytes(self, patches: int) -> int:
        """Returns about how much memory one caption of so many patches needs."""
        # Keys and values of the patches in all layers are copied up to four times.
        numbers = len(self.layers) * 2 * self.heads * self.depth * (self.rules.max_length + 4 * patches)
        # Logits and what sampling makes of them.
        return int(numbers * self.like.element_size()) + self.vocabulary * 32

    def blank(self, rows: int, patches: int, masked: bool) -> CaptionBatch:
        """Returns memory for a batch of captions, each of at most ``patches`` patches; every row is done.

        Batches are padded with rows that are computed though nobody filled them, so all of it is numbers.
        """
        rules, like = self.rules, self.like
        layers, heads, depth = len(self.layers), self.heads, self.depth
        own, seen = (layers, rows, 2, heads, rules.max_length, depth), (layers, rows, patches, 2, heads, depth)
        return CaptionBatch(
            like.new_zeros(own) if like.is_cuda else _ordered_zeros(like, own, _OWN),
            like.new_zeros(seen) if like.is_cuda else _ordered_zeros(like, seen, _SEEN),
            like.new_zeros((rows, 1, 1, patches)) if masked else None,
            like.new_zeros((rows, rules.steps), dtype=torch.float64),
            torch.full((rows, rules.steps), rules.pad, device=like.device),
            torch.ones(rows, dtype=torch.bool, device=like.device),
        )

    def blank_logits(self, rows: int) -> torch.Tensor:
        """Returns room for the logits of a batch, (rows, vocabulary)."""
        return self.like.new_zeros((rows, self.vocabulary))

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
        shape = (rows, count, len(self.layers), 2, self.heads, self.depth)
        # All layers in three launches.
        projected = functional.linear(embeddings, *self._seen).index_select(0, index.reshape(-1)).view(shape)
        batch.seen[:, :rows, :count] = projected.permute(2, 0, 1, 3, 4, 5)
        batch.numbers[:rows] = numbers
        batch.done[:rows] = False
        batch.done[rows:] = True
        if batch.hidden_patches is not None and counts is not None:
            beyond = torch.arange(count, device=index.device) >= counts[:, None]
            batch.hidden_patches[:rows, 0, 0] = embeddings.new_zeros(beyond.shape).masked_fill(beyond, -torch.inf)

    def prompt_logits(self, embeddings: torch.Tensor) -> torch.Tensor:
        """Returns the logits after each token of the prompt, (prompt tokens, vocabulary), given (patches, width)."""
        batch = self.blank(1, len(embeddings), masked=False)
        index = torch.arange(len(embeddings), device=embeddings.device)[None]
        self.fill(batch, embeddings, index, None, torch.zeros_like(batch.numbers))
        return self._logits(self._after_prompt(batch))[0]

    def begin(self, batch: CaptionBatch) -> None:
        """Reads the prompt."""
        batch.logits = self._logits(self._after_prompt(batch, last=True)[:, -1])

    def draw(self, batch: CaptionBatch, number: int) -> None:
        """Draws the token of one step, from 0."""
        rules = self.rules
        assert batch.logits is not None
        if number < rules.first_end:
            batch.logits[:, rules.end] = -torch.inf
        token = draw(batch.logits, batch.numbers[:, number : number + 1], rules.top_k, rules.temperature)
        token.masked_fill_(batch.done, rules.pad)
        batch.tokens[:, number] = token
        batch.done |= token == rules.end

    def read(self, batch: CaptionBatch, number: int) -> None:
        """Reads the token of one step, from 0, unless it is the last."""
        if number + 1 < self.rules.steps:
            position = len(self.rules.prompt) + number
            hidden = self._read(batch, self._embed(batch.tokens[:, number], position)[:, None], position)
            batch.logits = self._logits(hidden[:, 0])

    def _after_prompt(self, batch: CaptionBatch, *, last: bool = False) -> torch.Tensor:
        """The last hidden state of each token of the prompt, or of the last one, (rows, tokens, width)."""
        embedded = self._embeddings(self._prompt[None])
        if self._kernels:
            embedded = embedded.repeat(len(batch.done), 1, 1)
        return self._read(batch, embedded, 0, last=last)

    def _embed(self, token: torch.Tensor, position: int) -> torch.Tensor:
        """Returns the embeddings, (rows, width), of a token a row, (rows,)."""
        embedded = functional.embedding(token, self._embeddings.word_embeddings.weight)
        embedded = embedded + self._embeddings.position_embeddings.weight[position]
        normed: torch.Tensor = self._embeddings.LayerNorm(embedded)
        return normed

    def _logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Returns the logits of what follows, (..., vocabulary), from last hidden states, (..., width)."""
        transform = self._head.transform
        logits: torch.Tensor = self._head.decoder(transform.LayerNorm(functional.gelu(transform.dense(hidden))))
        return logits

    def _read(self, batch: CaptionBatch, hidden: torch.Tensor, start: int, *, last: bool = False) -> torch.Tensor:
        """Runs the blocks over tokens at positions from ``start`` on: one each row, or the prompt.

        Args:
            batch: whose keys and values are completed.
            hidden: embedded tokens, (rows, tokens, width); one row where all have them in common.
            start: position of the first.
            last: whether only the last token's state is wanted.
        """
        for layer, projection, own, seen in zip(self.layers, self._projections, batch.own, batch.seen, strict=True):
            mixed = self._attend_own(functional.linear(hidden, *projection), own, start)
            if last and layer is self.layers[-1]:
                mixed, hidden = mixed[:, -1:], hidden[:, -1:]
            hidden = _add_and_norm(layer.attention.output, mixed, hidden)
            queries = layer.crossattention.self.query(hidden).expand(len(seen), -1, -1)
            mixed = self._attend_seen(queries, seen, batch.hidden_patches)
            hidden = _add_and_norm(layer.crossattention.output, mixed, hidden)
            wide = layer.intermediate.intermediate_act_fn(layer.intermediate.dense(hidden))
            hidden = _add_and_norm(layer.output, wide, hidden)
        return hidden

    def _attend_own(self, joined: torch.Tensor, own: torch.Tensor, start: int) -> torch.Tensor:
        """From queries, keys and values side by side to what attention to the caption brings, (rows, tokens, width)."""
        rows, count, _ = joined.shape
        joined = joined.view(rows, count, 3, self.heads, self.depth)
        if self._kernels:
            brought: torch.Tensor = self._kernels.attend_own(joined, own, start)
            return brought
        stop = start + count
        own[:, :, :, start:stop] = joined[:, :, 1:].permute(0, 2, 3, 1, 4)
        own = own[:rows, :, :, :stop]
        return _attend_tokens(joined[:, :, 0], own[:, 0], own[:, 1], None, causal=count > 1)

    def _attend_seen(self, queries: torch.Tensor, seen: torch.Tensor, hidden: torch.Tensor | None) -> torch.Tensor:
        """What attention to the patches brings, shaped as the queries, (rows, tokens, width)."""
        if self._kernels:
            brought: torch.Tensor = self._kernels.attend_seen(queries, seen, hidden)
            return brought
        asked = queries.view(*queries.shape[:2], self.heads, self.depth)
        return _attend_tokens(asked, seen[:, :, 0].transpose(1, 2), seen[:, :, 1].transpose(1, 2), hidden)


def _ordered_zeros(like: torch.Tensor, shape: Sequence[int], order: Sequence[int]) -> torch.Tensor:
    """Returns zeros of a shape that lie in memory in another order of its dimensions."""
    zeros = like.new_zeros([shape[place] for place in order])
    return zeros.permute([order.index(place) for place in range(len(order))])


def _add_and_norm(output: Any, mixed: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
    """A part of a block after its first half: projected, added to what came in, and normalised."""
    normed: torch.Tensor = output.LayerNorm(output.dense(mixed) + hidden)
    return normed


def _attend_tokens(
    asked: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, hidden: torch.Tensor | None, *, causal: bool = False
) -> torch.Tensor:
    """From (rows, tokens, heads, depth) to what attention brings, (rows, tokens, width)."""
    queries = asked.transpose(1, 2)
    if asked.is_cuda or causal or asked.dtype != torch.float32:
        mixed = functional.scaled_dot_product_attention(queries, keys, values, attn_mask=hidden, is_causal=causal)
    else:  # fused attention takes a CPU twice as long for one query
        scores = queries @ keys.transpose(2, 3) * asked.shape[-1] ** -0.5
        mixed = (scores if hidden is None else scores + hidden).softmax(-1) @ values
    return mixed.transpose(1, 2).flatten(2)
