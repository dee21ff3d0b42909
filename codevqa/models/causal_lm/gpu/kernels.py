"""GPU kernels of language models: one in the place of several operators, and attention of one token to its own text.

Written in Triton, which comes with PyTorch for NVIDIA GPUs; where it is missing, and in single precision, the same is
done with PyTorch's operators. Each function rounds where those operators do. At 64 texts and 2,048 places, a step of a
1.5B takes an H200 2.5 ms, and 6.5 ms with the operators.
"""

# Triton reads the kernels' source, where only its own annotations are allowed.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

import torch

from ...gpu_compiler import HERE, compile_kernel, power, tl

_CHUNK = 256
"""Places of a text that one program of attention reads."""
_BLOCK = 64
TILE = 64
"""Tokens of a text that one program of attention reads for."""


def usable(tensor: torch.Tensor, width: int) -> bool:
    """Whether the kernels take tensors like this one, in heads of so many numbers."""
    if not (HERE and tensor.is_cuda and tensor.element_size() == 2 and 16 <= width <= 128 and width == power(width)):
        return False
    # Older GPUs multiply no bfloat16.
    return torch.cuda.get_device_capability(tensor.device) >= (8, 0)


def attend(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, positions: torch.Tensor, length: int, scale: float
) -> torch.Tensor:
    """Attends from one token a text to all places up to its own (flash decoding, Dao et al. 2023).

    Args:
        query: (texts, heads, width), contiguous.
        keys: of at least so many texts, (slots, key heads, places, width), contiguous; each head is read by as many
            heads of queries.
        values: shaped as the keys.
        positions: the place of each token, (texts,).
        length: places that are looked at, at most.
        scale: of the scores.

    Returns:
        What attention brings, (texts, heads * width).
    """
    texts, heads, width = query.shape
    key_heads, places = keys.shape[1], keys.shape[2]
    splits = -(-length // _CHUNK)
    brought = torch.empty((texts, heads, splits, width), dtype=torch.float32, device=query.device)
    weights = torch.empty((texts, heads, splits, 2), dtype=torch.float32, device=query.device)
    out = torch.empty((texts, heads * width), dtype=query.dtype, device=query.device)
    _part_kernel[(texts, key_heads, splits)](
        query, keys, values, positions, brought, weights, scale, key_heads, heads // key_heads,
        max(16, power(heads // key_heads)), width, places, length, splits, _CHUNK, _BLOCK, num_warps=4,
    )  # fmt: skip
    _join_kernel[(texts, heads)](brought, weights, out, heads, width, splits, max(2, power(splits)))
    return out


def attend_tiles(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, tiles: torch.Tensor, scale: float
) -> torch.Tensor:
    """Attends from many tokens of many texts, each to all places of its text up to its own (flash attention).

    Args:
        query: of texts side by side, (tokens, heads, width), contiguous.
        keys: of all slots, (slots, key heads, places, width), contiguous; they hold those of the tokens already.
        values: shaped as the keys.
        tiles: up to :data:`TILE` tokens of one text each: the first one's row, how many there are, their slot, and the
            first one's place in it, (tiles, 4). A tile of no tokens is passed over.
        scale: of the scores.

    Returns:
        What attention brings, (tokens, heads * width); zeros for tokens of no tile.
    """
    tokens, heads, width = query.shape
    out = torch.zeros((tokens, heads * width), dtype=query.dtype, device=query.device)
    _tile_kernel[(len(tiles), heads)](
        query, keys, values, tiles, out, scale, heads, heads // keys.shape[1], width, keys.shape[2], TILE, _BLOCK,
        num_warps=4,
    )  # fmt: skip
    return out


def norm(states: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Root mean square norm of rows, (..., width), in single precision, rounded before it is weighted."""
    states = states.contiguous()
    out = torch.empty_like(states)
    width = states.shape[-1]
    _norm_kernel[(states.numel() // width,)](states, weight, out, eps, width, power(width))
    return out


def gate(states: torch.Tensor) -> torch.Tensor:
    """The sigmoid linear unit of the first half of each row, (rows, 2 * width), times the second half."""
    rows, width = states.shape[0], states.shape[1] // 2
    out = torch.empty((rows, width), dtype=states.dtype, device=states.device)
    _gate_kernel[(rows, -(-width // 1024))](states, out, width, 1024)
    return out


def turn_and_keep(
    projected: torch.Tensor,
    turn: tuple[torch.Tensor, torch.Tensor],
    keys: torch.Tensor,
    values: torch.Tensor,
    slots: torch.Tensor,
    positions: torch.Tensor,
    norms: tuple[torch.Tensor, torch.Tensor, float] | None,
) -> torch.Tensor:
    """Turns queries and keys by their positions, and puts keys and values into their places.

    Args:
        projected: queries, keys and values of a token each, (tokens, (heads + 2 * key heads) * width), contiguous.
        turn: cosine and signed sine of each position's angles, (tokens, 1, width).
        keys: of all slots, (slots, key heads, places, width), contiguous.
        values: shaped as the keys.
        slots: the slot of each token, (tokens,).
        positions: the place of each token in its slot, (tokens,); one beyond the last is the last.
        norms: weights of the norms of each head of queries and of keys, and what is added; None where there are none.

    Returns:
        The queries, (tokens, heads, width).
    """
    tokens, key_heads, width = len(projected), keys.shape[1], keys.shape[3]
    heads = projected.shape[1] // width - 2 * key_heads
    query = torch.empty((tokens, heads, width), dtype=projected.dtype, device=projected.device)
    of_query, of_key, eps = norms or (projected, projected, 0.0)
    _turn_kernel[(tokens, heads + 2 * key_heads)](
        projected, *turn, query, keys, values, slots, positions, of_query, of_key, eps,
        heads, key_heads, width, keys.shape[2], norms is not None, num_warps=1,
    )  # fmt: skip
    return query


@compile_kernel()
def _part_kernel(
    query,
    keys,
    values,
    positions,
    brought,
    weights,
    scale,
    KEY_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
    PLACES: tl.constexpr,
    length,
    SPLITS: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    text, head, split = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    rows, depths = tl.arange(0, ROWS), tl.arange(0, WIDTH)
    mine = rows < GROUP
    stop = tl.minimum(tl.load(positions + text) + 1, length)
    first = split * CHUNK
    most = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    sums = tl.zeros((ROWS, WIDTH), tl.float32)
    at = (text * KEY_HEADS + head) * GROUP + rows
    asked = tl.load(query + at[:, None] * WIDTH + depths[None, :], mask=mine[:, None], other=0.0)
    base = (text * KEY_HEADS + head) * PLACES * WIDTH
    last = tl.minimum(first + CHUNK, stop)
    for begin in range(first, last, BLOCK):
        places = begin + tl.arange(0, BLOCK)
        there = places < last
        spot = base + places[:, None] * WIDTH + depths[None, :]
        key = tl.load(keys + spot, mask=there[:, None], other=0.0)
        scores = tl.dot(asked, tl.trans(key)) * scale
        scores = tl.where(there[None, :], scores, float("-inf"))
        higher = tl.maximum(most, tl.max(scores, 1))
        shares = tl.exp(scores - higher[:, None])
        fading = tl.exp(most - higher)
        value = tl.load(values + spot, mask=there[:, None], other=0.0)
        sums = sums * fading[:, None] + tl.dot(shares.to(value.dtype), value)
        total = total * fading + tl.sum(shares, 1)
        most = higher
    place = at * SPLITS + split
    tl.store(brought + place[:, None] * WIDTH + depths[None, :], sums, mask=mine[:, None])
    tl.store(weights + place * 2, most, mask=mine)
    tl.store(weights + place * 2 + 1, total, mask=mine)


@compile_kernel()
def _join_kernel(
    brought, weights, out, HEADS: tl.constexpr, WIDTH: tl.constexpr, SPLITS: tl.constexpr, ROOM: tl.constexpr
):
    at = tl.program_id(0).to(tl.int64) * HEADS + tl.program_id(1)
    splits, depths = tl.arange(0, ROOM), tl.arange(0, WIDTH)
    there = splits < SPLITS
    most = tl.load(weights + (at * SPLITS + splits) * 2, mask=there, other=float("-inf"))
    total = tl.load(weights + (at * SPLITS + splits) * 2 + 1, mask=there, other=0.0)
    share = tl.exp(most - tl.max(most, 0))
    parts = tl.load(brought + (at * SPLITS + splits[:, None]) * WIDTH + depths[None, :], mask=there[:, None], other=0.0)
    read = tl.sum(parts * share[:, None], 0) / tl.sum(total * share, 0)
    tl.store(out + at * WIDTH + depths, read.to(out.dtype.element_ty))


@compile_kernel()
def _tile_kernel(
    query,
    keys,
    values,
    tiles,
    out,
    scale,
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    WIDTH: tl.constexpr,
    PLACES: tl.constexpr,
    TILE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    tile, head = tl.program_id(0), tl.program_id(1)
    count = tl.load(tiles + tile * 4 + 1).to(tl.int32)
    if count > 0:
        first = tl.load(tiles + tile * 4)
        slot = tl.load(tiles + tile * 4 + 2)
        place = tl.load(tiles + tile * 4 + 3).to(tl.int32)
        rows, depths = tl.arange(0, TILE), tl.arange(0, WIDTH)
        mine = rows < count
        at = ((first + rows) * HEADS + head) * WIDTH
        asked = tl.load(query + at[:, None] + depths[None, :], mask=mine[:, None], other=0.0)
        base = (slot * (HEADS // GROUP) + head // GROUP) * PLACES * WIDTH
        most = tl.full((TILE,), float("-inf"), tl.float32)
        total = tl.zeros((TILE,), tl.float32)
        sums = tl.zeros((TILE, WIDTH), tl.float32)
        last = place + count
        for begin in range(0, last, BLOCK):
            places = begin + tl.arange(0, BLOCK)
            there = places < last
            spot = base + places[:, None] * WIDTH + depths[None, :]
            key = tl.load(keys + spot, mask=there[:, None], other=0.0)
            scores = tl.dot(asked, tl.trans(key)) * scale
            scores = tl.where(places[None, :] <= place + rows[:, None], scores, float("-inf"))
            higher = tl.maximum(most, tl.max(scores, 1))
            shares = tl.exp(scores - higher[:, None])
            fading = tl.exp(most - higher)
            value = tl.load(values + spot, mask=there[:, None], other=0.0)
            sums = sums * fading[:, None] + tl.dot(shares.to(value.dtype), value)
            total = total * fading + tl.sum(shares, 1)
            most = higher
        read = sums / total[:, None]
        tl.store(out + at[:, None] + depths[None, :], read.to(out.dtype.element_ty), mask=mine[:, None])


@compile_kernel()
def _norm_kernel(states, weight, out, eps, WIDTH: tl.constexpr, ROOM: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * WIDTH
    places = tl.arange(0, ROOM)
    there = places < WIDTH
    row = tl.load(states + at + places, mask=there, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(row * row, 0) / WIDTH + eps)
    rounded = (row * scale).to(out.dtype.element_ty).to(tl.float32)
    weighted = rounded * tl.load(weight + places, mask=there, other=0.0).to(tl.float32)
    tl.store(out + at + places, weighted.to(out.dtype.element_ty), mask=there)


@compile_kernel()
def _gate_kernel(states, out, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    places = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = places < WIDTH
    left = tl.load(states + row * 2 * WIDTH + places, mask=there, other=0.0).to(tl.float32)
    right = tl.load(states + row * 2 * WIDTH + WIDTH + places, mask=there, other=0.0).to(tl.float32)
    rounded = (left / (1 + tl.exp(-left))).to(out.dtype.element_ty).to(tl.float32)
    tl.store(out + row * WIDTH + places, (rounded * right).to(out.dtype.element_ty), mask=there)


@compile_kernel()
def _turn_kernel(
    projected,
    cos,
    sin,
    query,
    keys,
    values,
    slots,
    positions,
    of_query,
    of_key,
    eps,
    HEADS: tl.constexpr,
    KEY_HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    PLACES: tl.constexpr,
    NORMED: tl.constexpr,
):
    token, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    depths = tl.arange(0, WIDTH)
    across = (depths + WIDTH // 2) % WIDTH
    row = projected + (token * (HEADS + 2 * KEY_HEADS) + head) * WIDTH
    kind = query.dtype.element_ty
    here = tl.load(row + depths).to(tl.float32)
    slot = tl.load(slots + token).to(tl.int64)
    place = tl.minimum(tl.load(positions + token), PLACES - 1)
    if head < HEADS + KEY_HEADS:
        other = tl.load(row + across).to(tl.float32)
        if NORMED:
            scale = tl.rsqrt(tl.sum(here * here, 0) / WIDTH + eps)
            weights = of_query
            if head >= HEADS:
                weights = of_key
            here = (here * scale).to(kind).to(tl.float32) * tl.load(weights + depths).to(tl.float32)
            other = (other * scale).to(kind).to(tl.float32) * tl.load(weights + across).to(tl.float32)
            here = here.to(kind).to(tl.float32)
            other = other.to(kind).to(tl.float32)
        flat = (here * tl.load(cos + token * WIDTH + depths).to(tl.float32)).to(kind).to(tl.float32)
        turned = (flat + other * tl.load(sin + token * WIDTH + depths).to(tl.float32)).to(kind)
        if head < HEADS:
            tl.store(query + (token * HEADS + head) * WIDTH + depths, turned)
        else:
            tl.store(keys + ((slot * KEY_HEADS + head - HEADS) * PLACES + place) * WIDTH + depths, turned)
    else:
        spot = (slot * KEY_HEADS + head - HEADS - KEY_HEADS) * PLACES + place
        tl.store(values + spot * WIDTH + depths, here.to(kind))
