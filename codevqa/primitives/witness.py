"""Two witnesses beside the reader of captions: numbers that captions state, and image-text matching.

Captions name what is there. A reader of captions does badly on what is absent, on numbers and on contact. The matcher
scores descriptions: BLIP's ITM head was trained to tell a picture's description from others. "Is there a red cup?"
becomes "a red cup"; "How many red cups are there?" becomes "a red cup", "two red cups" and so on; "Is the cup red or
blue?" becomes "a red cup" and "a blue cup". A question whose description would not be good English has none.

Both are off unless a setting turns them on: their gain was measured on drawn pictures only.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ..core.answer_words import number_in
from ..core.question_kind import begins_as_question, question_kind
from ..core.selection import logistic

COUNTS = ("two", "three", "four", "five", "six", "seven")
"""Numbers that are tried beside one."""

_LEAD = re.compile(
    r"^(?:is it true that |(?:do|can|could) you (?:see|find|spot) (?:any )?|(?:does|do|is) (?:it|(?:the|this|these)"
    r" (?:image|picture|photo|scene)s?) (?:show|showing|contain|have|include|depict)s? (?:any )?"
    r"|(?:is|are|was|were) there (?:any )?|there (?:is|are) (?:any )?|(?:is|are|was|were) )",
    re.IGNORECASE,
)
_CONJUGATED = re.compile(r"(?:do|does|did|has|have|had|could|would|should|will)\b", re.IGNORECASE)
"""Without such a first word the rest of the question is not a description: "the bus have wheels"."""
_TAIL = re.compile(r"(?: (?:visible|shown|present))?(?: (?:in|on) (?:the|this) (?:image|picture|photo|scene))?$", re.I)
_LINK = re.compile(r"^can ((?:an?|the) (?:[\w-]+ ){1,3})be (?:found|seen|spotted) ", re.IGNORECASE)
"""A thing and its place in "Can the cup be found under the table?"."""
_UNSEEN = re.compile(
    r"\b(?:no|not|none|neither|nor|n't|without|only|all|every|each|any|both|either|or|same|different|than|more|less"
    r"|fewer|most|least|exactly|equal|many|number|total|images?|pictures?|photos?)\b",
    re.IGNORECASE,
)
"""What a matcher does not see in one picture."""
_NEGATED = re.compile(r"^(?:no|not an?|not any|not one) (?=\w)", re.IGNORECASE)
_BOUND = re.compile(
    r"^(exactly|at least|at most|no more than|no fewer than|more than|fewer than|less than) ([\w]+) (.+)$"
    r"|^(\w+) or (more|fewer|less) (.+)$",
    re.IGNORECASE,
)
_COMPARISONS: Mapping[str, Callable[[int, int], bool]] = {
    "exactly": operator.eq,
    "at least": operator.ge,
    "no fewer than": operator.ge,
    "or more": operator.ge,
    "at most": operator.le,
    "no more than": operator.le,
    "or fewer": operator.le,
    "or less": operator.le,
    "more than": operator.gt,
    "fewer than": operator.lt,
    "less than": operator.lt,
}
_COUNTED = re.compile(
    r"^how many (.+?)(?: (?:are|is) there\b| do you see\b| can you see\b| (?:are|is)\b"
    r"| (?:do|does) (?:the|this) (?:image|picture|photo|scene) (?:show|contain|have)\b)(.*)$",
    re.IGNORECASE,
)
_PARTED = re.compile(r"^((?:an?|any|some) .+?|(?:[\w-]+ )?\w+s) (or|and) (?:is there |are there )?(?:any )?(.+)$", re.I)
_PLAIN = r"(?!(?:of|to|in|on|at|by|with|and|or|the|that|which|who|it|them|is|are|was|were|has|have|[a-z]+ly)\b)[\w-]+"
"""A word inside the name of a thing."""
_SIMPLE = re.compile(rf"^(?:(?:an?|some) )?(?:{_PLAIN} ){{0,3}}{_PLAIN}$", re.IGNORECASE)
_CHOICE = re.compile(rf"^(?:is|are|was|were) the ((?:{_PLAIN} ){{0,2}}{_PLAIN}) $", re.IGNORECASE)
_HEAD = re.compile(
    rf"^((?:{_PLAIN} ){{0,3}}?{_PLAIN})((?: (?:[a-z]+ly )?"
    r"(?:with|as|in|on|at|near|under|above|below|behind|beside|next to|[\w-]+ing|displayed|visible)"
    r"\b(?!.*\b(?:is|are|was|were|has|have|and)\b).*)?)$",
    re.IGNORECASE,
)
"""Things that are counted: their name, which ends with the noun, and where they are or what they do."""
_GENERIC = re.compile(r"(?:thing|object|item)s?|animal|vehicle|fruit|food|device|toy|shape")
_SINGULAR = {"people": "person", "men": "man", "women": "woman", "children": "child", "mice": "mouse", "geese": "goose"}
_PLURAL = {single: several for several, single in _SINGULAR.items()}


@dataclass(frozen=True)
class Descriptions:
    """What to match with a picture, and what follows from how it fits."""

    texts: tuple[str, ...] = ()
    """Descriptions; empty where none can say what is asked."""
    rule: Literal["any", "all", "count", "choice"] = "all"
    """The answer is yes if any fits, or if all do; the number that fits; or what stands in the one that does."""
    negated: bool = False
    """Whether yes and no change places."""
    bound: tuple[str, int] | None = None
    """What a number is compared with, for yes or no."""
    choices: tuple[str, ...] = ()
    """What each description stands for."""
    placed: bool = False
    """Whether things are counted in one place of the picture."""

    def suffice(self, logits: Sequence[float], doubt: float) -> bool:
        """Says whether what comes after these descriptions would say nothing more."""
        last = _fits(logits[-1], doubt)
        return last is not {"any": False, "all": True, "count": True}.get(self.rule, last)

    def verdict(self, logits: Sequence[float], doubt: float) -> str:
        """Returns the answer that image-text matching is sure of; empty where it is not sure.

        Args:
            logits: of a match minus that of none, for the descriptions up to one that suffices.
            doubt: a probability is sure below this, or above 1 minus this.
        """
        sure = [_fits(logit, doubt) for logit in logits]
        if self.rule == "choice":
            fitting = [choice for choice, fit in zip(self.choices, sure, strict=False) if fit is not False]
            return fitting[0] if len(fitting) == 1 and sure.count(True) == 1 else ""
        if self.rule != "count":
            decisive = self.rule == "any"
            if decisive in sure:
                return _yes(decisive is not self.negated)
            return "" if None in sure else _yes(decisive is self.negated)
        # Where there are three, "two cups" fits as well: the last that fits counts, if the next is sure not to.
        count = next((place for place, fit in enumerate(sure) if fit is not True), None)
        if count is None or sure[count] is None:
            return ""
        if self.bound is not None:
            return _yes(_COMPARISONS[self.bound[0]](count, self.bound[1]))
        # Matching is out of its depth in places that no caption would name: "six items in the box" has no match.
        return "" if count == 0 and self.placed else str(count)


def describe_question(question: str, *, statements: bool = False) -> Descriptions:
    """Returns what to match with a picture in place of a question about it.

    >>> describe_question("Is there a red cup in the picture?").texts, describe_question("Is the girl in a coat?").texts
    (('a red cup',), ('the girl in a coat',))
    >>> describe_question("How many red cups are there?").texts[:3], describe_question("Are there no cups?").negated
    (('a red cup', 'two red cups', 'three red cups'), True)
    >>> describe_question("Is the cup red or blue?").texts, describe_question("Are there any cups or plates?").texts
    (('a red cup', 'a blue cup'), ('cups', 'plates'))
    >>> describe_question("Are all the cups red?").texts, describe_question("Does the bus have wheels?").texts
    ((), ())
    """
    text = _TAIL.sub("", " ".join(question.split()).rstrip(" ?.!"))
    kind = question_kind(question, statements=statements)
    if kind.kind == "yes_no":
        bare = _LINK.sub(r"\1", _LEAD.sub("", text, count=1))
        return Descriptions() if _CONJUGATED.match(bare) else _describe_statement(bare)
    if kind.kind == "choice":
        return _describe_choice(text, kind.choices)
    counted = _COUNTED.match(text) if kind.kind == "number" else None
    if counted is None:
        return Descriptions()
    return replace(_describe_count(f"{counted.group(1)}{counted.group(2)}"), placed=bool(counted.group(2).strip()))


def as_question(text: str) -> str:
    """Returns a yes/no question as it is, and a description as a question after it.

    >>> as_question("a red car at night"), as_question("purple cups"), as_question("There is a dog.")
    ('Is there a red car at night?', 'Are there purple cups?', 'Is there a dog?')
    >>> as_question("Is it sunny?"), as_question("any sheep")
    ('Is it sunny?', 'Are there any sheep?')

    Raises:
        ValueError: it is a question that no yes or no answers.
    """
    words = " ".join(text.split())
    if question_kind(words).kind == "yes_no":
        return words
    if begins_as_question(words):
        raise ValueError(f"this needs a yes/no question or a description, not {text[:80]!r}")
    match = re.match(r"there (is|are|was|were) ", words, re.IGNORECASE)
    if match:
        return f"{match.group(1).capitalize()} there {words[match.end() :].rstrip(' .!')}?"
    thing = words.rstrip(" .!")
    head = _HEAD.match(re.sub(r"^(?:any|some|many|several) ", "", thing.lower()))
    several = re.match(r"(?:any|some|many|several|two|three|four|five|\d+)\b", thing.lower()) or (
        head and not re.match(r"(?:an?|the|one)\b", thing.lower()) and _singular(head.group(1))
    )
    return f"{'Are' if several else 'Is'} there {thing[:1].lower()}{thing[1:]}?"


def phrase_of(text: str) -> str:
    """Returns what a question or a description is of: "Is there a red cup?" is of "a red cup"."""
    return _TAIL.sub("", _LEAD.sub("", " ".join(text.split()).rstrip(" ?.!"), count=1))


def stated_number(question: str, captions: Sequence[str]) -> str:
    """Returns the number of the things asked for that captions state; empty where none does, or they disagree.

    Where several name one thing, and none more of them, there is one.

    >>> stated_number("How many blocks are in the tower?", ["a tower of two blocks", "three red blocks", "a block"])
    '2'
    >>> stated_number("How many towers are there?", ["a tower of two blocks", "a red block", "a tower on a table"])
    '1'
    """
    counted = _COUNTED.match(_TAIL.sub("", " ".join(question.split()).rstrip(" ?.!")))
    if counted is None or question_kind(question).kind != "number":
        return ""
    things = counted.group(1).lower()
    singular = _singular(things)
    lines = [caption.lower() for caption in captions]
    named = re.compile(rf"\b(?!an?\b)(\w+) (?:{re.escape(things)}|{re.escape(singular or things)})\b")
    numbers = {number_in(match.group(1)) for line in lines for match in named.finditer(line)} - {None}
    if numbers:
        return str(numbers.pop()) if len(numbers) == 1 else ""
    several = re.compile(rf"\b{re.escape(things)}\b")
    single = re.compile(rf"\ban? {re.escape(singular)}\b")
    alone = singular and not any(map(several.search, lines)) and sum(map(bool, map(single.search, lines))) > 1
    return "1" if alone else ""


def _describe_statement(text: str) -> Descriptions:
    """Returns what a statement is matched as, of which the question's first words have been cut off."""
    bound = _BOUND.match(text)
    if bound:
        comparison, number, things, bare, more, rest = bound.groups()
        wanted = number_in(number or bare)
        if wanted is None:
            return Descriptions()
        counted = _describe_count(things or rest, single=wanted == 1 and not bare)
        return replace(counted, bound=((comparison or f"or {more}").lower(), wanted))
    affirmed = _NEGATED.sub("", text)
    parted = _PARTED.match(affirmed)
    if parted and _SIMPLE.match(parted.group(1)) and _SIMPLE.match(parted.group(3)):
        parts = tuple(re.sub("^any ", "", parted.group(place), flags=re.IGNORECASE) for place in (1, 3))
        if not any(map(_UNSEEN.search, parts)):
            return Descriptions(parts, "any" if parted.group(2).lower() == "or" else "all", affirmed != text)
    if not affirmed or _UNSEEN.search(affirmed):
        return Descriptions()
    return Descriptions((affirmed,), negated=affirmed != text)


