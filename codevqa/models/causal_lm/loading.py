"""Loads a causal language model and its tokenizer; whatever is wrong is one typed error.

Llama's layers (on a GPU, and on a CPU in float32 or eight bits) and tokenizers that ``tokenizer.json`` says all of are
loaded without transformers.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from ...core.errors import ModelNotFoundError, SetupError
from ..library_errors import quiet, while_loading
from ..weights import fill, hub_folder, load_network, move_network, place_for, read_json, read_weights, unknown
from .int8_linear import available, quantise
from .network import LlamaConfig, LlamaNetwork
from .work import FolderTokenizer, Tokenizer, TransformersTokenizer

_log = logging.getLogger(__name__)
_POINTER = b"version https://git-lfs"
_SMALL = (".jinja", ".json", ".model", ".txt")


def load_causal_lm(
    model: str | os.PathLike[str], device: str | None, dtype: str | None, *, whole: bool = False
) -> tuple[Any, Tokenizer, str]:
    """Returns a network on its device, its tokenizer, and the name it goes by.

    Args:
        model: a folder, or a model id of the hub.
        device: where it runs; None takes a GPU if there is one.
        dtype: name of a torch dtype, or ``int8`` for linear layers in eight bits on a CPU; None takes bfloat16 on a GPU
            and float32 elsewhere.
        whole: whether transformers computes it whatever it is.

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
    if not local:
        with while_loading(lambda why: _unloadable(str(model), why)):
            folder = hub_folder(str(model))
    _refuse_pointers(folder)
    source = str(folder) if local else str(model)
    on_gpu = place.type == "cuda"
    ours = (on_gpu or (place.type == "cpu" and (eight or number is torch.float32))) and not whole
    network = _own_network(source, folder, number) if ours else None
    if network is None:
        if ours and on_gpu:
            _log.warning("%s is decoded by generate: layers of its type are not among ours.", source)
        from transformers import AutoModelForCausalLM

        network = load_network(AutoModelForCausalLM, "the language model", source, place, number, folder)
    tokenizer = _tokenizer(source, folder)
    if eight:
        quantise(network)
    return move_network(network, place, source), tokenizer, folder.resolve().name if local else str(model)


def _own_network(source: str, folder: Path, dtype: torch.dtype) -> LlamaNetwork | None:
    """Returns the network where it is of Llama's layers."""
    with while_loading(lambda why: _unloadable(source, why)):
        settings = read_json(folder / "config.json")
        config = LlamaConfig.of(settings)
        if config is None:
            return None
        network = LlamaNetwork(config)
        weights = network.complete(read_weights(folder))
        wrong = fill(network, weights, dtype)
        more = unknown(network, weights)
        own = folder / "generation_config.json"
        ends = read_json(own) if own.is_file() else settings
    if wrong:
        raise ModelNotFoundError(f"The language model {source} is not complete: {wrong}.")
    if more:  # as of more layers than its configuration says
        raise _unloadable(source, f"config.json has no place for {len(more)} of its weights, e.g. {more[0]}")
    network.share()
    network.generation_config = SimpleNamespace(
        eos_token_id=ends.get("eos_token_id"), pad_token_id=ends.get("pad_token_id")
    )
    return network.requires_grad_(False)


def _tokenizer(source: str, folder: Path) -> Tokenizer:
    with while_loading(lambda why: _no_tokenizer(source, why)):
        own = FolderTokenizer.of(folder)
        if own is not None:
            return own
        from transformers import AutoTokenizer

        with quiet():
            tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    # Some classes load without any file, and know special tokens alone.
    if set(tokenizer.get_vocab().values()) <= set(tokenizer.all_special_ids):
        raise _no_tokenizer(source, "it has no vocabulary")
    return TransformersTokenizer(tokenizer)


def _unloadable(source: str, reason: str) -> ModelNotFoundError:
    return ModelNotFoundError(f"Cannot load the language model {source}: {reason}.")


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
