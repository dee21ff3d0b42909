"""Tiny random detectors (Grounding DINO, OWLv2) and contrastive models (CLIP, SigLIP), written to disk as any other."""

import json
from pathlib import Path
from typing import Any

import torch
import transformers as hf
from tiny import WORDS
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.grounding_dino.image_processing_pil_grounding_dino import GroundingDinoImageProcessorPil
from transformers.models.owlv2.image_processing_pil_owlv2 import Owlv2ImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

SIDE = 64
SMALL = 32
_COMMON = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
_SEEN = {"image_size": SMALL, "patch_size": 8, **_COMMON}


def write_grounding_dino(folder: Path, seed: int = 0) -> str:
    """Writes a random Grounding DINO (width 64, 16 queries) and returns its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    seen = {"image_size": SIDE, "embed_dim": 16, "depths": [1] * 4, "num_heads": [2] * 4, "window_size": 4}
    layers = {"layers": 2, "ffn_dim": 64, "attention_heads": 4}
    config = hf.GroundingDinoConfig(
        backbone_config=hf.SwinConfig(**seen, out_features=["stage2", "stage3", "stage4"]),
        text_config={"model_type": "bert", "vocab_size": len(WORDS), "max_position_embeddings": 64, **_COMMON},
        d_model=64,  # GroupNorm wants more than one channel in each of 32
        **{f"{part}_{name}": number for part in ("encoder", "decoder") for name, number in layers.items()},
        num_queries=16,
        num_feature_levels=4,
        max_text_len=32,
    )
    save_wide(hf.GroundingDinoForObjectDetection(config), folder, seed)
    tokenizer = hf.BertTokenizer(vocab=str(folder / "vocab.txt"), model_max_length=64)
    pictures = GroundingDinoImageProcessorPil(size={"shortest_edge": SIDE // 2, "longest_edge": SIDE})
    hf.GroundingDinoProcessor(pictures, tokenizer).save_pretrained(folder)
    return str(folder)


def write_owlv2(folder: Path, seed: int = 0) -> str:
    """Writes a random OWLv2 (width 32, 8 x 8 patches) and returns its folder."""
    tokenizer = write_clip_tokenizer(folder)
    text = {"vocab_size": len(tokenizer), "max_position_embeddings": 16, **_COMMON}
    text |= {"bos_token_id": 1, "eos_token_id": len(tokenizer) - 1, "pad_token_id": 0}
    config = hf.Owlv2Config(
        text_config=text, vision_config={"image_size": SIDE, "patch_size": 8, **_COMMON}, projection_dim=32
    )
    save_wide(hf.Owlv2ForObjectDetection(config), folder, seed)
    pictures = Owlv2ImageProcessorPil(size={"height": SIDE, "width": SIDE})
    hf.Owlv2Processor(pictures, tokenizer).save_pretrained(folder)
    return str(folder)


def write_clip_tokenizer(folder: Path) -> Any:
    """Writes a tokenizer of CLIP's kind that knows letters and three words, and returns it."""
    folder.mkdir(parents=True, exist_ok=True)
    words = [f"{word}</w>" for word in (*"abcdefghijklmnopqrstuvwxyz", "cat", "dog", "of")]
    vocabulary = ["!", "<|startoftext|>", *"abcdefghijklmnopqrstuvwxyz", "ca", "do", *words, "<|endoftext|>"]
    (folder / "vocab.json").write_text(json.dumps({word: place for place, word in enumerate(vocabulary)}))
    (folder / "merges.txt").write_text("#version: 0.2\nc a\nca t</w>\nd o\ndo g</w>\no f</w>\n")
    return hf.CLIPTokenizerFast.from_pretrained(folder, model_max_length=16)


def save_wide(network: Any, folder: Path, seed: int) -> None:
    """Saves a network with random weights."""
    # Drawn wide, so that scores and boxes differ from place to place.
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in network.named_parameters():
            if "norm" not in name.lower() and weight.dim() > 1:
                weight.copy_(torch.randn(weight.shape, generator=generator) * 0.2)
    network.save_pretrained(folder)


def write_clip(folder: Path, seed: int = 0) -> str:
    """Writes a random CLIP, whose texts have 16 tokens at most, and returns its folder."""
    tokenizer = write_clip_tokenizer(folder)
    ends = len(tokenizer) - 1
    text = {"vocab_size": len(tokenizer), "max_position_embeddings": 16, **_COMMON}
    text |= {"bos_token_id": 1, "eos_token_id": ends}
    save_wide(hf.CLIPModel(hf.CLIPConfig(text_config=text, vision_config=_SEEN, projection_dim=32)), folder, seed)
    pictures = CLIPImageProcessorPil(size={"shortest_edge": SMALL}, crop_size={"height": SMALL, "width": SMALL})
    hf.CLIPProcessor(pictures, tokenizer).save_pretrained(folder)
    return str(folder)


def write_siglip(folder: Path, seed: int = 0) -> str:
    """Writes a random SigLIP with a tokenizer as SigLIP 2's, and returns its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    words = {
        word: place for place, word in enumerate(["<pad>", "<eos>", "<bos>", "<unk>", *"▁abcdefghijklmnopqrstuvwxyz"])
    }
    tokenizer = hf.GemmaTokenizer(vocab=words, merges=[], add_bos_token=False, add_eos_token=True, model_max_length=64)
    text = {"vocab_size": len(words), "max_position_embeddings": 64, **_COMMON}
    save_wide(hf.SiglipModel(hf.SiglipConfig(text_config=text, vision_config=_SEEN)), folder, seed)
    pictures: Any = SiglipImageProcessorPil(size={"height": SMALL, "width": SMALL})
    hf.SiglipProcessor(pictures, tokenizer).save_pretrained(folder)
    return str(folder)
