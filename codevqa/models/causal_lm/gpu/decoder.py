"""Decodes many prompts at once in slots: a text that ends makes room for the next one, while the others go on.

Continuous batching as in Orca (Yu et al., OSDI 2022), greedy. What beginnings prompts share is computed once
(:mod:`.prefix_plan`); on a GPU the pass that makes a token for each slot is recorded and replayed (:mod:`.slots`), and
what it made is read a few tokens late, while the next ones are being made: what goes past the end of a text is cut.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ...cuda_graphs import free_cached_memory
from ..decoder_base import Ends, OwnLoop
from ..phases import Past, Prefill, attention
from ..rows import LMStats, PrefixStore, Row
from .prefix_plan import Node, plan
from .slots import Slots, Step, bytes_a_token, put

_SHARE = 0.6
"""How much of the free memory of a GPU slots may take."""


@dataclass(frozen=True)
class Pace:
    """What pays on one kind of device."""

    steps: int
    """Tokens made for each slot before the host looks at them."""
    late: int
    """Rounds of ``steps`` that may be under way before the host looks at one."""
    prefill: int
    """Tokens of prompts computed together."""
    worth: int
    """Tokens that a common beginning must save to be computed on its own."""
    grain: int
    """Lengths are rounded up to multiples of this: each has a recording of its own."""


GPU = Pace(steps=8, late=1, prefill=16384, worth=4096, grain=512)


@dataclass(eq=False)
class _Text:
    """A row that is being decoded."""

    row: Row
    slot: int
    launched: int = 0
    """Tokens made or being made."""
    tokens: list[int] = field(default_factory=list)
    done: bool = False

    @property
    def position(self) -> int:
        """Where the next token goes in: the first step puts in the prompt's last one."""
        return len(self.row.tokens) - 1 + self.launched


@dataclass(eq=False)
class _Round:
    """Steps under way."""

    made: torch.Tensor
    event: Any
    texts: list[_Text]


