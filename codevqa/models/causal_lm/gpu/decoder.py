"""Decodes many prompts at once in slots: a text that ends makes room for the next one, while the others go on.

Continuous batching as in Orca (Yu et al., OSDI 2022), greedy. A prefix that requests mark is computed once and kept. On
a GPU passes are recorded and replayed (:mod:`.slots`, :mod:`.prefill`), and the tokens they make are read a few steps
late, while the next ones are being made: what goes past the end of a text is cut.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ...cuda_graphs import free_cached_memory
from ..generate import MarkedPrefixes
from ..network import LlamaNetwork
from ..work import LMStats, TokenisedRequest, Work
from .prefill import PrefillPart, fill_slots
from .slots import Slots, bytes_a_token

_SHARE = 0.6
"""How much of the free memory of a GPU slots may take."""


@dataclass(frozen=True)
class Schedule:
    """What pays on one kind of device."""

    steps: int
    """Tokens made for each slot before the host looks at them."""
    rounds_in_flight: int
    """Rounds of ``steps`` that may be under way before the host looks at one."""
    prefill_tokens: int
    """Tokens of prompts computed together."""
    length_multiple: int
    """Lengths are rounded up to multiples of this: each has a recording of its own."""


GPU = Schedule(steps=8, rounds_in_flight=1, prefill_tokens=4096, length_multiple=512)


@dataclass(eq=False)
class _SlotRequest:
    """A request that is being decoded."""

    request: TokenisedRequest
    slot: int
    launched: int = 0
    """Tokens made or being made."""
    tokens: list[int] = field(default_factory=list)
    done: bool = False

    @property
    def position(self) -> int:
        """Where the next token goes in: the first step puts in the prompt's last one."""
        return len(self.request.tokens) - 1 + self.launched


@dataclass(eq=False)
class _Round:
    """Steps under way."""

    tokens: torch.Tensor
    event: Any
    texts: list[_SlotRequest]


