"""Small random BLIP checkpoints in the form in which LAVIS saves them, with all that only training needs."""

import re
from pathlib import Path
from typing import Any, Literal

import torch
from tiny import WORDS, blip_network

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
    sizes = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 12}
    vision = {"hidden_size": width, "num_hidden_layers": 1, "num_attention_heads": 1}
    model = blip_network(kind, sizes, vision, seed=seed)
    weights: dict[str, torch.Tensor] = {}
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
