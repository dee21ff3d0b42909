"""Image-text matching as a second witness to a question about one picture.

Captions name what is there; a reader of them does not conclude well what is absent, how many, or touching what. The
matcher scores descriptions: BLIP's ITM head was trained to tell a picture's description from those of others. "Is there
a red cup?" is asked as "a red cup"; "How many red cups are there?" as "a red cup", "two red cups" and so on.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from ..core.question_kind import question_kind

__all__ = ["described", "fits", "verdict"]

COUNTS = ("two", "three", "four", "five", "six", "seven")
"""Numbers that are tried beside one."""

_LEAD = re.compile(
    r"^(?:is it true that |(?:do|can|could) you (?:see|find|spot) (?:any )?|(?:does|do) (?:the|this|these)"
    r" (?:image|picture|photo|scene)s? (?:show|contain|have|include) |(?:is|are|was|were) there (?:any )?"
    r"|there (?:is|are) (?:any )?|(?:is|are|was|were|do|does|did|has|have|had|can|could) )",
    re.IGNORECASE,
)
_TAIL = re.compile(r" (?:visible |shown )?(?:in|on) (?:the|this) (?:image|picture|photo|scene)$", re.IGNORECASE)
_UNSEEN = re.compile(
    r"\b(?:no|not|none|neither|nor|n't|without|only|all|every|each|any|both|either|or|same|different|than|more|less"
    r"|fewer|most|least|exactly|equal|many|number)\b",
    re.IGNORECASE,
)
_COUNTED = re.compile(
    r"^how many (.+?)(?: (?:are|is) there\b| do you see\b| can you see\b| (?:are|is)\b)(.*)$", re.IGNORECASE
)
_SINGULAR = {"people": "person", "men": "man", "women": "woman", "children": "child", "mice": "mouse", "geese": "goose"}


def described(question: str) -> tuple[str, ...]:
    """Returns what to match with a picture: one description that fits where the answer is yes, or one a number from 1.

    Empty where no description can say it.

    >>> described("Is there a red cup in the picture?"), described("Is the girl wearing a coat?")
    (('a red cup',), ('the girl wearing a coat',))
    >>> described("How many red cups are there?")[:3]
    ('a red cup', 'two red cups', 'three red cups')
    >>> described("Are all the cups red?"), described("What is on the table?")
    ((), ())
    """
    text = " ".join(question.split()).rstrip(" ?.!")
    kind = question_kind(question).kind
    if kind == "yes_no":
        text = _TAIL.sub("", _LEAD.sub("", text, count=1))
        return () if not text or _UNSEEN.search(text) else (text,)
    counted = _COUNTED.match(_TAIL.sub("", text)) if kind == "number" else None
    if counted is None or _UNSEEN.search(counted.group(1)):
        return ()
    things = f"{counted.group(1)}{counted.group(2)}".lower()
    one = _singular(things)
    article = "an" if one[0] in "aeiou" else "a"
    return (f"{article} {one}", *(f"{count} {things}" for count in COUNTS))


def verdict(logits: Sequence[float], doubt: float, *, counted: bool) -> str:
    """Returns the answer that image-text matching is sure of: yes, no or a number; empty where it is not sure.

    Args:
        logits: of the descriptions of :func:`described`, up to the first that does not surely fit.
        doubt: a probability is sure below this, or above 1 minus this.
        counted: whether the descriptions are of numbers.
    """
    sure = [fits(logit, doubt) for logit in logits]
    if not counted:
        return {True: "yes", False: "no", None: ""}[sure[0]]
    # Where there are three, "two cups" fits as well: the last that fits counts, if the next is sure not to.
    fitting = next((place for place, one in enumerate(sure) if one is not True), None)
    return str(fitting) if fitting is not None and sure[fitting] is False else ""


def fits(logit: float, doubt: float) -> bool | None:
    """Says whether a description fits, from its logit of a match minus that of none; None where that is not sure."""
    chance = 1 / (1 + math.exp(-min(max(logit, -50.0), 50.0)))
    return True if chance > 1 - doubt else False if chance < doubt else None


def _singular(things: str) -> str:
    """Returns a phrase about one of some things: its first plural word is taken for the noun."""
    words = things.split()
    for place, word in enumerate(words):
        if word in _SINGULAR or (word.endswith("s") and not word.endswith(("ss", "us", "is"))):
            stem = word[:-2] if word.endswith(("ches", "shes", "xes", "sses")) else word[:-1]
            words[place] = _SINGULAR.get(word) or (f"{word[:-3]}y" if word.endswith("ies") else stem)
            break
    return " ".join(words)
