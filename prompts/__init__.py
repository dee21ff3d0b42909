"""Prompt sets: the preamble, the annotated programs and the reading examples a language model is shown.

A set is a folder:

===================  ============================================================================================
``python -m codevqa.writing.lint`` checks the sets of this package.
"""

from __future__ import annotations

from .loading import available, load
from .prompt_set import Example, KnowledgeExample, PromptSet, ReadingExample
from .release_layout import find_pool, load_examples, load_knowledge, load_reading

__all__ = [
    "Example",
    "KnowledgeExample",
    "PromptSet",
    "ReadingExample",
    "available",
    "find_pool",
    "load",
    "load_examples",
    "load_knowledge",
    "load_reading",
]
