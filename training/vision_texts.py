"""Texts for image-text matching: phrases, questions and statements about a scene, right and nearly right.

A phrase or a question matches a picture that shows every thing it mentions ("is the red star left of the blue circle"
mentions a red star and a blue circle); a statement matches when it is true. What does not match is nearly there: one
word exchanged for another of the same scene, one thing more or less, two things swapped.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from codevqa.miniworld.captions import NUMBERS, RELATIONS, captions, related, relation_caption
from codevqa.miniworld.questions_image import FAMILIES
from codevqa.miniworld.truth import is_true
from codevqa.miniworld.world import BOX_COLORS, BOX_KINDS, COLORS, HELD_OUT, KINDS, SIZES, Scene, Thing, plural

from .vision_forms import ALL, NO_COLOR, NO_NOUN, NO_SIZE, ONE, TOWER, TWO

_MAKERS = [make for _, make in FAMILIES.values()]
GENERIC = ("object", "thing", "item", "shape")
_SINGULAR = {plural(noun): noun for noun in (*KINDS, *GENERIC, "block")}
_NOUN = "|".join(sorted({*KINDS, *GENERIC, "block", *_SINGULAR}, key=len, reverse=True))
_MENTION = re.compile(rf"\b(?:({'|'.join(SIZES)}) )?(?:({'|'.join(COLORS)}) )?({_NOUN})\b")


@dataclass(frozen=True)
class Spec:
    """What a noun phrase asks of a thing; empty parts ask nothing."""

    noun: str = "object"
    color: str = ""
    size: str = ""

    def fits(self, scene: Scene, thing: Thing) -> bool:
        """Whether a thing is such a one."""
        if self.noun == "block":
            if thing.kind != "square":
                return False
        elif self.noun not in GENERIC and thing.kind != self.noun:
            return False
        return self.color in ("", thing.color) and self.size in ("", thing.size)

    def find(self, scene: Scene) -> list[int]:
        """Places of all such things in the scene."""
        return [place for place, thing in enumerate(scene.things) if self.fits(scene, thing)]

    @property
    def name(self) -> str:
        """Such as "small red star"."""
        return " ".join(part for part in (self.size, self.color, self.noun) if part)

    @property
    def many(self) -> str:
        """Such as "small red stars"."""
        return " ".join(part for part in (self.size, self.color, plural(self.noun)) if part)

    @property
    def one(self) -> str:
        """Such as "a small red star"."""
        return f"{'an' if self.name[0] in 'aeiou' else 'a'} {self.name}"


def mentions(text: str) -> list[Spec]:
    """The things that a text speaks of."""
    return [Spec(_SINGULAR.get(noun, noun), color, size) for size, color, noun in _MENTION.findall(text)]


def shows(scene: Scene, text: str) -> bool:
    """Whether the scene has everything the text mentions."""
    return all(spec.find(scene) for spec in mentions(text)) and ("tower" not in text or bool(scene.tower))


def in_question(scene: Scene, text: str) -> list[int]:
    """Places of the things that a text is about: those it mentions, or all when it names none."""
    named = [spec for spec in mentions(text) if spec.color or spec.size or spec.noun not in GENERIC]
    found = {place for spec in named for place in spec.find(scene)}
    return sorted(found) if found else list(range(len(scene.things)))


def spec_of(rng: random.Random, scene: Scene, thing: Thing) -> Spec:
    """Describes a thing by some of its words."""
    noun = "block" if scene.tower and rng.random() < 0.6 else thing.kind
    color, size = thing.color if rng.random() < 0.75 else "", thing.size if rng.random() < 0.2 else ""
    if rng.random() < 0.12 and (color or size):
        noun = rng.choice(GENERIC)
    return Spec(noun, color, size)


def wrong_spec(rng: random.Random, scene: Scene, spec: Spec) -> Spec | None:
    """Exchanges one word so that nothing in the scene fits."""
    colors, kinds = (BOX_COLORS, BOX_KINDS) if scene.style == "box" else (COLORS, KINDS)
    for _ in range(6):
        other = rng.choice(scene.things)
        near = rng.random() < 0.6
        parts = [part for part, there in (("color", spec.color), ("noun", spec.noun), ("size", spec.size)) if there]
        part = rng.choice(parts)
        if part == "color":
            changed = replace(spec, color=other.color if near else rng.choice(colors))
        elif part == "size":
            changed = replace(spec, size=rng.choice(SIZES))
        elif spec.noun in GENERIC or (spec.noun == "block" and spec.color):
            changed = replace(spec, color=rng.choice(colors))
        else:
            changed = replace(spec, noun=other.kind if near else rng.choice(kinds))
        if not changed.find(scene):
            return changed
    return None


def one_text(rng: random.Random, scene: Scene, spec: Spec) -> str:
    """A phrase or question on one spec."""
    chance = rng.random()
    form = rng.choice(ONE)
    if chance < 0.2 and spec.noun not in GENERIC:
        spec, form = replace(spec, color=""), rng.choice(NO_COLOR)
    elif chance < 0.26 and (spec.noun not in GENERIC or spec.color):
        spec, form = replace(spec, size=""), rng.choice(NO_SIZE)
    elif chance < 0.36 and spec.color:
        spec, form = replace(spec, noun=rng.choice(GENERIC)), rng.choice(NO_NOUN)
    return _fill(rng, form, spec)


def _fill(rng: random.Random, form: str, spec: Spec, other: Spec | None = None) -> str:
    c, d = rng.sample(COLORS, 2)
    slots = {"p": spec.name, "a": spec.one, "ps": spec.many, "c": c, "d": d, "s": rng.choice(SIZES)}
    if other is not None:
        slots |= {"q": other.name, "b": other.one, "qs": other.many}
    return form.format(**slots)


def _asked(rng: random.Random, scene: Scene) -> str:
    """A question as programs and people ask it."""
    made = rng.choice(_MAKERS)(rng, scene)
    if made is not None:
        return made.question.lower().rstrip("?.")
    return one_text(rng, scene, spec_of(rng, scene, rng.choice(scene.things)))


def query(rng: random.Random, scene: Scene) -> str:
    """A question whose things the scene shows: what the captioner's patches are chosen for."""
    chance = rng.random()
    if scene.tower and chance < 0.3:
        text = _fill(rng, rng.choice(TOWER), Spec())
        if shows(scene, text):
            return text
    if chance < 0.4:
        color = rng.choice(scene.things).color
        return rng.choice(ALL).format(c=color) if chance > 0.32 else _counting(rng, scene)
    for _ in range(3):
        text = _asked(rng, scene) if chance < 0.7 else _two(rng, scene) if chance < 0.76 else ""
        text = text or one_text(rng, scene, spec_of(rng, scene, rng.choice(scene.things)))
        if shows(scene, text):
            return text
    return one_text(rng, scene, Spec(rng.choice(scene.things).kind))


