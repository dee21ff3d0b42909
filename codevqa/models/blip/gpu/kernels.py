"""GPU kernels for what PyTorch's own spend their time on in BLIP: the attention of one query.

Written in Triton, which comes with PyTorch for NVIDIA GPUs; where it is missing and for shapes
that are not meant, the same is done with PyTorch's operators. Each function says what it stands for.

A caption's next token asks with a single query. Fused attention of PyTorch computes 128 queries at a time, whatever
there are. Here a program answers one query of one head, so that little but memory is read.
"""

# Triton reads the kernels' source, where only its own annotations are allowed.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

import torch

from ...gpu_compiler import HERE, compile_kernel, power, tl

LONGEST = 128
"""Keys that :func:`attend_own` looks at, at most."""


def attention_usable(tensor: torch.Tensor, depth: int = 64) -> bool:
    """Whether the kernels take tensors like this one, in heads of so many numbers."""
    return HERE and tensor.is_cuda and 16 <= depth <= 128 and depth & (depth - 1) == 0


def attend_own(joined: torch.Tensor, own: torch.Tensor, start: int) -> torch.Tensor:
    """Keeps keys and values of new tokens, and attends causally from each to all before it and itself.

    Args:
        joined: queries, keys and values of the new tokens, (rows, tokens, 3, heads, depth), contiguous.
        own: keys and values kept, (rows, 2, heads, length, depth), contiguous; completed at ``start`` and after.
        start: position of the first new token.

    Returns:
        What attention brings, (rows, tokens, heads * depth).
    """
    rows, count, _, heads, depth = joined.shape
    length = own.shape[3]
    out = joined.new_empty((rows, count, heads * depth))
    grid = (rows * count, heads)
    block, new = power(length), power(count)
    _own_kernel[grid](joined, own, out, start, count, depth**-0.5, heads, depth, length, block, new, num_warps=2)
    return out


def attend_seen(queries: torch.Tensor, seen: torch.Tensor, hidden: torch.Tensor | None) -> torch.Tensor:
    """Attends from each token to the patches of its row.

    Args:
        queries: (rows, tokens, heads * depth), contiguous.
        seen: keys and values, (rows, patches, 2, heads, depth), contiguous.
        hidden: added to the scores of each row, (rows, 1, 1, patches); None adds nothing.

    Returns:
        What attention brings, shaped as the queries.
    """
    rows, count, _ = queries.shape
    _, patches, _, heads, depth = seen.shape
    out = torch.empty_like(queries)
    block = min(64, power(patches))
    mask = queries if hidden is None else hidden
    _seen_kernel[(rows * count, heads)](
        queries, seen, mask, out, count, depth**-0.5, patches, heads, depth, block, hidden is not None, num_warps=2
    )
    return out


@compile_kernel("start")
def _own_kernel(
    joined,
    own,
    out,
    start,
    count,
    scale,
    HEADS: tl.constexpr,
    DEPTH: tl.constexpr,
    LENGTH: tl.constexpr,
    BLOCK: tl.constexpr,
    NEW: tl.constexpr,
):
    token, head = tl.program_id(0), tl.program_id(1)
    row = token // count
    width = HEADS * DEPTH
    depths = tl.arange(0, DEPTH)
    mine = joined + token.to(tl.int64) * 3 * width + head * DEPTH + depths
    query = tl.load(mine).to(tl.float32) * scale
    kept = own + row.to(tl.int64) * 2 * width * LENGTH + head * LENGTH * DEPTH
    place = (start + token % count) * DEPTH + depths
    tl.store(kept + place, tl.load(mine + width))
    tl.store(kept + width * LENGTH + place, tl.load(mine + 2 * width))
    # Tokens of this call are read where they came from: other programs are keeping them meanwhile.
    news = tl.arange(0, NEW)
    visible = news <= token % count
    fresh = joined + (row.to(tl.int64) * count + news[:, None]) * 3 * width + head * DEPTH + depths[None, :]
    new_keys = tl.load(fresh + width, mask=visible[:, None], other=0.0).to(tl.float32)
    new_values = tl.load(fresh + 2 * width, mask=visible[:, None], other=0.0).to(tl.float32)
    places = tl.arange(0, BLOCK)
    there = places < start
    old = kept + places[:, None] * DEPTH + depths[None, :]
    keys = tl.load(old, mask=there[:, None], other=0.0).to(tl.float32)
    values = tl.load(old + width * LENGTH, mask=there[:, None], other=0.0).to(tl.float32)
    scores = tl.where(there, tl.sum(query[None, :] * keys, 1), float("-inf"))
    new_scores = tl.where(visible, tl.sum(query[None, :] * new_keys, 1), float("-inf"))
    most = tl.maximum(tl.max(scores, 0), tl.max(new_scores, 0))
    shares, new_shares = tl.exp(scores - most), tl.exp(new_scores - most)
    total = tl.sum(shares, 0) + tl.sum(new_shares, 0)
    brought = tl.sum(shares[:, None] * values, 0) + tl.sum(new_shares[:, None] * new_values, 0)
    tl.store(out + token.to(tl.int64) * width + head * DEPTH + depths, (brought / total).to(out.dtype.element_ty))


@compile_kernel()
def _seen_kernel(
    queries,
    seen,
    hidden,
    out,
    count,
    scale,
    PATCHES: tl.constexpr,
    HEADS: tl.constexpr,
    DEPTH: tl.constexpr,
    BLOCK: tl.constexpr,
    MASKED: tl.constexpr,
):
    token, head = tl.program_id(0), tl.program_id(1)
    row = (token // count).to(tl.int64)
    width = HEADS * DEPTH
    depths = tl.arange(0, DEPTH)
    at = token.to(tl.int64) * width + head * DEPTH + depths
    query = tl.load(queries + at).to(tl.float32) * scale
    base = seen + row * PATCHES * 2 * width + head * DEPTH
    most = tl.full((), float("-inf"), tl.float32)
    total = tl.zeros((), tl.float32)
    brought = tl.zeros((DEPTH,), tl.float32)
    for first in range(0, PATCHES, BLOCK):
        places = first + tl.arange(0, BLOCK)
        there = places < PATCHES
        keys_at = base + places[:, None] * 2 * width + depths[None, :]
        keys = tl.load(keys_at, mask=there[:, None], other=0.0).to(tl.float32)
        values = tl.load(keys_at + width, mask=there[:, None], other=0.0).to(tl.float32)
        scores = tl.sum(query[None, :] * keys, 1)
        if MASKED:
            scores += tl.load(hidden + row * PATCHES + places, mask=there, other=0.0).to(tl.float32)
        scores = tl.where(there, scores, float("-inf"))
        higher = tl.maximum(most, tl.max(scores, 0))
        shares, fading = tl.exp(scores - higher), tl.exp(most - higher)
        total = total * fading + tl.sum(shares, 0)
        brought = brought * fading + tl.sum(shares[:, None] * values, 0)
        most = higher
    tl.store(out + at, (brought / total).to(out.dtype.element_ty))
