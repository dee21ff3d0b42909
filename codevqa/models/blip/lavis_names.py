"""Turns a BLIP checkpoint of LAVIS into a folder in the hub's format, which transformers loads as well.

The two name the same weights differently and nothing else: no weight is reshaped or split.

Usage::

    convert_lavis("model_large_retrieval_coco_train2014.pth", None, "blip-itm")
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
import zipfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import hf_hub_download
from safetensors import SafetensorError
from safetensors.torch import save_file

from ...core.errors import ModelNotFoundError, SetupError
from ..library_errors import first_line, while_loading
from ..web_checkpoint import WebCheckpoint
from ..weights import fill, read_tensors, unknown
from .network import BlipNetwork, Kind
from .picture_input import PictureSettings
from .tokens import bert_tokenizer

_VOCABULARY = ("google-bert/bert-base-uncased", "86b5e0934494bd15c9632b12f734a8a67f723594")
"""Repository of the hub, and its revision, whose vocabulary LAVIS takes."""

_TOKENIZER = {
    "tokenizer_class": "BertTokenizer",
    "bos_token": "[DEC]",
    "extra_special_tokens": ["[ENC]"],
    "do_lower_case": True,
}

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


def convert_lavis(weights: str | Path, vocabulary: str | Path | None, folder: str | Path) -> Kind:
    """Writes a folder from a LAVIS checkpoint: configuration, weights, tokenizer, picture settings.

    Sizes are read off the weights. A checkpoint with an ITM head becomes a matcher, one with a decoder a captioner;
    returns which.

    Args:
        weights: A ``.safetensors`` file, or a ``.pth`` as LAVIS saves it (the state dict, or one under "model").
        vocabulary: BERT's ``vocab.txt``; [DEC] and [ENC] are added to it in LAVIS's order. None takes the one that
            LAVIS takes, from the hub.
        folder: Where to write; there must be nothing yet.

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
    state = rename_lavis(_read_checkpoint(Path(weights)))
    text = "text_decoder.bert" if "text_decoder.bert.embeddings.word_embeddings.weight" in state else "text_encoder"
    kind: Kind = "captioner" if text == "text_decoder.bert" else "matcher"
    _refuse_others(weights, state, text)
    try:
        tokenizer = bert_tokenizer(Path(vocabulary or _bert_vocabulary()))
        tokenizer.add_special_tokens(["[DEC]", "[ENC]"])
        config = _checkpoint_config(state, text, tokenizer)
        _refuse_misfits(weights, state, BlipNetwork(str(weights), kind, config))
    except (IndexError, KeyError, RuntimeError, ValueError) as error:
        raise SetupError(f"{weights} is not a BLIP checkpoint of LAVIS: {first_line(error)}.") from error
    known, pieces = config["text_config"]["vocab_size"], tokenizer.get_vocab_size()
    if pieces != known:
        raise SetupError(
            f"{weights} knows {known} tokens, the vocabulary {pieces}, [DEC] and [ENC] included.",
            hint="Give the vocab.txt it was trained with.",
        )
    # A captioner's last layer has the weights of its first one.
    kept = {name: weight.contiguous() for name, weight in state.items() if ".predictions.decoder." not in name}
    _write_folder(out, kept, config, tokenizer)
    return kind


def convert_web(checkpoint: WebCheckpoint) -> Path:
    """Returns the folder made of a LAVIS checkpoint on the web, which is fetched and converted once.

    Raises:
        ModelNotFoundError: it, or BERT's vocabulary, cannot be had.
        SetupError: it is not the file that it has to be, not a BLIP matcher or captioner, or there is no room for it.
    """
    if checkpoint.ready_folder is not None:
        return checkpoint.ready_folder
    with checkpoint.lock():
        if checkpoint.ready_folder is None:  # another process may have been quicker
            file = checkpoint.fetch()
            shutil.rmtree(checkpoint.model, ignore_errors=True)  # made of another version of the file
            convert_lavis(file, None, checkpoint.model)
            checkpoint.note_made()
    return checkpoint.model


def _refuse_others(weights: str | Path, state: dict[str, torch.Tensor], text: str) -> None:
    for name in (f"{text}.embeddings.word_embeddings.weight", "vision_model.embeddings.patch_embedding.weight"):
        if name not in state:
            raise SetupError(
                f"{weights} is not a BLIP matcher or captioner of LAVIS: it has no {name}.",
                hint="The names of matchers say retrieval or itm, those of captioners caption.",
            )


