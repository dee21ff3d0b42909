"""Small random BLIP checkpoints in the form in which LAVIS saves them, with all that only training needs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal

import torch
from tiny import WORDS
from transformers import BlipConfig, BlipForConditionalGeneration, BlipForImageTextRetrieval

GRID = 4

_NAMES = (
    (r"^vision_model\.embeddings\.class_embedding$", "visual_encoder.cls_token"),
    (r"^vision_model\.embeddings\.position_embedding$", "visual_encoder.pos_embed"),
    (r"^vision_model\.embeddings\.patch_embedding\.", "visual_encoder.patch_embed.proj."),
    (r"^vision_model\.post_layernorm\.", "visual_encoder.norm."),
    (r"^vision_model\.encoder\.layers\.(\d+)\.self_attn\.projection\.", r"visual_encoder.blocks.\1.attn.proj."),
    (r"^vision_model\.encoder\.layers\.(\d+)\.self_attn\.", r"visual_encoder.blocks.\1.attn."),
    (r"^vision_model\.encoder\.layers\.(\d+)\.layer_norm([12])\.", r"visual_encoder.blocks.\1.norm\2."),
    (r"^vision_model\.encoder\.layers\.(\d+)\.", r"visual_encoder.blocks.\1."),
)


def lavis_weights(kind: Literal["matcher", "captioner"], *, width: int = 48, seed: int = 0) -> dict[str, torch.Tensor]:
    """Returns a network's weights under LAVIS's names: one block of vision, two of text."""
    config = BlipConfig(
        text_config={
            "vocab_size": len(WORDS) + 2,
            "hidden_size": 48,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 12,
            "max_position_embeddings": 40,
        },
        vision_config={
            "hidden_size": width,
            "intermediate_size": 64,
            "num_hidden_layers": 1,
            "num_attention_heads": 1,
            "image_size": 8 * GRID,
            "patch_size": 8,
        },
        image_text_hidden_size=16,
    )
    torch.manual_seed(seed)
    model = (BlipForImageTextRetrieval if kind == "matcher" else BlipForConditionalGeneration)(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" not in name.lower():
                parameter.copy_(torch.randn(parameter.shape) * 0.1)
    weights = {}
    for name, weight in model.state_dict().items():
        for pattern, replacement in _NAMES:
            name = re.sub(pattern, replacement, name)
        weights[name] = weight
    return weights


def save_lavis(
    path: Path, kind: Literal["matcher", "captioner"] = "matcher", *, width: int = 48, seed: int = 0
) -> dict[str, torch.Tensor]:
    """Writes what LAVIS's runner writes, and returns the network's own weights."""
    weights = lavis_weights(kind, width=width, seed=seed)
    momentum = {re.sub(r"^(\w+?)\.", r"\1_m.", name): weight for name, weight in weights.items() if "." in name}
    queues = {"image_queue": torch.zeros(16, 4), "text_queue": torch.zeros(16, 4), "temp": torch.tensor(0.07)}
    queues |= {"queue_ptr": torch.zeros(1, dtype=torch.long), "ptr_queue": torch.zeros(1, dtype=torch.long)}
    state: dict[str, Any] = {"model": weights | (momentum | queues if kind == "matcher" else {})}
    state |= {"optimizer": {"state": {}, "param_groups": [{"lr": 1e-5}]}, "config": {"run": {"seed": 42}}, "epoch": 5}
    torch.save(state, path)
    return weights


def write_vocabulary(path: Path) -> Path:
    path.write_text("\n".join(WORDS) + "\n")
    return path
