"""What kind of answer a question wants: yes or no, one of the things it names, a number, or anything.

The kind is read off the first words, as GQA's and COVR's questions allow. The writer tells the language model, and a
reader of captions is held to it. An answer to a yes/no question or a "How many" that is of another kind is an error
(:meth:`QuestionKind.misfit`). Where a question names choices, "or" may also join two subjects, so nothing is refused.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from dataclasses import dataclass
from typing import Literal, TypeAlias

from .answer_words import LITERAL, bare_reply, number_in, truth, whole_number, yes_or_no
from .text import break_control_tokens
from .trace import Form

Kind: TypeAlias = Literal["yes_no", "choice", "number", "open"]


@dataclass(frozen=True)
class QuestionKind:
    """What a question wants."""

    kind: Kind
    choices: tuple[str, ...] = ()
    """What a choice names, where that can be read off; lower case, without articles."""

    def misfit(self, answer: str) -> str:
        """Says what is wrong with an answer of another kind; empty where nothing is."""
        if self.kind == "yes_no":
            return "" if truth(answer) else f'the question wants "yes" or "no", not {answer!r}'
        if self.kind == "number":
            number = LITERAL.fullmatch(answer.strip()) or whole_number(answer) is not None
            return "" if number else f"the question wants a number, not {answer!r}"
        return ""

    def fit(self, answer: str) -> str:
        """Returns an answer in the words of its kind where nothing is lost by that: "two" as "2", "The cup." as "cup".

        Where a question names choices, "or" may also join two subjects, so other answers stay as they are.
        """
        text = answer.strip()
        if self.kind == "number" and not LITERAL.fullmatch(text):
            number = whole_number(text)
            return text if number is None else str(number)
        if self.kind == "yes_no":
            return truth(text) or text
        bare = _BESIDE.sub("", text.lower().rstrip(".!"))
        return bare if bare in self.choices else text

    def read(self, reply: str) -> str | None:
        """Returns the answer in a model's reply, in lower case; None where the reply does not plainly have this kind.

        Only yes or no is demanded: for a number, too, a model may say "many".
        """
        if self.kind == "yes_no":
            return yes_or_no(reply) or None
        text = bare_reply(reply)
        number = number_in(reply) if self.kind == "number" else None
        return self.fit(text).lower() if number is None else str(number)


_AUXILIARY = re.compile(
    r"(?:is|are|was|were|do|does|did|has|have|had|can|could|will|would|should)(?:n'?t)?\b(?! you )"
    r"|(?:can|could|do|did) you (?:see|find|spot)\b"
)
"""What a yes/no question begins with. "Can you tell me ..." and the like ask for anything."""
_YOURS = re.compile(
    r"(?:will|would|should|do) you (?!tell|describe|explain|name|list|know|say|read|count|guess|identify)"
)
_ASKS = re.compile(
    r"(?:(?:in|on|of|at|from|to|by|with|for) )?(?:what|which|who|whom|whose|where|when|why|how)(?:'?s|'?re)?\b"
)
_THINK = re.compile(
    r"^(?:do|would) you (?:think|say|believe|guess) (?:that )?"
    r"(it|this|that|there|they|these|those|he|she|(?:the|this|these) [\w-]+)(?: (is|are|was|were)|'(s))\b"
)
_LEAD = re.compile(
    r"^(?:(?:so|and|well|ok|okay|now|then|hi|hello|please|pls|question|q)\b[,:]? "
    r"|(?:please |can you |could you )?(?:tell|say|show)(?: me| us)?\b(?:, ?|: ?| (?=how many))"
    r"|(?:in|on|relative to|of|from) the [^,?]*, (?=\w+ )|the [\w' -]+, (?=is |are ))+"
)
"""What a question may say first: please, or in which picture to look."""
_NUMBER = re.compile(
    r"(?:(?:about|roughly|approximately|exactly) )?how many\b(?! (?:percent|degrees))|count (?:of|the|all|up)\b"
    r"|(?:what(?: is|'?s) )?(?:the )?(?:total )?(?:number|count) of (?!the |this |that |my |your )[a-z]"
    r"|(?:what(?: is|'?s) )?the total (?:number|count) of\b|(?:what|which) number of\b|total (?:number|count) of\b"
)
_OR = re.compile(r"\bor\b")
_EITHER = re.compile(
    r"(?:is|are|was|were) (?:it true|either|both|any|all|each|every)\b|.*\b(?:either|any|anything|anyone|anybody)\b"
    r"|(?:is|are|was|were) there (?!more |fewer |less )|.*\b(?:all|each|every|both|none|some) of\b"
    r"|(?:can|could|do|does|did|has|have)(?: you| we)? "
    r"(?:(?:see|find|spot)(?! more| fewer| less)|all|both|each|every|some|any|either)\b"
    r"|(?:do|does) (?:(?:the|this|that|these|those) )?(?:picture|image|photo|scene|box)(?:e?s)? "
    r"(?:contain|have|include)\b"
)
"""How "or" begins that joins two subjects, and asks for yes or no."""
_NAMING = re.compile(r"[,:] (?:is it |are they )?[^,:?]+(?:, [^,:?]+)*,? or [^,:?]+$")
"""Where "what" or "which" goes on to name what to choose from."""
_DETERMINED = re.compile(r"^(?:an?|the) ")
_BESIDE = re.compile(r"^(?:(?:to|on|in|at) )?(?:an?|the) | (?:side|half|picture|image|photo)$")
"""What a choice may be said with, and nothing is lost without: "the bottom side" of "top or bottom side"."""
_SIDE = "left|right|above|below|top|bottom|over|under|in front|behind|first|second|last"
_SIDES = re.compile(
    rf"\b({_SIDE})\b(?: (?:picture|image|photo|one|side|half|hand side))?,? or (?:to |on |at |in )*(?:the )?({_SIDE})\b"
)
_BEFORE_THING = re.compile(
    r"^(?:is|are|was|were) ((?:an?|the) [\w' -]+) or ((?:an?|the) [\w' -]+?)"
    r" (?:(?:more|less|further|farther|closer|nearer)\b.*|\w+er(?: (?:up|down|left|right))?)$"
)
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
_ENDS = ("left", "right", "left image", "right image", "left picture", "right picture", "one", "half", "side")
_STATES = re.compile(
    r"[\"'(]?(?:there(?:'s| is| are| was| were)\b|(?:the|an?|this|that|these|those|both|each|every|all|some|no|one|two"
    r"|three|four|five|six|seven|eight|nine|ten|\d+|at least|at most|exactly|only|more|fewer|less|most|many|several"
    r"|neither|either|in|on|none|nothing|it|they|its|left|right|multiple|any|just|not|another|half|we|you can"
    r"|people|everyone|picture has|images? contains?|[a-z-]+s|[a-z-]+ [a-z-]+s(?= are| have| were))\b.*\b"
    r"(?:is|isn't|are|aren't|was|were|has|have|had|do|don't|can|cannot|can't|will"
    r"|(?:appear|contain|show|feature|include|depict|display|look|sit|stand|lie|face|hold|wear|say|read|consist)s?"
    r"|touch(?:es)?|does|doesn't|[a-z]+(?:ed|ing))\b)"
)
"""How a plain English statement begins, and the verb that it has."""
_COUNTS = re.compile(
    r"\b(?:all|every|each|any|only|exactly|just|no|not|none|never|neither|together|number|half|one|two|three|four|five|six"
    r"|seven|eight|nine|ten|\d+)\b|n't\b"
)
"""Words that turn round what is asked of any or all."""


@functools.lru_cache(maxsize=4096)
def question_kind(text: str, *, statements: bool = False) -> QuestionKind:
    """Returns what a question wants: a kind where that is sure, else ``open``, which holds nobody to anything.

    Args:
        text: the question.
        statements: whether plain statements, too, are to be judged, by yes or no. Some data sets have them.

    >>> question_kind("Is there a cup?").kind, question_kind("How many cups are there?").kind
    ('yes_no', 'number')
    >>> question_kind("Is the cup red or blue?")
    QuestionKind(kind='choice', choices=('red', 'blue'))
    >>> question_kind("Do you see more hats or houses?").kind, question_kind("Do you see hats or houses?").kind
    ('choice', 'yes_no')
    >>> question_kind("Both pictures show a cup.", statements=True).kind, question_kind("Read the sign.").kind
    ('yes_no', 'open')
    """
    words = _THINK.sub(lambda match: f"{match[2] or 'is'} {match[1]}", _LEAD.sub("", _normal(text)))
    if _NUMBER.match(words) and not is_statement(text):
        return QuestionKind("number")
    begins, either = _AUXILIARY.match(words), _OR.search(words)
    if either and (begins or (_ASKS.match(words) and _NAMING.search(words.rstrip(" ?.")))):
        sides = _SIDES.search(words)
        if begins and _EITHER.match(words) and not (sides and words.rstrip(" ?.").endswith(_ENDS)):
            return QuestionKind("yes_no")
        return QuestionKind("choice", _choices(words))
    if either and _YOURS.match(words):
        return QuestionKind("choice")
    if begins or (statements and is_statement(text)):
        return QuestionKind("yes_no")
    return QuestionKind("open")


def is_statement(text: str) -> bool:
    """Says whether a text is plainly an English statement, which may be judged true or false.

    >>> is_statement("Both pictures show a cup."), is_statement("what is on the cup"), is_statement("Read the sign.")
    (True, False, False)
    >>> is_statement("In the left image, all are brown."), is_statement("In the left image, tell me where it is.")
    (True, False)
    """
    words = _LEAD.sub("", _normal(text))
    asks = words.endswith("?") or _ASKS.match(words) or _AUXILIARY.match(words)
    return not asks and words.isascii() and _STATES.match(words) is not None


def begins_as_question(text: str) -> bool:
    """Says whether a text begins as a question, or ends in its mark."""
    words = _LEAD.sub("", _normal(text))
    return words.endswith("?") or any(begins.match(words) for begins in (_NUMBER, _ASKS, _AUXILIARY))


def _normal(text: str) -> str:
    """Returns a text in lower case, with plain spaces and marks: models and people type "？" too."""
    return " ".join(unicodedata.normalize("NFKC", text).lower().replace("’", "'").split())


def joins(text: str) -> Literal["sum", "any", "all", ""]:
    """Says how answers about parts of a set join to the answer about all of it; empty where the wording is not sure.

    Numbers are summed. Yes about any part is yes, or only yes about all parts.

    >>> joins("How many pictures show a dog?"), joins("Is there a picture of a dog?"), joins("Do all show a dog?")
    ('sum', 'any', 'all')
    >>> joins("How many different animals are there?"), joins("Is there exactly one dog?"), joins("What is it?")
    ('', '', '')
    """
    words = " ".join(text.lower().split()).replace("at least one", "any")
    kind = question_kind(text, statements=True).kind
    if kind == "number" and not _TOGETHER.search(words):
        return "sum"
    begins = _PARTS.match(words) if kind == "yes_no" else None
    if begins is None or _TOGETHER.search(words) or _COUNTS.search(words[begins.end() :]):
        return ""
    return "all" if begins[1] else "any"


def _choices(words: str) -> tuple[str, ...]:
    """Returns all that is named around "or"; nothing where the ends cannot be told."""
    words = words.rstrip(" ?.!")
    if pair := _SIDES.search(words) or _BEFORE_THING.match(words):
        return tuple(_DETERMINED.sub("", name) for name in pair.groups())
    asks = _ASKS.match(words) is not None
    if asks:  # what is named comes after its first clause
        words = re.sub(r"^(?:is it|are they) ", "", re.split(r"[,:] ", words, maxsplit=1)[1])
    head, _, last = words.rpartition(" or ")
    first, *named = re.split(r", | or ", head.removesuffix(","))
    names = [_DETERMINED.sub("", name.strip()) for name in (first if asks else _first_named(first), *named, last)]
    longest = 3 if asks or named or _DETERMINED.match(last) else 1
    return tuple(names) if all(name and len(name.split()) <= longest for name in names) else ()


def _first_named(text: str) -> str:
    """Returns what stands last in a text: after an article, or else its last word."""
    article = re.search(r"\b((?:an?|the) [\w-]+)$", text)
    return article[1] if article else text.rpartition(" ")[2]


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
    words = break_control_tokens(text).lower().translate(_MARKS).rstrip(" ").split(" ")
    return " ".join(words[:_WORDS]) or text


def word_question(question: str, wording: Wording, form: Form) -> str:
    """Returns a user's question, or statement, in a wording.

    >>> word_question("There is an empty glass.", "asked", "set")
    'Is it true that There is an empty glass?'
    >>> word_question('Both signs say "Stop".', "release", "set"), word_question("Red or blue", "release", "image")
    ('Is it true that both signs say stop?', 'red or blue')
    """
    if wording == "release":
        text = bare(question)
        return text if form == "image" or text.endswith("?") else f"Is it true that {text}?"
    if wording == "asked" and is_statement(question):
        return f"Is it true that {question.rstrip(' .!')}?"
    return question
