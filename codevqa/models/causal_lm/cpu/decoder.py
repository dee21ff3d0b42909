"""Decodes many prompts at once where passes are slow and launching them is cheap, as on a CPU.

Each pass takes what is next of every text, laid end to end without padding: the rest of a prompt past its longest known
beginning (:mod:`.prefix_cache`), or the last token and a guess at those that follow (:mod:`.speculation`), of which the
model confirms as many as it would have written itself (speculative decoding: Leviathan et al., 2023; greedy, so the
text is the same). New prompts join as texts end. Two threads share the prompts: at these sizes that keeps two cores busier than
two threads for each product of matrices do, and waits for nobody where other programs want the cores, too. Models
built like Llama take a shorter way through their layers than that of transformers (:mod:`.llama_layers`).
"""

from __future__ import annotations

import inspect
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

import torch

from ...cpu_threads import LARGE, compute_with
from ..decoder_base import Ends, OwnLoop
from ..phases import Prefill, UnsupportedError, attention
from ..rows import LMStats, Row, common
from .forward_pass import KeyValues, Pack, Part
from .llama_layers import Layers
from .prefix_cache import PrefixTree
from .speculation import Drafts

_PASS = 448
"""Tokens in one pass, about: more cost as much each, fewer cost more."""
_SHARE = 16
"""A prompt waits a pass for another that begins with so many tokens more of it than are known."""
_FIRST = 8
"""Tokens guessed after a prompt, where most texts begin alike."""
_LEAST, _MOST, _ALL = 3, 8, 16
"""Tokens guessed of a text under way, at least, at most, and of all texts together."""
_GRAIN = 64
"""Lengths of slots are rounded up to multiples of this."""
_LANES = 2
"""Threads that decode."""


@dataclass(eq=False)
class _Text:
    """A row that is being decoded."""

    row: Row
    slot: int
    computed: int
    """Tokens whose keys and values are in the slot."""
    tokens: list[int]
    """Prompt and what has been made."""
    guessed: list[int] = field(default_factory=list)


@dataclass(eq=False)
class _Lane:
    """What one thread decodes."""

    memory: KeyValues
    take: Callable[[], Row]
    """Takes a prompt off the queue, at the lane's end of it."""
    give_back: Callable[[Row], None]
    """Puts back the one taken last."""
    texts: dict[int, _Text] = field(default_factory=dict)
    """By slot."""


