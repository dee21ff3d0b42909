"""Weights of the mini vision models on disk: checkpoints between runs, and the folders that the package reads.

A run may go on from either. Where the vocabulary has grown since, everything sized by it is matched word by word: rows
of words known before are kept, new words start as in a fresh network.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from safetensors.torch import load_file, save_file
from torch import Tensor

from .vision_data import GRID
from .vision_model import Pair
from .vision_words import words, write_vocabulary

VOCABULARY = "vocab.txt"
"""The tokens of a checkpoint, one a line, in the order of their ids."""
CONTRAST_SCALE = 3.4
"""Logarithm of contrast's scale near which trained networks lie; the package's folders do not hold it."""
_WORDY = ("word_embeddings.weight", "predictions.bias", "predictions.decoder.bias", "predictions.decoder.weight")
"""Ends of the names of tensors whose first axis is the vocabulary."""


def save(pair: Pair, folder: Path) -> None:
    """Writes both networks in half precision with the vision tower once, in files under 16 MB."""
    folder.mkdir(parents=True, exist_ok=True)
    state = {name: tensor.detach().half().cpu().contiguous() for name, tensor in pair.state_dict().items()}
    state = {name: tensor for name, tensor in state.items() if not _repeated(name)}
    save_file(
        {name: tensor for name, tensor in state.items() if "captioner" not in name}, folder / "matcher.safetensors"
    )
    save_file({name: tensor for name, tensor in state.items() if "captioner" in name}, folder / "captioner.safetensors")
    write_vocabulary(folder / VOCABULARY)


def _repeated(name: str) -> bool:
    return name.startswith("captioner.vision_model.") or name.endswith("predictions.decoder.weight")


def restore(pair: Pair, folder: Path) -> None:
    """Reads what ``save`` or ``export`` wrote, matching words where the vocabulary has changed.

    Raises:
        SystemExit: the folder holds no weights, or those of other sizes.
    """
    state, known = _exported(folder) if (folder / "matcher").is_dir() else _checkpoint(folder)
    own = pair.state_dict()
    unexpected = sorted(state.keys() - own.keys())
    # Tied tensors need be there once; contrast's scale is not part of what the package reads.
    tied = {tensor.data_ptr(): name for name, tensor in own.items() if name in state}
    missing = [
        name for name, tensor in own.items() if name not in state and tensor.data_ptr() not in tied and name != "scale"
    ]
    if missing or unexpected:
        raise SystemExit(f"{folder} does not fit: missing {missing[:3]}, unexpected {unexpected[:3]}")
    fitted = {name: _fitted(folder, name, tensor.float(), own[name], known) for name, tensor in state.items()}
    pair.load_state_dict({"scale": own["scale"].new_tensor(CONTRAST_SCALE)} | fitted, strict=False)


def _fitted(folder: Path, name: str, tensor: Tensor, own: Tensor, known: Sequence[str] | None) -> Tensor:
    """The tensor as this network needs it: its rows of words in the places that they have now."""
    if name.endswith(_WORDY) and known is not None:
        if len(known) != len(tensor):
            raise SystemExit(f"{folder} does not fit: {len(known)} words, but {len(tensor)} rows in {name}")
        before = {word: place for place, word in enumerate(known)}
        now = words()
        kept = [place for place, word in enumerate(now) if word in before]
        fitted = own.detach().clone().float()
        fitted[kept] = tensor[[before[now[place]] for place in kept]]
        tensor = fitted
    if tensor.shape != own.shape:
        hint = f" and no {VOCABULARY} tells its words" if name.endswith(_WORDY) else ""
        raise SystemExit(f"{folder} does not fit: {name} is {tuple(tensor.shape)} there, {tuple(own.shape)} here{hint}")
    return tensor


def _checkpoint(folder: Path) -> tuple[dict[str, Tensor], list[str] | None]:
    state: dict[str, Tensor] = {}
    for name in ("matcher", "captioner"):
        state |= _read(folder / f"{name}.safetensors")
    vocabulary = folder / VOCABULARY
    return state, vocabulary.read_text(encoding="utf-8").splitlines() if vocabulary.exists() else None


def _exported(folder: Path) -> tuple[dict[str, Tensor], list[str]]:
    state: dict[str, Tensor] = {}
    vocabularies = []
    for name in ("matcher", "captioner"):
        read = _read(folder / name / "model.safetensors")
        state |= {f"{name}.{part}": tensor for part, tensor in read.items()}
        try:
            ids = json.loads((folder / name / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
        except (OSError, ValueError, KeyError) as error:
            raise SystemExit(f"no vocabulary in {folder / name / 'tokenizer.json'}: {error}") from None
        vocabularies.append(sorted(ids, key=ids.__getitem__))
    if vocabularies[0] != vocabularies[1]:
        raise SystemExit(f"{folder} does not fit: matcher and captioner have different vocabularies")
    # The captioner's copy of the vision tower equals the matcher's, which is the one that is trained.
    return {name: tensor for name, tensor in state.items() if not _repeated(name)}, vocabularies[0]


def _read(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise SystemExit(f"no weights at {path}: name a folder that a run or --export wrote")
    tensors: dict[str, Tensor] = load_file(path)
    return tensors


def export(pair: Pair, folder: Path) -> None:
    """Writes both networks as the package reads them: half precision, tokenizer and picture settings beside them."""
    from transformers import BertTokenizer
    from transformers.models.blip.image_processing_pil_blip import BlipImageProcessorPil

    for name, network in (("matcher", pair.matcher), ("captioner", pair.captioner)):
        place = folder / name
        place.mkdir(parents=True, exist_ok=True)
        network.half().save_pretrained(place)
        (place / "model.safetensors").chmod(0o644)
        vocabulary = place / VOCABULARY
        write_vocabulary(vocabulary)
        tokenizer = BertTokenizer(vocab=str(vocabulary), do_lower_case=True, bos_token="[DEC]")
        tokenizer.add_special_tokens({"additional_special_tokens": ["[ENC]"]})
        tokenizer.model_max_length = 48
        if len(tokenizer) != len(words()):
            raise SystemExit(f"the tokenizer has {len(tokenizer)} tokens, the vocabulary {len(words())}")
        tokenizer.save_pretrained(place)
        vocabulary.unlink()  # tokenizer.json holds it
        BlipImageProcessorPil(size={"height": 8 * GRID, "width": 8 * GRID}).save_pretrained(place)
