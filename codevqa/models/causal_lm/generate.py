"""Decodes batches with ``model.generate``, which knows the quirks of every architecture.

What is added here: an end for each row (its own token limit and stop strings), and the reuse of the attention keys and
values of prompt prefixes that many requests begin with.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch

from .rows import CONTEXT, LMStats, PrefixStore, Row, stop_window

Decode = Callable[[Sequence[int]], str]
Text = Callable[[Sequence[int], Sequence[int]], str]
Tell = Callable[[Row, Sequence[int], bool], None]
"""Takes a row, the tokens made for it, and whether they are all."""


class RowEnds:
    """Stopping criterion with an end of its own for each row: a token limit, or a stop string."""

    def __init__(self, rows: Sequence[Row], width: int, decode: Decode, text: Text, tell: Tell) -> None:
        self.rows, self.width, self.decode, self.text, self.tell = rows, width, decode, text, tell
        self.ends: list[int | None] = [None] * len(rows)
        self.window = stop_window([stop for row in rows for stop in row.stop])

    def __call__(self, input_ids: torch.Tensor, scores: object, **_: object) -> torch.Tensor:
        """Says of each row whether it has ended."""
        made = input_ids.shape[1] - self.width
        tails = input_ids[:, -min(made, self.window) :].tolist()
        for i, (row, tail) in enumerate(zip(self.rows, tails, strict=True)):
            if self.ends[i] is None and (made >= row.max_tokens or self._stopped(row, tail, input_ids[i])):
                self.ends[i] = made
            if row.stream is not None:
                self.tell(row, input_ids[i, self.width :].tolist()[: self.ends[i]], self.ends[i] is not None)
        return torch.tensor([end is not None for end in self.ends], device=input_ids.device)

    def _stopped(self, row: Row, tail: list[int], sequence: torch.Tensor) -> bool:
        if not row.stop:
            return False
        recent = self.decode(row.tokens[-CONTEXT:] + tail)
        if not any(s in recent for s in row.stop):
            return False
        # The tail is a quick look, and shows some of the prompt: the text itself decides.
        text = self.text(row.tokens, sequence[self.width :].tolist())
        return any(s in text for s in row.stop)


class GenerateDecoder:
    """Runs groups of rows through ``model.generate``, a batch at a time, left-padded after the common prefix.

    Models whose layers do not all attend over the whole text (sliding windows, linear attention) get the same results
    without reuse of prefixes.
    """

    def __init__(self, model: Any, *, pad: int, max_batch: int, prefix_bytes: int, stats: LMStats) -> None:
        self.model, self.pad, self.max_batch, self.stats = model, pad, max_batch, stats
        self.reuse = True
        self.prefixes: PrefixStore[Any] = PrefixStore(prefix_bytes)

    def run(
        self, rows: Sequence[Row], ends: Collection[int], decode: Decode, text: Text, tell: Tell
    ) -> dict[int, list[int]]:
        """Returns the tokens made for each row, by its index; tokens after an end token do not count.

        A batch that does not fit into memory is halved.

        Raises:
            torch.OutOfMemoryError: not even one row fits.
        """
        groups: dict[tuple[int, ...], list[Row]] = {}
        for row in sorted(rows, key=lambda row: len(row.tokens)):
            groups.setdefault(tuple(row.tokens[: row.prefix]), []).append(row)
        done: dict[int, list[int]] = {}
        for prefix, members in groups.items():
            start = 0
            while start < len(members):
                batch = members[start : start + self.max_batch]
                try:
                    done.update(self._decode(batch, prefix, decode, text, tell))
                except torch.OutOfMemoryError:
                    if len(batch) == 1:
                        raise
                    self.max_batch = max(1, len(batch) // 2)
                    continue
                start += len(batch)
        return done

    def _decode(
        self, batch: Sequence[Row], prefix: tuple[int, ...], decode: Decode, text: Text, tell: Tell
    ) -> dict[int, list[int]]:
        past = self._prefix(prefix) if prefix else None
        head = len(prefix) if past is not None else 0
        if past is not None:
            # generate() grows the cache it is given.
            past = copy.deepcopy(past)
            past.batch_repeat_interleave(len(batch))
        rests = [row.tokens[head:] for row in batch]
        longest = max(map(len, rests))
        # Left padding, after the prefix: positions follow from the mask, so padding moves no token.
        pads = [longest - len(rest) for rest in rests]
        ids = [[*prefix[:head], *[self.pad] * n, *rest] for n, rest in zip(pads, rests, strict=True)]
        mask = [[1] * head + [0] * n + [1] * len(rest) for n, rest in zip(pads, rests, strict=True)]
        ends = RowEnds(batch, head + longest, decode, text, tell)
        output = self.model.generate(
            input_ids=torch.tensor(ids, device=self.model.device),
            attention_mask=torch.tensor(mask, device=self.model.device),
            past_key_values=past,
            stopping_criteria=[ends],
            max_new_tokens=max(row.max_tokens for row in batch),
        )
        self.stats.generate_calls += 1
        self.stats.prefilled_tokens += sum(map(len, rests))
        self.stats.reused_tokens += head * len(batch)
        made = output[:, head + longest :].tolist()
        return {row.index: tokens[:end] for row, tokens, end in zip(batch, made, ends.ends, strict=True)}

    def _prefix(self, prefix: tuple[int, ...]) -> Any | None:
        """Returns the keys and values of a prefix, computed unless kept; None where they cannot be reused."""
        past = self.prefixes.get(prefix)
        if past is not None:
            self.stats.prefix_hits += 1
            return past
        if not self.reuse:
            return None
        past = plain_cache(self.model)
        if past is None:
            self.reuse = False
            return None
        ids = torch.tensor([prefix], device=self.model.device)
        self.model(input_ids=ids, attention_mask=torch.ones_like(ids), past_key_values=past, use_cache=True)
        if past.get_seq_length() != len(prefix):
            self.reuse = False
            return None
        self.stats.prefix_misses += 1
        self.stats.prefilled_tokens += len(prefix)
        self.prefixes.put(prefix, past, sum(layer.keys.nbytes + layer.values.nbytes for layer in past.layers))
        return past


def plain_cache(model: Any) -> Any | None:
    """Returns an empty cache of keys and values, or None unless every layer attends over the whole text.

    Elsewhere padding after a prefix would take places in a window, or enter a state.
    """
    from transformers.cache_utils import DynamicCache, DynamicLayer

    past = DynamicCache(config=model.config)
    return None if any(type(layer) is not DynamicLayer for layer in past.layers) else past
