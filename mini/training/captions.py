"""True sentences about a scene of the drawn world: what follows the captioner's prompt "a picture of ".

Every caption is true of the whole scene, also when it only speaks of some of its things: "two red stars" means that
there are two in the picture. A tower's squares are called blocks.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from itertools import pairwise

from codevqa.mini.phrases import Phrase, parse_phrase, with_article
from codevqa.mini.places import SIDES, place
from codevqa.mini.world import Scene, Thing, pluralize

NUMBERS: tuple[str, ...] = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight")
"""Numbers as words, by value."""
RELATIONS = {side.relation: side for side in SIDES}
MARGIN = 8.0
"""Centres this many pixels apart or more are said to be left, right, above or below of each other."""


def is_related(first: Thing, relation: str, second: Thing) -> bool:
    """Whether the first thing clearly lies in a relation of ``RELATIONS`` to the second."""
    side = RELATIONS[relation]
    return bool((getattr(first, side.axis) - getattr(second, side.axis)) * side.sign >= MARGIN)


Form = Callable[[Scene, Sequence[Thing], random.Random], str]
"""Writes one caption about some things, or nothing where it does not apply."""


def draw_captions(scene: Scene, rng: random.Random, n: int, focus: Collection[int] | None = None) -> list[str]:
    """Draws n true captions.

    Args:
        scene: What is described.
        rng: Where the chance comes from.
        n: How many captions; the same one may come twice.
        focus: Places in ``scene.things`` of what to speak of first; None or nothing for all. A caption may now and
            then set another thing in relation to one of these, and a number counts the whole scene.
    """
    chosen = [scene.things[index] for index in sorted(focus or range(len(scene.things)))]
    everything = len(chosen) == len(scene.things) > 1
    kinds, colors = Counter(thing.kind for thing in chosen), Counter(thing.color for thing in chosen)
    weights: dict[Form, float] = {
        _group_caption: 4.0,
        _listing_caption: 4.0 * (len({(thing.color, thing.kind) for thing in chosen}) > 1),
        _tower_caption: 8.0 * bool(scene.tower),
        _place_caption: 1.0 * (not scene.tower),
        _relation_caption: 2.5 * (len(scene.things) > 1 and not scene.tower),
        _kind_caption: 2.0 * (max(kinds.values()) > 1),
        _color_caption: 1.0 * (max(colors.values()) > 1),
        _total_caption: 1.5 * everything,
        _touching_caption: 2.5 * (scene.style == "box" and not scene.tower and any(thing.walls for thing in chosen)),
    }
    texts: list[str] = []
    while len(texts) < n:
        text = rng.choices(list(weights), list(weights.values()))[0](scene, chosen, rng)
        if text:
            texts.append(text)
    return texts


def telling(scene: Scene, rng: random.Random, program: str) -> list[str] | None:
    """Captions that together tell all that a program asks about a scene; None where captions cannot tell it."""
    looks = {(thing.color, thing.kind): thing for thing in scene.things}
    sized = "size" in program or bool(re.search(r"\b(small|medium|large)\b", program))
    if sized and any(len({other.size for other in _same(scene, thing)}) > 1 for thing in looks.values()):
        return None
    parts = [_describe_alike(scene, thing, rng, float(sized)) for thing in looks.values()]
    rng.shuffle(parts)
    texts: list[str] = []
    while parts:
        several = [parts.pop() for _ in range(min(len(parts), rng.choice((1, 2, 3))))]
        texts.append(_join_parts(several))
    if "tower" in program or "block above" in program:
        texts += _whole_tower(scene)
    if "touch" in program:
        for thing in looks.values():
            texts += [_wall_phrase(scene, thing, wall) for wall in ("wall", *sorted(thing.walls)) if thing.walls]
    names = re.findall(r'get_pos\(img, "([^"]*)"', program)
    things = [thing for name in names for thing in parse_phrase(name).find(scene)]
    if len(things) == 1:
        texts.append(f"{_count_phrase(1, things[0].color, things[0].kind)} {place(things[0])}")
    elif len(things) == 2:
        first, second = things
        texts += [
            _relation_phrase(first, second, relation) for relation in RELATIONS if is_related(first, relation, second)
        ]
    if re.search(r"What is (at|on) the", program):
        single = [thing for thing in scene.things if len(_same(scene, thing)) == 1]
        texts += [f"{_count_phrase(1, thing.color, thing.kind)} {place(thing)}" for thing in single if place(thing)]
    for relation, name in re.findall(rf"What is ({'|'.join(RELATIONS)}) the ([\w ]+)\?", program):
        for second in parse_phrase(name).find(scene):
            texts += [
                _relation_phrase(first, second, relation)
                for first in scene.things
                if is_related(first, relation, second)
            ]
    rng.shuffle(texts)
    return texts


def _noun_of(scene: Scene, thing: Thing, rng: random.Random) -> str:
    return "block" if scene.tower and rng.random() < 0.8 else thing.kind


def _count_phrase(count: int, words: str, noun: str) -> str:
    """ "a red star", "two red stars"."""
    if count == 1:
        return with_article(f"{words} {noun}".strip())
    return f"{NUMBERS[count]} {words} {pluralize(noun)}".replace("  ", " ")


def _join_parts(parts: Sequence[str]) -> str:
    return " and ".join(part for part in (", ".join(parts[:-1]), parts[-1]) if part)


def _same(scene: Scene, thing: Thing) -> list[Thing]:
    return [other for other in scene.things if (other.color, other.kind) == (thing.color, thing.kind)]


def _describe_alike(scene: Scene, thing: Thing, rng: random.Random, sized: float) -> str:
    """A thing together with all that look like it."""
    same = _same(scene, thing)
    words = thing.color
    if not scene.tower and rng.random() < sized and len({other.size for other in same}) == 1:
        words = f"{thing.size} {thing.color}"
    text = _count_phrase(len(same), words, _noun_of(scene, thing, rng))
    if len(same) == 1 and rng.random() < 0.1:
        text = "one" + text[text.index(" ") :]
    return text


def _group_caption(scene: Scene, chosen: Sequence[Thing], rng: random.Random) -> str:
    return _describe_alike(scene, rng.choice(chosen), rng, 0.35)


def _listing_caption(scene: Scene, chosen: Sequence[Thing], rng: random.Random) -> str:
    looks = sorted({(thing.color, thing.kind): thing for thing in chosen}.items())
    picked = [thing for _, thing in rng.sample(looks, min(len(looks), rng.choice((2, 2, 3))))]
    sized = rng.choice((0.0, 0.0, 1.0))
    return _join_parts(
        [_describe_alike(scene, thing, rng, sized) for thing in sorted(picked, key=lambda thing: thing.x)]
    )


def _relation_caption(scene: Scene, chosen: Sequence[Thing], rng: random.Random) -> str:
    single = [thing for thing in scene.things if len(_same(scene, thing)) == 1]
    known = [thing for thing in chosen if thing in single]
    if not known:
        return ""
    subject = rng.choice(known)
    # What lies out of focus is spoken of seldom, near things more often than far ones.
    near = single if rng.random() < 0.15 else known
    others = sorted(
        (thing for thing in near if thing is not subject),
        key=lambda other: (subject.x - other.x) ** 2 + (subject.y - other.y) ** 2,
    )
    if not others:
        return ""
    first, second = rng.sample((subject, others[min(rng.randrange(len(others)), rng.randrange(len(others)))]), 2)
    held = [relation for relation in RELATIONS if is_related(first, relation, second)]
    return _relation_phrase(first, second, rng.choice(held)) if held else ""


def _relation_phrase(first: Thing, second: Thing, relation: str) -> str:
    return f"{_count_phrase(1, first.color, first.kind)} {relation} {_count_phrase(1, second.color, second.kind)}"


def _place_caption(scene: Scene, chosen: Sequence[Thing], rng: random.Random) -> str:
    thing = rng.choice(chosen)
    return f"{_count_phrase(1, thing.color, thing.kind)} {place(thing)}" if len(_same(scene, thing)) == 1 else ""


def _kind_caption(scene: Scene, chosen: Sequence[Thing], rng: random.Random) -> str:
    thing = rng.choice(chosen)
    count = sum(other.kind == thing.kind for other in scene.things)
    return _count_phrase(count, "", _noun_of(scene, thing, rng)) if count > 1 else ""


def _color_caption(scene: Scene, chosen: Sequence[Thing], rng: random.Random) -> str:
    thing = rng.choice(chosen)
    count = sum(other.color == thing.color for other in scene.things)
    return _count_phrase(count, thing.color, "object") if count > 1 else ""


def _total_caption(scene: Scene, chosen: Sequence[Thing], rng: random.Random) -> str:
    if len({thing.color for thing in scene.things}) == 1 and rng.random() < 0.4:
        return f"only {chosen[0].color} objects"
    return f"{NUMBERS[len(scene.things)]} objects"


def _touching_caption(scene: Scene, chosen: Sequence[Thing], rng: random.Random) -> str:
    thing = rng.choice([thing for thing in chosen if thing.walls])
    return _wall_phrase(scene, thing, rng.choice(("wall", rng.choice(sorted(thing.walls)))))


def _wall_phrase(scene: Scene, thing: Thing, wall: str) -> str:
    count = sum(other.touches(wall) for other in _same(scene, thing))
    shown = f"{wall} wall" if wall in ("left", "right") else wall
    return f"{_count_phrase(count, thing.color, thing.kind)} touching the {shown}"


def _tower_caption(scene: Scene, chosen: Sequence[Thing], rng: random.Random) -> str:
    return rng.choice(_whole_tower(scene, rng.choice(("of", "of", "with")), rng.choice(("above", "over", "on top of"))))


def _whole_tower(scene: Scene, of: str = "of", above: str = "above") -> list[str]:
    """All that can be said about a tower."""
    blocks = scene.tower
    if not blocks:
        return []
    number, end = NUMBERS[len(blocks)], "s" * (len(blocks) > 1)
    plain = f"a tower {of} {number} block{end}"
    texts = [
        plain,
        f"{plain} with a {blocks[-1].color} block on top",
        f"{plain} with a {blocks[0].color} block at the base",
    ]
    texts += [f"a {upper.color} block {above} a {lower.color} block" for lower, upper in pairwise(blocks)]
    if len(blocks) == 3:
        texts.append(f"a {blocks[1].color} block in the middle of a tower")
    if len({block.color for block in blocks}) == 1:
        texts.append(f"a tower of {number} {blocks[0].color} block{end}")
    return texts


# Whether a caption is true

_RELATION = re.compile(f"^(.+) ({'|'.join(RELATIONS)}|over|on top of) (.+)$")
_TOWER = re.compile(r"^a tower (?:of|with) (\w+) (?:(\w+) )?blocks?(?: with an? (\w+) block (on top|at the base))?$")
_TOUCHING = re.compile(r"^(.+) touching the (wall|top|bottom|left wall|right wall)$")
_MIDDLE = re.compile(r"^an? (\w+) block in the middle of a tower$")
_PLACED = re.compile(r"^(.+) ((?:at|on) the (?:top|bottom|left|right)(?: left| right)?|in the middle)$")


def is_true(scene: Scene, caption: str) -> bool | None:
    """Whether a caption is true of the scene; None when it is no sentence of this world.

    "a red star" is true when there is one or more; "one red star" and "two red stars" are true of exactly so many.
    """
    try:
        return _check_caption(scene, caption)
    except (ValueError, IndexError):
        return None


def _check_caption(scene: Scene, caption: str) -> bool:
    if tower := _TOWER.match(caption):
        return _true_tower(scene, *tower.groups())
    if middle := _MIDDLE.match(caption):
        return any(block.color == middle[1] for block in scene.tower[1:-1])
    if only := re.fullmatch(r"only (\w+) objects", caption):
        return all(thing.color == only[1] for thing in scene.things)
    if touching := _TOUCHING.match(caption):
        return _enough(scene, touching[1], lambda thing: thing.touches(touching[2]))
    if relation := _RELATION.match(caption):
        return _true_relation(scene, *relation.groups())
    if placed := _PLACED.match(caption):
        return _enough(scene, placed[1], lambda thing: place(thing) == placed[2])
    verdicts = [_enough(scene, part) for part in re.split(r", | and ", caption.replace(" , ", ", "))]
    return all(verdicts)


def _read_counted(text: str) -> tuple[str, Phrase]:
    """The number or article of a noun phrase, and the rest of it."""
    number, _, rest = text.partition(" ")
    if number not in ("a", "an", *NUMBERS):
        raise ValueError(f"cannot read {text!r}")
    return number, parse_phrase(rest)


def _phrase_fits(scene: Scene, what: Phrase, thing: Thing) -> bool:
    return what.holds(thing) and (what.noun != "block" or bool(scene.tower))


def _enough(scene: Scene, text: str, also: Callable[[Thing], bool] = lambda thing: True) -> bool:
    number, what = _read_counted(text)
    count = sum(_phrase_fits(scene, what, thing) and also(thing) for thing in scene.things)
    return count >= 1 if number in ("a", "an") else count == NUMBERS.index(number)


def _true_relation(scene: Scene, subject: str, relation: str, other: str) -> bool:
    first, second = _read_counted(subject)[1], _read_counted(other)[1]
    if relation in ("over", "on top of"):
        relation = "above"
    blocks = scene.tower
    if blocks and relation == "above":  # directly above
        pairs = list(zip(blocks[1:], blocks[:-1], strict=True))
    else:
        pairs = [(a, b) for a in scene.things for b in scene.things if a is not b and is_related(a, relation, b)]
    return any(_phrase_fits(scene, first, a) and _phrase_fits(scene, second, b) for a, b in pairs)


def _true_tower(scene: Scene, number: str, color: str | None, end: str | None, where: str | None) -> bool:
    blocks = scene.tower
    if len(blocks) != NUMBERS.index(number) or (color and any(block.color != color for block in blocks)):
        return False
    return end is None or blocks[-1 if where == "on top" else 0].color == end
