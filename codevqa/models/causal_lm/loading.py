"""Loads a causal language model and its tokenizer with transformers; whatever is wrong is one typed error."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from ...core.errors import ModelNotFoundError, SetupError
from ..library_errors import first_line
from .int8_linear import available, quantise

_POINTER = b"version https://git-lfs"
_SMALL = (".jinja", ".json", ".model", ".txt")


def load(model: str | os.PathLike[str], device: str | None, dtype: str | None) -> tuple[Any, Any, str]:
    """Returns a network on its device, its tokenizer, and the name it goes by.

    Args:
        model: a folder, or a model id of the hub.
        device: where it runs; None takes a GPU if there is one.
        dtype: name of a torch dtype, or ``int8`` for linear layers in eight bits on a CPU; None takes bfloat16 on a GPU
            and float32 elsewhere.

    Raises:
        ModelNotFoundError: it is not here, not complete, or not a causal language model.
        SetupError: the device or the dtype does not exist.
    """
    folder = Path(model).expanduser()
    local = folder.is_dir()
    looks_local = isinstance(model, os.PathLike) or model.startswith(("/", ".", "~")) or model.count("/") > 1
    if not local and looks_local:
        raise ModelNotFoundError(f"No model folder at {model}.", hint="Check the path.")
    eight = dtype == "int8"
    place, number = place_for("cpu" if eight and device is None else device, "bfloat16" if eight else dtype)
    if eight and place.type != "cpu":
        raise SetupError(f"int8 is for a CPU, not for {place}.", hint="Use bfloat16 there.")
    if eight and not available():
        raise SetupError("This PyTorch has no products in eight bits for this processor.", hint="Use float32.")
    if local:
        _refuse_pointers(folder)
    source = str(folder) if local else str(model)
    with quiet(progress=not local):
        network, tokenizer = _load(source, number)
        if eight:
            quantise(network)
        try:
            network = network.to(place)
        except (torch.OutOfMemoryError, RuntimeError, AssertionError) as error:
            raise SetupError(f"Cannot move {source} to {place}: {first_line(error)}.") from None
    return network, tokenizer, folder.resolve().name if local else str(model)


def place_for(device: str | None, dtype: str | None) -> tuple[torch.device, torch.dtype]:
    """Returns a device and a precision by their names, as :func:`load` takes them.

    Raises:
        SetupError: there is no such device or precision.
    """
    try:
        place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    except RuntimeError as error:
        raise SetupError(f"Unknown device {device!r}: {first_line(error)}.", hint="Use cpu or cuda.") from None
    if dtype is None:
        return place, torch.bfloat16 if place.type == "cuda" else torch.float32
    number = getattr(torch, dtype, None)
    if not isinstance(number, torch.dtype) or not number.is_floating_point:
        raise SetupError(f"Unknown dtype {dtype!r}.", hint="Use float32, bfloat16, float16 or int8.")
    return place, number


def _load(source: str, dtype: torch.dtype) -> tuple[Any, Any]:
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM, AutoTokenizer

    wrong = (OSError, ValueError, RuntimeError, KeyError, TypeError, ImportError, SafetensorError, UnpicklingError)
    # The model first: where nothing of that name exists, its message says so best.
    try:
        network, report = AutoModelForCausalLM.from_pretrained(
            source, dtype=dtype, trust_remote_code=False, output_loading_info=True, ignore_mismatched_sizes=True
        )
    except wrong as error:
        raise ModelNotFoundError(f"Cannot load the language model {source}: {first_line(error)}.") from None
    try:
        tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
    except wrong as error:
        raise _no_tokenizer(source, first_line(error)) from None
    # Some classes load without any file, and know special tokens alone.
    if set(tokenizer.get_vocab().values()) <= set(tokenizer.all_special_ids):
        raise _no_tokenizer(source, "it has no vocabulary")
    # transformers would go on with random weights in the place of these.
    for kind, keys in (("missing", report["missing_keys"]), ("not of the shape config.json says", _mismatched(report))):
        if keys:
            raise ModelNotFoundError(
                f"The language model {source} is not complete: {len(keys)} weights are {kind}, e.g. {min(keys)}."
            )
    return network, tokenizer


def _no_tokenizer(source: str, reason: str) -> ModelNotFoundError:
    return ModelNotFoundError(
        f"Cannot load the tokenizer of {source}: {reason}.",
        hint="Its tokenizer.json must be there, whole, as it was saved with the model.",
    )


def _refuse_pointers(folder: Path) -> None:
    """Refuses a folder where Git LFS left notes in the place of files that loading reads."""
    weights = list(folder.glob("*.safetensors")) or list(folder.glob("*.bin"))
    for path in sorted([*weights, *(path for path in folder.iterdir() if path.suffix in _SMALL)]):
        if path.is_file():
            with path.open("rb") as opened:
                if opened.read(len(_POINTER)) == _POINTER:
                    raise ModelNotFoundError(
                        f"{path} is a pointer of Git LFS, not the file itself.", hint=f"Run git lfs pull in {folder}."
                    )


def _mismatched(report: Any) -> list[str]:
    # Entries are (name, shape on disk, shape expected).
    return [key if isinstance(key, str) else key[0] for key in report["mismatched_keys"]]


@contextlib.contextmanager
def quiet(*, progress: bool = False) -> Iterator[None]:
    """Keeps transformers' advice off the terminal; with ``progress`` download bars stay."""
    from transformers.utils import logging

    level = logging.get_verbosity()
    bars = logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    if not progress and bars:
        logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if not progress and bars:
            logging.enable_progress_bar()
