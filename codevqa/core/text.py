"""How prompts write what users say, and terminals what models say."""

from __future__ import annotations

import re

__all__ = ["one_line", "sentence_case", "visible"]

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""What a terminal would obey rather than show: control characters but tabs and line ends, changes of direction."""
_MARK = re.compile(r"<(?=[|/]?\w+\|?>)|\[(?=/?INST\])")
"""Begins what tokenizers take for a control token: the end of a turn, of a text, a gap to fill in."""


def one_line(text: str) -> str:
    """Returns a question or a caption as prompts may hold it: it begins no line of its own, and no turn of a chat."""
    return _MARK.sub(r"\g<0> ", " ".join(text.split()))


def sentence_case(question: str) -> str:
    """Returns the question as prompts show it: first letter upper case, the rest lower, on one line."""
    line = one_line(question)
    return line[:1].upper() + line[1:].lower()


def visible(text: str) -> str:
    """Returns a text as a terminal may print it: what would move its cursor or turn its letters round is spelt out."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape", "surrogatepass").decode(), text)
