"""Keys and values of many texts in fixed memory, one slot a text, and the passes that fill and read it.

The shapes of the pass that makes one token for each text stay the same from token to token. So on a GPU it is recorded
once as a CUDA graph and replayed: at these sizes launching the kernels one by one costs far more than running them.
"""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch.nn import functional

from ...cuda_graphs import Recorder, avoid_cudnn_attention, enabled
from ...library_errors import first_line
from ..network import Heads, LlamaNetwork

_log = logging.getLogger(__name__)

Pair: TypeAlias = "tuple[torch.Tensor, torch.Tensor]"
"""Keys and values of one layer."""
Past: TypeAlias = "list[Pair]"
"""Keys and values of each layer, shape (1, heads, tokens, width)."""


class Prefill:
    """The pass over parts of prompts that all follow the same prefix; rows are padded on the right.

    Attention is causal, so what pads a row changes nothing before it, and no mask is needed. The keys and values of
    prefix and part go to ``slots`` of ``memory``, or stay in :attr:`past`. No logits are asked for.

    Args:
        ids: tokens of the parts, (rows, tokens).
        prefix: keys and values of what stands before them; None where nothing does.
        memory: where keys and values go; None keeps them.
        slots: the slot of each row, (rows,).
    """

    def __init__(
        self,
        ids: torch.Tensor,
        prefix: Past | None,
        memory: Slots | None = None,
        slots: torch.Tensor | None = None,
    ) -> None:
        self.prefix, self.memory, self.slots = prefix, memory, slots
        self.past: Past = []
        self._shape = ids.shape
        head = prefix[0][0].shape[2] if prefix is not None else 0
        self.ids = ids.flatten()
        self.positions = torch.arange(head, head + ids.shape[1], device=ids.device).repeat(len(ids))
        self._pair: Pair = (self.ids, self.ids)

    def keep(self, heads: Heads, layer: int) -> torch.Tensor:
        """Turns queries and keys, and keeps keys and values as :meth:`update` does."""
        query, key, value = heads.turned()
        self.update(key, value, layer)
        return query

    def update(self, key: torch.Tensor, value: torch.Tensor, layer: int) -> None:
        """Keeps the keys and values of prefix and part together."""
        key, value = self._rows(key), self._rows(value)
        if self.prefix is not None:
            before_key, before_value = self.prefix[layer]
            key = torch.cat([before_key.expand(len(key), -1, -1, -1), key], 2)
            value = torch.cat([before_value.expand(len(value), -1, -1, -1), value], 2)
        self._pair = (key, value)
        if self.memory is not None and self.slots is not None:
            self.memory.write(layer, self.slots, self._pair)
        else:
            self.past.append(self._pair)

    def narrow(self) -> torch.Tensor:
        """Asks for no logits."""
        return self.ids[:0]

    def attend(self, query: torch.Tensor, scale: float) -> torch.Tensor:
        """Causal attention of the last positions."""
        asked, (key, value) = self._rows(query), self._pair
        grouped = asked.shape[1] != key.shape[1]
        if grouped and not (asked.is_cuda and asked.dtype in (torch.float16, torch.bfloat16)):
            # Only flash attention reads one head for many without a copy of it.
            key, value = (part.repeat_interleave(asked.shape[1] // key.shape[1], 1) for part in (key, value))
            grouped = False
        whole = asked.shape[2] == key.shape[2]
        read = functional.scaled_dot_product_attention(
            asked,
            key,
            value,
            attn_mask=None if whole else _lower_right()(asked.shape[2], key.shape[2]),
            is_causal=whole,
            scale=scale,
            enable_gqa=grouped,
        )
        return read.transpose(1, 2).reshape(len(query), -1)

    def _rows(self, states: torch.Tensor) -> torch.Tensor:
        """From (tokens, heads, width) to (rows, heads, tokens a row, width)."""
        return states.view(*self._shape, *states.shape[1:]).transpose(1, 2)


class Step:
    """The pass that makes one token for each of the first ``count`` slots, reading ``length`` places of each.

    Args:
        memory: the slots.
        count: how many slots.
        length: places of a slot that are looked at; all positions must be below it.
    """

    def __init__(self, memory: Slots, count: int, length: int) -> None:
        self.memory, self.count, self.length = memory, count, length
        self.ids, self.positions = memory.tokens[:count], memory.positions[:count]
        self._places = torch.arange(length, device=memory.device)
        self._bias: torch.Tensor = self._places
        self._at: torch.Tensor = self._places
        self._layer = 0

    def run(self, model: LlamaNetwork) -> None:
        """Makes one token for each slot and moves on; reads and writes memory only, so it can be recorded."""
        memory, count = self.memory, self.count
        # A slot whose text has ended goes on moving until it is taken, and may be past what is looked at.
        if memory.kernels is None:
            self._at = self.positions.clamp(max=self.length - 1).view(count, 1, 1, 1)
            hidden = (self._places > self.positions[:, None]).view(count, 1, 1, self.length)
            self._bias = torch.zeros_like(hidden, dtype=memory.dtype).masked_fill_(hidden, float("-inf"))
        made = model(self).argmax(-1)
        memory.made[:, :count].index_copy_(0, memory.tick, made[None])
        memory.tick.add_(1)
        self.ids.copy_(made)
        self.positions.copy_(torch.minimum(self.positions + 1, memory.limits[:count]))

    def keep(self, heads: Heads, layer: int) -> torch.Tensor:
        """Turns one query and key of each slot, and puts key and value into their places."""
        self._layer = layer
        return heads.turn_and_keep(*self.memory.pairs[layer], self.positions)

    def update(self, key: torch.Tensor, value: torch.Tensor, layer: int) -> None:
        """Puts one key and value of each slot into its place."""
        self._layer = layer
        for kept, new in zip(self.memory.pairs[layer], (key, value), strict=True):
            new = new[:, :, None]
            kept[: self.count, :, : self.length].scatter_(2, self._at.expand_as(new), new)

    def narrow(self) -> None:
        """Asks for the logits of every token."""

    def attend(self, query: torch.Tensor, scale: float) -> torch.Tensor:
        """Attention of one query a slot: heads that read the same keys are queries of one head."""
        if (kernels := self.memory.kernels) is not None:
            pair = self.memory.pairs[self._layer]
            brought: torch.Tensor = kernels.attend(query, *pair, self.positions, self.length, scale)
            return brought
        key, value = (kept[: self.count, :, : self.length] for kept in self.memory.pairs[self._layer])
        asked = query.view(self.count, key.shape[1], -1, query.shape[2])
        bias = self._bias.expand(-1, key.shape[1], asked.shape[2], -1)
        read = functional.scaled_dot_product_attention(asked, key, value, attn_mask=bias, scale=scale)
        return read.reshape(self.count, -1)


class Slots:
    """Slots on one device, and the state of the text in each.

    Args:
        shape: layers, heads, and width of a key or value.
        count: how many slots.
        length: tokens a slot holds.
        ahead: steps whose tokens are kept until they are read.
        dtype: of keys and values.
        device: where.
        kernels: :mod:`.kernels`, if the network computes with them.
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        count: int,
        length: int,
        ahead: int,
        dtype: torch.dtype,
        device: torch.device,
        kernels: Any = None,
    ) -> None:
        self.kernels = kernels
        self.count, self.length, self.dtype, self.device = count, length, dtype, device
        layers, heads, width = shape
        # Zeros, not whatever was there: a place that is masked must still be a number.
        each = [torch.zeros(count, heads, length, width, dtype=dtype, device=device) for _ in range(2 * layers)]
        self.pairs: Past = list(zip(each[::2], each[1::2], strict=True))
        self.tokens = torch.zeros(count, dtype=torch.long, device=device)
        self.positions = torch.zeros(count, dtype=torch.long, device=device)
        self.limits = torch.zeros(count, dtype=torch.long, device=device)
        """The last position each slot moves on to."""
        self.made = torch.zeros(ahead, count, dtype=torch.long, device=device)
        self.tick = torch.zeros(1, dtype=torch.long, device=device)
        self._replays: dict[tuple[int, int], Callable[[], None]] = {}
        # Steps leave all they make in slots: their recordings can share what memory they need in between.
        self._record = Recorder(device, share_memory=True)
        self.recordable = enabled(device)
        avoid_cudnn_attention(device)

    def write(self, layer: int, slots: torch.Tensor, pair: Pair) -> None:
        """Puts the keys and values of texts, from their start, into slots."""
        for kept, new in zip(self.pairs[layer], pair, strict=True):
            kept[:, :, : new.shape[2]].index_copy_(0, slots, new.expand(len(slots), -1, -1, -1))

    def begin(
        self, slots: torch.Tensor, tokens: Sequence[int], positions: Sequence[int], limits: Sequence[int]
    ) -> None:
        """Says which token each slot goes on with, where it stands, and up to which position it may move."""
        for kept, new in ((self.tokens, tokens), (self.positions, positions), (self.limits, limits)):
            kept.index_copy_(0, slots, to_device(new, self.device))

    def advance(self, model: LlamaNetwork, steps: int, count: int, length: int) -> torch.Tensor:
        """Makes ``steps`` tokens for each of the first ``count`` slots; shape (steps, count), on the device."""
        self.tick.zero_()
        replay = self._replay(model, count, length) if self.recordable else None
        for _ in range(steps):
            if replay is not None:
                replay()
            else:
                Step(self, count, length).run(model)
        return self.made[:steps, :count]

    def _replay(self, model: LlamaNetwork, count: int, length: int) -> Callable[[], None] | None:
        """Returns what replays a step, recorded now unless it has been; None where it cannot be."""
        if (count, length) not in self._replays:
            step = Step(self, count, length)
            state = (self.tokens, self.positions, self.tick)
            before = [part.clone() for part in state]

            def undo() -> None:
                for part, old in zip(state, before, strict=True):
                    part.copy_(old)

            try:
                self._replays[count, length], _ = self._record(lambda: step.run(model), undo)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                self.recordable = False
                _log.warning("Decoding steps are not recorded as CUDA graphs: %s.", first_line(error))
                self._replays.clear()
                return None
        return self._replays[count, length]


@functools.cache
def _lower_right() -> Callable[[int, int], torch.Tensor]:
    """Returns what makes the bias of causal attention of the last positions. Its module brings the compiler."""
    from torch.nn.attention.bias import causal_lower_right

    return causal_lower_right


def bytes_a_token(shape: tuple[int, int, int], dtype: torch.dtype) -> int:
    """Returns how much memory one token of one text takes."""
    return 2 * math.prod(shape) * dtype.itemsize


def to_device(numbers: Sequence[Any], device: torch.device) -> torch.Tensor:
    """Returns whole numbers on the device, without waiting for what is under way there."""
    here = torch.tensor(numbers, dtype=torch.long)
    return here.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else here.to(device)