class PackedDecoder(OwnLoop):
    """Greedy decoding in packed passes, with guesses.

    Args:
        model: a causal language model of transformers.
        max_batch: texts decoded together at most.
        prefix_bytes: memory for beginnings of prompts that are kept.
        stats: counts what is done.
    """

    def __init__(self, model: Any, *, max_batch: int, prefix_bytes: int, stats: LMStats) -> None:
        super().__init__(model, max_batch=max_batch, stats=stats)
        self.prefixes = PrefixTree(prefix_bytes)
        self._memories: list[KeyValues] = []
        self._drafts = Drafts()
        self._layers = Layers(model) if Layers.fits(model) else None
        self._keeps_some = "logits_to_keep" in inspect.signature(model.forward).parameters
        self._lock = threading.Lock()
        """Held by whoever changes what lanes have in common."""
        self._threads: ThreadPoolExecutor | None = None
        weights = sum(weight.numel() for weight in model.base_model.parameters())
        self._large = weights >= LARGE * getattr(model.config.get_text_config(), "num_hidden_layers", 1)

    def supported(self) -> bool:
        """Tries the loop on a short text, if need be through the model's own modules."""
        if super().supported():
            return True
        if self._layers is None:
            return False
        self._layers = None
        return super().supported()

    def release(self) -> None:
        """Gives slots and kept prefixes back."""
        self._memories.clear()
        self.prefixes.clear()

    def _probe(self, ids: torch.Tensor) -> torch.Tensor:
        third = ids.shape[1] // 3
        tokens: list[int] = ids[0].tolist()
        phase = Prefill(None)
        with attention(phase):
            self.model.base_model(
                input_ids=ids[:, :third],
                position_ids=torch.arange(third, device=self.device)[None],
                past_key_values=phase,
                use_cache=True,
            )
        self._shapes = [(key.shape[1], key.shape[3], value.shape[3]) for key, value in phase.past]
        self._dtype = phase.past[0][0].dtype
        memory = KeyValues(self._shape(), 2, len(tokens), self._dtype, self.device)
        memory.fill(1, [(torch.cat([key for key, _ in phase.past]), torch.cat([value for _, value in phase.past]))])
        short = tokens[:5]
        self._forward(memory, [Part(0, 0, short), Part(1, third, tokens[third : 2 * third])], [0, 0])
        for at in range(2 * third, len(tokens) - 1):
            self._forward(memory, [Part(1, at, tokens[at : at + 1]), Part(0, 5, short[:3])], [1, 3])
        last = [Part(0, 2, short), Part(1, len(tokens) - 1, tokens[-1:])]
        return self._forward(memory, last, [2, 1])[-1:].float()

    def _shape(self) -> tuple[int, int, int, int]:
        if len(set(self._shapes)) != 1:
            raise UnsupportedError("layers of different shapes")
        return (len(self._shapes), *self._shapes[0])

    def _used(self, rows: int) -> int:
        return min(self.max_batch, rows)

    def _run(self, rows: Sequence[Row], ends: Ends, done: dict[int, list[int]]) -> None:
        # Those that begin alike follow one another.
        queue = deque(sorted(rows, key=lambda row: row.tokens))
        most = min(self.max_batch, len(rows))
        cores = self._cores()
        count = min(_LANES, most, cores)
        memories = self._reserve(count, -(-most // count), max(len(row.tokens) + row.max_tokens for row in rows))
        # From both ends of the queue, so that each lane has its own beginnings.
        lanes = [_Lane(memory, queue.popleft, queue.appendleft) for memory in memories]
        if count > 1:
            lanes[-1].take, lanes[-1].give_back = queue.pop, queue.append
        if count == 1 and (cores == 1 or self._large):
            self._decode(lanes[0], queue, ends, done)
            return
        threads = self._pool(cores)
        futures = [threads.submit(self._decode, lane, queue, ends, done) for lane in lanes]
        wait(futures)
        for future in futures:
            future.result()

    def _cores(self) -> int:
        return torch.get_num_threads() if self.device.type == "cpu" else 1

    def _pool(self, cores: int) -> ThreadPoolExecutor:
        """Returns the threads of the lanes, which share the cores."""
        if self._threads is None:
            each = max(1, cores // _LANES)
            self._threads = ThreadPoolExecutor(_LANES, "codevqa-lm-lane", initializer=compute_with, initargs=(each,))
            together = threading.Barrier(_LANES)
            wait([self._threads.submit(together.wait) for _ in range(_LANES)])
            # That also set what threads begin with that have not computed anything yet.
            torch.set_num_threads(cores)
        return self._threads

    @torch.inference_mode()
    def _decode(self, lane: _Lane, queue: deque[Row], ends: Ends, done: dict[int, list[int]]) -> None:
        """Decodes prompts of the queue until it is empty."""
        while True:
            parts = [self._part(text, len(lane.texts)) for text in lane.texts.values()]
            parts += self._admit(lane, queue, _PASS - sum(len(part.tokens) for part in parts))
            if not parts:
                return
            texts = [lane.texts[part.slot] for part in parts]
            # What follows the last token that is certain, and each guess.
            wanted = [max(0, part.end - len(text.tokens) + 1) for part, text in zip(parts, texts, strict=True)]
            said = self._forward(lane.memory, parts, wanted).argmax(-1).tolist()
            with self._lock:
                self.stats.steps += 1
                self.stats.guessed_tokens += sum(len(text.guessed) for text in texts)
                for part, text, count in zip(parts, texts, wanted, strict=True):
                    self._collect(lane, part, text, said[:count], ends, done)
                    said = said[count:]

    def _part(self, text: _Text, company: int) -> Part:
        """Returns what is next of a text: the rest of its prompt, or of its tokens and a guess."""
        rest = text.tokens[text.computed :]
        text.guessed = []
        if len(rest) > _PASS:
            return Part(text.slot, text.computed, rest[:_PASS])
        made = len(text.tokens) - len(text.row.tokens)
        count = max(_LEAST, min(_MOST, _ALL // company)) if made else _FIRST
        text.guessed = self._drafts.guess(text.tokens, min(count, text.row.max_tokens - made - 1))
        return Part(text.slot, text.computed, rest + text.guessed)

    def _admit(self, lane: _Lane, queue: deque[Row], room: int) -> list[Part]:
        """Takes prompts off the queue into free slots while a pass has room; returns their first parts."""
        free = [slot for slot in range(lane.memory.count) if slot not in lane.texts]
        begun = [text.row for text in lane.texts.values() if text.computed < len(text.row.tokens)]
        parts: list[Part] = []
        while free and room > 0:
            with self._lock:
                if not queue:
                    break
                row = lane.take()
                # One token has to be left to go on from.
                known, banks = self.prefixes.find(row.tokens[:-1])
                upto = known + _SHARE
                if self.prefixes.limit and any(row.tokens[:upto] == other.tokens[:upto] for other in begun):
                    lane.give_back(row)
                    break
                self.stats.prefills += not parts
                self.stats.prefilled_tokens += len(row.tokens) - known
                self.stats.reused_tokens += known
                self.stats.prefix_hits += known > 0
                self.stats.prefix_misses += known == 0
            begun.append(row)
            text = _Text(row, free.pop(0), known, list(row.tokens))
            lane.memory.fill(text.slot, banks)
            lane.texts[text.slot] = text
            parts.append(self._part(text, len(lane.texts)))
            room -= len(parts[-1].tokens)
        return parts

    def _collect(
        self, lane: _Lane, part: Part, text: _Text, said: Sequence[int], ends: Ends, done: dict[int, list[int]]
    ) -> None:
        """Takes over what the model said to a part: what it confirms of the guess, and one token more."""
        row = text.row
        prompt = len(row.tokens)
        if part.start < prompt <= part.end:
            self.prefixes.add(row.tokens, lambda start: lane.memory.copy(text.slot, start, prompt))
        if not said:
            text.computed = part.end
            return
        agreed = common(text.guessed, said)
        self.stats.confirmed_tokens += agreed
        text.computed = len(text.tokens) + agreed
        text.tokens += said[: agreed + 1]
        made = text.tokens[prompt:]
        end = ends(row, made, agreed + 1)
        if end is not None:
            done[row.index] = made[:end]
            self._drafts.learn(row.tokens, made[:end])
            del lane.texts[text.slot]

    def _forward(self, memory: KeyValues, parts: Sequence[Part], wanted: Sequence[int]) -> torch.Tensor:
        """Runs a pass; returns the logits of the last ``wanted`` tokens of each part, one after another."""
        phase = Pack(memory, parts)
        if self._layers is not None:
            return self._layers(phase, wanted)
        kept = phase.last(wanted)
        given: dict[str, Any] = {"logits_to_keep": kept} if self._keeps_some else {}
        with attention(phase):
            logits: torch.Tensor = self.model(
                input_ids=phase.ids, position_ids=phase.positions, past_key_values=phase, use_cache=True, **given
            ).logits[0]
        return logits if self._keeps_some else logits[kept]

    def _reserve(self, lanes: int, count: int, length: int) -> list[KeyValues]:
        """Returns so many slots of so many tokens for each lane; those of the last call where they suffice."""
        kept = self._memories[:lanes]
        if len(kept) == lanes and all(memory.length >= length and memory.count >= count for memory in kept):
            return kept
        length = max([-(-length // _GRAIN) * _GRAIN, *(memory.length for memory in self._memories)])
        count = max([count, *(memory.count for memory in self._memories)])
        self._memories = kept = []
        shape = self._shape()
        self._memories = [KeyValues(shape, count, length, self._dtype, self.device) for _ in range(lanes)]
        return self._memories