def _counting(rng: random.Random, scene: Scene) -> str:
    best = max(scene.things, key=lambda thing: (sum(_alike(thing, other) for other in scene.things), rng.random()))
    spec = Spec(best.kind, best.color if rng.random() < 0.6 else "")
    return rng.choice(("how many {ps} are there", "how many {ps} are in the picture", "{ps}")).format(ps=spec.many)


def _alike(one: Thing, other: Thing) -> bool:
    return (one.kind, one.color) == (other.kind, other.color)


def _two(rng: random.Random, scene: Scene) -> str:
    if len(scene.things) < 2:
        return ""
    one, other = rng.sample(scene.things, 2)
    return _fill(rng, rng.choice(TWO), spec_of(rng, scene, one), spec_of(rng, scene, other))


def mutated(rng: random.Random, scene: Scene) -> tuple[Scene, set[int]]:
    """The scene with one thing changed or two swapped, and the places of what changed."""
    things = list(scene.things)
    place = rng.randrange(len(things))
    thing = things[place]
    colors, kinds = (BOX_COLORS, BOX_KINDS) if scene.style == "box" else (COLORS, KINDS)
    other = rng.randrange(len(things))
    how = rng.choice(("swap", "swap", "color", "kind", "size", "less", "more", "exchange"))
    if scene.tower:
        how = rng.choice(("color", "color", "exchange", "less", "more"))
    if how == "swap" and other != place:
        at = things[other]
        things[place] = replace(thing, x=at.x, y=at.y)
        things[other] = replace(at, x=thing.x, y=thing.y)
        return replace(scene, things=tuple(things)), {place, other}
    if how == "exchange" and other != place:
        things[place], things[other] = (
            replace(thing, color=things[other].color),
            replace(things[other], color=thing.color),
        )
        return replace(scene, things=tuple(things)), {place, other}
    if how == "less" and len(things) > 1:
        if scene.tower:
            place = things.index(scene.tower[-1])
        del things[place]
        keep = next((index for index, one in enumerate(things) if _alike(one, thing)), 0)
        return replace(scene, things=tuple(things)), {keep}
    if how == "more" and len(things) < (4 if scene.tower else 8):
        copy = replace(scene.tower[-1], y=scene.tower[-1].y - 26.88) if scene.tower else thing
        return replace(scene, things=(*things, copy)), {place}
    if how == "kind" and not scene.tower:
        things[place] = replace(thing, kind=rng.choice(kinds))
    elif how == "size" and not scene.tower:
        things[place] = replace(thing, size=rng.choice(SIZES))
    else:
        things[place] = replace(thing, color=rng.choice(colors))
    return replace(scene, things=tuple(things)), {place}


