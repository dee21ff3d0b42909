"""Decodes many prompts at once where passes are slow and launching them is cheap, as on a CPU.

Each pass takes what is next of every text, laid end to end without padding: the rest of a prompt past its longest
known beginning (:class:`.PrefixCache`), or the last token and a guess at those that follow, of which the model confirms
as many as it would have written itself (speculative decoding: Leviathan et al., 2023; greedy, so the text is the same).
New prompts join as texts end. Two threads share the prompts: at these sizes that keeps two cores busier than two
threads for each product of matrices do, and waits for nobody where other programs want the cores, too.

Programs and answers repeat one another nearly word for word. A guess is what followed the last few tokens where they
stood before: in texts written lately (as in SuffixDecoding, Oliaro et al., 2024), else in the prompt itself (prompt
lookup, Saxena, 2023).
"""

from __future__ import annotations

import threading
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import accumulate

import torch

from ...cpu_threads import LARGE, threads
from ..int8_linear import weights
from ..network import LlamaNetwork
from ..work import LMStats, TokenisedRequest, Work, common_prefix_length
from .forward_pass import KeyValues, Pack, PackedText, PrefixCache

_PASS = 448
"""Tokens in one pass, about: more cost as much each, fewer cost more."""
_FIRST = 8
"""Tokens guessed after a prompt, where most texts begin alike."""
_LEAST, _MOST, _ALL = 3, 8, 16
"""Tokens guessed of a text under way, at least, at most, and of all texts together."""
_WORKERS = 2
"""Threads that decode."""


@dataclass(eq=False)
class _PackedRequest:
    """A request that is being decoded."""

    request: TokenisedRequest
    slot: int
    computed: int
    """Tokens whose keys and values are in the slot."""
    tokens: list[int]
    """Prompt and what has been made."""
    guessed: list[int] = field(default_factory=list)


@dataclass(eq=False)
class _Worker:
    """What one thread decodes."""

    memory: KeyValues
    take: Callable[[], TokenisedRequest]
    """Takes a prompt off the queue, at the worker's end of it."""
    texts: dict[int, _PackedRequest] = field(default_factory=dict)
    """By slot."""


