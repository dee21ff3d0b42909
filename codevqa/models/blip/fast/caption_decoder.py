"""BLIP's caption decoder written out over the weights of transformers' ``BlipTextLMHeadModel``.

The same tokens as ``generate`` gives, without what it spends around them: keys and values of earlier tokens lie in
memory taken once, those of the patches are computed once for every patch that some caption sees and then gathered, and
a padded batch attends to no padding (transformers 5 drops BLIP's cross-attention mask). Nothing here waits for the
device, so that steps can be recorded as CUDA graphs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch.nn import functional

from ...cuda_graphs import avoid_cudnn_attention
from ..gpu import kernels as blip_kernels
from .sampling import draw

Weights: TypeAlias = "tuple[torch.Tensor, torch.Tensor]"


@dataclass(frozen=True)
class CaptionRules:
    """What captions begin with, how long they are and how they are drawn."""

    prompt: tuple[int, ...]
    end: int
    """Token that ends a caption."""
    pad: int
    """Token that follows the end."""
    min_length: int
    """Fewest tokens of a caption, the prompt's included."""
    max_length: int
    """Most tokens, the prompt's included."""
    top_k: int
    temperature: float

    @property
    def steps(self) -> int:
        """Tokens drawn for a caption at most."""
        return self.max_length - len(self.prompt)

    @property
    def first_end(self) -> int:
        """The first step, from 0, that may draw the end."""
        return max(0, self.min_length - len(self.prompt))


@dataclass
class Drafts:
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


@dataclass(frozen=True)
class _Norm:
    weight: torch.Tensor
    bias: torch.Tensor
    eps: float

    @classmethod
    def of(cls, module: Any) -> _Norm:
        return cls(module.weight, module.bias, float(module.eps))

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        return functional.layer_norm(hidden, self.weight.shape, self.weight, self.bias, self.eps)

    def after(self, hidden: torch.Tensor, more: torch.Tensor, fast: bool) -> torch.Tensor:
        """The norm of a sum; ``fast`` computes both at once."""
        if fast:
            return blip_kernels.add_norm(hidden, more, self.weight, self.bias, self.eps)
        return self(more + hidden)


@dataclass(frozen=True)
class DecoderLayer:
    """Weights of one block; those applied to the same input are one matrix."""

    own: Weights
    own_out: Weights
    own_norm: _Norm
    look: Weights
    seen: Weights
    seen_out: Weights
    seen_norm: _Norm
    widen: Weights
    activation: Callable[[torch.Tensor], torch.Tensor]
    narrow: Weights
    norm: _Norm

    @classmethod
    def of(cls, layer: Any, patches: Weights) -> DecoderLayer:
        """Returns the weights of a block, with those that make keys and values of patches."""
        own, seen = layer.attention, layer.crossattention
        return cls(
            _joined(own.self.query, own.self.key, own.self.value),
            _pair(own.output.dense),
            _Norm.of(own.output.LayerNorm),
            _pair(seen.self.query),
            patches,
            _pair(seen.output.dense),
            _Norm.of(seen.output.LayerNorm),
            _pair(layer.intermediate.dense),
            layer.intermediate.intermediate_act_fn,
            _pair(layer.output.dense),
            _Norm.of(layer.output.LayerNorm),
        )


