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

from codevqa.mini import phrases
from codevqa.mini.phrases import Phrase, parse_phrase
from codevqa.mini.questions import TABLE, draft
from codevqa.mini.slots import colors_of, expand_options, kinds_of
from codevqa.mini.world import COLORS, HELD_OUT, SIZES, Scene, Thing

from .captions import NUMBERS, RELATIONS, draw_captions, is_related, is_true
from .vision_twins import twin

GENERIC = tuple(dict.fromkeys(phrases.GENERIC))
_NOUN = "|".join(sorted(phrases.NOUNS, key=len, reverse=True))
_MENTION = re.compile(rf"\b(?:(?:{'|'.join(SIZES)}) )?(?:(?:{'|'.join(COLORS)}) )?(?:{_NOUN})\b")

# Wordings: a and b are things, c and d colors, s a size. "[one|another]" is a wording each.
ONE = expand_options("[|||the |the |a picture of |a picture of the ]{a.name}")
ONE += expand_options(
    "[||a picture of |there is |is there |is there |is there |does the picture show |do you see ]{a.one}"
)
ONE += expand_options("[|there are |are there any |what is the number of ]{a.many}")
HOW_MANY = expand_options("how many {a.many} [are there|are there|are there|are in the picture|can you see]")
ONE += [*HOW_MANY, "how many {a.many} are touching the wall"]
ONE += expand_options(
    "[where is|what is to the left of|what is to the right of|what is above|what is below] the {a.name}"
)
ONE += expand_options("is the {a.name} [on the left|on the right side of the picture|at the top or at the bottom]")
ONE += expand_options("[what is next to|what color is the thing above|which object is to the left of] the {a.name}")
ONE += expand_options("[is the {a.name}|is there {a.one}|are all {a.many}] touching the [wall|wall|bottom]")
NO_COLOR = expand_options("[what|what|what|which] color is the {a.name}")
NO_COLOR += expand_options(
    "[what is the color of the {a.name}|what color does the {a.name} have|what color are the {a.many}]"
)
NO_COLOR += [*expand_options("[is the {a.name}|are the {a.many}|are all {a.many}] {c}"), "is the {a.name} {c} or {d}"]
NO_SIZE = [*expand_options("[what size|how big|how large] is the {a.name}"), "is the {a.name} {s}"]
NO_NOUN = expand_options("[what is|what is|what shape is|what kind of thing is] the {a.name}")
TWO = expand_options("[|a picture of |is there ]{a.one} and {b.one}")
TWO += expand_options("[{a.name} and {b.name}|the {a.name} and the {b.name}]")
TWO += expand_options("[are there|are there both] {a.many} and {b.many}")
TWO += expand_options("is the {a.name} [to the left of|to the right of|above|below|left or right of] the {b.name}")
TWO += expand_options("are the {a.name} and the {b.name} the same [color|size]")
TWO += expand_options("[are there more {a.many} than {b.many}|how many {a.many} and {b.many} are there in total]")
TOWER = expand_options("how many blocks [does the tower have|are there in the tower]")
TOWER += expand_options("what color is [the block at the top|the base|the block at the base] of the tower")
TOWER += expand_options("is there a [tower|tower with a {c} block on top|tower with a {c} block at the base]")
TOWER += ["is there a {c} block above a {d} block", "what color is the block on top"]
ALL = expand_options("how many [objects|things|items|shapes] are there")
ALL += expand_options("[what is in the picture|what objects are there|what color are the objects|what is in the box]")
ALL += expand_options("are [all objects {c}|there only {c} objects]")


def mentions(text: str) -> list[Phrase]:
    """The things that a text speaks of."""
    return list(map(parse_phrase, _MENTION.findall(text)))


def shows(scene: Scene, text: str) -> bool:
    """Whether the scene has everything the text mentions."""
    return all(what.count(scene) for what in mentions(text)) and ("tower" not in text or bool(scene.tower))


def in_question(scene: Scene, text: str) -> list[int]:
    """Places of the things that a text is about: those it mentions, or all when it names none."""
    named = [what for what in mentions(text) if what.color or what.size or what.kind]
    places = [place for place, thing in enumerate(scene.things) if any(what.holds(thing) for what in named)]
    return places or list(range(len(scene.things)))


def describe_thing(rng: random.Random, scene: Scene, thing: Thing) -> Phrase:
    """Describes a thing by some of its words."""
    noun = "block" if scene.tower and rng.random() < 0.6 else ""
    color = thing.color if rng.random() < 0.75 else None
    size = thing.size if rng.random() < 0.2 else None
    if rng.random() < 0.12 and (color or size):
        return Phrase(None, color, size, rng.choice(GENERIC))
    return Phrase(thing.kind, color, size, noun)