class PackedDecoder:
    """Greedy decoding in packed passes, with guesses.

    Args:
        model: the network.
        max_batch: texts decoded together at most.
        prefix_bytes: memory for beginnings of prompts that are kept.
        stats: counts what is done.
    """

    joins = False

    def __init__(self, model: LlamaNetwork, *, max_batch: int, prefix_bytes: int, stats: LMStats) -> None:
        self.model, self.max_batch, self.stats = model, max_batch, stats
        self.prefixes = PrefixCache(prefix_bytes)
        self._drafter = Drafter()
        config = model.config
        self._shape = (config.layers, config.key_heads, config.head_width)
        self._lock = threading.Lock()
        """Held while what workers share is changed."""
        self._threads: ThreadPoolExecutor | None = None
        self._large = weights(model.blocks) >= LARGE * model.config.layers

    def run(self, work: Work) -> None:
        """Decodes all requests."""
        requests = list(work.open.values())
        # Those that begin alike follow one another.
        queue = deque(sorted(requests, key=lambda request: request.tokens))
        most = min(self.max_batch, len(requests))
        cores = torch.get_num_threads()
        count = min(_WORKERS, most, cores)
        length = max(len(request.tokens) + request.max_tokens for request in requests)
        memories = [KeyValues(self._shape, -(-most // count), length) for _ in range(count)]
        # From both ends of the queue, so that each worker has its own beginnings.
        workers = [_Worker(memory, queue.popleft) for memory in memories]
        if count > 1:
            workers[-1].take = queue.pop
        if count == 1 and (cores == 1 or self._large):
            self._decode(workers[0], queue, work)
            return
        if self._threads is None:  # they share the cores
            self._threads = threads(_WORKERS, max(1, cores // _WORKERS), "codevqa-lm-worker")
        futures = [self._threads.submit(self._decode, worker, queue, work) for worker in workers]
        wait(futures)
        for future in futures:
            future.result()

    @torch.inference_mode()
    def _decode(self, worker: _Worker, queue: deque[TokenisedRequest], work: Work) -> None:
        """Decodes prompts of the queue until it is empty."""
        while True:
            parts = [self._part(text, len(worker.texts)) for text in worker.texts.values()]
            parts += self._admit(worker, queue, _PASS - sum([len(part.tokens) for part in parts]))
            if not parts:
                return
            texts = [worker.texts[part.slot] for part in parts]
            # What follows the last token that is certain, and each guess.
            wanted = [max(0, part.end - len(text.tokens) + 1) for part, text in zip(parts, texts, strict=True)]
            predictions = _next_tokens(self.model(Pack(worker.memory, parts, wanted)), wanted)
            with self._lock:
                self.stats.steps += 1
                self.stats.guessed_tokens += sum([len(text.guessed) for text in texts])
                for part, text, tokens in zip(parts, texts, predictions, strict=True):
                    self._collect(worker, part, text, tokens, work)

    def _part(self, text: _PackedRequest, company: int) -> PackedText:
        """Returns what is next of a text: the rest of its prompt, or of its tokens and a guess."""
        rest = text.tokens[text.computed :]
        text.guessed = []
        if len(rest) > _PASS:
            return PackedText(text.slot, text.computed, rest[:_PASS])
        output_length = len(text.tokens) - len(text.request.tokens)
        count = max(_LEAST, min(_MOST, _ALL // company)) if output_length else _FIRST
        text.guessed = self._drafter.guess(text.tokens, min(count, text.request.max_tokens - output_length - 1))
        return PackedText(text.slot, text.computed, rest + text.guessed)

    def _admit(self, worker: _Worker, queue: deque[TokenisedRequest], room: int) -> list[PackedText]:
        """Takes prompts off the queue into free slots while a pass has room; returns their first parts."""
        free = [slot for slot in range(worker.memory.count) if slot not in worker.texts]
        parts: list[PackedText] = []
        while free and room > 0:
            with self._lock:
                if not queue:
                    break
                request = worker.take()
                # One token has to be left to go on from.
                known, blocks = self.prefixes.find(request.tokens[:-1])
                self.stats.prefilled_tokens += len(request.tokens) - known
                self.stats.reused_tokens += known
            text = _PackedRequest(request, free.pop(0), known, list(request.tokens))
            worker.memory.fill(text.slot, blocks)
            worker.texts[text.slot] = text
            parts.append(self._part(text, len(worker.texts)))
            room -= len(parts[-1].tokens)
        return parts

    def _collect(
        self,
        worker: _Worker,
        part: PackedText,
        text: _PackedRequest,
        predictions: Sequence[int],
        work: Work,
    ) -> None:
        """Takes over what the model said to a part: what it confirms of the guess, and one token more."""
        request = text.request
        prompt = len(request.tokens)
        if part.start < prompt <= part.end:
            self.prefixes.add(request.tokens, lambda start: worker.memory.copy(text.slot, start, prompt))
        if not predictions:
            text.computed = part.end
            return
        agreed = common_prefix_length(text.guessed, predictions)
        self.stats.confirmed_tokens += agreed
        text.computed = len(text.tokens) + agreed
        text.tokens += predictions[: agreed + 1]
        output = text.tokens[prompt:]
        end = work.find_end(request, output, agreed + 1)
        if end is not None:
            work.end(request, output[:end])
            self._drafter.learn(request.tokens, output[:end])
            del worker.texts[text.slot]


def _next_tokens(logits: torch.Tensor, wanted: Sequence[int]) -> list[list[int]]:
    """Returns the next tokens of each text, one after each of its last tokens and guesses.

    Args:
        logits: shape (sum of ``wanted``, vocabulary).
        wanted: how many of the rows are each text's.
    """
    tokens: list[int] = logits.argmax(-1).tolist()
    ends = list(accumulate(wanted))
    return [tokens[end - count : end] for end, count in zip(ends, wanted, strict=True)]


_LONGEST = 8
"""Tokens that are looked for at most; the longest match is followed."""
_BEFORE = 16
"""Tokens of a prompt that are kept with what was written after them."""
_KEPT = 1 << 14
"""Tokens of texts written lately that are kept."""
_WIDTH = array("I").itemsize
_NONE = 2 ** (8 * _WIDTH) - 1
"""No token: ends each text kept."""


class Drafter:
    """What was written lately, to guess from."""

    def __init__(self) -> None:
        self._written = b""

    def learn(self, prompt: Sequence[int], output: Sequence[int]) -> None:
        """Remembers what was written after a prompt."""
        new = array("I", [*prompt[-_BEFORE:], *output, _NONE]).tobytes()
        self._written = (self._written + new)[-_KEPT * _WIDTH :]

    def guess(self, text: Sequence[int], count: int) -> list[int]:
        """Returns up to ``count`` tokens that may follow ``text``."""
        if count < 1:
            return []
        own = array("I", text).tobytes()
        longest = min(_LONGEST, len(text))
        # The latest of what was written, the first of the prompt, where the most similar example stands.
        return _continuation(self._written, own, longest, count, last=True) or _continuation(
            own, own, longest, count, last=False
        )


def _continuation(text: bytes, own: bytes, longest: int, count: int, *, last: bool) -> list[int]:
    """Returns what follows the longest end of ``own`` that stands in a text, there the first or the last time."""
    end = len(text) - _WIDTH
    find = text.rfind if last else text.find
    for length in range(longest, 0, -1):
        part = own[-length * _WIDTH :]
        at = find(part, 0, end)
        # Bytes that match across the bounds of tokens do not count.
        while at >= 0 and at % _WIDTH:
            at = find(part, 0, at + len(part) - 1) if last else find(part, at + 1, end)
        after = at + len(part)
        tokens = array("I", text[after : after + count * _WIDTH]).tolist() if at >= 0 else []
        if tokens and tokens[0] != _NONE:
            return tokens[: tokens.index(_NONE)] if _NONE in tokens else tokens
    return []
