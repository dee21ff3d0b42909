"""How CodeVQA's authors turn a statement into a question for a reader of captions.

Source: ``text_processor`` and the COVR and NLVR2 loaders of the release (LAVIS's ``BlipQuestionProcessor``). Programs
see statements as they stand.
"""

from __future__ import annotations

__all__ = ["as_question"]

MARKS = str.maketrans("", "", '.!"()*#:;~')
WORDS = 50
"""Longer texts are cut."""


def as_question(text: str) -> str:
    """Returns a text in lower case without most marks, and a statement as "is it true that".

    >>> as_question("There is an empty glass.")
    'Is it true that there is an empty glass?'
    >>> as_question("Is the glass empty?")
    'is the glass empty?'
    """
    text = text.lower().translate(MARKS).rstrip(" ")
    words = text.split(" ")
    if len(words) > WORDS:
        text = " ".join(words[:WORDS])
    return text if text.endswith("?") else f"Is it true that {text}?"
