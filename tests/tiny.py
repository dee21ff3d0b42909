"""Tiny random BLIP checkpoints, written to disk as any other: networks the tests load with from_pretrained."""

import re
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image as PILImage
from safetensors.torch import load_file, save_file
from transformers import BertTokenizer, BlipConfig, BlipForConditionalGeneration, BlipForImageTextRetrieval
from transformers.models.blip.image_processing_pil_blip import BlipImageProcessorPil

from codevqa.core.images import Picture, load_picture

_VOCABULARY = """
[PAD] [UNK] [CLS] [SEP] [MASK] a the is of to left right above below in on picture image red green blue yellow black
white small large dog cat bench car tree man woman ball star circle square what color there any are two three ? . , ##s
##ing park water
"""
WORDS = _VOCABULARY.split()

BLOCKS = 3
GRID = 4


def blip_network(kind: Literal["matcher", "captioner"], text: Any, vision: Any, *, seed: int) -> Any:
    """Returns a random network of these sizes, with weights drawn wide, so that attention is not flat."""
    words = {"vocab_size": len(WORDS) + 2, "intermediate_size": 64, "max_position_embeddings": 40}
    picture = {"intermediate_size": 64, "image_size": 8 * GRID, "patch_size": 8}
    config = BlipConfig(text_config=words | text, vision_config=picture | vision, image_text_hidden_size=16)
    model = (BlipForImageTextRetrieval if kind == "matcher" else BlipForConditionalGeneration)(config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" not in name.lower():
                weight.copy_(torch.randn(weight.shape, generator=generator) * (0.3 if weight.dim() > 1 else 0.1))
    return model


def write_blip(
    folder: Path,
    kind: Literal["matcher", "captioner"],
    *,
    seed: int = 0,
    special_tokens: bool = True,
    dtype: torch.dtype = torch.float32,
    ends: float = 0.0,
) -> str:
    """Writes a random network (width 32, 3 blocks, 4 x 4 patches of 8 pixels) and returns its folder.

    Without ``special_tokens`` the tokenizer lacks [DEC] and
    [ENC] while the embeddings have their rows, as with the hub's checkpoints. ``ends`` makes [SEP] likelier, so that
    captions end at many lengths.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    tokenizer = BertTokenizer(vocab=str(folder / "vocab.txt"))
    if special_tokens:
        tokenizer.add_special_tokens({"bos_token": "[DEC]", "additional_special_tokens": ["[ENC]"]})
    tokens = {"bos_token_id": len(WORDS), "eos_token_id": tokenizer.sep_token_id}
    tokens |= {"sep_token_id": tokenizer.sep_token_id, "pad_token_id": tokenizer.pad_token_id}
    text = {"hidden_size": 32, "num_hidden_layers": BLOCKS, "num_attention_heads": 4}
    vision = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    model = blip_network(kind, {**text, **tokens}, vision, seed=seed)
    with torch.no_grad():
        if kind == "captioner":
            model.text_decoder.cls.predictions.bias[WORDS.index("[SEP]")] += ends
    model.to(dtype).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    BlipImageProcessorPil(size={"height": 8 * GRID, "width": 8 * GRID}).save_pretrained(folder)
    return str(folder)


def noise_picture(seed: int, width: int = 40, height: int = 30) -> Picture:
    """Returns a picture of coarse random colour blocks."""
    blocks = np.random.default_rng(seed).integers(0, 256, (4, 5, 3), dtype=np.uint8)
    return load_picture(PILImage.fromarray(blocks).resize((width, height), PILImage.Resampling.NEAREST))


def lose_a_weight(folder: Path) -> None:
    kept = load_file(folder / "model.safetensors")
    save_file({name: kept[name] for name in sorted(kept)[:-1]}, folder / "model.safetensors", {"format": "pt"})


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