class CaptionDecoder:
    """The network that writes captions, and the rules it writes them by.

    Args:
        network: transformers' ``BlipTextLMHeadModel``. Its query, key and value weights are laid side by side in
            memory; it computes what it computed before.
        rules: of every caption.
    """

    def __init__(self, network: Any, rules: CaptionRules) -> None:
        config = network.config
        self.rules = rules
        self.heads = int(config.num_attention_heads)
        self.depth = int(config.hidden_size) // self.heads
        self._embeddings = network.bert.embeddings
        layers = network.bert.encoder.layer
        looks = [layer.crossattention.self for layer in layers]
        # Keys and values of the patches in all layers, of which each layer has its part.
        self._seen = _joined(*(module for look in looks for module in (look.key, look.value)))
        parts = zip(*(joined.chunk(len(layers)) for joined in self._seen), strict=True)
        self.layers = [DecoderLayer.of(layer, part) for layer, part in zip(layers, parts, strict=True)]
        self._embedding_norm = _Norm.of(self._embeddings.LayerNorm)
        self._head = network.cls.predictions
        self._prompt = torch.tensor(rules.prompt, device=self._like.device)
        self._fast = rules.max_length <= blip_kernels.LONGEST and blip_kernels.usable(self._like, self.depth)
        avoid_cudnn_attention(self._like.device)

    @property
    def device(self) -> torch.device:
        """Where the network is."""
        return self._like.device

    @property
    def _like(self) -> torch.Tensor:
        return self.layers[0].own[0]

    def row_bytes(self, patches: int) -> int:
        """Returns about how much memory one caption of so many patches needs."""
        copies = 4 if self._fast else 2  # those of all layers at a time, or of one
        numbers = len(self.layers) * 2 * self.heads * self.depth * (self.rules.max_length + copies * patches)
        # Logits and what sampling makes of them.
        vocabulary = int(self._head.decoder.weight.shape[0]) * 32
        return int(numbers * self._like.element_size()) + vocabulary

    def blank(self, rows: int, patches: int, masked: bool) -> Drafts:
        """Returns memory for a batch of captions, each of at most ``patches`` patches; every row is done."""
        like, rules, layers = self._like, self.rules, len(self.layers)
        # A GPU pads batches with rows that are computed though nobody filled them: they must be numbers.
        made = like.new_zeros if like.is_cuda else like.new_empty
        return Drafts(
            made((layers, rows, 2, self.heads, rules.max_length, self.depth)),
            made((layers, rows, patches, 2, self.heads, self.depth)),
            like.new_zeros((rows, 1, 1, patches)) if masked else None,
            like.new_zeros((rows, rules.steps), dtype=torch.float64),
            torch.full((rows, rules.steps), rules.pad, device=like.device),
            torch.ones(rows, dtype=torch.bool, device=like.device),
        )

    def blank_logits(self, rows: int) -> torch.Tensor:
        """Returns room for the logits of a batch, (rows, vocabulary)."""
        return self._like.new_zeros((rows, int(self._head.decoder.weight.shape[0])))

    def show(self, drafts: Drafts, patches: torch.Tensor, index: torch.Tensor) -> None:
        """Gives the first rows what they see.

        Args:
            drafts: the batch.
            patches: embeddings of all patches that some caption sees, (patches, width).
            index: for each caption its patches among those, (captions, patches a caption).
        """
        rows, count = index.shape
        flat = index.reshape(-1)
        if self._fast:  # in three launches
            shape = (rows, count, len(self.layers), 2, self.heads, self.depth)
            projected = functional.linear(patches, *self._seen).index_select(0, flat).view(shape)
            drafts.seen[:, :rows, :count] = projected.permute(2, 0, 1, 3, 4, 5)
            return
        for layer, seen in zip(self.layers, drafts.seen, strict=True):
            projected = functional.linear(patches, *layer.seen)
            seen[:rows, :count] = projected.index_select(0, flat).view(rows, count, 2, self.heads, self.depth)

    def read_prompt(self, drafts: Drafts) -> torch.Tensor:
        """Returns the logits after each token of the prompt, (rows, prompt tokens, vocabulary)."""
        return self.logits(self._after_prompt(drafts))

    def begin(self, drafts: Drafts) -> None:
        """Reads the prompt."""
        drafts.logits = self.logits(self._after_prompt(drafts)[:, -1])

    def step(self, drafts: Drafts, number: int) -> None:
        """Draws the token of one step, from 0, and reads it unless it is the last."""
        rules = self.rules
        assert drafts.logits is not None
        if number < rules.first_end:
            drafts.logits[:, rules.end] = -torch.inf
        token = draw(drafts.logits, drafts.numbers[:, number : number + 1], rules.top_k, rules.temperature)
        token.masked_fill_(drafts.done, rules.pad)
        drafts.tokens[:, number] = token
        drafts.done |= token == rules.end
        if number + 1 < rules.steps:
            position = len(rules.prompt) + number
            drafts.logits = self.logits(self._read(drafts, self.embedded(token, position)[:, None], position)[:, 0])

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

    def _after_prompt(self, drafts: Drafts) -> torch.Tensor:
        """The last hidden state of each token of the prompt, (rows, prompt tokens, width)."""
        return self._read(drafts, self.embedded_prompt().repeat(len(drafts.done), 1, 1), 0)

    def _read(self, drafts: Drafts, hidden: torch.Tensor, start: int) -> torch.Tensor:
        """Runs the blocks over tokens at positions from ``start`` on: one each row, or the prompt.

        Args:
            drafts: the batch, whose keys and values are completed.
            hidden: embedded tokens, (rows, tokens, width).
            start: position of the first.
        """
        fast = self._fast
        for layer, own, seen in zip(self.layers, drafts.own, drafts.seen, strict=True):
            mixed = self._attend_own(functional.linear(hidden, *layer.own), own, start)
            hidden = layer.own_norm.after(hidden, functional.linear(mixed, *layer.own_out), fast)
            mixed = self._attend_seen(functional.linear(hidden, *layer.look), seen, drafts.hidden_patches)
            hidden = layer.seen_norm.after(hidden, functional.linear(mixed, *layer.seen_out), fast)
            wide = layer.activation(functional.linear(hidden, *layer.widen))
            hidden = layer.norm.after(hidden, functional.linear(wide, *layer.narrow), fast)
        return hidden

    def _attend_own(self, joined: torch.Tensor, own: torch.Tensor, start: int) -> torch.Tensor:
        """From queries, keys and values side by side to what attention to the caption brings, (rows, tokens, width)."""
        rows, count, _ = joined.shape
        joined = joined.view(rows, count, 3, self.heads, self.depth)
        if self._fast:
            return blip_kernels.attend_own(joined, own, start)
        stop = start + count
        own[:, :, :, start:stop] = joined[:, :, 1:].permute(0, 2, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(
            joined[:, :, 0].transpose(1, 2), own[:, 0, :, :stop], own[:, 1, :, :stop], is_causal=count > 1
        )
        return _merged(mixed)

    def _attend_seen(self, queries: torch.Tensor, seen: torch.Tensor, hidden: torch.Tensor | None) -> torch.Tensor:
        """What attention to the patches brings, shaped as the queries, (rows, tokens, width)."""
        if self._fast:
            return blip_kernels.attend_seen(queries, seen, hidden)
        mixed = functional.scaled_dot_product_attention(
            queries.view(*queries.shape[:2], self.heads, self.depth).transpose(1, 2),
            seen[:, :, 0].transpose(1, 2),
            seen[:, :, 1].transpose(1, 2),
            attn_mask=hidden,
        )
        return _merged(mixed)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Returns the logits of what follows, (..., vocabulary), from last hidden states, (..., width)."""
        head = self._head
        return functional.linear(head.transform(hidden), head.decoder.weight, head.decoder.bias)


def _merged(mixed: torch.Tensor) -> torch.Tensor:
    """From (rows, heads, tokens, depth) to (rows, tokens, width)."""
    return mixed.transpose(1, 2).flatten(2)


def _pair(module: Any) -> Weights:
    return module.weight, module.bias


def _joined(*modules: Any) -> Weights:
    """Lays the weights of several projections side by side, and makes them parts of the result."""
    weight = torch.cat([module.weight.detach() for module in modules])
    bias = torch.cat([module.bias.detach() for module in modules])
    start = 0
    for module in modules:
        stop = start + module.weight.shape[0]
        module.weight.data, module.bias.data = weight[start:stop], bias[start:stop]
        start = stop
    return weight, bias
