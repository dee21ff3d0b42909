"""BLIP's networks: layers without forward passes of their own, under the names that checkpoints give to weights.

The vision encoder, the text encoder and the caption network compute with them. Modules of transformers have the same
names and would do as well.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Literal

import torch
from torch import nn
from torch.nn import functional

from ...core.errors import SetupError
from ..weights import Embedding, LayerNorm, Linear, parameter

_COMMON = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "hidden_act": "gelu"}
_TEXT = {"vocab_size": 30524, "num_attention_heads": 8, "max_position_embeddings": 512, "layer_norm_eps": 1e-12}
_VISION = {"num_attention_heads": 12, "image_size": 384, "patch_size": 16, "layer_norm_eps": 1e-5}
"""Values that a configuration may leave out."""

Kind = Literal["matcher", "captioner"]


class _Gelu(nn.Module):
    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return functional.gelu(states)


class _Perceptron(nn.Module):
    """A vision block's two wide layers."""

    def __init__(self, width: int, wide: int) -> None:
        super().__init__()
        self.fc1, self.fc2 = Linear(width, wide), Linear(wide, width)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.fc2(functional.gelu(self.fc1(states)))
        return output


class _VisionAttention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.num_heads, self.scale = heads, (width // heads) ** -0.5
        self.qkv, self.projection = Linear(width, 3 * width), Linear(width, width)


class _VisionEmbeddings(nn.Module):
    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        width, side = config.hidden_size, config.patch_size
        self.class_embedding = parameter(1, 1, width)
        self.position_embedding = parameter(1, 1 + (config.image_size // side) ** 2, width)
        self.patch_embedding = nn.Module()
        self.patch_embedding.weight, self.patch_embedding.bias = parameter(width, 3, side, side), parameter(width)


class _VisionTower(nn.Module):
    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.config = config
        width, eps = config.hidden_size, config.layer_norm_eps
        self.embeddings = _VisionEmbeddings(config)
        blocks = [
            nn.ModuleDict(
                {
                    "self_attn": _VisionAttention(width, config.num_attention_heads),
                    "layer_norm1": LayerNorm(width, eps),
                    "mlp": _Perceptron(width, config.intermediate_size),
                    "layer_norm2": LayerNorm(width, eps),
                }
            )
            for _ in range(config.num_hidden_layers)
        ]
        self.encoder = nn.ModuleDict({"layers": nn.ModuleList(blocks)})
        self.post_layernorm = LayerNorm(width, eps)


class _TextEmbeddings(nn.Module):
    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.word_embeddings = Embedding(config.vocab_size, config.hidden_size)
        self.position_embeddings = Embedding(config.max_position_embeddings, config.hidden_size)
        self.LayerNorm = LayerNorm(config.hidden_size, config.layer_norm_eps)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        embedded: torch.Tensor = self.word_embeddings(input_ids)
        embedded = embedded + self.position_embeddings.weight[: input_ids.shape[1]]
        normed: torch.Tensor = self.LayerNorm(embedded)
        return normed


class _TextTransformer(nn.Module):
    """A matcher's text encoder, or what a captioner's decoder has beside its head."""

    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.config = config
        self.embeddings = _TextEmbeddings(config)
        blocks = [_text_block(config) for _ in range(config.num_hidden_layers)]
        self.encoder = nn.ModuleDict({"layer": nn.ModuleList(blocks)})


def _text_block(config: SimpleNamespace) -> nn.Module:
    width, wide, seen = config.hidden_size, config.intermediate_size, config.encoder_hidden_size

    def ending(inputs: int) -> nn.Module:
        return nn.ModuleDict({"dense": Linear(inputs, width), "LayerNorm": LayerNorm(width, config.layer_norm_eps)})

    def attention(inputs: int) -> nn.Module:
        own = nn.ModuleDict(
            {"query": Linear(width, width), "key": Linear(inputs, width), "value": Linear(inputs, width)}
        )
        return nn.ModuleDict({"self": own, "output": ending(width)})

    return nn.ModuleDict(
        {
            "attention": attention(width),
            "crossattention": attention(seen),
            "intermediate": nn.ModuleDict({"dense": Linear(width, wide), "intermediate_act_fn": _Gelu()}),
            "output": ending(wide),
        }
    )


class _CaptionHead(nn.Module):
    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        width = config.hidden_size
        self.transform = nn.Module()
        self.transform.dense = Linear(width, width)
        self.transform.LayerNorm = LayerNorm(width, config.layer_norm_eps)
        self.decoder = Linear(width, config.vocab_size)


class _CaptionLayers(nn.Module):
    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.config = config
        self.bert = _TextTransformer(config)
        self.cls = nn.ModuleDict({"predictions": _CaptionHead(config)})


class BlipNetwork(nn.Module):
    """A matcher's or a captioner's layers, which wait for their weights.

    Args:
        name: the checkpoint's, for errors.
        kind: what it is.
        settings: of its ``config.json``.

    Raises:
        SetupError: the configuration is not one of BLIP.
    """

    def __init__(self, name: str, kind: Kind, settings: dict[str, Any]) -> None:
        super().__init__()
        vision = _read_config(name, settings, "vision_config", _VISION)
        text = _read_config(name, settings, "text_config", _TEXT)
        text.encoder_hidden_size = vision.hidden_size
        self.config = SimpleNamespace(vision_config=vision, text_config=text)
        self.vision_model = _VisionTower(vision)
        if kind == "captioner":
            self.text_decoder = _CaptionLayers(text)
            self.tied = bool(settings.get("tie_word_embeddings", True))
            return
        self.tied = False
        self.text_encoder = _TextTransformer(text)
        shared = _check_option(name, {"image_text_hidden_size": 256, **settings}, "image_text_hidden_size")
        self.itm_head = Linear(text.hidden_size, 2)
        self.vision_proj, self.text_proj = Linear(vision.hidden_size, shared), Linear(text.hidden_size, shared)

    def complete(self, weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Returns weights with those that a checkpoint leaves out because others are the same."""
        head, words = "text_decoder.cls.predictions", "text_decoder.bert.embeddings.word_embeddings.weight"
        more = {}
        if f"{head}.bias" in weights:
            more[f"{head}.decoder.bias"] = weights[f"{head}.bias"]
        if words in weights and self.tied:
            more[f"{head}.decoder.weight"] = weights[words]
        return weights | more


def _read_config(name: str, settings: dict[str, Any], part: str, defaults: dict[str, Any]) -> SimpleNamespace:
    section = settings.get(part) or {}
    if not isinstance(section, dict):
        raise SetupError(f"{name} has no {part} in its config.json.", hint="Save it again.")
    config = {**_COMMON, **defaults, **section}
    for option in defaults.keys() | _COMMON.keys() - {"hidden_act"}:
        if option not in ("layer_norm_eps", "hidden_act"):
            _check_option(name, config, option)
    if config["hidden_size"] % config["num_attention_heads"]:
        raise SetupError(f"{name} cannot divide a hidden_size of {config['hidden_size']} among its heads.")
    if config["hidden_act"] != "gelu":
        raise SetupError(f"{name} has the activation {config['hidden_act']!r}; BLIP's is gelu.")
    return SimpleNamespace(**config)


def _check_option(name: str, config: dict[str, Any], option: str) -> int:
    size = config[option]
    if type(size) is not int or size < 1:
        raise SetupError(f"{name} has {option} {size!r} in its config.json; it must be a whole number above 0.")
    return size