class SlotDecoder(OwnLoop):
    """Greedy decoding in slots, for models whose every layer is plain causal attention over the whole text.

    Args:
        model: a causal language model of transformers.
        pad: any token; fills up rows that are computed together.
        max_batch: slots at most; fewer where memory is short.
        prefix_bytes: memory for marked prefixes that are kept between calls.
        stats: counts what is done.
        pace: what pays on the model's device.
    """

    def __init__(
        self, model: Any, *, pad: int, max_batch: int, prefix_bytes: int, stats: LMStats, pace: Pace = GPU
    ) -> None:
        super().__init__(model, max_batch=max_batch, stats=stats)
        self.pad, self.pace = pad, pace
        self.prefixes: PrefixStore[Past] = PrefixStore(prefix_bytes)
        self.memory: Slots | None = None
        self._wanted = 0
        self._texts: dict[int, _Text] = {}

    def _probe(self, ids: torch.Tensor) -> torch.Tensor:
        length = ids.shape[1]
        third = length // 3
        head = self._forward(ids[:, :third], 0, Prefill(None))
        self._shapes = [(key.shape[1], key.shape[3], value.shape[3]) for key, value in head]
        self._dtype = head[0][0].dtype
        memory = Slots(self._shapes, 2, length + 1, length, self._dtype, self.device)
        slots = torch.tensor([1, 0], device=self.device)
        self._forward(ids[:, third : 2 * third].expand(2, -1), third, Prefill(head, memory, slots))
        made: list[torch.Tensor] = []
        hook = self.model.register_forward_hook(lambda module, given, output: made.append(output.logits))
        try:
            for place in range(2 * third, length):
                memory.begin(slots, [int(ids[0, place])] * 2, [place, 0], [place, 0])
                memory.tick.zero_()
                Step(memory, 2, length + 1).run(self.model)
        finally:
            hook.remove()
        return made[-1][1, -1:].float()

    def release(self) -> None:
        """Gives slots, recordings and kept prefixes back."""
        self.memory = None
        self._texts.clear()
        self.prefixes.clear()
        if self.device.type == "cuda":
            free_cached_memory()

    def _used(self, rows: int) -> int:
        return self.memory.count if self.memory is not None else min(self.max_batch, rows)

    def _run(self, rows: Sequence[Row], ends: Ends, done: dict[int, list[int]]) -> None:
        self._texts.clear()
        memory = self._reserve(rows)
        queue = deque(node for root in plan(rows, self.pace.worth) for node in root.walk())
        waiting = len(rows)
        flight: deque[_Round] = deque()
        while waiting or self._texts or flight:
            # Few at a time would launch as many kernels as many do.
            while waiting and memory.count - len(self._texts) >= min(waiting, max(1, memory.count // 8)):
                waiting -= self._admit(memory, queue)
            if self._texts:
                flight.append(self._launch(memory))
            while len(flight) > (self.pace.late if self._texts else 0):
                self._collect(flight.popleft(), ends, done)

    def _reserve(self, rows: Sequence[Row]) -> Slots:
        """Returns slots for the longest row; those of the last call where they suffice."""
        # A round can go on after a text has ended, but never past its limit.
        need = _up(max(len(row.tokens) + row.max_tokens for row in rows), self.pace.grain)
        count = min(self.max_batch, 1 << (len(rows) - 1).bit_length())
        kept = self.memory
        if kept is not None and kept.length >= need and self._wanted >= count:
            return kept
        if kept is not None:
            need, count = max(need, kept.length), max(count, self._wanted)
        self.memory = kept = None
        self._wanted = count
        if self.device.type == "cuda":
            free_cached_memory()
            free = torch.cuda.mem_get_info(self.device)[0]
            count = max(1, min(count, int(free * _SHARE) // (need * bytes_a_token(self._shapes, self._dtype))))
        self.memory = Slots(self._shapes, count, need, self.pace.steps, self._dtype, self.device)
        return self.memory

    def _admit(self, memory: Slots, queue: deque[Node]) -> int:
        """Computes the next prompts into free slots; returns how many."""
        while not queue[0].rows:
            queue.popleft()
        node = queue[0]
        past = self._past(node)
        head = len(node.tokens)
        free = [slot for slot in range(memory.count) if slot not in self._texts]
        width = 0
        batch: list[Row] = []
        for row in node.rows[: len(free)]:
            wide = max(width, len(row.tokens) - 1 - head)
            if batch and wide * (len(batch) + 1) > self.pace.prefill:
                break
            width = wide
            batch.append(row)
        # The last token of each prompt is left to the first step, which also gives its logits.
        parts = [row.tokens[head:-1] for row in batch]
        node.rows = node.rows[len(batch) :]
        self.stats.prefilled_tokens += sum(map(len, parts)) + len(batch)
        self.stats.reused_tokens += head * len(batch)
        slots = put(free[: len(batch)], self.device)
        if width:
            ids = put([[*part, *[self.pad] * (width - len(part))] for part in parts], self.device)
            self._forward(ids, head, Prefill(past, memory, slots))
        elif past is not None:
            for layer, pair in enumerate(past):
                memory.write(layer, slots, pair)
        starts = [len(row.tokens) - 1 for row in batch]
        limits = [start + row.max_tokens - 1 for start, row in zip(starts, batch, strict=True)]
        memory.begin(slots, [row.tokens[-1] for row in batch], starts, limits)
        self._texts.update((slot, _Text(row, slot)) for slot, row in zip(free, batch, strict=False))
        return len(batch)

    def _past(self, node: Node) -> Past | None:
        """Returns the keys and values of a beginning, computed now unless they are there."""
        if not node.tokens:
            return None
        if node.past is None:
            key = tuple(node.tokens)
            node.past = self.prefixes.get(key) if node.marked else None
            if node.past is not None:
                self.stats.prefix_hits += 1
                return self._past(node)
            before = self._past(node.parent) if node.parent is not None else None
            head = len(node.parent.tokens) if node.parent is not None else 0
            ids = put([node.tokens[head:]], self.device)
            node.past = self._forward(ids, head, Prefill(before))
            self.stats.prefix_misses += 1
            self.stats.prefilled_tokens += ids.shape[1]
            self.stats.reused_tokens += head
            if node.marked:
                size = sum(key.nbytes + value.nbytes for key, value in node.past)
                self.prefixes.put(key, node.past, size)
        past: Past = node.past
        return past

    def _forward(self, ids: torch.Tensor, head: int, phase: Prefill) -> Past:
        """Runs tokens that begin at position ``head`` through the layers, not the language model's head."""
        with attention(phase):
            self.model.base_model(
                input_ids=ids, position_ids=self._positions(ids, head), past_key_values=phase, use_cache=True
            )
        self.stats.prefills += 1
        return phase.past

    def _positions(self, ids: torch.Tensor, head: int) -> torch.Tensor:
        return torch.arange(head, head + ids.shape[1], device=self.device).expand(len(ids), -1)

    def _launch(self, memory: Slots) -> _Round:
        """Starts a round of steps for all texts."""
        texts = list(self._texts.values())
        steps = min(self.pace.steps, max(text.row.max_tokens - text.launched for text in texts))
        # Texts stop moving at their limits, which are within memory.
        length = min(_up(max(text.position for text in texts) + steps, self.pace.grain), memory.length)
        count = max(text.slot for text in texts) + 1
        if self.device.type == "cuda":
            count = min(1 << (count - 1).bit_length(), memory.count)
        made = memory.advance(self.model, steps, count, length)
        self.stats.steps += steps
        event = None
        # The next round writes over it.
        if self.device.type != "cuda":
            made = made.clone()
        else:
            made = torch.empty(made.shape, dtype=made.dtype, pin_memory=True).copy_(made, non_blocking=True)
            event = torch.cuda.Event()  # type: ignore[no-untyped-call, unused-ignore]
            event.record()
        for text in texts:
            text.launched += steps
            if text.launched >= text.row.max_tokens:
                # All its tokens are on their way: whatever is put into its slot comes after them.
                del self._texts[text.slot]
        return _Round(made, event, texts)

    def _collect(self, flown: _Round, ends: Ends, done: dict[int, list[int]]) -> None:
        """Reads what a round made, and frees the slots of texts that have ended."""
        if flown.event is not None:
            flown.event.synchronize()
        columns = flown.made.T.tolist()
        for text in flown.texts:
            if text.done:
                continue
            text.tokens += columns[text.slot]
            end = ends(text.row, text.tokens, len(columns[text.slot]))
            if end is None:
                continue
            text.done = True
            done[text.row.index] = text.tokens[:end]
            if self._texts.get(text.slot) is text:
                del self._texts[text.slot]


def _up(number: int, grain: int) -> int:
    return -(-number // grain) * grain
