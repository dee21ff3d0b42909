"""Prompt sets: the preamble, the annotated programs and the reading examples a language model is shown.

A set is a folder: ``prompt.json`` (numbers and names), ``preamble.txt``, ``examples.jsonl`` (programs), and
``reading.jsonl`` (answers read from captions); where programs ask for knowledge, ``knowledge.jsonl`` too.
"""

from __future__ import annotations

from .loading import available, find_pool, load
from .prompt_set import Example, KnowledgeExample, PromptSet, ReadingExample

__all__ = [
    "Example",
    "KnowledgeExample",
    "PromptSet",
    "ReadingExample",
    "available",
    "find_pool",
    "load",
]
