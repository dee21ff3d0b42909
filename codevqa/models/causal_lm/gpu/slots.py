"""Keys and values of many texts in fixed memory, one slot a text, and the pass that makes a token for each.

The shapes of the pass that makes one token for each text stay the same from token to token. So on a GPU it is recorded
once as a CUDA graph and replayed: at these sizes launching the kernels one by one costs far more than running them.
"""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional

from ...cuda_graphs import Recorder, avoid_cudnn_attention, graphs_enabled
from ...library_errors import first_line
from ..network import Heads, LlamaNetwork

_log = logging.getLogger(__name__)


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
        tokens = model(self).argmax(-1)
        memory.generated[:, :count].index_copy_(0, memory.tick, tokens[None])
        memory.tick.add_(1)
        self.ids.copy_(tokens)
        self.positions.copy_(torch.minimum(self.positions + 1, memory.limits[:count]))

    def keep(self, heads: Heads, layer: int) -> torch.Tensor:
        """Turns one query and key of each slot, and puts key and value into their places."""
        self._layer = layer
        memory = self.memory
        return heads.turn_and_keep(*memory.pairs[layer], memory.rows[: self.count], self.positions)

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
        self._past = torch.zeros(2 * layers, count, heads, length, width, dtype=dtype, device=device)
        self.pairs = list(zip(self._past[::2], self._past[1::2], strict=True))
        """Keys and values of each layer, each (slots, heads, places, width)."""
        self.rows = torch.arange(count, device=device)
        self.tokens = torch.zeros(count, dtype=torch.long, device=device)
        self.positions = torch.zeros(count, dtype=torch.long, device=device)
        self.limits = torch.zeros(count, dtype=torch.long, device=device)
        """The last position each slot moves on to."""
        self.generated = torch.zeros(ahead, count, dtype=torch.long, device=device)
        self.tick = torch.zeros(1, dtype=torch.long, device=device)
        self._replays: dict[tuple[int, ...], Callable[[], None]] = {}
        self._plans: dict[tuple[int, int], tuple[torch.Tensor, torch.Tensor]] = {}
        # Passes leave all they make in slots: their recordings can share what memory they need in between.
        self._record = Recorder(device, share_memory=True)
        self.recordable = graphs_enabled(device)
        avoid_cudnn_attention(device)

    def read(self, slot: int, length: int) -> torch.Tensor:
        """Returns a copy of the first keys and values in a slot, (2 * layers, heads, length, width)."""
        return self._past[:, slot, :, :length].clone()

    def write(self, slots: Sequence[int], past: torch.Tensor) -> None:
        """Puts keys and values, as :meth:`read` returns them, into slots."""
        copies = past[:, None].expand(-1, len(slots), -1, -1, -1)
        self._past[:, :, :, : past.shape[2]].index_copy_(1, to_device(slots, self.device), copies)

    def plan(self, tokens: int, tiles: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the memory in which a recorded pass over so many tokens is told them and their tiles."""
        if (tokens, tiles) not in self._plans:
            kinds: dict[str, Any] = {"dtype": torch.long, "device": self.device}
            self._plans[tokens, tiles] = torch.zeros(3, tokens, **kinds), torch.zeros(tiles, 4, **kinds)
        return self._plans[tokens, tiles]

    def begin(
        self, slots: Sequence[int], tokens: Sequence[int], positions: Sequence[int], limits: Sequence[int]
    ) -> None:
        """Says which token each slot goes on with, where it stands, and up to which position it may move."""
        rows, *state = to_device([slots, tokens, positions, limits], self.device)
        for kept, new in zip((self.tokens, self.positions, self.limits), state, strict=True):
            kept.index_copy_(0, rows, new)

    def advance(self, model: LlamaNetwork, steps: int, count: int, length: int) -> torch.Tensor:
        """Makes ``steps`` tokens for each of the first ``count`` slots; shape (steps, count), on the device."""
        self.tick.zero_()
        step = self.record_pass(
            (count, length),
            lambda: functools.partial(Step(self, count, length).run, model),
            (self.tokens, self.positions, self.tick),
        )
        for _ in range(steps):
            step()
        return self.generated[:steps, :count]

    def record_pass(
        self, key: tuple[int, ...], prepare: Callable[[], Callable[[], None]], state: Sequence[torch.Tensor] = ()
    ) -> Callable[[], None]:
        """Returns a pass of fixed shapes: on a GPU what replays it, recorded when it is asked for the first time.

        Args:
            key: names the pass.
            prepare: returns what runs it; that reads and writes fixed memory only.
            state: what the pass changes so that another run would do another thing.

        Raises:
            torch.OutOfMemoryError: the recording does not fit.
        """
        if key in self._replays:
            return self._replays[key]
        run = prepare()
        if not self.recordable:
            return run
        before = [part.clone() for part in state]

        def undo() -> None:
            for part, old in zip(state, before, strict=True):
                part.copy_(old)

        try:
            self._replays[key], _ = self._record(run, undo)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            self.recordable = False
            _log.warning("Passes of language models are not recorded as CUDA graphs: %s.", first_line(error))
            self._replays.clear()
            return run
        return self._replays[key]


def bytes_a_token(shape: tuple[int, int, int], dtype: torch.dtype) -> int:
    """Returns how much memory one token of one text takes."""
    return 2 * math.prod(shape) * dtype.itemsize


def to_device(numbers: Sequence[Any], device: torch.device) -> torch.Tensor:
    """Returns whole numbers on the device, without waiting for what is under way there."""
    here = torch.tensor(numbers, dtype=torch.long)
    return here.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else here.to(device)
