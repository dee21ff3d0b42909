"""Options of models that a configuration checks and lists before PyTorch is imported."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeAlias, TypedDict

Average: TypeAlias = Literal["words", "all"]


class _BlipOptions(TypedDict, total=False):
    feature_cache_bytes: int
    """Bytes of vision features kept in memory."""
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


class LavisOptions(TypedDict, total=False):
    """Options of both parts of LAVIS."""

    vocabulary: str | None
    """BERT's ``vocab.txt``; None takes the one beside a checkpoint given as a file, or else LAVIS fetches the hub's."""
    device: str | None
    """"cpu", "cuda", or None for a GPU where there is one."""
    limit: float
    """Seconds that eight requests may take, 600 when left out."""
    folder: Path | None
    """Environment with LAVIS; None takes CODEVQA_LAVIS, or codevqa/lavis in the cache."""


class ServerOptions(TypedDict, total=False):
    """Options of :class:`~codevqa.models.openai_client.OpenAIClient`, described there."""

    base_url: str | None
    api_key: str | None
    timeout: float
    max_retries: int
    max_wait: float
    concurrency: int
