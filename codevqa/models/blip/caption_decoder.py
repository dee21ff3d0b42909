"""Caption decoding: on a CPU step by step, on a GPU in a few stretches, which it replays as CUDA graphs.

On a GPU a step of the decoder is some two hundred kernels of a few microseconds each; launching them one by one takes
several times as long as running them. They are recorded once for a number of rows and patches and replayed: first the
prompt and every step before which no caption can be over, then a few steps at a time, between which one number tells
whether any caption is still going. Large batches on a GPU do not ask: some caption is nearly always long, and while one
thread waits for an answer another's work gets in between.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch

from ..cuda_graphs import Recorder, graphs_enabled
from .caption_steps import CaptionBatch, CaptionSteps
from .tokens import CaptionRules

Record: TypeAlias = "Callable[[Callable[[], None]], Callable[[], None]]"

_ROWS = (8, 16, 32, 64, 128, 256, 512)
"""Numbers of rows recorded; a batch is padded to the next."""
_ROWS_CPU = range(1, 65)
_STEPS_A_STRETCH = 3
_KEPT = 24
"""Shapes whose recordings, and memory, are kept."""
_ASKED = 64
"""Rows from which on nobody asks a GPU whether all captions have ended."""


class CaptionDecoder:
    """Writes batches of captions. All tensors it is given are where the network is.

    Args:
        model: the captioner's text decoder.
        rules: of every caption.
        kernels: see :class:`.caption_steps.CaptionSteps`.
        record: returns what does again what a function without arguments does. None takes CUDA graphs where they are
            on. A test without a GPU may return the function itself.
    """

    def __init__(self, model: Any, rules: CaptionRules, kernels: Any = None, record: Record | None = None) -> None:
        self.steps = CaptionSteps(model, rules, kernels)
        self._device = device = self.steps.like.device
        self.batches: Sequence[int] = _ROWS if device.type == "cuda" else _ROWS_CPU
        """Numbers of captions it likes to compute at once, ascending."""
        # Without recordings every step is launched, and memory is taken batch by batch.
        self._record = _recording(device) if record is None and graphs_enabled(device) else record
        self._kept: dict[tuple[int, int, bool], _Recording] = {}

    @torch.inference_mode()
    def write(
        self, embeddings: torch.Tensor, index: torch.Tensor, counts: torch.Tensor | None, numbers: torch.Tensor
    ) -> torch.Tensor:
        """Writes a batch of captions.

        Args:
            embeddings: of all patches that some caption sees, (patches, width).
            index: for each caption its patches among those, (captions, patches a caption).
            counts: how many of them each caption sees, the first ones, (captions,); None where it is all.
            numbers: in [0, 1), float64, (captions, steps); below 0 in captions decoded greedily.

        Returns:
            Tokens, (captions, steps), on the CPU; those after the end are padding.

        Raises:
            torch.OutOfMemoryError: the batch does not fit.
        """
        rows, patches = index.shape
        if self._device.type == "cpu" and self._record is None:
            batch = self.steps.blank(rows, patches, counts is not None)
            self.steps.fill(batch, embeddings, index, counts, numbers)
            return self._write_on_cpu(batch)
        with torch.cuda.device(self._device) if self._device.type == "cuda" else contextlib.nullcontext():
            recording = self._find_recording(rows, patches, counts is not None)
            self.steps.fill(recording.batch, embeddings, index, counts, numbers)
            return recording.run()[:rows].cpu()

    def _write_on_cpu(self, batch: CaptionBatch) -> torch.Tensor:
        """Writes captions on a CPU, where every row costs: those that have ended are not computed any more."""
        tokens, places = batch.tokens, torch.arange(len(batch.done))
        self.steps.begin(batch)
        for number in range(self.steps.rules.steps):
            self.steps.draw(batch, number)
            if bool(batch.done.any()):
                batch = batch.under_way(places[: len(batch.done)])
            if not len(batch.done):
                break
            self.steps.read(batch, number)
        return tokens[places.argsort()]

    def release(self) -> None:
        """Forgets the recordings, which hold memory."""
        self._kept.clear()

    def _find_recording(self, rows: int, patches: int, masked: bool) -> _Recording:
        if self._record is None:
            return _Recording(self.steps, self.steps.blank(rows, patches, masked), lambda function: function)
        room = next((size for size in _ROWS if size >= rows), -(-rows // _ROWS[-1]) * _ROWS[-1])
        key = room, patches, masked
        recording = self._kept.get(key)
        if recording is None:
            recording = _Recording(self.steps, self.steps.blank(*key), self._record)
            if len(self._kept) >= _KEPT:
                self._kept.clear()  # as a whole: recordings share memory
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
        done = self.batch.done
        asks = not done.is_cuda or len(done) < _ASKED
        for number, stretch in enumerate(self._stretches):
            if number and asks and bool(done.all()):
                break
            stretch()
        return self.batch.tokens


def _recording(device: torch.device) -> Record:
    recorder = Recorder(device)
    return lambda function: recorder(function)[0]
