"""The kernels of language models on a GPU do what PyTorch's operators do."""

from typing import Any

import plain_kernels
import pytest
import torch

from codevqa.models.causal_lm.gpu import kernels
from codevqa.models.gpu_compiler import HERE

pytestmark = pytest.mark.skipif(not (HERE and torch.cuda.is_available()), reason="needs Triton and a CUDA device")
WIDTH, PLACES, TEXTS = 64, 700, 9


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(shape, device="cuda", generator=torch.Generator("cuda").manual_seed(sum(shape))).bfloat16()


def alike(mine: torch.Tensor, plain: torch.Tensor) -> None:
    torch.testing.assert_close(mine.float(), plain.float(), rtol=0.02, atol=0.02)


def test_norms_and_gates() -> None:
    alike(kernels.norm(numbers(7, 96), numbers(96), 1e-6), plain_kernels.norm(numbers(7, 96), numbers(96), 1e-6))
    alike(kernels.gate(numbers(7, 2 * 1100)), plain_kernels.gate(numbers(7, 2 * 1100)))


@pytest.mark.parametrize("group", [1, 6])
@pytest.mark.parametrize("normed", [False, True])
def test_heads_are_turned_and_kept(group: int, normed: bool) -> None:
    norms: Any = (numbers(1, WIDTH)[0], numbers(2, WIDTH)[0], 1e-6) if normed else None
    states, turn = numbers(TEXTS, (2 * group + 4) * WIDTH), (numbers(TEXTS, 1, WIDTH), numbers(TEXTS, 2, WIDTH)[:, :1])
    turn = (turn[0], turn[1].contiguous())
    positions = torch.arange(TEXTS, device="cuda") * 90  # the last is beyond all places
    slots = torch.arange(TEXTS, device="cuda") + 2
    kept = [[numbers(TEXTS + 2, 2, PLACES, WIDTH), numbers(TEXTS + 2, 2, PLACES, WIDTH)] for _ in range(2)]
    queries = [
        module.turn_and_keep(states, turn, *pair, slots, positions, norms)
        for module, pair in zip((kernels, plain_kernels), kept, strict=True)
    ]
    for mine, plain in zip([queries[0], *kept[0]], [queries[1], *kept[1]], strict=True):
        alike(mine, plain)


@pytest.mark.parametrize("group", [1, 6])
@pytest.mark.parametrize("length", [PLACES, 130])
def test_a_token_attends_to_its_own_text(group: int, length: int) -> None:
    query, pair = numbers(TEXTS, 2 * group, WIDTH), (numbers(TEXTS, 2, PLACES, WIDTH), numbers(TEXTS, 2, PLACES, WIDTH))
    positions = torch.tensor([0, 1, 63, 64, 255, 256, 257, 511, 699], device="cuda")
    asked = (query, *pair, positions, length, WIDTH**-0.5)
    alike(kernels.attend(*asked), plain_kernels.attend(*asked))


@pytest.mark.parametrize("group", [1, 6])
def test_tokens_of_many_texts_attend_each_to_its_own(group: int) -> None:
    query, pair = numbers(200, 2 * group, WIDTH), (numbers(TEXTS, 2, PLACES, WIDTH), numbers(TEXTS, 2, PLACES, WIDTH))
    tiles = torch.tensor([[0, 64, 3, 0], [64, 64, 3, 64], [128, 1, 3, 128], [129, 30, 8, 650], [0, 0, 0, 0]])
    asked = (query, *pair, tiles.cuda(), WIDTH**-0.5)
    mine = kernels.attend_tiles(*asked)
    alike(mine, plain_kernels.attend_tiles(*asked))
    assert not mine[159:].any()
