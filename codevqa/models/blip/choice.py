"""Which forward pass computes a network: a fast one, or transformers' own where no fast one gives its numbers.

A fast pass reads weights by their names and does its own arithmetic, so it fits the architecture it was written for. A
small input goes through both before it is used; the one that is not used says why in a warning.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import TypeVar

import torch

from ..library_errors import first_line
from .checkpoint import Checkpoint
from .fast.caption_decoder import FastCaptionDecoder
from .fast.text_encoder import FastTextEncoder
from .fast.vision_encoder import FastVisionEncoder
from .forwards import CaptionDecoder, TextEncoder, VisionEncoder
from .picture_input import PictureReader
from .plain import PlainCaptionDecoder, PlainTextEncoder, PlainVisionEncoder
from .sampling import CaptionRules

_PATCHES = 9
_TOKENS = 6
_BOUND = 1e-3
"""How far a fast pass may be from the plain one in single precision, relative to its norm: another arithmetic is off by
as much as the numbers themselves."""

_log = logging.getLogger(__name__)
_T = TypeVar("_T")


def vision_encoder(at: Checkpoint, *, fast: bool) -> VisionEncoder:
    """Returns what encodes pictures."""

    def plain(at: Checkpoint) -> VisionEncoder:
        return PlainVisionEncoder(at.model.vision_model, _reader(at))

    def make(at: Checkpoint) -> VisionEncoder:
        if at.device.type != "cuda":
            return FastVisionEncoder(at.model.vision_model, _reader(at))
        from .gpu.vision_encoder import GpuVisionEncoder

        return GpuVisionEncoder(at.model.vision_model, _reader(at))

    def probe(encoder: VisionEncoder) -> list[torch.Tensor]:
        size = _reader(at).size
        pixels = torch.arange(size**2 * 3, device=at.device) * 7919 % 256
        return [encoder.first_features(pixels.to(torch.uint8).view(1, size, size, 3), _PATCHES)]

    return _chosen("vision tower", make, plain, probe, at, ("vision_model",)) if fast else plain(at)


def text_encoder(at: Checkpoint, block: int, *, fast: bool) -> TextEncoder:
    """Returns what compares texts with pictures; GradCAM reads the cross-attention of a block, counted from 0."""

    def plain(at: Checkpoint) -> TextEncoder:
        return PlainTextEncoder(at.model.text_encoder, at.model.itm_head, block)

    def make(at: Checkpoint) -> TextEncoder:
        encoder, head = at.model.text_encoder, at.model.itm_head
        if at.device.type != "cuda":
            return FastTextEncoder(encoder, head, block)
        from .gpu.text_encoder import GpuTextEncoder

        return GpuTextEncoder(encoder, head, block, 1 + at.grid**2)

    def probe(chosen: TextEncoder) -> list[torch.Tensor]:
        ids = torch.arange(2 * _TOKENS).view(2, _TOKENS) * 7919 % at.tokenizer.vocab_size
        mask = torch.ones_like(ids)
        mask[1, -2:] = 0
        features = _embeddings(at, at.model.text_encoder.config.encoder_hidden_size, 2)
        return list(chosen.gradcam(ids, mask, list(features), [0, 1]))

    return _chosen("text encoder", make, plain, probe, at, ("text_encoder", "itm_head")) if fast else plain(at)


def caption_decoder(at: Checkpoint, rules: CaptionRules, *, fast: bool) -> CaptionDecoder:
    """Returns what writes captions."""

    def plain(at: Checkpoint) -> CaptionDecoder:
        return PlainCaptionDecoder(at.model.text_decoder, rules)

    def make(at: Checkpoint) -> CaptionDecoder:
        if at.device.type != "cuda":
            return FastCaptionDecoder(at.model.text_decoder, rules)
        from .gpu.caption_decoder import GpuCaptionDecoder

        return GpuCaptionDecoder(at.model.text_decoder, rules)

    def probe(decoder: CaptionDecoder) -> list[torch.Tensor]:
        return [decoder.prompt_logits(_embeddings(at, at.model.text_decoder.config.encoder_hidden_size, 1)[0])]

    return _chosen("caption decoder", make, plain, probe, at, ("text_decoder",)) if fast else plain(at)


def _chosen(
    what: str,
    make: Callable[[Checkpoint], _T],
    plain: Callable[[Checkpoint], _T],
    probe: Callable[[_T], Sequence[torch.Tensor]],
    at: Checkpoint,
    parts: Sequence[str],
) -> _T:
    """Returns the fast pass where it can be made and gives the plain one's numbers, else the plain one.

    Raises:
        torch.OutOfMemoryError: not even a small input fits.
    """
    tried = _exact(at, parts)
    expected = probe(plain(tried))  # what is wrong with the network itself is no reason to take this one
    try:
        fast = make(tried)
        apart = max(_distance(one, other) for one, other in zip(probe(fast), expected, strict=True))
        if apart <= _BOUND:  # not a number is not within bounds either
            return fast if tried is at else make(at)
        reason = f"what the fast one gives is {apart:.1g} of the norm away from that"
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, AttributeError, TypeError, ValueError, LookupError) as error:
        reason = f"{type(error).__name__}: {first_line(error)}"
    _log.warning("The %s of %s goes through transformers' own forward pass: %s.", what, at.name, reason)
    return plain(at)


def _exact(at: Checkpoint, parts: Sequence[str]) -> Checkpoint:
    """The same networks in single precision: what 16 bits round may be as far off as another arithmetic is."""
    if at.dtype is torch.float32:
        return at
    copies = {name: copy.deepcopy(getattr(at.model, name)).float() for name in parts}
    return replace(at, model=SimpleNamespace(**copies), dtype=torch.float32)


def _reader(at: Checkpoint) -> PictureReader:
    return PictureReader(at.processor, at.device, at.dtype)


def _distance(found: torch.Tensor, expected: torch.Tensor) -> float:
    apart = (found.float() - expected.float()).norm()
    return float(apart / expected.float().norm().clamp(min=1e-12))


def _embeddings(at: Checkpoint, width: int, pictures: int) -> torch.Tensor:
    """Embeddings of patches that no picture has, (pictures, patches, width)."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(pictures, _PATCHES, width, generator=generator).to(at.device)
