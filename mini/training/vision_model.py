"""The two mini BLIP networks, and their weights on disk.

``BlipForImageTextRetrieval`` (ITM, ITC) and ``BlipForConditionalGeneration`` share one vision tower while they are
trained.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_model, save_model
from torch import Tensor, nn
from transformers import BertTokenizer, BlipConfig, BlipForConditionalGeneration, BlipForImageTextRetrieval
from transformers.models.blip.image_processing_pil_blip import BlipImageProcessorPil

from codevqa.mini.world import CANVAS

from .vision_words import DEC, PAD, SEP, all_tokens

WIDTH = 192
BLOCK = 2
"""The text block that GradCAM reads."""
PARTS = ("matcher", "captioner")
FILE = "weights.safetensors"


def blip_config() -> BlipConfig:
    """Sizes of both networks: 5.2 million parameters each."""
    text = {
        "vocab_size": len(all_tokens()),
        "hidden_size": WIDTH,
        "encoder_hidden_size": WIDTH,
        "intermediate_size": 640,
        "num_hidden_layers": 4,
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
        "image_size": CANVAS,
        "patch_size": 8,
        "projection_dim": 128,
        "layer_norm_eps": 1e-6,
        "initializer_range": 0.02,
    }
    return BlipConfig(text_config=text, vision_config=vision, image_text_hidden_size=128, projection_dim=128)


class Pair(nn.Module):
    """Matcher and captioner over one vision tower, with what contrast needs besides."""

    mean: Tensor
    deviation: Tensor

    def __init__(self) -> None:
        super().__init__()
        config = blip_config()
        self.matcher: Any = BlipForImageTextRetrieval(config)
        self.captioner: Any = BlipForConditionalGeneration(config)
        self.captioner.vision_model = self.matcher.vision_model
        self.scale = nn.Parameter(torch.tensor(2.7))
        processor = BlipImageProcessorPil()
        for name, values in (("mean", processor.image_mean), ("deviation", processor.image_std)):
            self.register_buffer(name, torch.tensor(values).view(3, 1, 1), persistent=False)

    def see(self, pixels: Tensor) -> Tensor:
        """Vision features (rows, 1 + patches, width) of uint8 pictures (rows, y, x, 3)."""
        values = (pixels.permute(0, 3, 1, 2).float() / 255 - self.mean) / self.deviation
        features: Tensor = self.matcher.vision_model(pixel_values=values).last_hidden_state
        return features

    def read(self, ids: Tensor, seen: Tensor | None) -> Tensor:
        """Last hidden states of the matcher's texts, (rows, tokens, width); ``seen`` has a row for each text."""
        hidden: Tensor = self.matcher.text_encoder(
            input_ids=ids, attention_mask=(ids != PAD).long(), encoder_hidden_states=seen
        ).last_hidden_state
        return hidden

    def write(self, ids: Tensor, seen: Tensor) -> Tensor:
        """The captioner's logits of the next token after each, (rows, tokens, vocabulary)."""
        logits: Tensor = self.captioner.text_decoder(input_ids=ids, encoder_hidden_states=seen, use_cache=False).logits
        return logits

    def relevance(self, ids: Tensor, seen: Tensor) -> Tensor:
        """GradCAM of one text a picture at ``BLOCK``, (rows, patches), the mean over all tokens; no gradient flows."""
        kept: list[Tensor] = []
        dropout = self.matcher.text_encoder.encoder.layer[BLOCK].crossattention.self.dropout
        handle = dropout.register_forward_pre_hook(lambda _, inputs: kept.append(inputs[0]))
        hidden = self.read(ids, seen.detach())
        handle.remove()
        (slope,) = torch.autograd.grad(self.matcher.itm_head(hidden[:, 0])[:, 1].sum(), kept[0])
        cam = (kept[0].detach() * slope.clamp(min=0)).float()[..., 1:].mean(1)
        present = (ids != PAD).float()[:, :, None]
        total: Tensor = (cam * present).sum(1)
        return total / present.sum(1)


def save_pair(pair: Pair, folder: Path) -> None:
    """Writes both networks for a run that goes on from here."""
    folder.mkdir(parents=True, exist_ok=True)
    save_model(pair, str(folder / FILE))


def restore(folder: Path) -> Pair:
    """Reads what ``save_pair`` wrote."""
    pair = Pair()
    load_model(pair, folder / FILE)
    return pair


def export_pair(pair: Pair, folder: Path) -> None:
    """Writes both networks as the package reads them: half precision, tokenizer and picture settings beside them."""
    tokenizer = BertTokenizer(
        vocab={word: place for place, word in enumerate(all_tokens())}, do_lower_case=True, bos_token="[DEC]"
    )
    tokenizer.add_special_tokens({"additional_special_tokens": ["[ENC]"]})
    tokenizer.model_max_length = 48
    for name, network in zip(PARTS, (pair.matcher, pair.captioner), strict=True):
        for part in (network.half(), tokenizer, BlipImageProcessorPil(size={"height": CANVAS, "width": CANVAS})):
            part.save_pretrained(folder / name)
        (folder / name / "model.safetensors").chmod(0o644)
