"""Keys and values of many texts in fixed memory, one slot a text, and the forward passes that fill and read them.

A model of transformers asks two things of its surroundings at each layer: a cache to put the new keys and values into,
and an attention function. Both are given here, so that its own forward pass runs over slots of different lengths
without a mask for the prompts and without copies, its shapes stay the same from token to token, and on a GPU the pass
that makes one token for each slot can be recorded once as a CUDA graph and replayed: at these sizes launching the
kernels one by one costs far more than running them.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import torch
from torch.nn import functional
from transformers.cache_utils import Cache
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .cuda_graphs import CAPTURING, avoid_cudnn_attention, enabled

NAME = "codevqa_slots"
"""What transformers knows the attention function by."""

Pair: TypeAlias = "tuple[torch.Tensor, torch.Tensor]"
Past: TypeAlias = "list[Pair]"
"""Keys and values of each layer, shape (1, heads, tokens, width)."""

_current = threading.local()
_CHANGES = ("softcap", "s_aux", "position_bias", "sliding_window")
"""Arguments with which a layer asks for another attention than softmax over the whole text."""


class UnsupportedError(Exception):
    """This model's layers need more than plain causal attention."""


class Phase(Cache):  # type: ignore[misc, unused-ignore]
    """One kind of forward pass, in the place of a cache: takes keys and values, and attends."""

    def __init__(self) -> None:
        super().__init__(layers=[])

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Returns 0: positions are always given."""
        return 0

    def attend(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float | None) -> torch.Tensor:
        """Returns what each query reads, shape (rows, heads, queries, width)."""
        raise NotImplementedError


class Prefill(Phase):
    """The pass over parts of prompts that all follow the same prefix; rows are padded on the right.

    Attention is causal, so what pads a row changes nothing before it, and no mask is needed. The keys and values of
    prefix and part go to ``slots`` of ``memory``, or stay in :attr:`past`.
    """

    def __init__(self, prefix: Past | None, memory: Memory | None = None, slots: torch.Tensor | None = None) -> None:
        super().__init__()
        self.prefix, self.memory, self.slots = prefix, memory, slots
        self.past: Past = []
        self._mask: torch.Tensor | None = None

    def update(self, key_states: Any, value_states: Any, layer_idx: int, *_: object, **__: object) -> Pair:
        """Returns the keys and values of prefix and part together, shape (rows, heads, tokens, width)."""
        key, value = key_states, value_states
        if self.prefix is not None:
            before_key, before_value = self.prefix[layer_idx]
            key = torch.cat([before_key.expand(len(key), -1, -1, -1), key], 2)
            value = torch.cat([before_value.expand(len(value), -1, -1, -1), value], 2)
        if self.memory is not None and self.slots is not None:
            self.memory.write(layer_idx, self.slots, (key, value))
        else:
            self.past.append((key, value))
        return key, value

    def attend(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float | None) -> torch.Tensor:
        """Causal attention of the last positions."""
        grouped = query.shape[1] != key.shape[1]
        if grouped and not (query.is_cuda and query.dtype in (torch.float16, torch.bfloat16)):
            # Only flash attention reads one head for many without a copy of it.
            key, value = (part.repeat_interleave(query.shape[1] // key.shape[1], 1) for part in (key, value))
            grouped = False
        queries, keys = query.shape[2], key.shape[2]
        if queries == keys:
            return functional.scaled_dot_product_attention(
                query, key, value, is_causal=True, scale=scale, enable_gqa=grouped
            )
        mask: Any
        if query.is_cuda:
            from torch.nn.attention.bias import causal_lower_right

            mask = causal_lower_right(queries, keys)
        else:
            if self._mask is None:
                every = torch.ones(queries, keys, dtype=torch.bool, device=query.device)
                self._mask = every.tril(keys - queries)
            mask = self._mask
        return functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, scale=scale, enable_gqa=grouped
        )


class Step(Phase):
    """The pass that makes one token for each of the first ``count`` slots, reading ``length`` places of each.

    Args:
        memory: the slots.
        count: how many slots.
        length: places of a slot that are looked at; all positions must be below it.
    """

    def __init__(self, memory: Memory, count: int, length: int) -> None:
        super().__init__()
        self.memory, self.count, self.length = memory, count, length
        self._places = torch.arange(length, device=memory.device)
        self._bias: torch.Tensor | None = None
        self._at: torch.Tensor = self._places

    def run(self, model: Any) -> None:
        """Makes one token for each slot and moves on; reads and writes memory only, so it can be recorded."""
        memory, count = self.memory, self.count
        positions = memory.positions[:count]
        # A slot whose text has ended goes on moving until it is taken, and may be past what is looked at.
        self._at = positions.clamp(max=self.length - 1).view(count, 1, 1, 1)
        hidden = (self._places > positions[:, None]).view(count, 1, 1, self.length)
        self._bias = torch.zeros_like(hidden, dtype=memory.dtype).masked_fill_(hidden, float("-inf"))
        with attention(self):
            logits = model(
                input_ids=memory.tokens[:count, None],
                position_ids=positions[:, None],
                past_key_values=self,
                use_cache=True,
            ).logits
        made = logits[:, -1].argmax(-1)
        memory.made[:, :count].index_copy_(0, memory.tick, made[None])
        memory.tick.add_(1)
        memory.tokens[:count].copy_(made)
        positions.copy_(torch.minimum(positions + 1, memory.limits[:count]))

    def update(self, key_states: Any, value_states: Any, layer_idx: int, *_: object, **__: object) -> Pair:
        """Puts one key and value of each slot into its place; returns views of all places looked at."""
        pair = []
        for kept, new in zip(self.memory.pairs[layer_idx], (key_states, value_states), strict=True):
            seen = kept[: self.count, :, : self.length]
            seen.scatter_(2, self._at.expand_as(new), new)
            pair.append(seen)
        return pair[0], pair[1]

    def attend(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float | None) -> torch.Tensor:
        """Attention of one query a slot: heads that read the same keys are queries of one head."""
        rows, heads, _, width = query.shape
        many = heads // key.shape[1]
        query = query.view(rows, key.shape[1], many, width)
        bias = None if self._bias is None else self._bias.expand(-1, key.shape[1], many, -1)
        read = functional.scaled_dot_product_attention(query, key, value, attn_mask=bias, scale=scale)
        return read.reshape(rows, heads, 1, value.shape[3])


class Memory:
    """Slots on one device, and the state of the text in each.

    Args:
        shapes: heads, width of a key and width of a value, for each layer.
        count: how many slots.
        length: tokens a slot holds.
        ahead: steps whose tokens are kept until they are read.
        dtype: of keys and values.
        device: where.
    """

    def __init__(
        self,
        shapes: Sequence[tuple[int, int, int]],
        count: int,
        length: int,
        ahead: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.count, self.length, self.dtype, self.device = count, length, dtype, device
        # Zeros, not whatever was there: a place that is masked must still be a number.
        self.pairs: Past = [
            (
                torch.zeros(count, heads, length, key, dtype=dtype, device=device),
                torch.zeros(count, heads, length, value, dtype=dtype, device=device),
            )
            for heads, key, value in shapes
        ]
        self.tokens = torch.zeros(count, dtype=torch.long, device=device)
        self.positions = torch.zeros(count, dtype=torch.long, device=device)
        self.limits = torch.zeros(count, dtype=torch.long, device=device)
        """The last position each slot moves on to."""
        self.made = torch.zeros(ahead, count, dtype=torch.long, device=device)
        self.tick = torch.zeros(1, dtype=torch.long, device=device)
        self._graphs: dict[tuple[int, int], Any] = {}
        self._pool: Any = None
        self.recordable = enabled(device)
        avoid_cudnn_attention(device)
        self.refusal = ""
        """Why recording failed, if it did."""

    def write(self, layer: int, slots: torch.Tensor, pair: Pair) -> None:
        """Puts the keys and values of texts, from their start, into slots."""
        for kept, new in zip(self.pairs[layer], pair, strict=True):
            kept[:, :, : new.shape[2]].index_copy_(0, slots, new.expand(len(slots), -1, -1, -1))

    def begin(
        self, slots: torch.Tensor, tokens: Sequence[int], positions: Sequence[int], limits: Sequence[int]
    ) -> None:
        """Says which token each slot goes on with, where it stands, and up to which position it may move."""
        for kept, new in ((self.tokens, tokens), (self.positions, positions), (self.limits, limits)):
            kept.index_copy_(0, slots, put(new, self.device))

    def advance(self, model: Any, steps: int, count: int, length: int) -> torch.Tensor:
        """Makes ``steps`` tokens for each of the first ``count`` slots; shape (steps, count), on the device."""
        self.tick.zero_()
        run = self._recorded(model, count, length) if self.recordable else None
        for _ in range(steps):
            if run is not None:
                run()
            else:
                Step(self, count, length).run(model)
        return self.made[:steps, :count]

    def _recorded(self, model: Any, count: int, length: int) -> Any | None:
        if (count, length) not in self._graphs:
            step = Step(self, count, length)
            state = (self.tokens, self.positions, self.tick)
            before = [part.clone() for part in state]
            graph = torch.cuda.CUDAGraph()
            # The warm-up is guarded too: streams come from a small pool, and this may be one that is being recorded.
            with CAPTURING:
                side: Any = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call, unused-ignore]
                side.wait_stream(torch.cuda.current_stream(self.device))
                with torch.cuda.stream(side):
                    # Libraries set themselves up in the first passes, which must not be recorded.
                    for _ in range(2):
                        for part, old in zip(state, before, strict=True):
                            part.copy_(old)
                        step.run(model)
                    for part, old in zip(state, before, strict=True):
                        part.copy_(old)
                torch.cuda.current_stream(self.device).wait_stream(side)
                try:
                    # Other threads run other models meanwhile, and may ask for memory.
                    with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                        step.run(model)
                except torch.OutOfMemoryError:
                    raise
                except RuntimeError as error:
                    # A model that looks at its own numbers on the way cannot be recorded.
                    self.recordable, self.refusal = False, str(error)
                    self._graphs.clear()
                    return None
            self._pool = self._pool or graph.pool()
            self._graphs[count, length] = (graph, step)
        return self._graphs[count, length][0].replay


def bytes_a_token(shapes: Sequence[tuple[int, int, int]], dtype: torch.dtype) -> int:
    """Returns how much memory one token of one text takes."""
    return sum(heads * (key + value) for heads, key, value in shapes) * dtype.itemsize


def put(numbers: Sequence[Any], device: torch.device) -> torch.Tensor:
    """Returns whole numbers on the device, without waiting for what is under way there."""
    here = torch.tensor(numbers, dtype=torch.long)
    return here.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else here.to(device)


def _attend(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: Any = None,
    scaling: float | None = None,
    **given: Any,
) -> tuple[torch.Tensor, None]:
    phase: Phase | None = getattr(_current, "phase", None)
    if phase is None or attention_mask is not None or any(given.get(name) is not None for name in _CHANGES):
        raise UnsupportedError(f"{type(module).__name__} needs more than causal attention")
    return phase.attend(query, key, value, scaling).transpose(1, 2).contiguous(), None


ALL_ATTENTION_FUNCTIONS.register(NAME, _attend)


@contextlib.contextmanager
def attention(phase: Phase) -> Iterator[None]:
    """Attention functions of this thread belong to ``phase``."""
    _current.phase = phase
    try:
        yield
    finally:
        _current.phase = None


@contextlib.contextmanager
def slot_attention(model: Any) -> Iterator[None]:
    """The model's layers attend through this module; afterwards as before."""
    configs = {id(part.config): part.config for part in model.modules() if hasattr(part, "config")}
    before = [(config, config._attn_implementation) for config in configs.values()]
    try:
        for config in configs.values():
            config._attn_implementation = NAME
        yield
    finally:
        for config, name in before:
            config._attn_implementation = name
