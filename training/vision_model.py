"""The two mini BLIP networks, and a fast forward pass over their weights for training.

``BlipForImageTextRetrieval`` (ITM, ITC) and ``BlipForConditionalGeneration`` share one vision tower while they are
trained. The functions here compute what transformers' modules compute from the very same parameters, with fused
attention, with keys and values of a picture shared by all its texts, and with everything in fixed shapes, so that a
whole step can be one CUDA graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import BlipConfig, BlipForConditionalGeneration, BlipForImageTextRetrieval

from .vision_words import DEC, PAD, SEP, words

WIDTH = 192
TEXT_LAYERS = 4
BLOCK = 2
"""The text block that GradCAM reads."""
MEAN = (0.48145466, 0.4578275, 0.40821073)
DEVIATION = (0.26862954, 0.26130258, 0.27577711)


def configuration() -> BlipConfig:
    """Sizes of both networks: 5.2 million parameters each."""
    text = {
        "vocab_size": len(words()),
        "hidden_size": WIDTH,
        "encoder_hidden_size": WIDTH,
        "intermediate_size": 640,
        "num_hidden_layers": TEXT_LAYERS,
        "num_attention_heads": 4,
        "max_position_embeddings": 48,
        "projection_dim": 128,
        "layer_norm_eps": 1e-6,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "bos_token_id": DEC,
        "eos_token_id": SEP,
        "sep_token_id": SEP,
        "pad_token_id": PAD,
        "is_decoder": True,
    }
    vision = {
        "hidden_size": WIDTH,
        "intermediate_size": 4 * WIDTH,
        "num_hidden_layers": 6,
        "num_attention_heads": 6,
        "image_size": 128,
        "patch_size": 8,
        "projection_dim": 128,
        "layer_norm_eps": 1e-6,
        "initializer_range": 0.02,
    }
    return BlipConfig(text_config=text, vision_config=vision, image_text_hidden_size=128, projection_dim=128)


Block = Callable[..., Tensor]


def vision_block(x: Tensor, heads: int, *weights: Tensor) -> Tensor:
    """One block of the vision tower, x (rows, patches, width)."""
    norm1, norm1_b, qkv, qkv_b, out, out_b, norm2, norm2_b, fc1, fc1_b, fc2, fc2_b = (w.to(x.dtype) for w in weights)
    rows, length, width = x.shape
    y = F.layer_norm(x, (width,), norm1, norm1_b, 1e-6)
    q, k, v = F.linear(y, qkv, qkv_b).view(rows, length, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
    y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(rows, length, width)
    x = x + F.linear(y, out, out_b)
    y = F.layer_norm(x, (width,), norm2, norm2_b, 1e-6)
    return x + F.linear(F.gelu(F.linear(y, fc1, fc1_b)), fc2, fc2_b)


def self_block(x: Tensor, mask: Tensor | None, heads: int, *weights: Tensor) -> Tensor:
    """Self-attention of a text block, x (rows, tokens, width); without a mask it looks back only."""
    qw, qb, kw, kb, vw, vb, out, out_b, norm, norm_b = (w.to(x.dtype) for w in weights)
    rows, length, width = x.shape
    q, k, v = (
        F.linear(x, w, b).view(rows, length, heads, width // heads).transpose(1, 2)
        for w, b in ((qw, qb), (kw, kb), (vw, vb))
    )
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
    y = F.linear(y.transpose(1, 2).reshape(rows, length, width), out, out_b)
    return F.layer_norm(x + y, (width,), norm, norm_b, 1e-6)


def cross_block(x: Tensor, k: Tensor, v: Tensor, heads: int, *weights: Tensor) -> Tensor:
    """Cross-attention; x (rows, tokens, width), k and v (groups, heads, patches, part): rows of a group share them."""
    qw, qb, out, out_b, norm, norm_b = (w.to(x.dtype) for w in weights)
    rows, length, width = x.shape
    q = F.linear(x, qw, qb).view(k.shape[0], -1, heads, width // heads).transpose(1, 2)
    y = F.scaled_dot_product_attention(q, k, v)
    y = F.linear(y.transpose(1, 2).reshape(rows, length, width), out, out_b)
    return F.layer_norm(x + y, (width,), norm, norm_b, 1e-6)


def feed_block(x: Tensor, *weights: Tensor) -> Tensor:
    """The feed-forward part of a text block."""
    up, up_b, down, down_b, norm, norm_b = (w.to(x.dtype) for w in weights)
    y = F.linear(F.gelu(F.linear(x, up, up_b)), down, down_b)
    return F.layer_norm(x + y, (x.shape[-1],), norm, norm_b, 1e-6)


def _parameters(*modules: nn.Module) -> tuple[Tensor, ...]:
    return tuple(tensor for module in modules for tensor in (module.weight, module.bias))  # type: ignore[misc]


class Pair(nn.Module):
    """Matcher and captioner over one vision tower, with what contrast needs besides."""

    shift: Tensor
    spread: Tensor

    def __init__(self, config: BlipConfig | None = None) -> None:
        super().__init__()
        config = config or configuration()
        self.matcher: Any = BlipForImageTextRetrieval(config)
        self.captioner: Any = BlipForConditionalGeneration(config)
        self.captioner.vision_model = self.matcher.vision_model
        self.scale = nn.Parameter(torch.tensor(2.7))
        self.vision_heads = config.vision_config.num_attention_heads
        self.text_heads = config.text_config.num_attention_heads
        self.blocks: dict[str, Block] = {
            "vision": vision_block,
            "self": self_block,
            "cross": cross_block,
            "feed": feed_block,
        }
        mean, deviation = torch.tensor(MEAN), torch.tensor(DEVIATION)
        self.register_buffer("shift", mean.view(3, 1, 1), persistent=False)
        self.register_buffer("spread", deviation.view(3, 1, 1), persistent=False)

    def compile(self) -> None:
        """Compiles each kind of block once; layers share the code, as their weights are arguments."""
        self.blocks = {name: torch.compile(block, dynamic=False) for name, block in self.blocks.items()}

    def see(self, pixels: Tensor, dtype: torch.dtype) -> Tensor:
        """Vision features (rows, 1 + patches, width) of uint8 pictures (rows, y, x, 3)."""
        x = (pixels.permute(0, 3, 1, 2).float() / 255 - self.shift) / self.spread
        tower = self.matcher.vision_model
        at = tower.embeddings
        patches = F.conv2d(
            x.to(dtype), at.patch_embedding.weight.to(dtype), at.patch_embedding.bias.to(dtype), stride=8
        )
        patches = patches.flatten(2).transpose(1, 2)
        first = at.class_embedding.to(dtype).expand(len(patches), -1, -1)
        x = torch.cat([first, patches], 1) + at.position_embedding.to(dtype)
        for layer in tower.encoder.layers:
            attention = layer.self_attn
            weights = _parameters(
                layer.layer_norm1, attention.qkv, attention.projection, layer.layer_norm2, layer.mlp.fc1, layer.mlp.fc2
            )
            x = self.blocks["vision"](x, self.vision_heads, *weights)
        norm = tower.post_layernorm
        return F.layer_norm(x, (x.shape[-1],), norm.weight.to(dtype), norm.bias.to(dtype), 1e-6)

    def keys(self, network: Any, seen: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Keys and values of every cross-attention, each (pictures, heads, embeddings, part)."""
        found = []
        for layer in network.encoder.layer:
            at = layer.crossattention.self
            shape = (*seen.shape[:2], self.text_heads, -1)
            k, v = (
                F.linear(seen, part.weight.to(seen.dtype), part.bias.to(seen.dtype)).view(shape).transpose(1, 2)
                for part in (at.key, at.value)
            )
            found.append((k, v))
        return found

    def embed(self, network: Any, ids: Tensor, dtype: torch.dtype) -> Tensor:
        """Embeddings of tokens, (rows, tokens, width)."""
        at = network.embeddings
        x = at.word_embeddings.weight[ids] + at.position_embeddings.weight[: ids.shape[1]]
        return F.layer_norm(x, (x.shape[-1],), at.LayerNorm.weight, at.LayerNorm.bias, 1e-6).to(dtype)

    def layer(self, layer: Any, x: Tensor, mask: Tensor | None, keys: tuple[Tensor, Tensor] | None) -> Tensor:
        """One text block; no cross-attention without keys."""
        x = self.attend(layer, x, mask)
        if keys is not None:
            at = layer.crossattention
            weights = _parameters(at.self.query, at.output.dense, at.output.LayerNorm)
            x = self.blocks["cross"](x, *keys, self.text_heads, *weights)
        return self.feed(layer, x)

    def attend(self, layer: Any, x: Tensor, mask: Tensor | None) -> Tensor:
        """The self-attention of a text block."""
        at = layer.attention
        weights = _parameters(at.self.query, at.self.key, at.self.value, at.output.dense, at.output.LayerNorm)
        return self.blocks["self"](x, mask, self.text_heads, *weights)

    def feed(self, layer: Any, x: Tensor) -> Tensor:
        """The feed-forward part of a text block."""
        weights = _parameters(layer.intermediate.dense, layer.output.dense, layer.output.LayerNorm)
        return self.blocks["feed"](x, *weights)

    def read(
        self, network: Any, ids: Tensor, seen: Sequence[tuple[Tensor, Tensor]] | None, dtype: torch.dtype
    ) -> Tensor:
        """Last hidden states of texts (rows, tokens), looking both ways."""
        mask = (ids != PAD)[:, None, None, :].expand(-1, 1, ids.shape[1], -1)
        x = self.embed(network, ids, dtype)
        for place, layer in enumerate(network.encoder.layer):
            x = self.layer(layer, x, mask, seen[place] if seen is not None else None)
        return x

    def write(self, ids: Tensor, seen: Sequence[tuple[Tensor, Tensor]], dtype: torch.dtype) -> Tensor:
        """Logits of the next token after each, (rows, tokens, vocabulary)."""
        network = self.captioner.text_decoder.bert
        x = self.embed(network, ids, dtype)
        for place, layer in enumerate(network.encoder.layer):
            x = self.layer(layer, x, None, seen[place])
        head = self.captioner.text_decoder.cls.predictions
        norm = head.transform.LayerNorm
        x = F.gelu(F.linear(x, head.transform.dense.weight.to(dtype), head.transform.dense.bias.to(dtype)))
        x = F.layer_norm(x, (x.shape[-1],), norm.weight.to(dtype), norm.bias.to(dtype), 1e-6)
        return F.linear(x, network.embeddings.word_embeddings.weight.to(dtype), head.decoder.bias.to(dtype))

    def relevance(self, ids: Tensor, seen: Tensor) -> Tensor:
        """GradCAM of one text a picture at ``BLOCK``, (rows, patches), the mean over all tokens; no gradient flows."""
        network, dtype = self.matcher.text_encoder, seen.dtype
        with torch.no_grad():
            keys = [(k.detach(), v.detach()) for k, v in self.keys(network, seen)]
            mask = (ids != PAD)[:, None, None, :].expand(-1, 1, ids.shape[1], -1)
            x = self.embed(network, ids, dtype)
            for place in range(BLOCK):
                x = self.layer(network.encoder.layer[place], x, mask, keys[place])
            layer = network.encoder.layer[BLOCK]
            x = self.attend(layer, x, mask)
            at = layer.crossattention
            q = F.linear(x, at.self.query.weight.to(dtype), at.self.query.bias.to(dtype))
            q = q.view(*ids.shape, self.text_heads, -1).transpose(1, 2)
            k, v = keys[BLOCK]
            chances = (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5).float().softmax(-1).to(dtype)
        chances.requires_grad_(True)
        with torch.enable_grad():
            y = (chances @ v).transpose(1, 2).flatten(2)
            y = F.linear(y, at.output.dense.weight.detach().to(dtype), at.output.dense.bias.detach().to(dtype))
            norm = at.output.LayerNorm
            y = F.layer_norm(x + y, (y.shape[-1],), norm.weight.detach().to(dtype), norm.bias.detach().to(dtype), 1e-6)
            y = self.feed(layer, y)
            for place in range(BLOCK + 1, TEXT_LAYERS):
                y = self.layer(network.encoder.layer[place], y, mask, keys[place])
            head = self.matcher.itm_head
            match = (y[:, 0].float() @ head.weight[1].detach()).sum()
            (slope,) = torch.autograd.grad(match, chances)
        cam = (chances.detach().float() * slope.float().clamp(min=0))[..., 1:].mean(1)
        present = (ids != PAD).float()[:, :, None]
        total: Tensor = (cam * present).sum(1)
        return total / present.sum(1)
