"""Checkpoints in the hub's format, read without transformers: JSON, weights, and layers that wait for weights."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from ..core.errors import ModelNotFoundError, SetupError
from .cpu_threads import NetworkThread
from .library_errors import first_line, quiet, while_loading

WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
"""Files that say where weights are, in the order in which they are looked for."""

DType: TypeAlias = "torch.dtype | str | None"
"""A precision, or its name; None takes what is usual on the device."""


class _Bare:
    """A layer without weights. Given first values, it would have PyTorch import its compiler: a second a start."""

    def reset_parameters(self) -> None:
        """Draws nothing."""


class Linear(_Bare, nn.Linear):
    """A linear layer without weights."""

    def __init__(self, inputs: int, outputs: int, bias: bool = True) -> None:
        super().__init__(inputs, outputs, bias=bias, device="meta")


class Embedding(_Bare, nn.Embedding):
    """An embedding without weights."""

    def __init__(self, count: int, width: int) -> None:
        super().__init__(count, width, device="meta")


class LayerNorm(_Bare, nn.LayerNorm):
    """A layer norm without weights."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__(width, eps=eps, device="meta")


def join_projections(*projections: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Returns weights and biases of projections of one input as one, whose views they become: none is there twice."""
    matrix = torch.cat([each.weight for each in projections]).detach()
    bias = None if projections[0].bias is None else torch.cat([each.bias for each in projections]).detach()
    place = 0
    for each in projections:
        end = place + len(each.weight)
        each.weight.data = matrix[place:end]
        if bias is not None:
            each.bias.data = bias[place:end]
        place = end
    return matrix, bias


def parameter(*shape: int) -> nn.Parameter:
    """Returns a weight without numbers."""
    return nn.Parameter(torch.empty(shape, device="meta"), requires_grad=False)


def place_for(device: str | torch.device | None, dtype: DType) -> tuple[torch.device, torch.dtype]:
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


def precision_text(dtype: torch.dtype, device: torch.device) -> str:
    """Returns precision and device as models report them: ``bfloat16 on cuda:0``."""
    return f"{str(dtype).removeprefix('torch.')} on {device}"


def load_pretrained(auto: Any, what: str, name: str, *, folder: Path | None = None, **options: Any) -> Any:
    """Loads what a class of transformers makes of a folder or hub id.

    Args:
        auto: the class.
        what: its name in messages.
        name: the folder, or the id.
        folder: where it lies, unless the name tells.
        options: more for the class.

    Raises:
        ModelNotFoundError: it is not here, or damaged.
    """
    with quiet(), while_loading(lambda why: ModelNotFoundError(f"Cannot load {what} {name}: {why}.")):
        return auto.from_pretrained(str(folder or Path(name).expanduser()), trust_remote_code=False, **options)


def load_network(
    auto: Any, what: str, name: str, device: str | torch.device | None, dtype: DType, folder: Path | None = None
) -> Any:
    """Loads a network as :func:`load_pretrained` does, where and in the precision that :func:`place_for` says.

    Raises:
        ModelNotFoundError: it is not here, or not complete.
        SetupError: the device or the precision cannot be had.
    """
    place, precision = place_for(device, dtype)
    options = {"output_loading_info": True, "ignore_mismatched_sizes": True}
    network, report = load_pretrained(auto, what, name, folder=folder, dtype=precision, **options)
    # transformers would go on with random weights in the place of these.
    unlike = [key if isinstance(key, str) else key[0] for key in report["mismatched_keys"]]
    if wrong := gaps(report["missing_keys"], unlike):
        raise ModelNotFoundError(f"{what[0].upper()}{what[1:]} {name} is not complete: {wrong}.")
    return move_network(network, place, name).eval().requires_grad_(False)


def move_network(network: nn.Module, place: torch.device, name: str) -> nn.Module:
    """Returns a network on a device.

    Raises:
        SetupError: it does not fit there.
    """
    try:
        return network.to(place)
    except (RuntimeError, AssertionError) as error:
        raise SetupError(f"Cannot move {name} to {place}: {first_line(error)}.") from None


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
        data = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} is not a valid JSON file: {error}") from None
    if not isinstance(data, dict):
        raise ValueError(f"{path} is not a JSON object")
    return data


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
        weights |= read_tensors(file)
    return weights


def unknown(network: nn.Module, weights: Mapping[str, torch.Tensor]) -> list[str]:
    """Returns weights that a network has no place for; angles that old checkpoints store are computed anyway."""
    return sorted(name for name in weights.keys() - network.state_dict().keys() if "rotary_emb" not in name)


def read_tensors(file: Path, *, mmap: bool = False) -> dict[str, torch.Tensor]:
    """Reads the weights in one file, by name; of a pickle nothing but tensors, perhaps under "model" as LAVIS has them.

    Raises:
        OSError, ValueError, RuntimeError, UnpicklingError: they cannot be read.
    """
    if file.suffix == ".safetensors":
        try:
            return dict(load_file(file))
        except SafetensorError as error:
            raise ValueError(f"{file.name} is damaged, or half of it is missing: {error}") from None
    weights = torch.load(file, map_location="cpu", weights_only=True, mmap=mmap)
    weights = weights.get("model", weights) if isinstance(weights, dict) else weights
    if not isinstance(weights, dict) or not all(isinstance(value, torch.Tensor) for value in weights.values()):
        raise ValueError(f"{file} holds no weights by name")
    return weights


def gaps(missing: Collection[str], unlike: Collection[str]) -> str:
    """Says which weights are missing, or have another shape than they should; empty for none."""
    for kind, names in (("missing", missing), ("of another shape", unlike)):
        if names:
            return f"{len(names)} weights are {kind}, e.g. {min(names)}"
    return ""


def fill(network: nn.Module, weights: Mapping[str, torch.Tensor], dtype: torch.dtype) -> str:
    """Puts weights into a network that waits for them, unless some do not fit; returns :func:`gaps`.

    Weights that the network has no place for are left out.
    """
    wanted = network.state_dict()
    unlike = [
        f"{name}, {tuple(weights[name].shape)} for {tuple(place.shape)}"
        for name, place in wanted.items()
        if name in weights and weights[name].shape != place.shape
    ]
    wrong = gaps(wanted.keys() - weights.keys(), unlike)
    if not wrong:
        # Threads that share small conversions wait for one another longer than they convert, and burn a core meanwhile.
        thread = NetworkThread(network, 1, torch.device("cpu"))
        distinct = {id(weights[name]): weights[name] for name in wanted}  # what is the same stays one tensor
        converted = thread.run(lambda: {key: weight.to(dtype) for key, weight in distinct.items()})
        network.load_state_dict({name: converted[id(weights[name])] for name in wanted}, assign=True)
    return wrong