def wrong(rng: random.Random, scene: Scene, what: Phrase) -> Phrase | None:
    """Exchanges one word so that nothing in the scene fits."""
    for _ in range(6):
        other = rng.choice(scene.things)
        near = rng.random() < 0.6
        part = rng.choice([part for part in ("color", "kind", "size") if getattr(what, part)] or ["color"])
        if part == "size":
            changed = replace(what, size=rng.choice(SIZES))
        elif part == "color" or what.noun:
            changed = replace(what, color=other.color if near else rng.choice(colors_of(scene)))
        else:
            changed = replace(what, kind=other.kind if near else rng.choice(kinds_of(scene)))
        if not changed.count(scene):
            return changed
    return None


def one_text(rng: random.Random, what: Phrase) -> str:
    """A phrase or question on one description."""
    chance, form = rng.random(), rng.choice(ONE)
    if chance < 0.2 and what.kind:
        what, form = replace(what, color=None), rng.choice(NO_COLOR)
    elif chance < 0.26 and (what.kind or what.color):
        what, form = replace(what, size=None), rng.choice(NO_SIZE)
    elif chance < 0.36 and what.color:
        what, form = replace(what, kind=None, noun=rng.choice(GENERIC)), rng.choice(NO_NOUN)
    return _fill_form(rng, form, what)


def _fill_form(rng: random.Random, form: str, what: Phrase, other: Phrase | None = None) -> str:
    c, d = rng.sample(COLORS, 2)
    return form.format(a=what, b=other, c=c, d=d, s=rng.choice(SIZES))


def _typed_question(rng: random.Random, scene: Scene) -> str:
    """A question as people ask it."""
    item = draft(rng, [scene], rng.choice(list(TABLE["image"].values())), "image")
    if item is not None:
        return item.question.lower().rstrip("?.")
    return one_text(rng, describe_thing(rng, scene, rng.choice(scene.things)))


def draw_query(rng: random.Random, scene: Scene) -> str:
    """A question whose things the scene shows: what the captioner's patches are chosen for."""
    chance = rng.random()
    for _ in range(3):
        if scene.tower and chance < 0.3:
            text = _fill_form(rng, rng.choice(TOWER), Phrase())
        elif 0.32 < chance < 0.4:
            text = rng.choice(ALL).format(c=rng.choice(scene.things).color)
        elif chance < 0.4:
            text = rng.choice(HOW_MANY).format(a=_commonest(rng, scene))
        elif chance < 0.7:
            text = _typed_question(rng, scene)
        else:
            text = _two(rng, scene) if chance < 0.76 and len(scene.things) > 1 else ""
        text = text or one_text(rng, describe_thing(rng, scene, rng.choice(scene.things)))
        if shows(scene, text):
            return text
    return one_text(rng, Phrase(rng.choice(scene.things).kind))


def _commonest(rng: random.Random, scene: Scene) -> Phrase:
    looks = [Phrase(thing.kind, thing.color) for thing in scene.things]
    best = max(looks, key=lambda what: (what.count(scene), rng.random()))
    return best if rng.random() < 0.6 else Phrase(best.kind)


def _two(rng: random.Random, scene: Scene) -> str:
    first, second = (describe_thing(rng, scene, thing) for thing in rng.sample(scene.things, 2))
    return _fill_form(rng, rng.choice(TWO), first, second)


def statements(rng: random.Random, scene: Scene) -> tuple[str, str] | None:
    """A true caption, and one of a near-twin of the scene that is not true of it."""
    for _ in range(8):
        other = twin(rng, scene)
        false = draw_captions(other, rng, 1)[0] if other is not None else ""
        if false and is_true(scene, false) is False:
            return frame_caption(rng, draw_captions(scene, rng, 1)[0]), frame_caption(rng, false)
    return None


OPPOSITE = {"to the left of": "to the right of", "above": "below"}
OPPOSITE |= {other: word for word, other in OPPOSITE.items()}
SWAPS = ("swap", "swap", "opposite", "opposite", "one")
"""How a true relation is made false: its things exchanged, its word made the opposite, either thing changed."""


def relation_pair(rng: random.Random, scene: Scene) -> tuple[str, str] | None:
    """A true sentence on where two things lie, and the same one made false by one change (see ``SWAPS``)."""
    if scene.tower or len(scene.things) < 2:
        return None
    how = rng.choice(SWAPS)
    for _ in range(4):
        a, b = rng.sample(scene.things, 2)
        subject, other = (Phrase(thing.kind, thing.color if rng.random() < 0.9 else None) for thing in (a, b))
        held = [relation for relation in RELATIONS if is_related(a, relation, b)]
        if not held or subject == other:
            continue
        relation = rng.choice(held)
        first, word, second = subject, relation, other
        if how == "swap":
            first, second = other, subject
        elif how == "opposite":
            word = OPPOSITE[relation]
        elif (changed := wrong(rng, scene, subject)) is not None:
            first = changed
        else:
            continue
        pairs = [(here, there) for here in first.find(scene) for there in second.find(scene) if here is not there]
        if not any(is_related(here, word, there) for here, there in pairs):
            right, false = f"{subject.one} {relation} {other.one}", f"{first.one} {word} {second.one}"
            return frame_caption(rng, right), frame_caption(rng, false)
    return None


