"""Prompt sets: the preamble, the annotated programs and the reading examples a language model is shown.

A set is a folder: ``prompt.json`` (numbers and names), ``preamble.txt``, ``examples.jsonl`` (programs), and
``reading.jsonl`` (answers read from captions); where programs ask for knowledge, ``knowledge.jsonl`` too.
"""

from __future__ import annotations

from .loading import find_pool, load_prompt_set, prompt_set_names
from .prompt_set import KnowledgeExample, ProgramExample, PromptSet, ReadingExample

__all__ = [
    "KnowledgeExample",
    "ProgramExample",
    "PromptSet",
    "ReadingExample",
    "find_pool",
    "load_prompt_set",
    "prompt_set_names",
]
