"""Slots of questions about sets: what the pictures are called, which of them is meant, and how many."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

from .phrases import with_article
from .slots import Maker, QuestionSlots, word_or_digits
from .world import SIZES, Scene, pluralize

ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
_VERBS = {
    "plain": (("contains", "contain"), ("has", "have"), ("shows", "show")),
    "box": (("contains", "contain"), ("has", "have"), ("holds", "hold")),
    "tower": (("has", "have"), ("has", "have"), ("contains", "contain")),
}


def style_of(scenes: Sequence[Scene]) -> str:
    """ "plain", "box" or "tower": what all scenes of a set are."""
    if scenes[0].style == "plain":
        return "plain"
    return "tower" if all(scene.tower for scene in scenes) else "box"


def _nouns(q: QuestionSlots) -> SimpleNamespace:
    """What a picture of the set is called, and the verb that goes with it."""
    style = style_of(q.scenes)
    noun = q.rng.choice(("picture", "image")) if style == "plain" else style
    has, have = q.rng.choice(_VERBS[style])
    count = word_or_digits(q.rng, len(q.scenes))
    return SimpleNamespace(one=noun, many=pluralize(noun), a=with_article(noun), has=has, have=have, count=count)


def _several(lowest: int) -> Maker:
    """So many pictures of the set."""

    def make(q: QuestionSlots) -> SimpleNamespace:
        value = q.rng.randint(lowest, max(2, min(4, len(q.scenes))))
        pictures, has, be, do = (q.n.one, q.n.has, "is", "does") if value == 1 else (q.n.many, q.n.have, "are", "do")
        word = word_or_digits(q.rng, value)
        blocks = "block" if value == 1 else "blocks"
        things = "thing" if value == 1 else "things"
        return SimpleNamespace(
            value=value, word=word, pictures=pictures, blocks=blocks, things=things, has=has, be=be, do=do
        )

    return make


def _ordinal(q: QuestionSlots) -> SimpleNamespace:
    """A picture of a set by its place; ``sign`` is how the first compares with the second where this one has more."""
    count = len(q.scenes)
    words = q.rng.choice((("first", "second"), ("left", "right"))) if count == 2 else ("first", "second", "third")
    place = q.rng.randrange(min(count, len(words)))
    other = words[1 - place] if place < 2 else ""
    return SimpleNamespace(word=words[place], other=other, place=place, rest=1 - place, sign="<" if place else ">")


def _two_places(q: QuestionSlots) -> SimpleNamespace:
    """What the two pictures of a set are called."""
    first, second = q.rng.choice((("first", "second"), ("left", "right")))
    return SimpleNamespace(first=first, second=second)


def _own_place(q: QuestionSlots) -> SimpleNamespace:
    """The place in the set of the scene that the other slots are drawn for, and what it is said to be."""
    count, index = len(q.scenes), next(place for place, scene in enumerate(q.scenes) if scene is q.scene)
    nth = f"{index + 1}{('st', 'nd', 'rd')[index] if index < 3 else 'th'}"
    ordinal = ORDINALS[index] if index < len(ORDINALS) and q.rng.random() < 0.8 else nth
    words = [f"the {ordinal} {q.n.one}", f"{q.n.one} {word_or_digits(q.rng, index + 1)}"]
    sides = {2: ("left", "right"), 3: ("left", "middle", "right")}.get(count)
    if sides and q.rng.random() < 0.3:
        words = [f"the {sides[index]} {q.n.one}"]
        if sides[index] == "right":  # of two pictures or of three: the last
            return SimpleNamespace(place=-1, said=words[0])
    if index == count - 1 and q.rng.random() < 0.4:
        return SimpleNamespace(place=-1, said=f"the last {q.n.one}")
    return SimpleNamespace(place=index, said=words[q.rng.random() < 0.3 and len(words) > 1])


def _pair_of_places(q: QuestionSlots) -> SimpleNamespace:
    """Two pictures of a set of three or more by their places."""
    count, name = len(q.scenes), q.n
    first, second = sorted(q.rng.sample(range(min(count, len(ORDINALS))), 2))
    words = [
        f"the {ORDINALS[first]} and the {ORDINALS[second]} {name.one}",
        f"the {ORDINALS[first]} and {ORDINALS[second]} {name.many}",
        f"{name.many} {word_or_digits(q.rng, first + 1)} and {word_or_digits(q.rng, second + 1)}",
    ]
    if second == count - 1:
        words.append(f"the {ORDINALS[first]} and the last {name.one}")
        second = -1 if q.rng.random() < 0.5 else second
    if (first, second) == (0, 1):
        words.append(f"the first two {name.many}")
    if first == count - 2:
        words.append(f"the last two {name.many}")
    return SimpleNamespace(first=first, second=second, said=q.rng.choice(words))


def _extreme(q: QuestionSlots) -> SimpleNamespace | None:
    """The words for most or fewest, where one picture of the set has more or fewer of ``a`` than each other."""
    most = q.rng.random() < 0.6
    counts = sorted(map(q.a.count, q.scenes), reverse=most)
    if len(counts) < 2 or counts[0] == counts[1]:
        return None
    if most:
        number_word = q.rng.choice(("largest", "highest", "biggest"))
        return SimpleNamespace(call="max", sign=">", most="most", more="more", number=number_word)
    number_word = q.rng.choice(("smallest", "lowest"))
    return SimpleNamespace(call="min", sign="<", most="fewest", more="fewer", number=number_word)


def _extreme_of_sizes(q: QuestionSlots) -> SimpleNamespace | None:
    """Words for largest or smallest, where ``a`` is larger or smaller in one picture of the set than in each other."""
    most = q.rng.random() < 0.6
    sizes = sorted((SIZES.index(q.a.the(scene).size) for scene in q.scenes), reverse=most)
    if len(sizes) < 2 or sizes[0] == sizes[1]:
        return None
    words = q.rng.choice((("bigger", "biggest"), ("larger", "largest"))) if most else ("smaller", "smallest")
    return SimpleNamespace(call="max" if most else "min", more=words[0], most=words[1])


SET_MAKERS: dict[str, Maker] = {
    "ordinal": _ordinal,
    "own place": _own_place,
    "extreme": _extreme,
    "extreme of sizes": _extreme_of_sizes,
    "two places": _two_places,
    "nouns": _nouns,
    "pair of places": _pair_of_places,
    "several": _several(1),
    "two or more": _several(2),
}
"""Makers by the names that the table of questions gives them."""
