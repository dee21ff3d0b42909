"""How answers to your own questions are compared: by what they say, whatever is typed around it."""

from __future__ import annotations

import re
import unicodedata
from decimal import Decimal, InvalidOperation
from functools import lru_cache

from ...core.answer_words import whole_number
from .text import yes_no

_QUOTES = str.maketrans("’‘“”−–—", "''\"\"---")
_NUMBER = re.compile(r"[-+]?(?:[1-9]\d{0,2}(?:,\d{3})+|0|[1-9]\d*)(?:\.\d+)?|[-+]?\.\d+")
"""A number that is worth its value; "007" and "1,5" are not."""
_BESIDE = re.compile(r"\b(?:an?|the) +(?=[^\W\d_][\w'-])")
"""An article before a word. "A" alone, and "A B", may be choices."""
_JOINED = re.compile(r"(?<=[^\W\d_])[ '-]+(?=[^\W\d_])")


@lru_cache(maxsize=65_536)
def own(answer: str) -> str:
    """Returns an answer in the form in which it is compared; two answers agree where these are the same.

    Case, the form of Unicode, quotes, and marks at the ends do not count, nor do articles before a word. Letters with
    a space, an apostrophe or a hyphen between them are joined. True and False are yes and no. Numbers count by their
    value, in figures or in words. What tells answers apart stays: signs, units, fractions, "C++". An answer of marks
    alone stays as it is.

    >>> own("X-ray.") == own("x ray"), own("Twelve") == own("12"), own("The cat") == own("cat")
    (True, True, True)
    >>> own("C++") == own("C"), own("-5") == own("5"), own("A") == own("the"), own("1/2") == own("1 2")
    (False, False, False, False)
    """
    text = " ".join(unicodedata.normalize("NFKC", answer).translate(_QUOTES).casefold().split())
    text = unicodedata.normalize("NFKC", text)
    bare = yes_no(text.strip("\"'` ").rstrip(".!?;:,").strip("\"'` ")) or text
    if (number := _value(bare)) is not None:
        return number
    words = re.sub(r"(?<=\w)[,;:!?.]+(?= )", "", _BESIDE.sub("", bare)).split()
    return _JOINED.sub("", " ".join(_value(word) or word for word in words))


def _value(text: str) -> str | None:
    """Returns a number by its value; None where a text is none."""
    if _NUMBER.fullmatch(text):
        try:
            return f"{Decimal(text.replace(',', '')).normalize() + 0:f}"
        except InvalidOperation:
            return None
    number = None if any(letter.isdigit() for letter in text) else whole_number(text)
    return None if number is None else str(number)
