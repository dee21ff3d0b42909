"""Options of the BLIP models: what they mean. Their constructors say what they are when left out."""

from __future__ import annotations

import os
from typing import Literal, TypeAlias, TypedDict

Average: TypeAlias = Literal["words", "all"]


class FeatureOptions(TypedDict, total=False):
    """Where vision features are kept."""

    feature_cache_bytes: int
    """Bytes of vision features kept in memory."""
    feature_cache_dir: str | os.PathLike[str] | None
    """Folder where vision features are kept beyond the run; None keeps none."""


class _BlipOptions(FeatureOptions, total=False):
    fast: bool
    """False computes through transformers' own forward passes: slower, and the same numbers up to rounding. What the
    fast ones do not fit goes through those anyway, with a warning."""
    max_batch: int | None
    """Pairs or captions, and pictures, at a time; None chooses by the memory that is free."""


class MatcherOptions(_BlipOptions, total=False):
    """Options of :class:`~codevqa.models.blip.BlipMatcher`."""

    block: int
    """Text block, counted from 0, whose cross-attention GradCAM reads."""
    average: Average
    """What relevance averages without a focus: "words" (tokens 1..n-2) or "all" tokens."""
    max_length: int
    """Tokens of a text that are read, first and last token included."""


class CaptionerOptions(_BlipOptions, total=False):
    """Options of :class:`~codevqa.models.blip.BlipCaptioner`."""

    prompt: str
    """What every caption begins with; not part of what is returned."""
    min_length: int
    """Fewest tokens of a caption, the prompt's included as in LAVIS."""
    max_length: int
    """Most tokens, the prompt's included."""
    top_k: int
    """Sampling draws among so many likeliest tokens."""
    temperature: float
    """Divides the logits before sampling."""
