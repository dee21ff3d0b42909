"""Checkpoints in the hub's format, read without transformers: JSON, weights, and layers that wait for weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from ..core.errors import ModelNotFoundError, SetupError
from .library_errors import quiet, while_loading

WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
"""Files that say where weights are, in the order in which they are looked for."""

DType: TypeAlias = "torch.dtype | str | None"
"""A precision, or its name; None takes what is usual on the device."""


# Given first values on this device, layers have PyTorch import its compiler: a second at every start.
class Linear(nn.Linear):
    """A linear layer without weights."""

    def __init__(self, inputs: int, outputs: int, bias: bool = True) -> None:
        super().__init__(inputs, outputs, bias=bias, device="meta")

    def reset_parameters(self) -> None:
        """Draws nothing."""


class Embedding(nn.Embedding):
    """An embedding without weights."""

    def __init__(self, count: int, width: int) -> None:
        super().__init__(count, width, device="meta")

    def reset_parameters(self) -> None:
        """Draws nothing."""


class LayerNorm(nn.LayerNorm):
    """A layer norm without weights."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__(width, eps=eps, device="meta")

    def reset_parameters(self) -> None:
        """Sets nothing."""


def parameter(*shape: int) -> nn.Parameter:
    """Returns a weight without numbers."""
    return nn.Parameter(torch.empty(shape, device="meta"), requires_grad=False)


def place_for(device: str | None, dtype: DType) -> tuple[torch.device, torch.dtype]:
    """Returns a device and a precision by their names; None takes a GPU if there is one, bfloat16 there, else float32.

    Raises:
        SetupError: there is no such device or precision.
    """
    try:
        place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    except RuntimeError:
        raise SetupError(f"No device is called {device!r}.", hint='Use "cpu" or "cuda".') from None
    if place.type == "cuda" and (place.index or 0) >= torch.cuda.device_count():
        raise SetupError(f"PyTorch sees no {device!r} on this machine.", hint='Use device="cpu".')
    if dtype is None:
        return place, torch.bfloat16 if place.type == "cuda" else torch.float32
    number = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if not isinstance(number, torch.dtype) or not number.is_floating_point:
        raise SetupError(f"No precision is called {dtype!r}.", hint='Use "float32" or "bfloat16".')
    return place, number


def computed(dtype: torch.dtype, device: torch.device) -> str:
    """Returns precision and device as models report them: ``bfloat16 on cuda:0``."""
    return f"{str(dtype).removeprefix('torch.')} on {device}"


def load_pretrained(auto: Any, what: str, name: str, **options: Any) -> Any:
    """Loads what a class of transformers makes of a folder or hub id; ``what`` is its name in messages.

    Raises:
        ModelNotFoundError: it is not here, or damaged.
    """
    with quiet(), while_loading(lambda why: ModelNotFoundError(f"Cannot load {what} {name}: {why}.")):
        return auto.from_pretrained(str(Path(name).expanduser()), trust_remote_code=False, **options)


def load_network(auto: Any, what: str, name: str, device: str | None, dtype: DType) -> Any:
    """Loads a network as :func:`load_pretrained` does, where and in the precision that :func:`place_for` says.

    Raises:
        ModelNotFoundError: it is not here, or not complete.
        SetupError: the device or the precision cannot be had.
    """
    place, precision = place_for(device, dtype)
    network, report = load_pretrained(auto, what, name, dtype=precision, output_loading_info=True)
    # transformers would go on with random weights in the place of these.
    if missing := report["missing_keys"]:
        shown = f"{len(missing)} weights are missing, e.g. {min(missing)}"
        raise ModelNotFoundError(f"{what[0].upper()}{what[1:]} {name} is not complete: {shown}.")
    return network.to(place).eval().requires_grad_(False)


def hub_folder(repository: str, revision: str | None = None) -> Path:
    """Returns the folder of a hub repository's snapshot; what is not here is fetched.

    Raises:
        OSError, ValueError: it is neither here nor can be fetched.
    """
    from huggingface_hub import snapshot_download

    small = ["*.json", "*.txt", "*.model", "*.jinja"]
    folder = Path(snapshot_download(repository, revision=revision, allow_patterns=[*small, "model*.safetensors"]))
    if not any((folder / name).is_file() for name in WEIGHTS):
        folder = Path(snapshot_download(repository, revision=revision, allow_patterns=[*small, "pytorch_model*.bin"]))
    return folder


def read_json(path: Path) -> dict[str, Any]:
    """Reads a JSON object.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it holds something else.
    """
    try:
        found = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} is not a valid JSON file: {error}") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path} is not a JSON object")
    return found


def weights_file(folder: Path) -> Path:
    """Returns the file that weights are read from.

    Raises:
        FileNotFoundError: there is none.
    """
    for name in WEIGHTS:
        if (folder / name).is_file():
            return folder / name
    raise FileNotFoundError(f"no file named {WEIGHTS[0]} in {folder}")


def read_weights(folder: Path) -> dict[str, torch.Tensor]:
    """Reads all weights of a checkpoint, safetensors or pickled tensors, in one file or several.

    Raises:
        OSError, ValueError, RuntimeError, UnpicklingError: they cannot be read.
    """
    first = weights_file(folder)
    files = [first]
    if first.suffix == ".json":
        shards = read_json(first).get("weight_map")
        if not isinstance(shards, dict):
            raise ValueError(f"{first} has no weight_map")
        # Only files of this folder, whatever the index says.
        files = [folder / Path(name).name for name in sorted(set(map(str, shards.values())))]
    weights: dict[str, torch.Tensor] = {}
    for file in files:
        weights |= _read(file)
    return weights


def unknown(network: nn.Module, weights: Mapping[str, torch.Tensor]) -> list[str]:
    """Returns weights that a network has no place for; angles that old checkpoints store are computed anyway."""
    return sorted(name for name in weights.keys() - network.state_dict().keys() if "rotary_emb" not in name)


def _read(file: Path) -> Mapping[str, torch.Tensor]:
    if file.suffix == ".safetensors":
        try:
            return dict(load_file(file))
        except SafetensorError as error:
            raise ValueError(f"{file.name} is damaged, or half of it is missing: {error}") from None
    found = torch.load(file, map_location="cpu", weights_only=True)
    if not isinstance(found, dict) or not all(isinstance(one, torch.Tensor) for one in found.values()):
        raise ValueError(f"{file} holds something else than weights")
    return found


def fill(network: nn.Module, weights: Mapping[str, torch.Tensor], dtype: torch.dtype) -> tuple[list[str], list[str]]:
    """Puts weights into a network that waits for them; those it has no place for are left out.

    Returns:
        What is missing, and what has another shape than it should, each with both shapes.
    """
    wanted = network.state_dict()
    unlike = [
        f"{name}, {tuple(weights[name].shape)} for {tuple(place.shape)}"
        for name, place in sorted(wanted.items())
        if name in weights and weights[name].shape != place.shape
    ]
    missing = sorted(wanted.keys() - weights.keys())
    if not missing and not unlike:
        made: dict[int, torch.Tensor] = {}  # what is the same stays one tensor
        for name in wanted:
            weight = weights[name]
            made.setdefault(id(weight), weight.to(dtype))
        network.load_state_dict({name: made[id(weights[name])] for name in wanted}, assign=True)
    return missing, unlike
