"""Loading a BLIP checkpoint: network, tokenizer and picture settings, or one clear line.

It is a folder written by ``save_pretrained``, a name on the hub (``owner/name``, or ``owner/name@revision``), or the
address of a file of LAVIS, which is made such a folder once. What these do differently is settled here: precision on
disk, whether the tokenizer knows [DEC] and [ENC], whether picture settings are there, and LayerNorm's epsilon.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, TypeAlias

import torch
from huggingface_hub import try_to_load_from_cache
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from transformers import BertTokenizer, BlipConfig
from transformers.configuration_utils import PretrainedConfig
from transformers.models.blip.image_processing_pil_blip import BlipImageProcessorPil

from ...core.errors import ModelError, ModelNotFoundError, SetupError
from ..library_errors import first_line
from ..web_checkpoint import WebCheckpoint
from .lavis_names import convert_web
from .quiet import quiet

DType: TypeAlias = "torch.dtype | str | None"

_log = logging.getLogger(__name__)
# In the order in which transformers looks for them.
_WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")


@dataclass(frozen=True)
class Checkpoint:
    """A loaded network with what is needed to feed it."""

    name: str
    model: Any
    tokenizer: Any
    processor: Any
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
        return f"{str(self.dtype).removeprefix('torch.')} on {self.device}"

    def upload(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns a tensor of the CPU, where the network is; a GPU may still be busy copying it."""
        return tensor if self.device.type == "cpu" else tensor.pin_memory().to(self.device, non_blocking=True)


def load_checkpoint(name: str, architecture: type[Any], *, device: str | None, dtype: DType) -> Checkpoint:
    """Loads a BLIP checkpoint quietly, ready for inference.

    Args:
        name: A folder holding configuration, weights and tokenizer, a hub id, or the address of a LAVIS file.
        architecture: Transformers' class of the network.
        device: "cpu", "cuda" (or "cuda:1"...), None for a GPU where there is one.
        dtype: Precision of the weights, whatever they are on disk; None for float32 on the CPU, bfloat16 on a GPU.

    Raises:
        ModelNotFoundError: the folder, its weights or the hub's copy cannot be had.
        SetupError: what is there is not such a network, or the device does not exist.
    """
    place = _device(device)
    precision = _dtype(dtype, place)
    source, revision = _source(name)
    # Where the hub has weights as a pickle only, transformers would ask a service to convert them, in the background.
    os.environ.setdefault("DISABLE_SAFETENSORS_CONVERSION", "1")
    with quiet(), _load_errors(name, source):
        settings, _ = PretrainedConfig.get_config_dict(source, revision=revision)
        if settings.get("model_type") != "blip":
            raise SetupError(
                f"{name} is a {settings.get('model_type', 'nameless')!r} network, not BLIP.",
                hint="Give a BLIP checkpoint, such as Salesforce/blip-itm-base-coco.",
            )
        model, report = architecture.from_pretrained(
            source,
            revision=revision,
            config=_config(source, settings),
            dtype=precision,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
        )
        _tell_of_pickle(source, revision)
        _check_weights(name, architecture.__name__, report)
        grid = _grid(name, model.config.vision_config)
        tokenizer = BertTokenizer.from_pretrained(source, revision=revision)
        processor = _image_processor(source, revision, int(model.config.vision_config.image_size))
    dec_id, enc_id = _opening_tokens(name, tokenizer, model)
    model.requires_grad_(False)
    model.to(place).eval()
    return Checkpoint(name, model, tokenizer, processor, place, precision, grid, dec_id, enc_id)


def _source(name: str) -> tuple[str, str]:
    """Returns the folder or hub id to load, and the revision of the latter."""
    if WebCheckpoint.named(name):
        return str(convert_web(WebCheckpoint.at(name))), "main"
    pinned = re.fullmatch(r"(\w[\w.-]*/[\w.-]+)@(\S+)", name)
    if pinned is not None and not Path(name).exists():
        return pinned[1], pinned[2]
    _check_folder(name)
    return str(Path(name).expanduser()) if name.startswith("~") else name, "main"


def _config(source: str, settings: dict[str, Any]) -> BlipConfig:
    """Returns the configuration, with what LAVIS computed where its own checkpoints say otherwise.

    Those of the hub were uploaded with the default of transformers written into them, 1e-5; LAVIS has 1e-6 in the
    vision tower. Whoever trained one further with transformers did so with the value that is written.
    """
    if re.search(r"(^|models--)Salesforce(/|--)blip-", source):  # a name on the hub, or where that is kept
        settings = {**settings, "vision_config": {**settings.get("vision_config", {}), "layer_norm_eps": 1e-6}}
    config: BlipConfig = BlipConfig.from_dict(settings)
    return config


