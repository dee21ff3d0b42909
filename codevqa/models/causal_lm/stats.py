"""Counts of what a language model of this process has done."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class LMStats:
    """What a language model of this process has done so far."""

    requests: int = 0
    generate_calls: int = 0
    """Batches decoded by ``model.generate``."""
    steps: int = 0
    """Forward passes of a loop of our own that made tokens."""
    prefills: int = 0
    """Forward passes over prompts, or prefixes of prompts, outside ``model.generate``."""
    prefix_hits: int = 0
    """Batches that found their prefix computed; in packed passes prompts that found some of theirs."""
    prefix_misses: int = 0
    """Batches that had to compute their prefix first; in packed passes prompts of which nothing was known."""
    prefilled_tokens: int = 0
    """Prompt tokens run through the model, padding not counted."""
    reused_tokens: int = 0
    """Prompt tokens that were taken from a kept prefix, or one of the same batch, instead."""
    guessed_tokens: int = 0
    """Tokens that the model was given to confirm."""
    confirmed_tokens: int = 0
    """Tokens of those that it did confirm: each saved a step."""
