"""Turns a BLIP checkpoint of LAVIS into a folder that transformers, and so the BLIP back end here, loads.

The two name the same weights differently and nothing else: no weight is reshaped or split.

Usage::

    convert_lavis("model_large_retrieval_coco_train2014.pth", None, "blip-itm")
"""

from __future__ import annotations

import re
import shutil
import tempfile
import zipfile
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Literal

import torch
from huggingface_hub import hf_hub_download
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
from ..web_checkpoint import WebCheckpoint
from .quiet import quiet

_VOCABULARY = ("google-bert/bert-base-uncased", "86b5e0934494bd15c9632b12f734a8a67f723594")
"""Repository of the hub, and its revision, whose vocabulary LAVIS takes."""

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


# What the weights of other networks begin with.
_OTHERS: tuple[tuple[frozenset[str], str], ...] = (
    (frozenset({"Qformer"}), "BLIP-2"),
    (frozenset({"shared"}), "T5"),
    (frozenset({"logit_scale"}), "CLIP"),
    (frozenset({"text_encoder", "text_decoder"}), "a BLIP that was only pre-trained, or that answers questions"),
)


def convert_lavis(
    weights: str | Path, vocabulary: str | Path | None, folder: str | Path, *, heads: int | None = None
) -> Literal["matcher", "captioner"]:
    """Writes a transformers folder from a LAVIS checkpoint: configuration, weights, tokenizer, picture settings.

    Sizes are read off the weights. A checkpoint with an ITM head becomes a matcher, one with a decoder a captioner;
    returns which.

    Args:
        weights: A ``.safetensors`` file, or a ``.pth`` as LAVIS saves it (the state dict, or one under "model").
        vocabulary: BERT's ``vocab.txt``; [DEC] and [ENC] are added to it in LAVIS's order. None takes the one that
            LAVIS takes, from the hub.
        folder: Where to write; there must be nothing yet.
        heads: Attention heads of the vision tower, which the weights do not tell; None takes 16 for a width of 1024
            (ViT-L) and 12 for any other, as LAVIS does. The text transformer of every BLIP has 12.

    Raises:
        ModelNotFoundError: a file is not there.
        SetupError: the weights are not those of a BLIP matcher or captioner, or there is no room for the folder.
    """
    out = Path(folder)
    for path in (Path(weights), Path(vocabulary or weights)):
        if not path.is_file():
            raise ModelNotFoundError(f"No file at {path}.", hint="Give the checkpoint, and BERT's vocab.txt if any.")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise SetupError(f"There is something at {folder} already.", hint="Give a folder that does not exist yet.")
    state = rename_lavis(_read(Path(weights)))
    text = "text_decoder.bert" if "text_decoder.bert.embeddings.word_embeddings.weight" in state else "text_encoder"
    architecture = BlipForConditionalGeneration if text == "text_decoder.bert" else BlipForImageTextRetrieval
    _refuse_others(weights, state, text)
    tokenizer = BertTokenizer(vocab=str(vocabulary or _bert_vocabulary()))
    tokenizer.add_special_tokens({"bos_token": "[DEC]", "additional_special_tokens": ["[ENC]"]})
    try:
        config = _config(state, text, heads, tokenizer)
        model = architecture(config)
        _refuse_shapes(weights, state, model.state_dict())
        missing, unexpected = model.load_state_dict(state, strict=False)
    except (IndexError, KeyError, RuntimeError, ValueError) as error:
        raise SetupError(f"{weights} is not a BLIP checkpoint of LAVIS: {first_line(error)}.") from error
    if missing or unexpected:
        raise SetupError(
            f"{weights} is not a BLIP matcher or captioner of LAVIS: {len(missing)} weights missing, "
            f"{len(unexpected)} unknown (first: {(missing + unexpected)[0]})."
        )
    if len(tokenizer) != config.text_config.vocab_size:
        raise SetupError(
            f"{weights} knows {config.text_config.vocab_size} tokens, the vocabulary {len(tokenizer)}, [DEC] and [ENC] "
            "included.",
            hint="Give the vocab.txt it was trained with.",
        )
    _write(out, model, tokenizer, config.vision_config.image_size)
    return "captioner" if text == "text_decoder.bert" else "matcher"


