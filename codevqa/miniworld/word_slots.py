"""Slots of questions that are colors, kinds or sizes."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace

from .phrases import Phrase, with_article
from .slots import Maker, Slots, Word, colors_of, expanded, kinds_of
from .truth import UNTOLD_ENDS
from .world import SIZES, plural

_SIZE_WORDS = {"small": ("small", "little", "tiny"), "medium": ("medium",), "large": ("large", "big")}
_EXTREME_WORDS = {"small": (("smallest", "smaller"),), "large": (("largest", "larger"), ("biggest", "bigger"))}


def _own(part: str) -> Maker:
    """The color or the kind of what ``a`` describes, or another one; after ``c`` the second of two options."""

    def make(q: Slots) -> Word:
        options = colors_of(q.scene) if part == "color" else kinds_of(q.scene)
        true, first = getattr(q.a.the(q.scene), part), getattr(q, "c", None)
        right = first != true if first else q.rng.random() < 0.5
        return Word(true if right else q.rng.choice([one for one in options if one != true]))

    return make


def _own_color_of_b(q: Slots) -> Word:
    """The color of what ``b`` describes, or another."""
    true = q.b.the(q.scene).color
    return Word(
        true if q.rng.random() < 0.6 else q.rng.choice([color for color in colors_of(q.scene) if color != true])
    )


def _own_size(q: Slots) -> SimpleNamespace:
    """The size of what ``a`` describes, or another, and a word for it."""
    size = q.a.the(q.scene).size if q.rng.random() < 0.5 else q.rng.choice(SIZES)
    return SimpleNamespace(size=size, word=q.rng.choice(_SIZE_WORDS[size]))


def _extreme_size(q: Slots) -> SimpleNamespace | None:
    """Small or large, where only one thing has this size, and the words for it."""
    size = q.rng.choice(("small", "large"))
    if len(q.scene.things) == 1 or Phrase(size=size).count(q.scene) != 1:
        return None
    most, more = q.rng.choice(_EXTREME_WORDS[size])
    return SimpleNamespace(size=size, most=most, more=more)


def _shuffled(q: Slots) -> SimpleNamespace:
    """The phrases ``a`` and ``b`` in either order."""
    first, second = q.rng.sample((q.a.kind, q.b.kind), 2)
    return SimpleNamespace(first=Word(first), second=Word(second))


def _color_of_some(q: Slots) -> str:
    """The color of a thing that ``a`` describes."""
    return q.rng.choice([str(thing.color) for scene in q.scenes for thing in q.a.find(scene)])


def _color_of_either(q: Slots) -> str | None:
    """The color of ``a`` or of ``b``, which the other has not."""
    first, second = (str(what.the(q.scene).color) for what in (q.a, q.b))
    return q.rng.choice((first, second)) if first != second else None


def _sign(q: Slots) -> SimpleNamespace:
    """A word that compares sizes, and what a program compares."""
    sign = q.rng.choice("><")
    return SimpleNamespace(sign=sign, word=q.rng.choice(("bigger", "larger") if sign == ">" else ("smaller",)))


def _sign_of_sizes(q: Slots) -> SimpleNamespace:
    """The word for how ``a`` compares with ``b`` in size."""
    larger = SIZES.index(q.a.size) > SIZES.index(q.b.size)
    word = q.rng.choice(("bigger", "larger"))
    word, other = (word, "smaller") if larger else ("smaller", word)
    return SimpleNamespace(word=word, other=other, place=-1 if larger else 0, other_place=0 if larger else -1)


def _sign_of_pictures(q: Slots) -> SimpleNamespace | None:
    """As ``_sign``, where ``a`` differs in size between the two pictures."""
    first, second = (q.a.the(scene).size for scene in q.scenes)
    return _sign(q) if first != second else None


_CLASSES = {"animal": ("cat", "duck", "fish"), "vehicle": ("boat", "car", "plane", "rocket")}


def _class(q: Slots) -> SimpleNamespace:
    """A word for several kinds, and lists of these as a program has them."""
    shown = [name for name, kinds in _CLASSES.items() if any(thing.kind in kinds for thing in q.scene.things)]
    name = q.rng.choice(shown if shown and q.rng.random() < 0.7 else list(_CLASSES))
    kinds = _CLASSES[name]
    one, lists = with_article(name), (json.dumps(kinds), json.dumps([plural(kind) for kind in kinds]))
    return SimpleNamespace(name=name, one=one, many=plural(name), kinds=lists[0], plurals=lists[1])


_UNTOLD = {
    "name": "what is {the}'s name|what is the name of {the}|what is {the} called",
    "owner": "whose {it} is [it|this|that]|whose {its} are [these|they|those]|who [owns|has] {the}|"
    "who does {the} belong to|whose is {the}",
    "text": "what does {the} say|what is written on {the}|what does it say on {the}|what number is on {the}",
    "story": "what is {the} about|what is the story of {the}|what is the {it} about",
    "wish": "what is {the} looking [for|at]|what does {the} want|what is {the} waiting for|"
    "what does {the} like|what is {the} thinking|what does {the} think|what is {the} doing",
    "age": "how old is {the}|when was {the} [made|drawn|built]",
    "price": "how much is {the}|how much does {the} cost|what does {the} cost|what is {the} worth",
    "maker": "who [made|drew|built] {the}|where was {the} made",
    "reason": "why is {the} [here|there|so {size}]|why is there {it.one}",
    "distance": "how far [away |]is {the}|how far away is {the} from here|how long is {the}|how heavy is {the}",
    "use": "what is {the} [for|used for|good for]|what can you do with {the}",
    "feeling": "how does {the} feel|what mood is {the} in",
    "motion": "where is {the} going|how fast is {the}|where does {the} come from",
    "time": "what time does {the} show|what time is it on {the}",
}  # fmt: skip
"""What drawings do not tell of a thing, by what is asked for; words of people who ask."""
_UNTOLD_OF_PICTURES = {
    "date": "which {one} was [drawn|made|taken] first|when were the {many} [made|drawn]|"
    "which {one} is [older|newer|the oldest]",
    "maker": "who [drew|made] [the|these] {many}|who [drew|made] the first {one}",
    "beauty": "which {one} is [nicer|better|prettier|the best|the nicest]|which {one} do you like [most|best|more]",
    "name": "what are the {many} called|what is the name of the first {one}",
}


def _untold(q: Slots) -> SimpleNamespace:
    """A question that a drawing of ``a`` does not answer, and what it asks for."""
    if q.rng.random() < 0.25:  # answered by yes or no
        end = q.rng.choice(UNTOLD_ENDS)
        does = end.split()[0] in ("have", "like", "come")
        words = f"{'does' if does else 'is'} the {q.a.name} {end}"
        return SimpleNamespace(asked=f"{words[:1].upper()}{words[1:]}?", words=words)
    what = q.rng.choice(list(_UNTOLD))
    words = q.rng.choice(expanded(q.rng.choice(_split(_UNTOLD[what]))))
    size = q.rng.choice(("big", "small"))
    words = words.format(the=f"the {q.a.name}", it=Word(q.a.name), its=q.a.many, size=size)
    return SimpleNamespace(asked=f"What is the {what} of the {q.a.name}?", words=words)


def _untold_of_pictures(q: Slots) -> SimpleNamespace:
    """A question that drawings do not answer, and what it asks for."""
    what = q.rng.choice(list(_UNTOLD_OF_PICTURES))
    words = q.rng.choice(expanded(q.rng.choice(_split(_UNTOLD_OF_PICTURES[what]))))
    return SimpleNamespace(asked=f"What is the {what} of the pictures?", words=words.format(one=q.n.one, many=q.n.many))


def _split(wordings: str) -> list[str]:
    """The wordings of a line, between the bars outside of brackets."""
    return re.split(r"\|(?![^\[]*\])", wordings)


def _bigger(q: Slots) -> SimpleNamespace | None:
    """As ``_sign``; only for things that differ in size."""
    return _sign(q) if q.a.the(q.scene).size != q.b.the(q.scene).size else None


WORD_MAKERS: dict[str, Maker] = {
    "described": lambda q: " and ".join(part for part in (q.a.size, q.a.color) if part),
    "own color": _own("color"),
    "own kind": _own("kind"),
    "color": lambda q: q.rng.choice(colors_of(q.scene)),
    "color of some": _color_of_some,
    "color of either": _color_of_either,
    "bigger": _bigger,
    "sign": _sign,
    "sign of sizes": _sign_of_sizes,
    "sign of pictures": _sign_of_pictures,
    "class": _class,
    "untold": _untold,
    "untold of pictures": _untold_of_pictures,
    "own color of b": _own_color_of_b,
    "own size": _own_size,
    "extreme size": _extreme_size,
    "shuffled": _shuffled,
    "and": lambda q: "but" if q.y.name == "lacks" and q.rng.random() < 0.7 else "and",
}
"""Makers by the names that the table of questions gives them."""
