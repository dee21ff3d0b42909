"""How a question is put to models: as the user did, or as the paper's authors put theirs.

Of the authors' way, which their loaders of COVR and NLVR2 and LAVIS's ``BlipQuestionProcessor`` have, programs, readers
of captions and image-text matching see the result alike. Users see their own sentence, whatever models see.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from .question_kind import is_statement
from .text import unmarked
from .trace import Form

Wording: TypeAlias = Literal["plain", "asked", "release"]
"""``plain``: as the user put it. ``asked``: a statement as a question, "Is it true that …?". ``release``: as the
paper's release does, to the byte, which of a set asks whatever has no question mark, and leaves every question without
capitals, most marks and what comes after fifty words."""

_MARKS = str.maketrans("", "", '.!"()*#:;~')
_WORDS = 50


def bare(text: str) -> str:
    """Returns a text in lower case without most marks, cut after fifty words; one of marks alone stays as it is.

    >>> bare('Is the "STOP" sign red? ')
    'is the stop sign red?'
    """
    words = unmarked(text).lower().translate(_MARKS).rstrip(" ").split(" ")
    return " ".join(words[:_WORDS]) or text


def put(question: str, wording: Wording, form: Form) -> str:
    """Returns a user's question, or statement, in a wording.

    >>> put("There is an empty glass.", "asked", "set")
    'Is it true that There is an empty glass?'
    >>> put('Both signs say "Stop".', "release", "set"), put("Red or blue", "release", "image")
    ('Is it true that both signs say stop?', 'red or blue')
    """
    if wording == "release":
        text = bare(question)
        return text if form == "image" or text.endswith("?") else f"Is it true that {text}?"
    if wording == "asked" and is_statement(question):
        return f"Is it true that {question.rstrip(' .!')}?"
    return question