def _refuse_misfits(weights: str | Path, state: dict[str, torch.Tensor], network: BlipNetwork) -> None:
    whole = network.complete(state)
    more = [name for name in unknown(network, whole) if name != "text_decoder.cls.predictions.bias"]
    wrong = fill(network, whole, torch.float32) or (more and f"{len(more)} weights are unknown, e.g. {more[0]}")
    if wrong:
        raise SetupError(f"{weights} is not a BLIP matcher or captioner of LAVIS: {wrong}.")


def _bert_vocabulary() -> str:
    repository, revision = _VOCABULARY
    try:
        return hf_hub_download(repository, "vocab.txt", revision=revision)
    except OSError as error:
        raise ModelNotFoundError(
            f"Cannot fetch the vocabulary of {repository}: {first_line(error)}.",
            hint="Connect to the network, or convert the file with codevqa convert --vocabulary vocab.txt.",
        ) from None


def _write_folder(out: Path, weights: dict[str, torch.Tensor], config: dict[str, Any], tokenizer: Any) -> None:
    """Writes the folder beside its place first, so that it is whole where it is found."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-") as place:
            whole = Path(place) / "model"
            whole.mkdir()
            side = config["vision_config"]["image_size"]
            pictures = asdict(PictureSettings(side)) | {"size": {"height": side, "width": side}}
            pictures |= {"do_resize": True, "image_processor_type": "BlipImageProcessor"}
            files = {"config": config, "tokenizer_config": _TOKENIZER, "preprocessor_config": pictures}
            for name, content in files.items():
                (whole / f"{name}.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
            tokenizer.save(str(whole / "tokenizer.json"))
            save_file(weights, whole / "model.safetensors", {"format": "pt"})
            if out.is_dir():
                out.rmdir()
            whole.rename(out)
    except (OSError, SafetensorError) as error:
        raise SetupError(f"Cannot write {out}: {first_line(error)}.", hint="Make room there.") from None


def _read_checkpoint(path: Path) -> dict[str, torch.Tensor]:
    hint = "Give a checkpoint as LAVIS saves it, or fetch it again."
    with while_loading(lambda why: SetupError(f"Cannot read {path}: {why}.", hint=hint)):
        # Mapped, what only training needs is never read; torch can map its zip files alone.
        return read_tensors(path, mmap=zipfile.is_zipfile(path))


def _checkpoint_config(state: dict[str, torch.Tensor], text: str, tokenizer: Any) -> dict[str, Any]:
    words = state[f"{text}.embeddings.word_embeddings.weight"]
    positions = state["vision_model.embeddings.position_embedding"].shape[1] - 1
    patches = state["vision_model.embeddings.patch_embedding.weight"]
    first = "vision_model.encoder.layers.0"
    matching = "vision_proj.weight" in state
    return {
        "architectures": ["BlipForImageTextRetrieval" if matching else "BlipForConditionalGeneration"],
        "model_type": "blip",
        "text_config": {
            "vocab_size": words.shape[0],
            "hidden_size": words.shape[1],
            "intermediate_size": state[f"{text}.encoder.layer.0.intermediate.dense.weight"].shape[0],
            "num_hidden_layers": _count_blocks(state, f"{text}.encoder.layer."),
            "num_attention_heads": 12,
            "max_position_embeddings": state[f"{text}.embeddings.position_embeddings.weight"].shape[0],
            "bos_token_id": tokenizer.token_to_id("[DEC]"),
            "eos_token_id": tokenizer.token_to_id("[SEP]"),
            "sep_token_id": tokenizer.token_to_id("[SEP]"),
            "pad_token_id": tokenizer.token_to_id("[PAD]"),
        },
        "vision_config": {
            "hidden_size": patches.shape[0],
            "intermediate_size": state[f"{first}.mlp.fc1.weight"].shape[0],
            "num_hidden_layers": _count_blocks(state, "vision_model.encoder.layers."),
            # The weights do not tell: LAVIS has 16 in ViT-L, 12 in others, and 12 in every text transformer.
            "num_attention_heads": 16 if patches.shape[0] == 1024 else 12,
            "image_size": round(positions**0.5) * patches.shape[2],
            "patch_size": patches.shape[2],
            "layer_norm_eps": 1e-6,
        },
        "image_text_hidden_size": state["vision_proj.weight"].shape[0] if matching else 256,
    }


def _count_blocks(state: dict[str, torch.Tensor], prefix: str) -> int:
    return 1 + max(int(name[len(prefix) :].partition(".")[0]) for name in state if name.startswith(prefix))