def _describe_count(things: str, *, single: bool = False) -> Descriptions:
    match = _HEAD.match(things.lower())
    if match is None or _UNSEEN.search(things):
        return Descriptions()
    name, rest = match.groups()
    singular, plural = (name, _plural(name)) if single else (_singular(name), name)
    if not singular or not plural:
        return Descriptions()
    return Descriptions((_add_article(singular) + rest, *(f"{count} {plural}{rest}" for count in COUNTS)), "count")


def _describe_choice(text: str, choices: Sequence[str]) -> Descriptions:
    place = text.lower().find(choices[0]) if choices else -1
    before = text[: max(place, 0)]
    named = re.search(r" an? $", before)
    about = _CHOICE.match(before[: named.start() + 1] if named else before)
    if about is None or any(len(choice.split()) > 1 for choice in choices):
        return Descriptions()
    thing = about.group(1).lower()
    how, _, noun = thing.rpartition(" ")
    if named and not _GENERIC.fullmatch(noun):
        return Descriptions()
    # "the red thing a cup or a plate": what is named takes the noun's place.
    texts = [_add_article(f"{how} {choice}".strip() if named else f"{choice} {thing}") for choice in choices]
    return Descriptions(tuple(texts), "choice", choices=tuple(choices))


def _fits(logit: float, doubt: float) -> bool | None:
    """Says whether a description fits; None where that is not sure."""
    chance = logistic(logit)
    return True if chance > 1 - doubt else False if chance < doubt else None


