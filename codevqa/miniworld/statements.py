"""Statements about sets of boxes, in the manner of the Cornell NLVR corpus but in our own words: true or not?

Boxes hold scattered shapes, or a tower of blocks each. The statement is judged "yes" or "no".
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from .conditions import BOX, COMPARE, JOINED, ONLY, TOWER, bounded, exact, free_phrase, touches, touching_phrase
from .quantifiers import BOXES, TOWERS, quantified
from .questions import YES, Item, Phrase, SetFamily, ask_count, item, number, phrase, wanted
from .world import BOX_COLORS, Scene, Thing

Subject = TypeVar("Subject")


def _all(scenes: Sequence[Scene], *, towers: bool) -> bool:
    return all(scene.style == "box" and bool(scene.tower) == towers for scene in scenes)


def _loop(test: str, last: str) -> str:
    """A program that counts the pictures of which ``test`` holds and answers whether ``last`` holds of the count."""
    return f"count = 0\nfor img in images:\n    if {test}:\n        count += 1\n" + YES.format(test=last)


def box_statement(rng: random.Random, scenes: Sequence[Scene]) -> Item | None:
    """All boxes contain a black circle."""
    if not all(scene.style == "box" for scene in scenes):
        return None
    return quantified(rng, scenes, BOX, BOXES[0], statement=rng.random() < 0.85, name="box")


def tower_statement(rng: random.Random, scenes: Sequence[Scene]) -> Item | None:
    """There is a tower with three blocks."""
    if not _all(scenes, towers=True):
        return None
    return quantified(rng, scenes, TOWER, TOWERS[0], statement=rng.random() < 0.85, name="tower")


def joined_statement(rng: random.Random, scenes: Sequence[Scene]) -> Item | None:
    """There is a tower with a blue block at the base and a black block above a yellow block."""
    for towers in (True, False):
        if _all(scenes, towers=towers):
            nouns = (TOWERS if towers else BOXES)[0]
            return quantified(rng, scenes, JOINED, nouns, statement=rng.random() < 0.9, name="joined")
    return None


def only_statement(rng: random.Random, scenes: Sequence[Scene]) -> Item | None:
    """There is a box with only black and blue objects."""
    for towers in (True, False):
        if _all(scenes, towers=towers):
            nouns = (TOWERS if towers else BOXES)[0]
            return quantified(rng, scenes, ONLY, nouns, statement=rng.random() < 0.9, name="only")
    return None


@dataclass(frozen=True)
class _Count(Generic[Subject]):
    """How many there are of something in all boxes, held against a limit."""

    what: Subject
    sign: str
    limit: int
    words: str
    """How the sign is said; may be empty."""
    truth: bool

    def statement(self, rng: random.Random, name: str, templates: Sequence[str], asked: str, **slots: str) -> Item:
        """Makes the statement; ``asked`` is the Python expression that counts in ``img``."""
        program = f"total = 0\nfor img in images:\n    total += {asked}\n"
        program += YES.format(test=f"total {self.sign} {self.limit}")
        slots |= {"be": "is" if self.limit == 1 else "are", "s": self.words}
        return _tidy(item(rng, name, templates, self.truth, program, form="set", **slots))


def _counted(
    rng: random.Random,
    signs: Sequence[str],
    highest: int,
    draw: Callable[[], Subject],
    value_of: Callable[[Subject], int],
) -> _Count[Subject] | None:
    """Holds the number of what ``draw`` proposes against a limit near it, of at most ``highest``."""
    sign = rng.choice(signs)

    def propose() -> tuple[tuple[Subject, int], bool]:
        what = draw()
        limit = max(1, min(highest, value_of(what) + rng.choice((-1, 0, 1))))
        return (what, limit), COMPARE[sign](value_of(what), limit)

    made = wanted(rng, propose)
    if made is None:
        return None
    what, limit = made
    words = bounded(rng, sign, limit)
    return _Count(what, sign, limit, words, COMPARE[sign](value_of(what), limit))


def _counted_at_wall(
    rng: random.Random, scenes: Sequence[Scene], fits: Callable[[Thing, str], bool]
) -> _Count[tuple[Phrase, str]] | None:
    """Counts the things of some phrase that fit some wall; None in towers."""
    if not _all(scenes, towers=False):
        return None

    def value_of(what: tuple[Phrase, str]) -> int:
        return sum(fits(thing, what[1]) for scene in scenes for thing in what[0].find(scene))

    return _counted(rng, (">=", "==", "=="), 6, lambda: touching_phrase(rng, rng.choice(scenes)), value_of)


def total_statement(rng: random.Random, scenes: Sequence[Scene]) -> Item | None:
    """There are exactly two yellow squares."""
    if not all(scene.style == "box" for scene in scenes):
        return None

    def draw() -> Phrase:
        return phrase(rng, rng.choice(scenes), size=0.0)

    made = _counted(
        rng, (">=", "==", "==", "==", "<="), 8, draw, lambda what: sum(what.count(scene) for scene in scenes)
    )
    if made is None:
        return None
    templates: tuple[str, ...] = (
        "there {be} {s} {n} {ps}.",
        "there {be} {s} {n} {ps} in the boxes.",
        "the boxes contain {s} {n} {ps}.",
        "in total there {be} {s} {n} {ps}.",
        "in all boxes together there {be} {s} {n} {ps}.",
        "you can count {s} {n} {ps}.",
        "we see {s} {n} {ps} in the boxes.",
        "~the boxes hold {s} {n} {ps}.",
    )
    shown = made.what.name if made.limit == 1 else made.what.many
    asked = f'int(query(img, "{ask_count(made.what)}"))'
    return made.statement(rng, "box_total", templates, asked, n=number(rng, made.limit), ps=shown)


def touching_statement(rng: random.Random, scenes: Sequence[Scene]) -> Item | None:
    """There is a blue square touching the wall."""
    if not _all(scenes, towers=False):
        return None

    def truth_of(what: Phrase, wall: str) -> bool:
        return any(touches(thing, wall) for scene in scenes for thing in what.find(scene))

    def propose() -> tuple[tuple[Phrase, str], bool] | None:
        what, wall = touching_phrase(rng, rng.choice(scenes))
        if not any(what.count(scene) for scene in scenes) and rng.random() < 0.7:
            return None
        return (what, wall), truth_of(what, wall)

    made = wanted(rng, propose)
    if made is None:
        return None
    what, wall = made
    shown = rng.choice(("wall", "wall", "edge", "side of a box")) if wall == "wall" else wall
    templates = (
        "there is {a} touching the {w}.",
        "there is at least one {p} touching the {w}.",
        "{a} touches the {w}.",
        "is there {a} touching the {w}?",
        "there is {a} that touches the {w}.",
        "{a} is touching the {w}.",
        "~at least one {p} touches the {w}.",
    )
    program = _loop(f'query(img, "Is there {what.one} touching the {wall}?") == "yes"', "count >= 1")
    slots = {"a": what.one, "p": what.name, "w": shown}
    return item(rng, "box_touching", templates, truth_of(what, wall), program, form="set", **slots)


def touching_total(rng: random.Random, scenes: Sequence[Scene]) -> Item | None:
    """There are exactly two black triangles touching the wall."""
    made = _counted_at_wall(rng, scenes, touches)
    if made is None:
        return None
    what, wall = made.what
    templates = (
        "there {be} {s} {n} {ps} touching the {w}.",
        "{s} {n} {ps} {t} the {w}.",
        "there {be} {s} {n} {ps} that {t} the {w}.",
        "{s} {n} {ps} {be} touching the {w}.",
    )
    slots = {
        "t": "touches" if made.limit == 1 else "touch",
        "n": number(rng, made.limit),
        "ps": what.name if made.limit == 1 else what.many,
        "w": rng.choice(("wall", "wall", "edge")) if wall == "wall" else wall,
    }
    asked = f'int(query(img, "How many {what.many} touch the {wall}?"))'
    return made.statement(rng, "touching_total", templates, asked, **slots)


def free_total(rng: random.Random, scenes: Sequence[Scene]) -> Item | None:
    """There are exactly two black triangles not touching any wall."""
    made = _counted_at_wall(rng, scenes, lambda thing, wall: not touches(thing, wall))
    if made is None:
        return None
    said, asked = free_phrase(rng, *made.what, many=made.limit > 1)
    templates = ("there {be} {s} {n} {f}.", "we see {s} {n} {f}.", "{be} there {s} {n} {f}?")
    return made.statement(rng, "free_total", templates, asked, n=number(rng, made.limit), f=said)


def tower_end(rng: random.Random, scenes: Sequence[Scene]) -> Item | None:
    """There is a black block as the top of a tower of three blocks."""
    if not _all(scenes, towers=True):
        return None
    top = rng.random() < 0.5
    sized, counted = rng.random() < 0.45, rng.random() < 0.3

    def count(color: str, sign: str, limit: int) -> int:
        fits = [one.tower for one in scenes if not sized or COMPARE[sign](len(one.tower), limit)]
        return sum(blocks[-1 if top else 0].color == color for blocks in fits)

    def propose() -> tuple[tuple[str, str, int, int], bool]:
        color, sign = rng.choice(BOX_COLORS), rng.choice(("==", "==", ">=", ">"))
        limit, several = rng.randint(1, 4 if sign == "==" else 3), rng.randint(1, 3)
        value = count(color, sign, limit)
        return (color, sign, limit, several), value == several if counted else value >= 1

    made = wanted(rng, propose)
    if made is None:
        return None
    color, sign, limit, several = made
    end = "top" if top else "base"
    word = rng.choice(("top", "top block", "uppermost block") if top else ("base", "bottom block", "lowest block"))
    words = (exact(rng, limit) if rng.random() < 0.6 else "") if sign == "==" else bounded(rng, sign, limit)
    size = f" {rng.choice(('with', 'of'))} {words} {number(rng, limit)} block{'s' * (limit > 1)}" if sized else ""
    test = f'query(img, "What color is the block at the {end} of the tower?") == "{color}"'
    if sized:
        test = f'int(query(img, "How many blocks are in the tower?")) {sign} {limit} and {test}'
    if counted:
        start = f"there {'is' if several == 1 else 'are'} {exact(rng, several)} {number(rng, several)}"
        templates: tuple[str, ...] = (f"{start} {color} block{'s' * (several > 1)} as the {word} of a tower{size}.",)
        last = f"count == {several}"
    else:
        templates = (
            f"there is a {color} block as the {word} of a tower{size}.",
            f"there is at least one {color} block as the {word} of a tower{size}.",
            f"a tower{size} has a {color} block as its {word}.",
            f"the {word} of a tower{size} is {color}.",
            f"there is a tower{size} whose {word} is {color}.",
        )
        last = "count >= 1"
    program = _loop(test, last)
    value = count(color, sign, limit)
    return _tidy(item(rng, "tower_end", templates, value == several if counted else value >= 1, program, form="set"))


def tower_color(rng: random.Random, scenes: Sequence[Scene]) -> Item | None:
    """There is a black tower."""
    if not _all(scenes, towers=True):
        return None
    sized = rng.random() < 0.4

    def fits(color: str, limit: int) -> bool:
        towers = [one.tower for one in scenes if not sized or len(one.tower) == limit]
        return any(all(block.color == color for block in blocks) for blocks in towers)

    def propose() -> tuple[tuple[str, int], bool]:
        color, limit = rng.choice(BOX_COLORS), rng.randint(1, 3)
        return (color, limit), fits(color, limit)

    made = wanted(rng, propose)
    if made is None:
        return None
    color, limit = made
    size = f" with {exact(rng, limit)} {number(rng, limit)} block{'s' * (limit > 1)}" if sized else ""
    templates = (
        f"there is a {color} tower{size}.",
        f"there is at least one {color} tower{size}.",
        f"one tower{size} is all {color}.",
        f"is there a {color} tower{size}?",
        f"there is a tower{size} that is {color}.",
    )
    test = f'query(img, "Are all the blocks {color}?") == "yes"'
    if sized:
        test = f'int(query(img, "How many blocks are in the tower?")) == {limit} and {test}'
    return _tidy(item(rng, "tower_color", templates, fits(color, limit), _loop(test, "count >= 1"), form="set"))


def _tidy(one: Item) -> Item:
    """Closes the gaps that empty words leave."""
    text = " ".join(one.question.split())
    return Item(text[:1].upper() + text[1:], one.answer, one.program, one.type, one.form, one.wording)


FAMILIES: dict[str, tuple[float, SetFamily]] = {
    "box": (3.0, box_statement),
    "tower": (3.0, tower_statement),
    "box_total": (0.8, total_statement),
    "box_touching": (0.8, touching_statement),
    "touching_total": (0.6, touching_total),
    "free_total": (0.6, free_total),
    "tower_end": (1.0, tower_end),
    "tower_color": (0.6, tower_color),
    "joined": (1.2, joined_statement),
    "only": (0.9, only_statement),
}
"""Weight and maker of each family."""
