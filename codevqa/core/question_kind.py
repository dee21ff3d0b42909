"""What kind of answer a question wants: yes or no, one of the things it names, a number, or anything.

The kind is read off the first words, as GQA's and COVR's questions allow. The writer tells the language model, and a
reader of captions is held to it. An answer to a yes/no question or a "How many" that is of another kind is an error
(:meth:`QuestionKind.misfit`). Where a question names choices, "or" may also join two subjects, so nothing is refused.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["yes_no", "choice", "number", "open"]


@dataclass(frozen=True)
class QuestionKind:
    """What a question wants."""

    kind: Kind
    choices: tuple[str, ...] = ()
    """What a choice names, where that can be read off; lower case, without articles."""

    def misfit(self, answer: str) -> str:
        """Says what is wrong with an answer of another kind; empty where nothing is."""
        text = answer.strip().lower()
        if self.kind == "yes_no":
            return "" if text in ("yes", "no") else f'the question wants "yes" or "no", not {answer!r}'
        if self.kind == "number":
            return (
                ""
                if _LITERAL.fullmatch(text) or number_in(text) is not None
                else f"the question wants a number, not {answer!r}"
            )
        return ""

    def fitted(self, answer: str) -> str:
        """Returns an answer in the words of its kind: a number in digits, a choice as the question names it."""
        text = answer.strip()
        if self.kind == "number":
            number = None if _LITERAL.fullmatch(text) else number_in(text.lower())
            return text if number is None else str(number)
        if self.kind == "yes_no":
            return yes_or_no(text) or text
        if self.kind == "choice" and text.lower() not in self.choices:
            words = set(_words(text))
            near = [choice for choice in self.choices if words and words <= set(_words(choice))]
            near = near or [choice for choice in self.choices if set(_words(choice)) <= words]
            return near[0] if len(near) == 1 else text
        return text


_AUXILIARY = re.compile(
    r"(?:is|isn't|are|aren't|was|were|do|does|doesn't|did|has|have|had|can|could|will|would|should)\b"
)
_QUESTION = re.compile(
    r"(?:what|which|who|whom|whose|where|when|why|how|in (?:what|which)|on (?:what|which)|of (?:what|which)"
    r"|at (?:what|which)|from (?:what|which)|name|tell|describe|choose)\b"
)
_EITHER = re.compile(
    r"(?:is|are|was|were) (?:there|it true|either|both|any)\b|(?:do|can|could) you (?:see|find|spot)\b"
    r"|(?:do|does) (?:(?:the|this|these|those|any|all|each|every|both) )?(?:picture|image|photo|scene|box)(?:e?s)?\b"
    r"|.*\beither\b"
)
_LITERAL = re.compile(r"-?\d+(?:,\d{3})*(?:\.\d+)?")
"""A number as a program prints it: already in its words."""
_NUMBER = re.compile(r"how many\b|what (?:is|'s) the (?:\w+ )?(?:number|count) of\b|(?:what|which) number of\b|count\b")
_PLACE = re.compile(r"^(?:in|on|relative to) the [^,?]*, (?=\w+ )")
"""What a question may say first: in which picture to look."""
_OR = re.compile(r"\bor\b")
_ARTICLE = re.compile(r"^(?:(?:to|on|in|at|of|an?|the)\s+)+")
_SIDE = "left|right|above|below|top|bottom|over|under|in front|behind"
_NAMED = (
    # "..., the cup or the blue book?"
    re.compile(r", ((?:an?|the) [\w' -]+) or ((?:an?|the) [\w' -]+)$"),
    # "small, medium or large?"
    re.compile(r"^(?:is|are|was|were) .*?\b(\w+), ([\w-]+),? or ([\w-]+)$"),
    # "is the cup or the blue book higher up?"
    re.compile(
        r"^(?:is|are|was|were) ((?:an?|the) [\w' -]+) or ((?:an?|the) [\w' -]+?)"
        r" (?:(?:more|less|further|farther|closer|nearer)\b.*|\w+er(?: (?:up|down|left|right))?)$"
    ),
    # "to the left or to the right of ...", "above or below the cup"
    re.compile(rf"\b({_SIDE})\b.{{0,12}}? or (?:to |on |at |in )?(?:the )?({_SIDE})\b"),
    # "a duck or a cat?"
    re.compile(r"\b((?:an?|the) [\w-]+) or ((?:an?|the) [\w-]+)$"),
    # "red or blue?"
    re.compile(r"\b([\w-]+) or ([\w-]+)$"),
)
"""Where "or" stands between two things named, most telling first."""
_PARTS = re.compile(
    r"(?:(?:is|are|was|were|do|does|did|has|have|can|could) )?(?:(all|every|each)|any)\b"
    r"|(?:(?:is|are|was|were) there|there (?:is|are|was|were)) (?:an?|any|some)\b"
)
"""How what is asked about any or all pictures begins."""
_TOGETHER = re.compile(
    r"\b(?:different|distinct|unique|same|similar|other|another|more|fewer|less|most|least|than|kinds?|types?|sorts?"
    r"|species|colou?rs?|average|between|difference|majority|consecutive|first|last|both)\b"
)
"""Words that compare pictures, or things in several: parts tell nothing of them."""
_COUNTS = re.compile(
    r"\b(?:all|every|each|any|only|exactly|just|no|not|none|never|neither|together|number|half|one|two|three|four|five|six"
    r"|seven|eight|nine|ten|\d+)\b|n't\b"
)
"""Words that turn round what is asked of any or all."""
_NUMBERS = """
zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
seventeen eighteen nineteen twenty
"""
_COUNTED = {word: value for value, word in enumerate(_NUMBERS.split())}
_COUNTED |= {"no": 0, "none": 0, "nothing": 0, "pair": 2, "both": 2, "dozen": 12}


@functools.lru_cache(maxsize=4096)
def question_kind(text: str) -> QuestionKind:
    """Returns what a question, or a statement to be judged, wants.

    >>> question_kind("Is there a cup?").kind, question_kind("How many cups are there?").kind
    ('yes_no', 'number')
    >>> question_kind("Is the cup red or blue?")
    QuestionKind(kind='choice', choices=('red', 'blue'))
    >>> question_kind("Both pictures show a cup.").kind, question_kind("What is on the cup?").kind
    ('yes_no', 'open')
    """
    words = _PLACE.sub("", " ".join(text.lower().split()))
    if _NUMBER.match(words):
        return QuestionKind("number")
    asks = _QUESTION.match(words)
    begins, ends = _AUXILIARY.match(words) and not asks, words.endswith("?")
    if _OR.search(words) and (asks or begins or ends) and not _EITHER.match(words):
        return QuestionKind("choice", _choices(words))
    return QuestionKind("open" if asks or (ends and not begins) else "yes_no")


def is_statement(text: str) -> bool:
    """Says whether a text is a statement to be judged: it has no question mark and does not begin as questions do.

    >>> is_statement("Both pictures show a cup."), is_statement("what is on the cup")
    (True, False)
    """
    words = _PLACE.sub("", " ".join(text.lower().split()))
    begins = _NUMBER.match(words) or _QUESTION.match(words) or _AUXILIARY.match(words)
    return not (words.endswith("?") or begins)


def joins(text: str) -> Literal["sum", "any", "all", ""]:
    """Says how answers about parts of a set join to the answer about all of it; empty where the wording is not sure.

    Numbers are summed. Yes about any part is yes, or only yes about all parts.

    >>> joins("How many pictures show a dog?"), joins("Is there a picture of a dog?"), joins("Do all show a dog?")
    ('sum', 'any', 'all')
    >>> joins("How many different animals are there?"), joins("Is there exactly one dog?"), joins("What is it?")
    ('', '', '')
    """
    words = " ".join(text.lower().split()).replace("at least one", "any")
    kind = question_kind(text).kind
    if kind == "number" and not _TOGETHER.search(words):
        return "sum"
    begins = _PARTS.match(words) if kind == "yes_no" else None
    if begins is None or _TOGETHER.search(words) or _COUNTS.search(words[begins.end() :]):
        return ""
    return "all" if begins[1] else "any"


def _choices(words: str) -> tuple[str, ...]:
    """Returns what is named around "or"; nothing where the ends cannot be told."""
    words = words.rstrip(" ?.")
    for pattern in _NAMED:
        found = pattern.search(words)
        if found:
            return tuple(_ARTICLE.sub("", one.strip()) for one in found.groups() if one)
    return ()


def number_in(text: str) -> int | None:
    """Returns the one whole number that a text of a few words names; None where it names none or several.

    >>> number_in("four blocks"), number_in("there are 2 cups"), number_in("no"), number_in("a lot")
    (4, 2, 0, None)
    """
    words = re.findall(r"[a-z]+|\d+(?:\.\d+)?", text.lower())
    digits = {int(word) for word in words if word.isdigit() and len(word) < 10}
    if digits or any("." in word for word in words):
        return digits.pop() if len(digits) == 1 and not any("." in word for word in words) else None
    named = {_COUNTED[word] for word in words if word in _COUNTED}
    return named.pop() if len(named) == 1 and len(words) <= 12 else None


def yes_or_no(text: str) -> str:
    """Returns ``yes`` or ``no`` where a text begins with it, or with true or false; else an empty text.

    >>> yes_or_no("No, there is no black square."), yes_or_no("True"), yes_or_no("nothing")
    ('no', 'yes', '')
    """
    found = re.match(r"\W*(yes|no|true|false|yeah|nope)\b(?! (?:one|thing|where))", text.strip().lower())
    return {"yes": "yes", "true": "yes", "yeah": "yes"}.get(found.group(1), "no") if found else ""


def _words(text: str) -> list[str]:
    return [word for word in re.findall(r"[\w'-]+", text.lower()) if word not in ("a", "an", "the")]
