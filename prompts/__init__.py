"""Prompt sets: the preamble, the annotated programs and the reading examples a language model is shown.

A set is a folder:

=================  ====================================================================================================
``prompt.json``    form, numbers of examples and captions, primitives, licence
``preamble.txt``   instruction and constants; ``{api}`` is replaced by one line per primitive
``examples.jsonl`` ``{"id", "question", "program"}`` a line, and ``"form"`` where it differs from the set's; a program
                   starts after the line that opens ``img`` or ``images``, and leaves its result in ``answer``
``reading.jsonl``  ``{"id", "question", "captions", "answer"}`` a line; captions are a list, or one list a picture
=================  ====================================================================================================

``python -m codevqa.writing.lint`` checks the sets of this package.
"""

from __future__ import annotations

from .loading import available, load
from .prompt_set import Example, PromptSet, ReadingExample
from .release_layout import load_examples, load_reading

__all__ = ["Example", "PromptSet", "ReadingExample", "available", "load", "load_examples", "load_reading"]