def statements(rng: random.Random, scene: Scene) -> tuple[str, str] | None:
    """A true caption and a nearly true one."""
    if scene.style == "box" and not scene.tower and rng.random() < 0.35:
        return _touching(rng, scene)
    relation = not scene.tower and len(scene.things) > 1 and rng.random() < 0.2
    for _ in range(5):
        changed, focus = mutated(rng, scene)
        if relation:
            false = relation_caption(changed, rng, focus) or relation_caption(changed, rng)
            true = relation_caption(scene, rng)
        else:
            false = captions(changed, rng, 1, focus)[0]
            true = captions(scene, rng, 1)[0]
        if true and false and is_true(scene, false) is False and not _article_only(scene, false):
            return _stated(rng, true), _stated(rng, false)
    return None


OPPOSITE = {
    "to the left of": "to the right of",
    "to the right of": "to the left of",
    "above": "below",
    "below": "above",
}
"""What a relation becomes when its two things change places."""
SWAPS = ("swap", "swap", "opposite", "opposite", "one")
"""How a true relation is made false: its things exchanged, its word made the opposite, either thing changed."""


def relation_pair(rng: random.Random, scene: Scene, how: str | None = None) -> tuple[str, str] | None:
    """A true sentence on where two things lie, and the same one made false by one change (see ``SWAPS``)."""
    if scene.tower or len(scene.things) < 2:
        return None
    how = how or rng.choice(SWAPS)
    for _ in range(4):
        a, b = rng.sample(scene.things, 2)
        one, other = (
            Spec(thing.kind, thing.color if rng.random() < 0.9 else "", thing.size if rng.random() < 0.05 else "")
            for thing in (a, b)
        )
        held = [relation for relation in RELATIONS if related(a, relation, b)]
        if not held or one == other:
            continue
        # Mostly the direction in which they are further apart, as people would say it.
        held.sort(key=lambda relation: abs(a.x - b.x if RELATIONS[relation][0] else a.y - b.y))
        relation = held[-1] if rng.random() < 0.75 else held[0]
        first, word, second = one, relation, other
        if how == "swap":
            first, second = other, one
        elif how == "opposite":
            word = OPPOSITE[relation]
        else:
            early = rng.random() < 0.5
            changed = wrong_spec(rng, scene, one if early else other)
            if changed is None:
                continue
            first, second = (changed, other) if early else (one, changed)
        if not related_pair(scene, first, word, second):
            right, wrong = f"{one.one} {relation} {other.one}", f"{first.one} {word} {second.one}"
            return _stated(rng, right), _stated(rng, wrong)
    return None


def _touching(rng: random.Random, scene: Scene) -> tuple[str, str] | None:
    """What touches a wall and what does not."""
    found: dict[bool, str] = {}
    for _ in range(10):
        thing = rng.choice(scene.things)
        spec = Spec(thing.kind, thing.color if rng.random() < 0.8 else "", thing.size if rng.random() < 0.15 else "")
        wall = rng.choice(("wall", "wall", "top", "bottom", "left wall", "right wall"))
        text = f"{spec.one} touching the {wall}"
        found.setdefault(bool(is_true(scene, text)), text)
    return (_stated(rng, found[True]), _stated(rng, found[False])) if len(found) == 2 else None


def _article_only(scene: Scene, text: str) -> bool:
    return text.startswith("one ") and is_true(scene, "a " + text[4:]) is True and " and " in text


def _stated(rng: random.Random, text: str) -> str:
    chance = rng.random()
    if chance < 0.2:
        return f"a picture of {text}"
    if chance < 0.4:
        number = text.split()[0] in NUMBERS[2:]
        return f"there {'are' if number else 'is'} {text}"
    return text


def keeps_out(text: str) -> bool:
    """Whether a text names no held-out pair: as texts that never match, training would teach that there are none."""
    return not any((spec.color, spec.noun) in HELD_OUT for spec in mentions(text))


