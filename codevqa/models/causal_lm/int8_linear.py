"""Products of matrices in eight bits, for language models on a processor: twice as fast as float32.

docs/reports/speed.md has the figures.

Weights are rounded once, with a scale for each output. What they are multiplied with is rounded anew each time, with a
scale for each token, but for the few entries that are far larger than the others and would coarsen that scale: those
are multiplied in float32 (LLM.int8: Dettmers et al., 2022, who choose features, where this chooses entries).
"""

from __future__ import annotations

import functools
import warnings
from typing import Any

import torch
from torch import nn

# Torch means to take these products out; nothing else is as fast yet.
warnings.filterwarnings("ignore", "torch.quantize_per_tensor", UserWarning)

_WEIGHT = 127
"""Greatest value of a rounded weight."""
_LEVELS = 63
"""Greatest value of a rounded input. Processors without VNNI add pairs of products in sixteen bits, which have room for
two times 127 * 127 and not for two times 255 * 127."""
_FAR = 4.0
"""Entries of so many times a token's root mean square are not rounded: of 4, 6, 10 and 16 what follows float32 best, in
a tenth more time."""


class Int8Linear(nn.Module):
    """``x @ weight.T + bias`` in eight bits.

    Args:
        weight: shape (outputs, inputs), of any floating dtype.
        bias: shape (outputs,), or None.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        super().__init__()
        self.weights = weight.numel() + (0 if bias is None else bias.numel())
        whole = weight.detach().float()
        scales = whole.abs().amax(1).clamp_min(1e-8) / _WEIGHT
        rounded = torch.quantize_per_channel(whole, scales.double(), torch.zeros(len(whole)).long(), 0, torch.qint8)
        self._packed: Any = torch.ops.quantized.linear_prepack(rounded, None)
        self._columns = rounded.int_repr().T.contiguous()
        self._scales = scales
        self._bias = None if bias is None else bias.detach().float()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Returns the products, shape (..., outputs), float32."""
        rows = inputs.flatten(0, -2)
        far = rows.abs() > rows.square().mean(-1, keepdim=True).sqrt_().mul_(_FAR)
        near = rows.masked_fill(far, 0.0)
        scale = near.abs().amax(-1, keepdim=True).clamp_min_(1e-8)
        products: torch.Tensor = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(
            near.div_(scale), 1 / _LEVELS, _LEVELS + 1, self._packed
        )
        products.mul_(scale)
        columns = far.any(0).nonzero()[:, 0]
        if len(columns):
            beyond = rows[:, columns].mul_(far[:, columns])
            products.addcmul_(beyond @ self._columns[columns].float(), self._scales)
        if self._bias is not None:
            products.add_(self._bias)
        return products.view(*inputs.shape[:-1], len(self._scales))


@functools.cache
def available() -> bool:
    """Whether PyTorch has these products on this processor."""
    try:
        return torch.allclose(Int8Linear(torch.eye(8), None)(torch.ones(1, 8)), torch.ones(8), atol=0.1)
    except (RuntimeError, AttributeError):
        return False


def quantise(network: Any) -> None:
    """Puts every linear layer of a network into eight bits, one after another, and all else into float32."""
    for name, layer in list(network.named_modules()):
        if isinstance(layer, nn.Linear):
            network.set_submodule(name, Int8Linear(layer.weight, layer.bias))
    network.float()


def weights(network: Any) -> int:
    """Returns how many weights a network has, those in eight bits with them."""
    eight: int = sum(layer.weights for layer in network.modules() if isinstance(layer, Int8Linear))
    return eight + sum(int(weight.numel()) for weight in network.parameters())
