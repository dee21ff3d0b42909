"""Slots of questions that drawings do not answer: names, owners, prices, reasons."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace

from .slots import Maker, QuestionSlots, Word, expand_options
from .truth import UNTOLD_ENDS

_OF_THINGS: dict[str, tuple[str, ...]] = {
    "name": ("what is {the}'s name", "what is the name of {the}", "what is {the} called"),
    "owner": (
        "whose {it} is [it|this|that]",
        "whose {its} are [these|they|those]",
        "who [owns|has] {the}",
        "who does {the} belong to",
        "whose is {the}",
    ),
    "text": ("what does {the} say", "what is written on {the}", "what does it say on {the}", "what number is on {the}"),
    "story": ("what is {the} about", "what is the story of {the}", "what is the {it} about"),
    "wish": (
        "what is {the} looking [for|at]",
        "what does {the} want",
        "what is {the} waiting for",
        "what does {the} like",
        "what is {the} thinking",
        "what does {the} think",
        "what is {the} doing",
    ),
    "age": ("how old is {the}", "when was {the} [made|drawn|built]"),
    "price": ("how much is {the}", "how much does {the} cost", "what does {the} cost", "what is {the} worth"),
    "maker": ("who [made|drew|built] {the}", "where was {the} made"),
    "reason": ("why is {the} [here|there|so {size}]", "why is there {it.one}"),
    "distance": (
        "how far [away |]is {the}",
        "how far away is {the} from here",
        "how long is {the}",
        "how heavy is {the}",
    ),
    "use": ("what is {the} [for|used for|good for]", "what can you do with {the}"),
    "feeling": ("how does {the} feel", "what mood is {the} in"),
    "motion": ("where is {the} going", "how fast is {the}", "where does {the} come from"),
    "time": ("what time does {the} show", "what time is it on {the}"),
}
"""What drawings do not tell of a thing, by what is asked for; words of people who ask."""
_OF_PICTURES: dict[str, tuple[str, ...]] = {
    "date": (
        "which {one} was [drawn|made|taken] first",
        "when were the {many} [made|drawn]",
        "which {one} is [older|newer|the oldest]",
    ),
    "maker": ("who [drew|made] [the|these] {many}", "who [drew|made] the first {one}"),
    "beauty": (
        "which {one} is [nicer|better|prettier|the best|the nicest]",
        "which {one} do you like [most|best|more]",
    ),
    "name": ("what are the {many} called", "what is the name of the first {one}"),
}
"""What drawings do not tell of themselves."""
YES_OR_NO = 0.25
"""Share of the questions about a thing that are answered by yes or no."""


def _draw_untold(q: QuestionSlots, table: Mapping[str, tuple[str, ...]], of: str, **names: str) -> SimpleNamespace:
    """Draws what is asked for, and words for it."""
    what = q.rng.choice(list(table))
    words = q.rng.choice(expand_options(q.rng.choice(table[what])))
    return SimpleNamespace(asked=f"What is the {what} of the {of}?", words=words.format(**names))


def _of_thing(q: QuestionSlots) -> SimpleNamespace:
    """A question that a drawing of ``a`` does not answer: as it is typed, and as a program asks it."""
    if q.rng.random() < YES_OR_NO:
        end = q.rng.choice(UNTOLD_ENDS)
        does = end.split()[0] in ("have", "like", "come")
        words = f"{'does' if does else 'is'} the {q.a.name} {end}"
        return SimpleNamespace(asked=f"{words[:1].upper()}{words[1:]}?", words=words)
    size = q.rng.choice(("big", "small"))
    return _draw_untold(q, _OF_THINGS, q.a.name, the=f"the {q.a.name}", it=Word(q.a.name), its=q.a.many, size=size)


UNTOLD_MAKERS: dict[str, Maker] = {
    "untold": _of_thing,
    "untold of pictures": lambda q: _draw_untold(q, _OF_PICTURES, "pictures", one=q.n.one, many=q.n.many),
}
"""Makers by the names that the table of questions gives them."""