def matching(rng: random.Random, scene: Scene, pairs: int) -> tuple[list[str], list[bool]]:
    """As many matching texts as others, ``pairs`` of each; none names a held-out pair."""
    texts: list[str] = []
    labels: list[bool] = []
    while len(texts) < 2 * pairs:
        chance = rng.random()
        pair: tuple[str, str] | None
        if chance < 0.42:
            pair = _one_pair(rng, scene)
        elif chance < 0.55:
            pair = _two_pair(rng, scene)
        elif chance < 0.63:
            pair = _asked_pair(rng, scene)
        elif chance < 0.79:
            pair = relation_pair(rng, scene)
        else:
            pair = statements(rng, scene)
        if pair is None:
            pair = _one_pair(rng, scene)
        if pair is not None and keeps_out(pair[0]) and keeps_out(pair[1]):
            texts += pair
            labels += (True, False)
    return texts, labels


def _one_pair(rng: random.Random, scene: Scene) -> tuple[str, str] | None:
    if scene.tower and rng.random() < 0.1:
        return None
    right = one_text(rng, scene, spec_of(rng, scene, rng.choice(scene.things)))
    spec = wrong_spec(rng, scene, spec_of(rng, scene, rng.choice(scene.things)))
    wrong = one_text(rng, scene, spec) if spec else ""
    return (right, wrong) if wrong and shows(scene, right) and not shows(scene, wrong) else None


def _two_pair(rng: random.Random, scene: Scene) -> tuple[str, str] | None:
    right = _two(rng, scene)
    if not right:
        return None
    one, other = (spec_of(rng, scene, thing) for thing in rng.sample(scene.things, 2))
    changed = wrong_spec(rng, scene, one)
    if changed is None:
        return None
    ordered = (changed, other) if rng.random() < 0.5 else (other, changed)
    return right, _fill(rng, rng.choice(TWO), *ordered)


def _asked_pair(rng: random.Random, scene: Scene) -> tuple[str, str] | None:
    right = wrong = ""
    for _ in range(6):
        text = _asked(rng, scene)
        if shows(scene, text):
            right = right or text
        else:
            wrong = wrong or text
        if right and wrong:
            return right, wrong
    return None


@dataclass(frozen=True)
class Contrast:
    """A text for contrast with other pictures: up to two specs with how many things must fit each."""

    text: str
    specs: tuple[Spec, ...]
    bounds: tuple[tuple[int, int], ...]

    def fits(self, scene: Scene) -> bool:
        """Whether a scene is such a picture."""
        return all(
            low <= len(spec.find(scene)) <= high for spec, (low, high) in zip(self.specs, self.bounds, strict=True)
        )


def contrast(rng: random.Random, scene: Scene, twins: Sequence[Scene] = ()) -> Contrast:
    """A phrase that is true of this scene and can be checked on any other; false of most of its twins if it can be."""
    changed = [thing for thing in scene.things if any(thing not in twin.things for twin in twins)]
    told = _contrast(rng, scene, changed)
    for _ in range(2 if twins else 0):
        other = _contrast(rng, scene, changed)
        told = min(told, other, key=lambda one: sum(one.fits(twin) for twin in twins))
    return told


def _contrast(rng: random.Random, scene: Scene, changed: Sequence[Thing]) -> Contrast:
    thing = rng.choice(changed if changed and rng.random() < 0.8 else scene.things)
    spec = Spec(thing.kind, thing.color if rng.random() < 0.85 else "", thing.size if rng.random() < 0.15 else "")
    opening = rng.choice(("a picture of ", "a picture of ", "a picture of ", ""))
    chance = rng.random()
    if chance < 0.25:
        count = len(spec.find(scene))
        text = f"{NUMBERS[count]} {spec.many if count > 1 else spec.name}"
        return Contrast(opening + text, (spec,), ((count, count),))
    if chance < 0.5 and len(scene.things) > 1:
        other = Spec((two := rng.choice(scene.things)).kind, two.color)
        if other != spec:
            joined = rng.choice((f"{spec.one} and {other.one}", f"{spec.name} and {other.name}"))
            return Contrast(opening + joined, (spec, other), ((1, 9), (1, 9)))
    return Contrast(opening + rng.choice((spec.name, spec.one, f"the {spec.name}")), (spec,), ((1, 9),))


def related_pair(scene: Scene, one: Spec, relation: str, other: Spec) -> bool:
    """Whether some thing that fits the first lies so from one that fits the second."""
    pairs: Sequence[tuple[int, int]] = [(a, b) for a in one.find(scene) for b in other.find(scene) if a != b]
    return any(related(scene.things[a], relation, scene.things[b]) for a, b in pairs)
