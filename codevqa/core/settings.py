"""How a question is answered: every number of the method, as frozen data with the paper's values as defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Limits", "QuerySettings", "Settings", "WriterSettings"]


@dataclass(frozen=True)
class QuerySettings:
    """Few-shot Plug-and-Play VQA (Tiong et al. 2022; few-shot form: CodeVQA, section 3)."""

    patches: int = 20
    """Patches shown to the captioner for one caption, drawn in proportion to relevance."""
    captions: int | None = None
    """Captions read for each image; None takes the prompt set's number (7 for GQA and NLVR2, 3 for COVR)."""
    max_draws: int | None = None
    """Captions drawn for an image at most, where many repeat one another; None takes the prompt set's number (100)."""
    max_tokens: int = 20
    """Length of an answer in tokens."""
    attempts: int = 5
    """Readings of one prompt at most, while the answer comes back empty."""
    selection: Literal["nearest", "fixed"] = "nearest"
    """In-context reading examples: the nearest to the question, or always the first of the bank."""
    shots: int | None = None
    """In-context reading examples; None takes the prompt set's number."""


@dataclass(frozen=True)
class WriterSettings:
    """Program writing."""

    form: Literal["completion", "chat"] = "completion"
    """Completion prompt (byte-exact to the paper's form), or the same as turns for instruction-tuned models."""
    selection: Literal["nearest", "random", "fixed"] = "nearest"
    """In-context examples: nearest by sentence embedding, random for each question, or the first of the bank."""
    shots: int | None = None
    """In-context examples; None takes the prompt set's number (12 GQA, 6 COVR and NLVR2)."""
    max_tokens: int = 512
    """Length of a program in tokens."""
    repairs: int = 1
    """How often a program that fails the static check is shown to the model again with its error."""


@dataclass(frozen=True)
class Limits:
    """What one program may use."""

    seconds: float = 2.0
    """The program's own computing time; waiting for models does not count."""
    wall_seconds: float = 120.0
    """The whole run, models included."""
    memory_bytes: int = 64 << 20
    calls: int = 200
    """Calls of primitives."""
    output_bytes: int = 64 << 10
    """What it may print."""
    source_bytes: int = 64 << 10
    recursion: int = 200


@dataclass(frozen=True)
class Settings:
    """Everything about answering that is not a model."""

    prompts: str | None = None
    """Prompt set; None takes ``gqa`` for one image and ``covr`` for several."""
    writer: WriterSettings = WriterSettings()
    query: QuerySettings = QuerySettings()
    limits: Limits = Limits()
    position_text: Literal["phrase", "question"] = "phrase"
    """What ``get_pos`` matches: the phrase itself (the paper), or the whole question, averaged over the phrase's
    tokens inside it (the paper's released code)."""
    seed: int = 0
    """Seed of patch and caption sampling and of random example selection."""
    workers: int = 16
    """Programs that run at once; also the largest batch a single program's call can join."""
    batch_wait: float = 0.003
    """Seconds a call waits for others to share its batch, at most: it does not wait where no question under way could
    still make one."""
    max_batch: int | None = None
    """Requests in one batch of any model; None lets each model say how many it likes (its ``batch``), 64 where it says
    nothing."""
    remember: int = 64 << 20
    """Bytes of finished model calls that are kept, to answer the same call again; 0 keeps none. Calls that are equal
    and under way at the same time are always made once."""
    ahead: bool = True
    """Whether calls that a program is certain to make, such as one for each image of a set, are begun when it starts.
    Answers, traces and errors stay the same; only the time differs."""
    ahead_likely: bool = False
    """Whether calls that it may make are begun as well: inside a branch, or after a loop might have been left. Quicker
    for a question asked alone; wasteful where many are asked at once."""
    max_question: int = 1000
    """Longest question, in characters."""
