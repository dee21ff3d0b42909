"""Caption decoding as CUDA graphs: the whole of a batch's steps in a few launches.

A step of the decoder is some two hundred kernels of a few microseconds each; launching them one by one takes several
times as long as running them. They are recorded once for a number of rows and patches and replayed: first the prompt
and every step before which no caption can be over, then a few steps at a time, between which one number tells whether
any caption is still going. Unrecorded, the same stretches still ask the GPU that seldom. Large batches do not ask: some
caption is nearly always long, and while one thread waits for an answer another's work gets in between.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from typing import Any, TypeAlias

import torch

from ...cuda_graphs import Recorder, bucket, enabled
from ..caption_decoder import CaptionDecoder
from ..caption_steps import CaptionBatch, CaptionSteps
from ..sampling import CaptionRules
from . import kernels

Record: TypeAlias = "Callable[[Callable[[], None]], Callable[[], None]]"

_ROWS = (8, 16, 32, 64, 128, 256, 512)
"""Numbers of rows recorded; a batch is padded to the next."""

_STEPS_A_STRETCH = 3
_KEPT = 24
"""Shapes whose recordings, and memory, are kept."""
_ASKED = 64
"""Rows from which on nobody asks whether all captions have ended."""


class GpuCaptionDecoder(CaptionDecoder):
    """Writes batches of captions on a GPU.

    Args:
        model: the captioner's text decoder.
        rules: of every caption.
        record: from a function without arguments to one that does the same again: CUDA graphs, unless these are turned
            off; for tests where there is no GPU the function itself.
    """

    batches = _ROWS

    def __init__(self, model: Any, rules: CaptionRules, record: Record | None = None) -> None:
        super().__init__(model, rules, kernels)
        self._device = device = self.steps.like.device
        # Without recordings every step is launched, and memory is taken batch by batch.
        self._limit = _KEPT if record is not None or enabled(device) else 0
        self._record = record or (_recording(device) if self._limit else _launched)
        self._kept: dict[tuple[int, int, bool], _Recording] = {}

    @torch.inference_mode()
    def write(
        self, embeddings: torch.Tensor, index: torch.Tensor, counts: torch.Tensor | None, numbers: torch.Tensor
    ) -> torch.Tensor:
        """Writes a batch of captions; see :class:`..caption_decoder.CaptionDecoder`."""
        rows, patches = index.shape
        with torch.cuda.device(self._device) if self._device.type == "cuda" else contextlib.nullcontext():
            padded = bucket(rows, _ROWS) or -(-rows // _ROWS[-1]) * _ROWS[-1]
            recording = self._recorded(padded, patches, counts is not None)
            self.steps.fill(recording.batch, embeddings, index, counts, numbers)
            return recording.run()[:rows].cpu()

    def release(self) -> None:
        """Forgets the recordings, which hold memory."""
        self._kept.clear()

    def _recorded(self, rows: int, patches: int, masked: bool) -> _Recording:
        key = (rows, patches, masked)
        recording = self._kept.get(key)
        if recording is None:
            recording = _Recording(self.steps, self.steps.blank(*key), self._record)
            if len(self._kept) >= self._limit:
                self._kept.clear()  # as a whole: recordings share memory
            if self._limit:
                self._kept[key] = recording
        return recording


class _Recording:
    """The steps of a batch of fixed shape, in stretches."""

    def __init__(self, decoder: CaptionSteps, batch: CaptionBatch, record: Record) -> None:
        self.batch = batch
        # What one stretch leaves to the next lies in a place of its own: each recording has its own memory.
        self._between = between = decoder.blank_logits(len(batch.done))
        steps, first = decoder.rules.steps, min(decoder.rules.first_end + 1, decoder.rules.steps)
        edges = [0, first, *range(first + _STEPS_A_STRETCH, steps, _STEPS_A_STRETCH)]
        if edges[-1] < steps:
            edges.append(steps)

        def stretch(start: int, stop: int) -> Callable[[], None]:
            def run() -> None:
                if start == 0:
                    decoder.begin(batch)
                else:
                    batch.logits = between
                for number in range(start, stop):
                    decoder.draw(batch, number)
                    decoder.read(batch, number)
                if stop < steps:
                    assert batch.logits is not None
                    between.copy_(batch.logits)

            return run

        self._stretches = [record(stretch(start, stop)) for start, stop in itertools.pairwise(edges)]
        batch.logits = None

    def run(self) -> torch.Tensor:
        """Writes the captions whose beginnings the batch holds; returns the tokens, valid until the next call."""
        asks = len(self.batch.done) < _ASKED
        for number, stretch in enumerate(self._stretches):
            if number and asks and bool(self.batch.done.all()):
                break
            stretch()
        return self.batch.tokens


def _recording(device: torch.device) -> Record:
    recorder = Recorder(device)
    return lambda function: recorder(function)[0]


def _launched(function: Callable[[], None]) -> Callable[[], None]:
    return function
