"""Caption decoding as CUDA graphs: the whole of a batch's steps in a few launches.

A step of the decoder is some two hundred kernels of a few microseconds each; launching them one by one takes several
times as long as running them. They are recorded once for a number of rows and patches and replayed: first the prompt
and every step before which no caption can be over, then a few steps at a time, between which one number tells whether
any caption is still going. Unrecorded, the same stretches still ask the GPU that seldom. Large batches do not ask: some
caption is nearly always long, and while one thread waits for an answer another's work gets in between.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TypeAlias

import torch

from ...cuda_graphs import Recorder, bucket
from ..fast.caption_decoder import CaptionDecoder, Drafts

Record: TypeAlias = "Callable[[Callable[[], None]], Callable[[], None]]"

ROWS = (8, 16, 32, 64, 128, 256, 512)
"""Numbers of rows recorded; a batch is padded to the next."""

_STEPS_A_STRETCH = 3
_KEPT = 24
_ASKED = 64
"""Rows from which on nobody asks whether all captions have ended."""


class CaptionGraphs:
    """Recordings of one decoder, made as they are needed.

    Args:
        decoder: the network and its rules.
        record: from a function without arguments to one that does the same again; CUDA graphs, or for tests where
            there is no GPU the function itself.
        kept: shapes whose recordings, and memory, are kept.
    """

    def __init__(self, decoder: CaptionDecoder, record: Record | None = None, kept: int = _KEPT) -> None:
        self._decoder = decoder
        self._record = record or _recording(decoder.device)
        self._limit = kept
        self._kept: dict[tuple[int, int, bool], _Recording] = {}

    def write(self, rows: int, patches: int, masked: bool, fill: Callable[[Drafts], None]) -> torch.Tensor:
        """Writes a batch of captions.

        Args:
            rows: captions.
            patches: patches each has room for.
            masked: whether some have fewer.
            fill: puts the captions into the first rows, and says of the others that they are done.

        Returns:
            Tokens, (rows, steps), on the CPU.

        Raises:
            torch.OutOfMemoryError: the batch does not fit.
        """
        size = bucket(rows, ROWS) or -(-rows // ROWS[-1]) * ROWS[-1]
        key = (size, patches, masked)
        recording = self._kept.get(key)
        if recording is None:
            recording = _Recording(self._decoder, self._decoder.blank(*key), self._record)
            if len(self._kept) >= self._limit:
                self._kept.clear()  # as a whole: recordings share memory
            if self._limit:
                self._kept[key] = recording
        fill(recording.drafts)
        return recording.run()[:rows].cpu()

    def release(self) -> None:
        """Forgets the recordings, which hold memory."""
        self._kept.clear()


class _Recording:
    """The steps of a batch of fixed shape, in stretches."""

    def __init__(self, decoder: CaptionDecoder, drafts: Drafts, record: Record) -> None:
        self.drafts = drafts
        # What one stretch leaves to the next lies in a place of its own: each recording has its own memory.
        self._between = between = decoder.blank_logits(len(drafts.done))
        steps, first = decoder.rules.steps, min(decoder.rules.first_end + 1, decoder.rules.steps)
        edges = [0, first, *range(first + _STEPS_A_STRETCH, steps, _STEPS_A_STRETCH)]
        if edges[-1] < steps:
            edges.append(steps)

        def stretch(start: int, stop: int) -> Callable[[], None]:
            def run() -> None:
                if start == 0:
                    decoder.begin(drafts)
                else:
                    drafts.logits = between
                for number in range(start, stop):
                    decoder.step(drafts, number)
                if stop < steps:
                    assert drafts.logits is not None
                    between.copy_(drafts.logits)

            return run

        self._stretches = [record(stretch(start, stop)) for start, stop in itertools.pairwise(edges)]
        drafts.logits = None

    def run(self) -> torch.Tensor:
        """Writes what the drafts hold the beginnings of; returns the tokens, valid until the next call."""
        asks = len(self.drafts.done) < _ASKED
        for number, stretch in enumerate(self._stretches):
            if number and asks and bool(self.drafts.done.all()):
                break
            stretch()
        return self.drafts.tokens


def unrecorded(decoder: CaptionDecoder) -> CaptionGraphs:
    """Returns what decodes on a GPU in the same stretches, launching every step; memory is taken batch by batch."""
    return CaptionGraphs(decoder, record=lambda stretch: stretch, kept=0)


def _recording(device: torch.device) -> Record:
    recorder = Recorder(device)
    return lambda function: recorder(function)[0]
