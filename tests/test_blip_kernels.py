"""The GPU kernels compute what PyTorch's operators compute. They need an NVIDIA GPU."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from codevqa.models.blip.gpu import kernels as blip_kernels
from codevqa.models.blip.sampling import draw

pytestmark = pytest.mark.skipif(
    not (blip_kernels.HERE and torch.cuda.is_available()), reason="needs Triton and a CUDA device"
)
BOUND = {torch.float32: 2e-6, torch.bfloat16: 5e-3}
TYPES = pytest.mark.parametrize("dtype", list(BOUND), ids=["float32", "bfloat16"])


def apart(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found.double() - expected.double()).norm() / expected.double().norm())


def noise(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    torch.manual_seed(len(shape))
    return torch.randn(*shape, device="cuda", dtype=dtype)


@TYPES
@pytest.mark.parametrize(
    ("rows", "count", "start", "heads", "depth", "length"),
    [(3, 4, 0, 12, 64, 20), (5, 1, 7, 12, 64, 20), (2, 1, 19, 3, 16, 20), (2, 3, 0, 2, 32, 40)],
)
def test_attention_to_a_caption_itself(
    dtype: torch.dtype, rows: int, count: int, start: int, heads: int, depth: int, length: int
) -> None:
    joined, own = noise(rows, count, 3, heads, depth, dtype=dtype), noise(rows, 2, heads, length, depth, dtype=dtype)
    kept = own.clone()
    kept[:, :, :, start : start + count] = joined[:, :, 1:].permute(0, 2, 3, 1, 4)
    keys, values = kept[:, :, :, : start + count].float().unbind(1)
    expected = functional.scaled_dot_product_attention(
        joined[:, :, 0].transpose(1, 2).float(), keys, values, is_causal=count > 1
    )
    assert apart(blip_kernels.attend_own(joined, own, start), expected.transpose(1, 2).flatten(2)) < BOUND[dtype]
    assert torch.equal(own, kept)


@TYPES
@pytest.mark.parametrize(
    ("rows", "count", "patches", "heads", "depth", "masked"),
    [(3, 4, 20, 12, 64, False), (5, 1, 24, 12, 64, True), (2, 1, 577, 3, 16, False), (2, 2, 80, 4, 32, True)],
)
def test_attention_to_patches(
    dtype: torch.dtype, rows: int, count: int, patches: int, heads: int, depth: int, masked: bool
) -> None:
    queries, seen = noise(rows, count, heads * depth, dtype=dtype), noise(rows, patches, 2, heads, depth, dtype=dtype)
    hidden = None
    if masked:
        hidden = torch.zeros(rows, 1, 1, patches, device="cuda", dtype=dtype)
        hidden[0, ..., patches // 2 :] = -torch.inf
    keys, values = seen.float().transpose(1, 3).unbind(2)
    expected = functional.scaled_dot_product_attention(
        queries.float().view(rows, count, heads, depth).transpose(1, 2),
        keys,
        values,
        attn_mask=None if hidden is None else hidden.float(),
    )
    found = blip_kernels.attend_seen(queries, seen, hidden)
    assert apart(found, expected.transpose(1, 2).flatten(2)) < BOUND[dtype]


@TYPES
@pytest.mark.parametrize("vocabulary", [500, 30_524])
def test_tokens_are_drawn_as_on_the_cpu(dtype: torch.dtype, vocabulary: int) -> None:
    logits = 3 * noise(256, vocabulary, dtype=dtype)
    logits[1, : vocabulary // 2] = -torch.inf
    logits[2] = 1
    numbers = torch.rand(256, 3, dtype=torch.float64, device="cuda")[:, 1:2]
    numbers[0] = -1
    expected = draw(logits.cpu(), numbers.cpu(), 50, 0.8)
    found = draw(logits, numbers, 50, 0.8).cpu()
    # A number within rounding of a boundary may fall on either side.
    assert int((found == expected).sum()) >= 254 and found[0] == expected[0]


@TYPES
@pytest.mark.parametrize("width", [48, 768, 1024])
def test_a_sum_is_normalised(dtype: torch.dtype, width: int) -> None:
    hidden, more = noise(7, 5, width, dtype=dtype), noise(7, 5, width, dtype=dtype).flip(0)
    weight, bias = noise(width, dtype=dtype), noise(width, dtype=dtype).flip(0)
    total = hidden.double() + more.double()
    expected = functional.layer_norm(total, (width,), weight.double(), bias.double(), 1e-6)
    assert apart(blip_kernels.add_norm(hidden, more, weight, bias, 1e-6), expected) < BOUND[dtype]
    assert apart(hidden, total) < BOUND[dtype]