def _yes(truth: bool) -> str:
    return "yes" if truth else "no"


def _add_article(things: str) -> str:
    return f"{'an' if things[0] in 'aeiou' else 'a'} {things}"


def _plural(name: str) -> str:
    """Returns the plural of a thing's name; an empty text where it is not sure."""
    how, space, noun = name.rpartition(" ")
    if noun in _PLURAL:
        return f"{how}{space}{_PLURAL[noun]}"
    if noun.endswith(("s", "f", "fe", "o", "man", "fish", "sheep", "deer")):
        return f"{name}es" if noun.endswith("ss") else ""
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{name[:-1]}ies"
    return f"{name}es" if noun.endswith(("x", "ch", "sh")) else f"{name}s"


def _singular(name: str) -> str:
    """Returns the name of one of some things; an empty text where it is not sure."""
    how, space, noun = name.rpartition(" ")
    singular = _SINGULAR.get(noun, "")
    if not singular and noun.endswith("s") and len(noun) > 2 and not noun.endswith(("ss", "us", "is", "ves", "oes")):
        if noun.endswith(("ches", "shes", "xes", "sses", "buses")):
            singular = noun[:-2]
        else:
            singular = f"{noun[:-3]}y" if noun.endswith("ies") else noun[:-1]
    return f"{how}{space}{singular}" if singular else ""
