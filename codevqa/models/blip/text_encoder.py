"""BLIP's text encoder as one plain forward, with GradCAM in it.

The same numbers as transformers' ``BlipTextModel`` up to rounding, for less work:

- Looking at a picture costs far more than reading a text, if 577 patches become keys and values in every block. They
  are not made: the key projection is applied to the queries instead and the value projection to what attention mixed,
  since ``(W_q h)·(W_k f) = (W_kᵀ W_q h)·f`` and ``Σ p (W_v f + b) = W_v Σ p f + b Σ p``; that is work in proportion to
  the tokens, not the patches. So nothing but the features need be kept for a picture.
- Gradients begin at the attention of GradCAM's block: blocks up to it run without, those above on a graph of their own.
- Of the last block only the first token is read by the heads, so only that one is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


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
        self, ids: torch.Tensor, mask: torch.Tensor, features: Sequence[torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Computes GradCAM of every token and the logits of the ITM head, both float32.

        The gradient graph starts at the cross-attention probabilities of the chosen block, so only the text blocks
        above it are differentiated: neither vision tower nor lower blocks depend on those probabilities.

        Args:
            ids: tokens, (rows, tokens).
            mask: 1 for tokens, 0 for padding, likewise.
            features: of the picture of each text, (1 + patches, width).

        Returns:
            Maps, (rows, tokens, patches) without the CLS embedding, zero for padding; and logits, (rows, 2): no match,
            match.
        """
        device = self.like.device
        ids, mask = ids.to(device), mask.to(device)
        # Stacked here, outside inference mode: autograd may keep the copy.
        pictures = torch.stack(list(features))
        layers = self._encoder.encoder.layer
        with torch.no_grad():
            hidden = self._encoder.embeddings(input_ids=ids)
            bias = _bias(mask, hidden.dtype)
            for layer in layers[: self._block]:
                hidden = self._pass(layer, hidden, bias, pictures)
            chosen = layers[self._block]
            attended = self._self_attention(chosen, hidden, bias)
            look = chosen.crossattention.self
            probabilities = self._attention(look, attended, pictures)
        with torch.enable_grad():
            probabilities.requires_grad_(True)
            hidden = _feed(
                chosen, _output(chosen.crossattention, self._weigh_values(look, probabilities, pictures), attended)
            )
            for layer in layers[self._block + 1 :]:
                hidden = self._pass(layer, hidden, bias, pictures, first_only=layer is layers[-1])
            logits = self._head(hidden[:, 0])
            (gradient,) = torch.autograd.grad(logits[:, 1].sum(), probabilities)
        cam = probabilities.detach().float() * gradient.float().clamp(min=0)
        # (rows, heads, tokens, 1 + patches); column 0 is the picture's CLS embedding.
        maps = cam[..., 1:].mean(1)
        return maps * mask[:, :, None], logits.detach().float()

    def relevance(
        self,
        ids: torch.Tensor,
        mask: torch.Tensor,
        weights: torch.Tensor,
        features: Sequence[torch.Tensor],
    ) -> torch.Tensor:
        """Computes GradCAM averaged over tokens, and the margin of the head.

        Args:
            ids: see :meth:`gradcam`.
            mask: likewise.
            weights: how much each token counts, (rows, tokens), float32.
            features: likewise.

        Returns:
            (rows, patches + 1): each row's map and then its margin, "match" minus "no match".
        """
        maps, logits = self.gradcam(ids, mask, features)
        relevance = torch.einsum("rt,rtp->rp", weights.to(maps.device), maps)
        return torch.cat([relevance, logits[:, 1:] - logits[:, :1]], 1)

    @torch.inference_mode()
    def margins(self, ids: torch.Tensor, mask: torch.Tensor, features: Sequence[torch.Tensor]) -> list[float]:
        """Returns "match" minus "no match" of each row, without maps; see :meth:`gradcam`."""
        hidden, pictures = self._encoder.embeddings(input_ids=ids.to(self.like.device)), torch.stack(list(features))
        bias, layers = _bias(mask.to(self.like.device), hidden.dtype), self._encoder.encoder.layer
        for layer in layers:
            hidden = self._pass(layer, hidden, bias, pictures, first_only=layer is layers[-1])
        logits = self._head(hidden[:, 0]).float()
        return [float(margin) for margin in (logits[:, 1] - logits[:, 0]).tolist()]

    def _pass(
        self,
        layer: Any,
        hidden: torch.Tensor,
        bias: torch.Tensor | None,
        pictures: torch.Tensor,
        first_only: bool = False,
    ) -> torch.Tensor:
        attended = self._self_attention(layer, hidden, bias, first_only)
        look = layer.crossattention.self
        mixed = self._weigh_values(look, self._attention(look, attended, pictures), pictures)
        return _feed(layer, _output(layer.crossattention, mixed, attended))

    def _self_attention(
        self, layer: Any, hidden: torch.Tensor, bias: torch.Tensor | None, first_only: bool = False
    ) -> torch.Tensor:
        attention = layer.attention.self
        asking = hidden[:, :1] if first_only else hidden
        queries, keys, values = (
            self._split(projection(states))
            for projection, states in ((attention.query, asking), (attention.key, hidden), (attention.value, hidden))
        )
        scores = queries @ keys.transpose(-1, -2) * self.depth**-0.5
        if bias is not None:
            scores = scores + bias
        mixed = scores.softmax(-1) @ values
        return _output(layer.attention, mixed.transpose(1, 2).flatten(2), asking)

    def _attention(self, look: Any, hidden: torch.Tensor, pictures: torch.Tensor) -> torch.Tensor:
        """Returns the cross-attention of each token, (rows, heads, tokens, 1 + patches)."""
        queries = self._split(look.query(hidden)) * self.depth**-0.5
        # The bias of the keys adds the same to every patch of a query, which the softmax takes out again.
        asked = _by_head(queries, look.key.weight.view(self.heads, self.depth, -1))
        scores = asked.flatten(1, 2) @ pictures.transpose(1, 2)
        attention: torch.Tensor = scores.softmax(-1)
        return attention.view(*asked.shape[:3], -1)

    def _weigh_values(self, look: Any, attention: torch.Tensor, pictures: torch.Tensor) -> torch.Tensor:
        """Returns what cross-attention brings to each token, (rows, tokens, width)."""
        weight, bias = look.value.weight, look.value.bias
        mixed = (attention.flatten(1, 2) @ pictures).view(*attention.shape[:3], -1)
        brought = _by_head(mixed, weight.view(self.heads, self.depth, -1).transpose(1, 2))
        # Attention sums to one, but GradCAM asks what each share of it brings, and each brings the bias.
        brought = brought + attention.sum(-1, keepdim=True) * bias.view(self.heads, 1, self.depth)
        joined: torch.Tensor = brought.transpose(1, 2).flatten(2)
        return joined

    def _split(self, states: torch.Tensor) -> torch.Tensor:
        """From (rows, length, width) to (rows, heads, length, depth)."""
        return states.view(*states.shape[:2], self.heads, self.depth).transpose(1, 2)


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