class SlotDecoder:
    """Greedy decoding in slots.

    Args:
        model: the network.
        pad: any token; fills up passes over prompts.
        max_batch: slots at most; fewer where memory is short.
        prefix_bytes: memory for marked prefixes that are kept between calls.
        stats: counts what is done.
        schedule: what pays on the model's device.
        kernels: what to compute with; None takes :mod:`.kernels` on a GPU that can use them, else PyTorch's operators.
    """

    joins = True

    def __init__(
        self,
        model: LlamaNetwork,
        *,
        pad: int,
        max_batch: int,
        prefix_bytes: int,
        stats: LMStats,
        schedule: Schedule = GPU,
        kernels: Any = None,
    ) -> None:
        self.model, self.pad, self.schedule = model, pad, schedule
        self.max_batch, self.stats = max_batch, stats
        weight = model.lm_head.weight
        self.device, self._dtype = weight.device, weight.dtype
        self._shape = (model.config.layers, model.config.key_heads, model.config.head_width)
        if kernels is None and self.device.type == "cuda":
            from . import kernels as own  # they import Triton

            kernels = own if own.usable(weight, model.config.head_width) else None
        self._kernels = kernels
        if kernels is not None:
            model.fuse(kernels)
        self.prefixes = MarkedPrefixes(prefix_bytes, lambda past: past.nbytes)
        self.memory: Slots | None = None
        self._wanted = 0
        self._texts: dict[int, _SlotRequest] = {}

    def run(self, work: Work) -> None:
        """Decodes all requests, and those that join them.

        What does not fit into memory is begun again with half as many texts at once; those that were done stay done.

        Raises:
            torch.OutOfMemoryError: not even one request fits.
        """
        while begun := len(work.open):
            try:
                self._run(work)
            except torch.OutOfMemoryError:
                used = self.memory.count if self.memory is not None else min(self.max_batch, begun)
                self.release()
                if used == 1:
                    raise
                self.max_batch = used // 2

    def release(self) -> None:
        """Gives slots, recordings and kept prefixes back."""
        self.memory = None
        self._texts.clear()
        self.prefixes.clear()
        free_cached_memory()

    def _run(self, work: Work) -> None:
        self._texts.clear()
        fresh: Sequence[TokenisedRequest] = list(work.open.values())
        memory = self._reserve(fresh, self.max_batch if work.joins else len(fresh))
        queue: deque[TokenisedRequest] = deque()
        late = False
        flight: deque[_Round] = deque()
        while fresh or queue or self._texts or flight:
            queue.extend(fresh)
            # Few at a time would launch as many kernels as many do.
            if queue and memory.count - len(self._texts) >= min(len(queue), max(1, memory.count // 8)):
                self._admit(memory, queue)
            if self._texts:
                flight.append(self._launch(memory))
            while len(flight) > (self.schedule.rounds_in_flight if self._texts else 0):
                self._collect(flight.popleft(), work)
            # Those for whom slots are too short stay open, and all others with them, until new slots are made.
            room = 0 if late else memory.count - len(self._texts) - len(queue)
            fresh = work.more(room) if room > 0 else ()
            late = late or any(_length(request) > memory.length for request in fresh)
            fresh = [request for request in fresh if _length(request) <= memory.length]

    def _reserve(self, requests: Sequence[TokenisedRequest], texts: int) -> Slots:
        """Returns slots for the longest request; those of the last call where they suffice."""
        # A round can go on after a text has ended, but never past its limit.
        need = _round_up(max(map(_length, requests)), self.schedule.length_multiple)
        count = min(self.max_batch, 1 << (texts - 1).bit_length())
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
            count = max(1, min(count, int(free * _SHARE) // (need * bytes_a_token(self._shape, self._dtype))))
        self.memory = Slots(self._shape, count, need, self.schedule.steps, self._dtype, self.device, self._kernels)
        return self.memory

    def _admit(self, memory: Slots, queue: deque[TokenisedRequest]) -> None:
        """Computes the next prompts into free slots."""
        free = [slot for slot in range(memory.count) if slot not in self._texts]
        texts = [_SlotRequest(queue.popleft(), slot) for slot in free[: len(queue)]]
        sharing: dict[tuple[int, ...], list[int]] = {}
        for text in texts:
            sharing.setdefault(tuple(text.request.tokens[: text.request.prefix]), []).append(text.slot)
        for prefix, slots in sharing.items():
            if prefix:
                memory.write(slots, self._past(memory, prefix, slots[0]))
        # The last token of each prompt is left to the first step, which also gives its logits.
        parts = [
            PrefillPart(text.slot, text.request.prefix, text.request.tokens[text.request.prefix : -1]) for text in texts
        ]
        self._fill(memory, parts)
        self.stats.prefilled_tokens += len(texts)
        self.stats.reused_tokens += sum(text.request.prefix for text in texts)
        starts = [text.position for text in texts]
        limits = [text.position + text.request.max_tokens - 1 for text in texts]
        memory.begin([text.slot for text in texts], [text.request.tokens[-1] for text in texts], starts, limits)
        self._texts.update((text.slot, text) for text in texts)

    def _past(self, memory: Slots, prefix: tuple[int, ...], slot: int) -> torch.Tensor:
        """Returns the keys and values of a prefix, computed now in a free slot unless they are there."""
        past: torch.Tensor | None = self.prefixes.get(prefix)
        if past is None:
            self._fill(memory, [PrefillPart(slot, 0, prefix)])
            past = memory.read(slot, len(prefix))
            self.prefixes.keep(prefix, past)
        return past

    def _fill(self, memory: Slots, parts: Sequence[PrefillPart]) -> None:
        fill_slots(self.model, memory, parts, self.schedule.prefill_tokens, self.pad)
        self.stats.prefilled_tokens += sum(len(part.tokens) for part in parts)

    def _launch(self, memory: Slots) -> _Round:
        """Starts a round of steps for all texts."""
        texts = list(self._texts.values())
        steps = min(self.schedule.steps, max(text.request.max_tokens - text.launched for text in texts))
        # Texts stop moving at their limits, which are within memory.
        length = memory.length
        if self._kernels is None:  # kernels look at no place beyond each text's own
            longest = max(text.position for text in texts) + steps
            length = min(_round_up(longest, self.schedule.length_multiple), length)
        count = max(text.slot for text in texts) + 1
        if self.device.type == "cuda":
            count = min(1 << (count - 1).bit_length(), memory.count)
        tokens = memory.advance(self.model, steps, count, length)
        self.stats.steps += steps
        on_gpu, event = self.device.type == "cuda", None
        # A copy: the next round writes over it.
        tokens = torch.empty(tokens.shape, dtype=tokens.dtype, pin_memory=on_gpu).copy_(tokens, non_blocking=True)
        if on_gpu:
            event = torch.cuda.Event()  # type: ignore[no-untyped-call, unused-ignore]
            event.record()
        for text in texts:
            text.launched += steps
            if text.launched >= text.request.max_tokens:
                # All its tokens are on their way: whatever is put into its slot comes after them.
                del self._texts[text.slot]
        return _Round(tokens, event, texts)

    def _collect(self, flown: _Round, work: Work) -> None:
        """Reads what a round made, and frees the slots of texts that have ended."""
        if flown.event is not None:
            flown.event.synchronize()
        columns = flown.tokens.T.tolist()
        for text in flown.texts:
            if text.done:
                continue
            text.tokens += columns[text.slot]
            end = work.find_end(text.request, text.tokens, len(columns[text.slot]))
            if end is None:
                continue
            text.done = True
            work.end(text.request, text.tokens[:end])
            if self._texts.get(text.slot) is text:
                del self._texts[text.slot]


def _length(request: TokenisedRequest) -> int:
    return len(request.tokens) + request.max_tokens


def _round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
