"""Turns a BLIP checkpoint of LAVIS into a folder that transformers, and so the BLIP back end here, loads.

The two name the same weights differently and nothing else: no weight is reshaped or split.

Usage::

    convert_lavis("model_base_retrieval_coco.pth", "vocab.txt", "blip-itm", heads=12)
"""

from __future__ import annotations

import re
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from transformers import (
    BertTokenizer,
    BlipConfig,
    BlipForConditionalGeneration,
    BlipForImageTextRetrieval,
)
from transformers.models.blip.image_processing_pil_blip import BlipImageProcessorPil

from ...core.errors import ModelNotFoundError, SetupError
from ..library_errors import first_line
from .checkpoint import quiet

_RULES = (
    (r"^visual_encoder\.", "vision_model."),
    (r"^vision_model\.cls_token$", "vision_model.embeddings.class_embedding"),
    (r"^vision_model\.pos_embed$", "vision_model.embeddings.position_embedding"),
    (r"^vision_model\.patch_embed\.proj\.", "vision_model.embeddings.patch_embedding."),
    (r"^vision_model\.norm\.", "vision_model.post_layernorm."),
    (r"^vision_model\.blocks\.(\d+)\.attn\.proj\.", r"vision_model.encoder.layers.\1.self_attn.projection."),
    (r"^vision_model\.blocks\.(\d+)\.attn\.", r"vision_model.encoder.layers.\1.self_attn."),
    (r"^vision_model\.blocks\.(\d+)\.norm([12])\.", r"vision_model.encoder.layers.\1.layer_norm\2."),
    (r"^vision_model\.blocks\.(\d+)\.", r"vision_model.encoder.layers.\1."),
)

# Momentum copies and queues of pre-training, the contrastive temperature, and a buffer.
_TRAINING_ONLY = re.compile(
    r"^(\w+_m\.|(\w+_)?queue(_ptr)?$|(idx|ptr)_queue$|temp$|text_encoder\.pooler\.)|embeddings\.position_ids$"
)


def rename_lavis(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Returns the weights under transformers' names, without those that only training needs."""
    renamed = {}
    for name, weight in weights.items():
        if _TRAINING_ONLY.search(name):
            continue
        for pattern, replacement in _RULES:
            name = re.sub(pattern, replacement, name)
        renamed[name] = weight
    return renamed


def convert_lavis(weights: str | Path, vocabulary: str | Path, folder: str | Path, *, heads: int = 12) -> None:
    """Writes a transformers folder from a LAVIS checkpoint: configuration, weights, tokenizer, picture settings.

    Sizes are read off the weights. A checkpoint with an ITM head becomes a matcher, one with a decoder a captioner.

    Args:
        weights: A ``.safetensors`` file, or a ``.pth`` as LAVIS saves it (the state dict, or one under "model").
        vocabulary: BERT's ``vocab.txt``; [DEC] and [ENC] are added to it in LAVIS's order.
        folder: Where to write; made when missing.
        heads: Attention heads of the vision tower, which the weights do not tell: 12 in ViT-B, 16 in ViT-L. The text
            transformer of every BLIP has 12.

    Raises:
        ModelNotFoundError: a file is not there.
        SetupError: the weights are not those of a BLIP matcher or captioner.
    """
    for path in (Path(weights), Path(vocabulary)):
        if not path.is_file():
            raise ModelNotFoundError(f"No file at {path}.", hint="Give the checkpoint and BERT's vocab.txt.")
    state = rename_lavis(_read(Path(weights)))
    text = "text_decoder.bert" if "text_decoder.bert.embeddings.word_embeddings.weight" in state else "text_encoder"
    architecture = BlipForConditionalGeneration if text == "text_decoder.bert" else BlipForImageTextRetrieval
    tokenizer = BertTokenizer(vocab=str(vocabulary))
    tokenizer.add_special_tokens({"bos_token": "[DEC]", "additional_special_tokens": ["[ENC]"]})
    try:
        config = _config(state, text, heads, tokenizer)
        model = architecture(config)
        missing, unexpected = model.load_state_dict(state, strict=False)
    except (KeyError, RuntimeError, ValueError) as error:
        raise SetupError(f"{weights} is not a BLIP checkpoint of LAVIS: {first_line(error)}.") from error
    if missing or unexpected:
        raise SetupError(
            f"{weights} is not a BLIP matcher or captioner of LAVIS: {len(missing)} weights missing, "
            f"{len(unexpected)} unknown (first: {(missing + unexpected)[0]})."
        )
    size = config.vision_config.image_size
    with quiet():
        model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    BlipImageProcessorPil(size={"height": size, "width": size}).save_pretrained(folder)


def _read(path: Path) -> dict[str, torch.Tensor]:
    try:
        if path.suffix == ".safetensors":
            return dict(load_file(path))
        state: Any = torch.load(path, map_location="cpu", weights_only=True)
    except (UnpicklingError, SafetensorError, RuntimeError, OSError, ValueError, EOFError) as error:
        raise SetupError(f"Cannot read {path}: {first_line(error)}.", hint="Fetch it again.") from error
    if isinstance(state, dict) and "model" in state:
        state = state["model"]
    if not isinstance(state, dict):
        raise SetupError(f"{path} holds no weights by name.")
    return state


def _config(state: dict[str, torch.Tensor], text: str, heads: int, tokenizer: Any) -> Any:
    words = state[f"{text}.embeddings.word_embeddings.weight"]
    positions = state["vision_model.embeddings.position_embedding"].shape[1] - 1
    patches = state["vision_model.embeddings.patch_embedding.weight"]
    first = "vision_model.encoder.layers.0"
    matching = "vision_proj.weight" in state
    return BlipConfig(
        text_config={
            "vocab_size": words.shape[0],
            "hidden_size": words.shape[1],
            "intermediate_size": state[f"{text}.encoder.layer.0.intermediate.dense.weight"].shape[0],
            "num_hidden_layers": _blocks(state, f"{text}.encoder.layer."),
            "num_attention_heads": 12,
            "max_position_embeddings": state[f"{text}.embeddings.position_embeddings.weight"].shape[0],
            "bos_token_id": tokenizer.convert_tokens_to_ids("[DEC]"),
            "eos_token_id": tokenizer.sep_token_id,
            "sep_token_id": tokenizer.sep_token_id,
            "pad_token_id": tokenizer.pad_token_id,
        },
        vision_config={
            "hidden_size": patches.shape[0],
            "intermediate_size": state[f"{first}.mlp.fc1.weight"].shape[0],
            "num_hidden_layers": _blocks(state, "vision_model.encoder.layers."),
            "num_attention_heads": heads,
            "image_size": round(positions**0.5) * patches.shape[2],
            "patch_size": patches.shape[2],
            "layer_norm_eps": 1e-6,
        },
        image_text_hidden_size=state["vision_proj.weight"].shape[0] if matching else 256,
    )


def _blocks(state: dict[str, torch.Tensor], prefix: str) -> int:
    return 1 + max(int(name[len(prefix) :].partition(".")[0]) for name in state if name.startswith(prefix))
