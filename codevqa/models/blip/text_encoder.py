"""BLIP's text encoder as one plain forward, with GradCAM in it.

The same numbers as transformers' ``BlipTextModel`` up to rounding, for less work:

- Looking at a picture costs far more than reading a text: 577 patches become keys and values in every block. They are
  made once a picture for all texts on it. Where the texts are few, they are not made at all: the key projection is
  applied to the queries instead and the value projection to what attention mixed, since
  ``(W_q h)·(W_k f) = (W_kᵀ W_q h)·f`` and ``Σ p (W_v f + b) = W_v Σ p f + b Σ p``; that is work in proportion to the
  tokens, not the patches. So nothing but the features need be kept for a picture.
- Gradients begin at the attention of GradCAM's block: blocks up to it run without, those above on a graph of their own.
- Of the last block only the first token is read by the heads, so only that one is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


class PictureBatch:
    """The pictures that a batch of texts looks at, laid out so that as little as possible is copied.

    Args:
        features: of each distinct picture, (1 + patches, width).
        owners: for each text the index of its picture; texts of one picture are side by side.
    """

    def __init__(self, features: Sequence[torch.Tensor], owners: Sequence[int]) -> None:
        rows, pictures = len(owners), len(features)
        self.features = torch.stack(list(features))
        each = rows // pictures
        even = list(owners) == [picture for picture in range(pictures) for _ in range(each)]
        self.texts_each = each if even else 1
        """Texts that each row of the laid out features serves."""
        self.mean_texts = rows / pictures
        self._owners = None if even else torch.tensor(owners, device=self.features.device)
        self._rows: torch.Tensor | None = None
        self.length = self.features.shape[1]
        """Embeddings of a picture, CLS included."""
        self.beyond: torch.Tensor | None = None
        """Added to scores to keep padding after them out, -inf there; None where there is none."""

    @classmethod
    def padded(cls, rows: torch.Tensor, length: int) -> PictureBatch:
        """Returns pictures laid out already: one row a text, zeros after the first ``length`` embeddings."""
        batch = cls.__new__(cls)
        batch.features = batch._rows = rows
        batch.texts_each, batch.mean_texts, batch._owners = 1, 1.0, None
        batch.length = length
        batch.beyond = torch.zeros(rows.shape[1], dtype=rows.dtype, device=rows.device)
        batch.beyond[length:] = -torch.inf
        return batch

    def spread(self, per_picture: torch.Tensor) -> torch.Tensor:
        """Returns what is known of each picture for each group of texts: the same tensor where groups are pictures."""
        return per_picture if self._owners is None else per_picture.index_select(0, self._owners)

    def rows(self) -> torch.Tensor:
        """Returns the features, spread; computed once."""
        if self._rows is None:
            self._rows = self.spread(self.features)
        return self._rows


class TextEncoder:
    """The forward pass of a matcher's text encoder. Token ids, masks and weights are given on the CPU.

    Args:
        encoder: the matcher's; its weights are read, never copied.
        head: from the first token's embedding to (rows, 2) logits: no match, match.
        block: text block, counted from 0, whose cross-attention GradCAM reads.
    """

    def __init__(self, encoder: Any, head: Any, block: int) -> None:
        self._encoder = encoder
        self._head = head
        self._block = block
        config = encoder.config
        self.heads = int(config.num_attention_heads)
        self.depth = int(config.hidden_size) // self.heads
        self.width = int(config.encoder_hidden_size)

    @property
    def like(self) -> torch.Tensor:
        """A tensor on the network's device, of its precision."""
        weight: torch.Tensor = self._encoder.embeddings.word_embeddings.weight
        return weight

    def row_bytes(self, patches: int, tokens: int) -> int:
        """Returns about how much memory one (picture, text) pair needs while GradCAM is computed."""
        layers = len(self._encoder.encoder.layer)
        attention = self.heads * tokens * (patches + self.width)
        # Each block above GradCAM's keeps its attention for the backward pass.
        numbers = attention * 3 * (layers - self._block + 1) + 4 * patches * self.width
        return int(numbers * self.like.element_size())

    @torch.no_grad()
    def first_token(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Returns the first token's last embedding, (rows, width), of texts alone: (rows, tokens) ids and mask."""
        device = self.like.device
        hidden: torch.Tensor = self._encoder.embeddings(input_ids=ids.to(device))
        bias = _bias(mask.to(device), hidden.dtype)
        layers = self._encoder.encoder.layer
        for layer in layers:
            hidden = _feed(layer, self._self_attention(layer, hidden, bias, first_only=layer is layers[-1]))
        return hidden[:, 0]

    def gradcam(
        self, ids: torch.Tensor, mask: torch.Tensor, features: Sequence[torch.Tensor], owners: Sequence[int]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Computes GradCAM of every token and the logits of the ITM head, both float32.

        The gradient graph starts at the cross-attention probabilities of the chosen block, so only the text blocks
        above it are differentiated: neither vision tower nor lower blocks depend on those probabilities.

        Args:
            ids: tokens, (rows, tokens).
            mask: 1 for tokens, 0 for padding, likewise.
            features: of each distinct picture, (1 + patches, width).
            owners: for each text the index of its picture; texts of one picture are side by side.

        Returns:
            Maps, (rows, tokens, patches) without the CLS embedding, zero for padding; and logits, (rows, 2): no match,
            match.
        """
        device = self.like.device
        # Stacked here, outside inference mode: autograd may keep the copy.
        return self.gradcam_of(ids.to(device), mask.to(device), PictureBatch(features, owners))

    def gradcam_of(
        self, ids: torch.Tensor, mask: torch.Tensor, pictures: PictureBatch
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Computes what :meth:`gradcam` does, of tokens and pictures that are where the network is."""
        layers = self._encoder.encoder.layer
        with torch.no_grad():
            hidden = self._encoder.embeddings(input_ids=ids)
            bias = _bias(mask, hidden.dtype)
            for layer in layers[: self._block]:
                hidden = self._pass(layer, hidden, bias, pictures)
            chosen = layers[self._block]
            attended = self._self_attention(chosen, hidden, bias)
            look = _CrossAttention(self, chosen.crossattention.self, pictures, attended.shape[1])
            probabilities = look.probabilities(attended)
        with torch.enable_grad():
            probabilities.requires_grad_(True)
            hidden = _feed(chosen, _output(chosen.crossattention, look.mix(probabilities), attended))
            for layer in layers[self._block + 1 :]:
                hidden = self._pass(layer, hidden, bias, pictures, first_only=layer is layers[-1])
            logits = self._head(hidden[:, 0])
            (gradient,) = torch.autograd.grad(logits[:, 1].sum(), probabilities)
        cam = probabilities.detach().float() * gradient.float().clamp(min=0)
        # (rows, heads, tokens, 1 + patches); column 0 is the picture's CLS embedding.
        maps = look.by_row(cam)[..., 1 : pictures.length].mean(1)
        return maps * mask[:, :, None], logits.detach().float()

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
            ids: see :meth:`gradcam`.
            mask: likewise.
            weights: how much each token counts, (rows, tokens), float32.
            features: see :meth:`gradcam`.
            owners: likewise.

        Returns:
            (rows, patches + 1): each row's map and then its margin, "match" minus "no match".
        """
        return averaged(*self.gradcam(ids, mask, features, owners), weights)

    def release(self) -> None:
        """Gives memory back that can be done without: nothing, on a CPU."""

    def _pass(
        self,
        layer: Any,
        hidden: torch.Tensor,
        bias: torch.Tensor | None,
        pictures: PictureBatch,
        first_only: bool = False,
    ) -> torch.Tensor:
        attended = self._self_attention(layer, hidden, bias, first_only)
        look = _CrossAttention(self, layer.crossattention.self, pictures, attended.shape[1])
        mixed = look.mix(look.probabilities(attended))
        return _feed(layer, _output(layer.crossattention, mixed, attended))

    def _self_attention(
        self, layer: Any, hidden: torch.Tensor, bias: torch.Tensor | None, first_only: bool = False
    ) -> torch.Tensor:
        attention = layer.attention.self
        asking = hidden[:, :1] if first_only else hidden
        queries, keys, values = (
            self.split(projection(states))
            for projection, states in ((attention.query, asking), (attention.key, hidden), (attention.value, hidden))
        )
        scores = queries @ keys.transpose(-1, -2) * self.depth**-0.5
        if bias is not None:
            scores = scores + bias
        mixed = scores.softmax(-1) @ values
        return _output(layer.attention, mixed.transpose(1, 2).flatten(2), asking)

    def split(self, states: torch.Tensor) -> torch.Tensor:
        """From (rows, length, width) to (rows, heads, length, depth)."""
        return states.view(*states.shape[:2], self.heads, self.depth).transpose(1, 2)

    def absorbs(self, pictures: PictureBatch, tokens: int) -> bool:
        """Whether projecting queries is less work than projecting every patch to a key and a value."""
        if pictures.beyond is not None:
            return True
        per_picture = pictures.mean_texts * tokens
        hidden = self.heads * self.depth
        return per_picture * self.heads * self.width < hidden * (self.width + per_picture)


class _CrossAttention:
    """One block's cross-attention from a batch of texts to their pictures.

    Attention is computed for groups of texts, (groups, queries, 1 + patches): every token of every text and head of a
    group against the features they share (absorbed), or the same for each head (projected).
    """

    def __init__(self, encoder: TextEncoder, attention: Any, pictures: PictureBatch, tokens: int) -> None:
        self._attention = attention
        self._pictures = pictures
        self._split = encoder.split
        self._heads, self._depth = encoder.heads, encoder.depth
        self._texts, self._tokens = pictures.texts_each, tokens
        self._absorbed = encoder.absorbs(pictures, tokens)

    def probabilities(self, hidden: torch.Tensor) -> torch.Tensor:
        """Returns attention, (groups, texts * heads * tokens, 1 + patches) or (groups, heads, texts * tokens, ...)."""
        queries = self._split(self._attention.query(hidden)) * self._depth**-0.5  # (rows, heads, tokens, depth)
        key = self._attention.key
        probabilities: torch.Tensor
        if self._absorbed:
            # The bias of the keys adds the same to every patch of a query, which the softmax takes out again.
            asked = _by_head(queries, key.weight.view(self._heads, self._depth, -1))
            groups = asked.reshape(-1, self._texts * self._heads * self._tokens, asked.shape[-1])
            scores = groups @ self._pictures.rows().transpose(1, 2)
            if self._pictures.beyond is not None:
                scores = (
                    scores.add_(self._pictures.beyond) if not scores.requires_grad else scores + self._pictures.beyond
                )
            probabilities = scores.softmax(-1)
        else:
            keys = self._split(self._pictures.spread(key(self._pictures.features)))
            probabilities = (self._group(queries) @ keys.transpose(-1, -2)).softmax(-1)
        return probabilities

    def mix(self, probabilities: torch.Tensor) -> torch.Tensor:
        """Returns what attention brings to each token, (rows, tokens, width)."""
        value = self._attention.value
        if self._absorbed:
            mixed = (probabilities @ self._pictures.rows()).view(-1, self._heads, self._tokens, value.weight.shape[-1])
            brought = _by_head(mixed, value.weight.view(self._heads, self._depth, -1).transpose(1, 2))
            if value.bias is not None:
                # Attention sums to one, but GradCAM asks what each share of it brings, and each brings the bias.
                shares = probabilities.sum(-1).view(*brought.shape[:3], 1)
                brought = brought + shares * value.bias.view(self._heads, 1, self._depth)
            return brought.transpose(1, 2).flatten(2)
        values = self._split(self._pictures.spread(value(self._pictures.features)))
        return self.by_row(probabilities @ values).transpose(1, 2).flatten(2)

    def by_row(self, grouped: torch.Tensor) -> torch.Tensor:
        """From the layout of :meth:`probabilities` to (rows, heads, tokens, ...)."""
        last = grouped.shape[-1]
        if self._absorbed:
            return grouped.view(-1, self._heads, self._tokens, last)
        apart = grouped.view(-1, self._heads, self._texts, self._tokens, last).transpose(1, 2)
        return apart.reshape(-1, self._heads, self._tokens, last)

    def _group(self, queries: torch.Tensor) -> torch.Tensor:
        if self._texts == 1:
            return queries
        apart = queries.reshape(-1, self._texts, self._heads, self._tokens, self._depth).transpose(1, 2)
        return apart.flatten(2, 3)


def averaged(maps: torch.Tensor, logits: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Returns what :meth:`TextEncoder.relevance` returns, of what :meth:`TextEncoder.gradcam` returns."""
    relevance = torch.einsum("rt,rtp->rp", weights.to(maps.device), maps)
    return torch.cat([relevance, logits[:, 1:] - logits[:, :1]], 1)


def _by_head(states: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """The product of (rows, heads, tokens, n) and (heads, n, m), for each row and head.

    All rows of a head at once: broadcasting would copy the weights for every row.
    """
    rows, heads, tokens, _ = states.shape
    product = states.transpose(0, 1).reshape(heads, rows * tokens, -1) @ weights
    return product.view(heads, rows, tokens, -1).transpose(0, 1)


def _bias(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor | None:
    """What is added to scores, (rows, 1, 1, tokens), to keep padding out; None without padding."""
    if mask.device.type == "cpu" and bool(mask.all()):
        return None  # not asked of a GPU, which would have to answer first
    hidden = mask[:, None, None, :] == 0
    return torch.zeros(hidden.shape, dtype=dtype, device=mask.device).masked_fill(hidden, torch.finfo(dtype).min)


def _output(attention: Any, mixed: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
    output = attention.output
    return output.LayerNorm(output.dense(mixed) + states)  # type: ignore[no-any-return]


def _feed(layer: Any, states: torch.Tensor) -> torch.Tensor:
    wide = layer.intermediate.intermediate_act_fn(layer.intermediate.dense(states))
    return layer.output.LayerNorm(layer.output.dense(wide) + states)  # type: ignore[no-any-return]