def frame_caption(rng: random.Random, text: str) -> str:
    """Puts a caption into one of several frames."""
    chance = rng.random()
    if chance < 0.2:
        return f"a picture of {text}"
    if chance < 0.4:
        return f"there {'are' if text.split()[0] in NUMBERS[2:] else 'is'} {text}"
    return text


def keeps_out(text: str) -> bool:
    """Whether a text names no held-out pair: as texts that never match, training would teach that there are none."""
    return not any((what.color, what.kind) in HELD_OUT for what in mentions(text))


def matching(rng: random.Random, scene: Scene, pairs: int) -> tuple[list[str], list[bool]]:
    """As many matching texts as others, ``pairs`` of each; none names a held-out pair."""
    texts: list[str] = []
    makers = (_one_pair, _two_pair, _asked_pair, relation_pair, statements)
    while len(texts) < 2 * pairs:
        make = rng.choices(makers, (42, 13, 8, 16, 21))[0]
        pair = make(rng, scene) or _one_pair(rng, scene)
        if pair is not None and keeps_out(pair[0]) and keeps_out(pair[1]):
            texts += pair
    return texts, [True, False] * pairs


def _one_pair(rng: random.Random, scene: Scene) -> tuple[str, str] | None:
    right = one_text(rng, describe_thing(rng, scene, rng.choice(scene.things)))
    what = wrong(rng, scene, describe_thing(rng, scene, rng.choice(scene.things)))
    false = one_text(rng, what) if what else ""
    return (right, false) if false and shows(scene, right) and not shows(scene, false) else None


def _two_pair(rng: random.Random, scene: Scene) -> tuple[str, str] | None:
    if len(scene.things) < 2:
        return None
    first, second = (describe_thing(rng, scene, thing) for thing in rng.sample(scene.things, 2))
    changed = wrong(rng, scene, first)
    if changed is None:
        return None
    return _two(rng, scene), _fill_form(rng, rng.choice(TWO), *rng.sample((changed, second), 2))


def _asked_pair(rng: random.Random, scene: Scene) -> tuple[str, str] | None:
    by_truth: dict[bool, str] = {}
    for _ in range(6):
        text = _typed_question(rng, scene)
        by_truth.setdefault(shows(scene, text), text)
    return (by_truth[True], by_truth[False]) if len(by_truth) == 2 else None


@dataclass(frozen=True)
class ContrastText:
    """A text for contrast with other pictures: up to two descriptions with how many things must fit each."""

    text: str
    things: tuple[Phrase, ...]
    bounds: tuple[tuple[int, int], ...]

    def fits(self, scene: Scene) -> bool:
        """Whether a scene is such a picture."""
        counts = [what.count(scene) for what in self.things]
        return all(low <= count <= high for count, (low, high) in zip(counts, self.bounds, strict=True))


def draw_contrast(rng: random.Random, scene: Scene, twins: Sequence[Scene] = ()) -> ContrastText:
    """A phrase that is true of this scene and can be checked on any other; false of most of its twins if it can be."""
    changed = [thing for thing in scene.things if any(thing not in other.things for other in twins)]
    contrasts = [_draw_contrast_text(rng, scene, changed) for _ in range(3 if twins else 1)]
    return min(contrasts, key=lambda candidate: sum(candidate.fits(other) for other in twins))


def _draw_contrast_text(rng: random.Random, scene: Scene, changed: Sequence[Thing]) -> ContrastText:
    thing, two = rng.choice(changed if changed and rng.random() < 0.8 else scene.things), rng.choice(scene.things)
    what = Phrase(thing.kind, thing.color if rng.random() < 0.85 else None, thing.size if rng.random() < 0.15 else None)
    other = Phrase(two.kind, two.color)
    opening, chance = rng.choice(("a picture of ", "a picture of ", "a picture of ", "")), rng.random()
    if chance < 0.25:
        count = what.count(scene)
        return ContrastText(
            f"{opening}{NUMBERS[count]} {what.many if count > 1 else what.name}", (what,), ((count, count),)
        )
    if chance < 0.5 and other != what:
        joined = rng.choice((f"{what.one} and {other.one}", f"{what.name} and {other.name}"))
        return ContrastText(opening + joined, (what, other), ((1, 9), (1, 9)))
    return ContrastText(opening + rng.choice((what.name, what.one, f"the {what.name}")), (what,), ((1, 9),))