def convert_web(checkpoint: WebCheckpoint) -> Path:
    """Returns the folder made of a LAVIS checkpoint on the web, which is fetched and converted once.

    Raises:
        ModelNotFoundError: it, or BERT's vocabulary, cannot be had.
        SetupError: it is not the file that it has to be, not a BLIP matcher or captioner, or there is no room for it.
    """
    if checkpoint.made is not None:
        return checkpoint.made
    with checkpoint.lock():
        if checkpoint.made is None:  # another process may have been quicker
            file = checkpoint.fetch()
            shutil.rmtree(checkpoint.model, ignore_errors=True)  # made of another version of the file
            convert_lavis(file, None, checkpoint.model)
            checkpoint.note_made()
    return checkpoint.model


def _refuse_others(weights: str | Path, state: dict[str, torch.Tensor], text: str) -> None:
    begins = {name.partition(".")[0] for name in state}
    for parts, kind in _OTHERS:
        if parts <= begins:
            raise SetupError(
                f"{weights} is {kind}, not a BLIP matcher or captioner of LAVIS.",
                hint="The names of matchers say retrieval or itm, those of captioners caption.",
            )
    for name in (f"{text}.embeddings.word_embeddings.weight", "vision_model.embeddings.patch_embedding.weight"):
        if name not in state:
            raise SetupError(f"{weights} is not a BLIP checkpoint of LAVIS: it has no {name}.")


def _refuse_shapes(weights: str | Path, state: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> None:
    for name in state.keys() & wanted.keys():
        if state[name].shape != wanted[name].shape:
            found, right = (tuple(one[name].shape) for one in (state, wanted))
            raise SetupError(f"{weights} is not a BLIP checkpoint of LAVIS: {name} has shape {found}, not {right}.")


def _bert_vocabulary() -> str:
    repository, revision = _VOCABULARY
    try:
        return hf_hub_download(repository, "vocab.txt", revision=revision)
    except OSError as error:
        raise ModelNotFoundError(
            f"Cannot fetch the vocabulary of {repository}: {first_line(error)}.",
            hint="Connect to the network, or convert the file with codevqa convert --vocabulary vocab.txt.",
        ) from None


def _write(out: Path, model: Any, tokenizer: Any, size: int) -> None:
    """Writes the folder beside its place first, so that it is whole where it is found."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-") as place:
            whole = Path(place) / "model"
            with quiet():
                model.save_pretrained(whole)
            tokenizer.save_pretrained(whole)
            BlipImageProcessorPil(size={"height": size, "width": size}).save_pretrained(whole)
            if out.is_dir():
                out.rmdir()
            whole.rename(out)
    except (OSError, SafetensorError) as error:
        raise SetupError(f"Cannot write {out}: {first_line(error)}.", hint="Make room there.") from None


def _read(path: Path) -> dict[str, torch.Tensor]:
    try:
        if path.suffix == ".safetensors":
            return dict(load_file(path))
        # Mapped, what only training needs is never read; torch can map its zip files alone.
        state: Any = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except (LookupError, AttributeError, TypeError):  # what the reader of pickles says of a text
        raise SetupError(f"{path} is not a file of weights.", hint="Give a checkpoint as LAVIS saves it.") from None
    except (UnpicklingError, SafetensorError, RuntimeError, OSError, ValueError, EOFError) as error:
        raise SetupError(f"Cannot read {path}: {first_line(error)}.", hint="Fetch it again.") from error
    if isinstance(state, dict) and "model" in state:
        state = state["model"]
    if not isinstance(state, dict) or not all(isinstance(one, torch.Tensor) for one in state.values()):
        raise SetupError(f"{path} holds no weights by name.")
    return state


def _config(state: dict[str, torch.Tensor], text: str, heads: int | None, tokenizer: Any) -> Any:
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
            "num_attention_heads": heads or (16 if patches.shape[0] == 1024 else 12),
            "image_size": round(positions**0.5) * patches.shape[2],
            "patch_size": patches.shape[2],
            "layer_norm_eps": 1e-6,
        },
        image_text_hidden_size=state["vision_proj.weight"].shape[0] if matching else 256,
    )


def _blocks(state: dict[str, torch.Tensor], prefix: str) -> int:
    return 1 + max(int(name[len(prefix) :].partition(".")[0]) for name in state if name.startswith(prefix))
