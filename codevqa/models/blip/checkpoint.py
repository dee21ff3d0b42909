"""Loading a BLIP checkpoint from a folder or the hub: network, tokenizer and picture settings, or one clear line.

What the hub's BLIP checkpoints and folders written by ``save_pretrained`` do differently is settled here: precision on
disk, whether the tokenizer knows [DEC] and [ENC], and whether picture settings are there.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, TypeAlias

import torch
from huggingface_hub.errors import StrictDataclassError
from huggingface_hub.utils.tqdm import enable_progress_bars
from safetensors import SafetensorError
from transformers import BertTokenizer
from transformers.configuration_utils import PretrainedConfig
from transformers.models.blip.image_processing_pil_blip import BlipImageProcessorPil
from transformers.utils import logging as transformers_logging

from ...core.errors import ModelError, ModelNotFoundError, SetupError
from ..library_errors import first_line

DType: TypeAlias = "torch.dtype | str | None"

_WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
_quiet_guard = threading.RLock()


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

    def upload(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns a tensor of the CPU, where the network is; a GPU may still be busy copying it."""
        return tensor if self.device.type == "cpu" else tensor.pin_memory().to(self.device, non_blocking=True)


def load_checkpoint(name: str, architecture: type[Any], *, device: str | None, dtype: DType) -> Checkpoint:
    """Loads a BLIP checkpoint from a folder or from the hub, quietly, ready for inference.

    Args:
        name: A folder holding configuration, weights and tokenizer, or a hub id.
        architecture: Transformers' class of the network.
        device: "cpu", "cuda" (or "cuda:1"...), None for a GPU where there is one.
        dtype: Precision of the weights, whatever they are on disk; None for float32 on the CPU, bfloat16 on a GPU.

    Raises:
        ModelNotFoundError: the folder, its weights or the hub's copy cannot be had.
        SetupError: what is there is not such a network, or the device does not exist.
    """
    place = _device(device)
    precision = _dtype(dtype, place)
    source = str(Path(name).expanduser()) if name.startswith("~") else name
    with quiet(), _load_errors(name):
        _check_folder(name)
        settings, _ = PretrainedConfig.get_config_dict(source)
        if settings.get("model_type") != "blip":
            raise SetupError(
                f"{name} is a {settings.get('model_type', 'nameless')!r} network, not BLIP.",
                hint="Give a BLIP checkpoint, such as Salesforce/blip-itm-base-coco.",
            )
        model, report = architecture.from_pretrained(
            source, dtype=precision, output_loading_info=True, ignore_mismatched_sizes=True
        )
        _check_weights(name, architecture.__name__, report)
        grid = _grid(name, model.config.vision_config)
        tokenizer = BertTokenizer.from_pretrained(source)
        processor = _image_processor(source, int(model.config.vision_config.image_size))
    dec_id, enc_id = _opening_tokens(name, tokenizer, model)
    model.requires_grad_(False)
    model.to(place).eval()
    return Checkpoint(name, model, tokenizer, processor, place, precision, grid, dec_id, enc_id)


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
        raise ModelNotFoundError(f"{name} is a file.", hint="Give the folder that holds config.json and the weights.")
    elif name.startswith((".", "/", "~")) or name.count("/") != 1:
        raise ModelNotFoundError(f"No folder at {name}.", hint="Give a folder, or a hub id such as owner/name.")


@contextlib.contextmanager
def _load_errors(name: str) -> Iterator[None]:
    """Turns what loading can raise into one line each."""
    try:
        yield
    except (SetupError, ModelError):
        raise
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, StrictDataclassError, UnpicklingError) as error:
        reason = first_line(error)
        if Path(name).expanduser().is_dir():
            raise SetupError(f"Cannot load {name}: {reason}.", hint="Is the folder whole? Save it again.") from error
        raise ModelNotFoundError(
            f"Cannot fetch {name}: {reason}.", hint="Connect to the network, or give a local folder."
        ) from error
    except Exception as error:
        # Damaged files: safetensors raises a class straight under Exception, tokenizers a plain Exception.
        if not isinstance(error, SafetensorError) and type(error) is not Exception:
            raise
        raise SetupError(f"Cannot read {name}: {first_line(error)}.", hint="Fetch it again.") from error


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silences transformers' load report and its bars, not those of downloads.

    What the report would tell is checked, and raises.
    """
    with _quiet_guard:
        verbosity = transformers_logging.get_verbosity()
        bars = transformers_logging.is_progress_bar_enabled()
        transformers_logging.set_verbosity_error()
        transformers_logging.disable_progress_bar()  # which hides downloads too, and those can take long
        enable_progress_bars()
        try:
            yield
        finally:
            transformers_logging.set_verbosity(verbosity)
            if bars:
                transformers_logging.enable_progress_bar()


def _grid(name: str, config: Any) -> int:
    size, patch = config.image_size, config.patch_size
    if not isinstance(size, int) or not isinstance(patch, int) or size < patch:
        raise SetupError(f"{name} has pictures of size {size} in patches of {patch}.", hint="Only squares are handled.")
    return size // patch


def _image_processor(source: str, size: int) -> Any:
    # The class without torchvision; a folder without picture settings gets BLIP's own (square, bicubic, CLIP's mean).
    square = {"height": size, "width": size}
    try:
        return BlipImageProcessorPil.from_pretrained(source, size=square)
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
