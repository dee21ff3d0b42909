"""Loading a BLIP checkpoint: network, tokenizer and picture settings, or one clear line.

It is a folder in the hub's format, a name on the hub (``owner/name``, or ``owner/name@revision``), or the address of a
file of LAVIS, which is made such a folder once. What these do differently is settled here: precision on disk, whether
the tokenizer knows [DEC] and [ENC], whether picture settings are there, and LayerNorm's epsilon.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ...core.errors import ModelNotFoundError, SetupError
from ..library_errors import while_loading
from ..web_checkpoint import WebCheckpoint
from ..weights import WEIGHTS, DType, fill, hub_folder, place_for, precision_text, read_json, read_weights
from .network import BlipNetwork, Kind
from .picture_input import PictureSettings
from .tokens import WordPieces


@dataclass(frozen=True)
class Checkpoint:
    """A loaded network with what is needed to feed it."""

    name: str
    model: Any
    tokenizer: WordPieces
    pictures: PictureSettings
    device: torch.device
    dtype: torch.dtype
    grid: int
    """Patches along each side."""
    dec_id: int
    """Token that opens a caption, ``[DEC]``."""
    enc_id: int
    """Token that opens a text compared with a picture, ``[ENC]``."""

    @property
    def computes(self) -> str:
        """Precision and device, such as ``float32 on cpu``."""
        return precision_text(self.dtype, self.device)

    def upload(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns a tensor of the CPU, where the network is; a GPU may still be busy copying it."""
        return tensor if self.device.type == "cpu" else tensor.pin_memory().to(self.device, non_blocking=True)


def load_checkpoint(source: str | os.PathLike[str], kind: Kind, *, device: str | None, dtype: DType) -> Checkpoint:
    """Loads a BLIP checkpoint, ready for inference.

    Args:
        source: A folder holding configuration, weights and tokenizer, a hub id, or the address of a LAVIS file.
        kind: What it has to be.
        device: "cpu", "cuda" (or "cuda:1"...), None for a GPU where there is one.
        dtype: Precision of the weights, whatever they are on disk; None for float32 on the CPU, bfloat16 on a GPU.

    Raises:
        ModelNotFoundError: the folder, its weights or the hub's copy cannot be had.
        SetupError: what is there is not such a network, or the device does not exist.
    """
    name = os.fspath(source)
    place, precision = place_for(device, dtype)
    folder = _folder(name)
    with while_loading(
        lambda why: SetupError(f"Cannot load {name}: {why}.", hint="Is the folder whole? Fetch it again.")
    ):
        settings = read_json(folder / "config.json")
        if settings.get("model_type") != "blip":
            raise SetupError(
                f"{name} is a {settings.get('model_type', 'nameless')!r} network, not BLIP.",
                hint="Give a BLIP checkpoint, such as Salesforce/blip-itm-base-coco.",
            )
        if re.search(r"(^|models--)Salesforce(/|--)blip-", name):  # a name on the hub, or where that is kept
            # Uploaded with the default of transformers written into them, 1e-5; LAVIS has 1e-6 in the vision tower.
            settings["vision_config"] = {**settings.get("vision_config", {}), "layer_norm_eps": 1e-6}
        model = BlipNetwork(name, kind, settings)
        if wrong := fill(model, model.complete(read_weights(folder)), precision):
            raise SetupError(
                f"{name} is not a whole BLIP {kind}: {wrong}.",
                hint="Matching needs a blip-itm checkpoint, captions a blip-image-captioning one.",
            )
        vision = model.config.vision_config
        if vision.image_size < vision.patch_size:
            raise SetupError(f"{name} has pictures of size {vision.image_size} in patches of {vision.patch_size}.")
        tokenizer = WordPieces(folder)
        pictures = PictureSettings.read(folder, vision.image_size)
        model.requires_grad_(False)
        model.to(place).eval()
    dec_id, enc_id = _opening_tokens(name, tokenizer, model.config.text_config.vocab_size)
    grid = vision.image_size // vision.patch_size
    return Checkpoint(name, model, tokenizer, pictures, place, precision, grid, dec_id, enc_id)


def _folder(name: str) -> Path:
    """Returns the folder to load: as it is, fetched from the hub, or made of a file on the web."""
    if WebCheckpoint.is_address(name):
        from .lavis_names import convert_web

        return convert_web(WebCheckpoint.at(name))
    pinned = re.fullmatch(r"(\w[\w.-]*/[\w.-]+)@(\S+)", name)
    if pinned is None or Path(name).exists():
        _check_folder(name)
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder

    def fetch_error(why: str) -> ModelNotFoundError:
        return ModelNotFoundError(
            f"Cannot fetch {name}: {why}.", hint="Connect to the network, or give a local folder."
        )

    with while_loading(fetch_error):
        return hub_folder(*pinned.groups()) if pinned else hub_folder(name)


def _check_folder(name: str) -> None:
    if not name.strip():
        raise ModelNotFoundError("No BLIP checkpoint was named.", hint="Give a folder or a hub id.")
    folder = Path(name).expanduser()
    if folder.is_dir():
        for kind in (("config.json",), WEIGHTS, ("tokenizer.json", "vocab.txt")):
            if not any((folder / file).is_file() for file in kind):
                hint = "Give a folder written by save_pretrained."
                raise ModelNotFoundError(f"{name} holds no {kind[0]}.", hint=hint)
    elif folder.exists():
        hint = "Make a folder of it: codevqa convert FILE OUT." if folder.suffix == ".pth" else "Give its folder."
        raise ModelNotFoundError(f"{name} is a file, not a folder with config.json and weights.", hint=hint)
    elif name.startswith((".", "/", "~")) or name.count("/") != 1:
        raise ModelNotFoundError(f"No folder at {name}.", hint="Give a folder, or a hub id such as owner/name.")


def _opening_tokens(name: str, tokenizer: WordPieces, rows: int) -> tuple[int, int]:
    """Ids of [DEC] and [ENC]: from the tokenizer, else the two ids after its vocabulary, in the order LAVIS adds them.

    The hub's BLIP tokenizers hold BERT's 30522 pieces alone, while the embedding matrix has rows 30522 and 30523.
    """
    vocabulary = tokenizer.vocabulary
    pieces = len(vocabulary)
    if "[DEC]" not in vocabulary and "[ENC]" not in vocabulary:
        dec_id, enc_id = pieces, pieces + 1
    else:
        dec_id, enc_id = vocabulary.get("[DEC]", pieces), vocabulary.get("[ENC]", pieces)
    if max(dec_id, enc_id) >= rows or pieces > rows:
        raise SetupError(
            f"{name} has {rows} token embeddings, too few for {pieces} pieces with [DEC] and [ENC].",
            hint="Tokenizer and weights are not of one checkpoint.",
        )
    return dec_id, enc_id
