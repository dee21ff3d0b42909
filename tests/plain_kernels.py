"""What the kernels of language models on a GPU stand for, in PyTorch's operators: to run in their place."""

from typing import Any

import torch

TILE = 5


def norm(states: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    whole = states.float()
    return weight * (whole * torch.rsqrt(whole.pow(2).mean(-1, keepdim=True) + eps)).to(states.dtype)


def gate(states: torch.Tensor) -> torch.Tensor:
    left, right = states.chunk(2, -1)
    return torch.nn.functional.silu(left) * right


def turn_and_keep(
    projected: torch.Tensor,
    turn: tuple[torch.Tensor, torch.Tensor],
    keys: torch.Tensor,
    values: torch.Tensor,
    slots: torch.Tensor,
    positions: torch.Tensor,
    norms: Any,
) -> torch.Tensor:
    (tokens, _), (_, key_heads, places, width) = projected.shape, keys.shape
    heads = projected.view(tokens, -1, width)
    query, key, value = heads.tensor_split((heads.shape[1] - 2 * key_heads, heads.shape[1] - key_heads), 1)
    if norms is not None:
        query, key = norm(query, norms[0], norms[2]), norm(key, norms[1], norms[2])
    cos, sin = turn
    query, key = (torch.addcmul(part * cos, part.roll(width // 2, -1), sin) for part in (query, key))
    at = positions.clamp(max=places - 1)
    keys[slots, :, at], values[slots, :, at] = key, value
    return query


def attend(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, positions: torch.Tensor, length: int, scale: float
) -> torch.Tensor:
    texts, heads, _ = query.shape
    group = heads // keys.shape[1]
    key, value = (kept[:texts, :, :length].repeat_interleave(group, 1).float() for kept in (keys, values))
    scores = (query.float()[:, :, None] @ key.transpose(2, 3))[:, :, 0] * scale
    beyond = torch.arange(length, device=keys.device) > positions[:, None, None]
    shares = scores.masked_fill(beyond, -torch.inf).softmax(-1)
    return (shares[:, :, None] @ value)[:, :, 0].reshape(texts, -1).to(query.dtype)


def attend_tiles(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, tiles: torch.Tensor, scale: float
) -> torch.Tensor:
    out = torch.zeros_like(query).flatten(1)
    for first, count, slot, place in tiles.tolist():
        if not count:
            continue
        rows = slice(first, first + count)
        key, value = (kept[slot].expand(count, -1, -1, -1) for kept in (keys, values))
        positions = torch.arange(place, place + count, device=keys.device)
        out[rows] = attend(query[rows], key, value, positions, place + count, scale)
    return out