def _tell_of_pickle(source: str, revision: str) -> None:
    def here(file: str) -> bool:
        if Path(source).is_dir():
            return (Path(source) / file).is_file()
        return isinstance(try_to_load_from_cache(source, file, revision=revision), str)

    if next(filter(here, _WEIGHTS), "").startswith("pytorch_model.bin"):
        _log.info("The weights of %s are a pickle, of which only tensors were read.", source)


def _check_weights(name: str, architecture: str, report: Any) -> None:
    """Refuses what transformers would fill with random weights."""
    missing = sorted(report["missing_keys"])
    if missing:
        raise SetupError(
            f"{name} lacks {len(missing)} weights of {architecture} (first: {missing[0]}).",
            hint="Matching needs a blip-itm checkpoint, captions a blip-image-captioning one.",
        )
    unlike = sorted(report["mismatched_keys"])
    if unlike:
        weight, stored, expected = unlike[0]
        raise SetupError(
            f"{name} has {len(unlike)} weights of other sizes than its config.json says "
            f"(first: {weight}, {tuple(stored)} for {tuple(expected)}).",
            hint="Weights and configuration are not of one checkpoint.",
        )


def _device(device: str | None) -> torch.device:
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        place = torch.device(device)
    except RuntimeError:
        raise SetupError(f"No device is called {device!r}.", hint='Use "cpu" or "cuda".') from None
    if place.type == "cuda" and (place.index or 0) >= torch.cuda.device_count():
        raise SetupError(f"PyTorch sees no {device!r} on this machine.", hint='Use device="cpu".')
    return place


def _dtype(dtype: DType, place: torch.device) -> torch.dtype:
    if dtype is None:
        return torch.float32 if place.type == "cpu" else torch.bfloat16
    found = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise SetupError(f"No precision is called {dtype!r}.", hint='Use "float32" or "bfloat16".')
    return found


def _check_folder(name: str) -> None:
    if not name.strip():
        raise ModelNotFoundError("No BLIP checkpoint was named.", hint="Give a folder or a hub id.")
    folder = Path(name).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise ModelNotFoundError(f"{name} holds no config.json.", hint="Give a folder written by save_pretrained.")
        if not any((folder / file).is_file() for file in _WEIGHTS):
            raise ModelNotFoundError(f"{name} holds no weights.", hint=f"Expected {_WEIGHTS[0]} in it.")
        if not any((folder / file).is_file() for file in ("tokenizer.json", "vocab.txt")):
            raise ModelNotFoundError(f"{name} holds no tokenizer.", hint="Expected tokenizer.json or vocab.txt in it.")
    elif folder.exists():
        hint = "Make a folder of it: codevqa convert FILE OUT." if folder.suffix == ".pth" else "Give its folder."
        raise ModelNotFoundError(f"{name} is a file, not a folder with config.json and weights.", hint=hint)
    elif name.startswith((".", "/", "~")) or name.count("/") != 1:
        raise ModelNotFoundError(f"No folder at {name}.", hint="Give a folder, or a hub id such as owner/name.")


@contextlib.contextmanager
def _load_errors(name: str, source: str) -> Iterator[None]:
    """Turns what loading can raise into one line each."""
    try:
        yield
    except (SetupError, ModelError):
        raise
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, StrictDataclassError, UnpicklingError) as error:
        reason = first_line(error)
        if Path(source).is_dir():
            raise SetupError(f"Cannot load {name}: {reason}.", hint="Is the folder whole? Save it again.") from None
        raise ModelNotFoundError(
            f"Cannot fetch {name}: {reason}.", hint="Connect to the network, or give a local folder."
        ) from None
    except Exception as error:
        # Damaged files: safetensors raises a class straight under Exception, tokenizers a plain Exception.
        if not isinstance(error, SafetensorError) and type(error) is not Exception:
            raise
        raise SetupError(f"Cannot read {name}: {first_line(error)}.", hint="Fetch it again.") from None


def _grid(name: str, config: Any) -> int:
    size, patch = config.image_size, config.patch_size
    if not isinstance(size, int) or not isinstance(patch, int) or size < patch:
        raise SetupError(f"{name} has pictures of size {size} in patches of {patch}.", hint="Only squares are handled.")
    return size // patch


def _image_processor(source: str, revision: str, size: int) -> Any:
    # The class without torchvision; a folder without picture settings gets BLIP's own (square, bicubic, CLIP's mean).
    square = {"height": size, "width": size}
    try:
        return BlipImageProcessorPil.from_pretrained(source, revision=revision, size=square)
    except OSError:
        return BlipImageProcessorPil(size=square)


def _opening_tokens(name: str, tokenizer: Any, model: Any) -> tuple[int, int]:
    """Ids of [DEC] and [ENC]: from the tokenizer, else the two ids after its vocabulary, in the order LAVIS adds them.

    The hub's BLIP tokenizers hold BERT's 30522 pieces alone, while the embedding matrix has rows 30522 and 30523.
    """
    vocabulary = tokenizer.get_vocab()
    rows = model.get_input_embeddings().num_embeddings
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
