"""Tiny random CLIP and SigLIP checkpoints, written to disk as any other: pictures of 32 pixels a side, width 32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tiny_detector import save_wide, write_clip_tokenizer
from transformers import (
    CLIPConfig,
    CLIPModel,
    CLIPProcessor,
    GemmaTokenizer,
    SiglipConfig,
    SiglipModel,
    SiglipProcessor,
)
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

SIDE = 32
_COMMON = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
_SEEN = {"image_size": SIDE, "patch_size": 8, **_COMMON}


def write_clip(folder: Path, seed: int = 0) -> str:
    """Writes a random CLIP, whose texts have 16 tokens at most, and returns its folder."""
    tokenizer = write_clip_tokenizer(folder)
    ends = len(tokenizer) - 1
    text = {"vocab_size": len(tokenizer), "max_position_embeddings": 16, **_COMMON}
    text |= {"bos_token_id": 1, "eos_token_id": ends}
    save_wide(CLIPModel(CLIPConfig(text_config=text, vision_config=_SEEN, projection_dim=32)), folder, seed)
    pictures = CLIPImageProcessorPil(size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE})
    CLIPProcessor(pictures, tokenizer).save_pretrained(folder)
    return str(folder)


def write_siglip(folder: Path, seed: int = 0) -> str:
    """Writes a random SigLIP with a tokenizer as SigLIP 2's, and returns its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    words = {
        word: place for place, word in enumerate(["<pad>", "<eos>", "<bos>", "<unk>", *"▁abcdefghijklmnopqrstuvwxyz"])
    }
    tokenizer = GemmaTokenizer(vocab=words, merges=[], add_bos_token=False, add_eos_token=True, model_max_length=64)
    text = {"vocab_size": len(words), "max_position_embeddings": 64, **_COMMON}
    save_wide(SiglipModel(SiglipConfig(text_config=text, vision_config=_SEEN)), folder, seed)
    pictures: Any = SiglipImageProcessorPil(size={"height": SIDE, "width": SIDE})
    SiglipProcessor(pictures, tokenizer).save_pretrained(folder)
    return str(folder)
