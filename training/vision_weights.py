"""Weights of the mini vision models on disk: checkpoints between runs, and the folders that the package reads."""

from __future__ import annotations

from pathlib import Path

from safetensors.torch import load_model, save_model

from .vision_data import GRID
from .vision_model import Pair
from .vision_words import words, write_vocabulary

PARTS = ("matcher", "captioner")
FILE = "weights.safetensors"


def save(pair: Pair, folder: Path) -> None:
    """Writes both networks in half precision with the vision tower once: a file under 16 MB."""
    folder.mkdir(parents=True, exist_ok=True)
    half = Pair().half()
    half.load_state_dict(pair.state_dict())
    save_model(half, str(folder / FILE))


def restore(pair: Pair, folder: Path) -> None:
    """Reads what ``save`` wrote.

    Raises:
        SystemExit: the folder holds no weights.
        RuntimeError: they are of other networks.
    """
    if not (folder / FILE).is_file():
        raise SystemExit(f"There are no weights at {folder / FILE}. Name a folder that a run wrote.")
    load_model(pair, folder / FILE)


def export(pair: Pair, folder: Path) -> None:
    """Writes both networks as the package reads them: half precision, tokenizer and picture settings beside them."""
    from transformers import BertTokenizer
    from transformers.models.blip.image_processing_pil_blip import BlipImageProcessorPil

    for name, network in zip(PARTS, (pair.matcher, pair.captioner), strict=True):
        place = folder / name
        place.mkdir(parents=True, exist_ok=True)
        network.half().save_pretrained(place)
        (place / "model.safetensors").chmod(0o644)
        vocabulary = place / "vocab.txt"
        write_vocabulary(vocabulary)
        tokenizer = BertTokenizer(vocab=str(vocabulary), do_lower_case=True, bos_token="[DEC]")
        tokenizer.add_special_tokens({"additional_special_tokens": ["[ENC]"]})
        tokenizer.model_max_length = 48
        if len(tokenizer) != len(words()):
            raise SystemExit(f"the tokenizer has {len(tokenizer)} tokens, the vocabulary {len(words())}")
        tokenizer.save_pretrained(place)
        vocabulary.unlink()  # tokenizer.json holds it
        BlipImageProcessorPil(size={"height": 8 * GRID, "width": 8 * GRID}).save_pretrained(place)
