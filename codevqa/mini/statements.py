"""Statements about sets of boxes, in the manner of the Cornell NLVR corpus but in our own words: true or not?

Boxes hold scattered shapes, or a tower of blocks each. The statement is judged "yes" or "no".
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from .conditions import BOX, COMPARE, TOWER, WORDS, exact, free_phrase, touches, touching_phrase
from .quantifiers import BOXES, TOWERS, quantified
from .questions import Item, Phrase, SetFamily, ask_count, item, number, phrase, wanted
from .world import BOX_COLORS, Scene

YES = 'answer = "yes" if {test} else "no"'


def _all(scenes: Sequence[Scene], *, towers: bool) -> bool:
    return all(scene.style == "box" and bool(scene.tower) == towers for scene in scenes)


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


def total_statement(rng: random.Random, scenes: Sequence[Scene]) -> Item | None:
    """There are exactly two yellow squares."""
    if not all(scene.style == "box" for scene in scenes):
        return None
    sign = rng.choice((">=", "==", "==", "=="))

    def value_of(what: Phrase) -> int:
        return sum(what.count(scene) for scene in scenes)

    def propose() -> tuple[tuple[Phrase, int], bool]:
        what = phrase(rng, rng.choice(scenes), size=0.0)
        limit = max(1, min(8, value_of(what) + rng.choice((-1, 0, 1))))
        return (what, limit), COMPARE[sign](value_of(what), limit)

    made = wanted(rng, propose)
    if made is None:
        return None
    what, limit = made
    words = exact(rng, limit) if sign == "==" else WORDS[sign]
    templates: tuple[str, ...] = (
        "there {be} {s} {n} {ps}.",
        "there {be} {s} {n} {ps} in the boxes.",
        "the boxes contain {s} {n} {ps}.",
        "in total there {be} {s} {n} {ps}.",
        "we see {s} {n} {ps} in the boxes.",
        "~the boxes hold {s} {n} {ps}.",
    )
    program = f'total = 0\nfor img in images:\n    total += int(query(img, "{ask_count(what)}"))\n'
    program += YES.format(test=f"total {sign} {limit}")
    slots: dict[str, Any] = {
        "be": "is" if limit == 1 else "are",
        "s": words,
        "n": number(rng, limit),
        "ps": what.name if limit == 1 else what.many,
    }
    made_item = item(rng, "box_total", templates, COMPARE[sign](value_of(what), limit), program, form="set", **slots)
    return _tidy(made_item)


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
    lines = (
        "count = 0",
        "for img in images:",
        f'    if query(img, "Is there {what.one} touching the {wall}?") == "yes":',
        "        count += 1",
        YES.format(test="count >= 1"),
    )
    slots: dict[str, Any] = {"a": what.one, "p": what.name, "w": shown}
    return item(rng, "box_touching", templates, truth_of(what, wall), "\n".join(lines), form="set", **slots)


def touching_total(rng: random.Random, scenes: Sequence[Scene]) -> Item | None:
    """There are exactly two black triangles touching the wall."""
    if not _all(scenes, towers=False):
        return None
    sign = rng.choice((">=", "==", "=="))

    def value_of(what: Phrase, wall: str) -> int:
        return sum(touches(thing, wall) for scene in scenes for thing in what.find(scene))

    def propose() -> tuple[tuple[Phrase, str, int], bool]:
        what, wall = touching_phrase(rng, rng.choice(scenes))
        limit = max(1, min(6, value_of(what, wall) + rng.choice((-1, 0, 1))))
        return (what, wall, limit), COMPARE[sign](value_of(what, wall), limit)

    made = wanted(rng, propose)
    if made is None:
        return None
    what, wall, limit = made
    words = exact(rng, limit) if sign == "==" else WORDS[sign]
    templates = (
        "there {be} {s} {n} {ps} touching the {w}.",
        "{s} {n} {ps} {t} the {w}.",
        "there {be} {s} {n} {ps} that {t} the {w}.",
        "{s} {n} {ps} {be} touching the {w}.",
    )
    program = f'total = 0\nfor img in images:\n    total += int(query(img, "How many {what.many} touch the {wall}?"))\n'
    program += YES.format(test=f"total {sign} {limit}")
    slots: dict[str, Any] = {
        "be": "is" if limit == 1 else "are",
        "t": "touches" if limit == 1 else "touch",
        "s": words,
        "n": number(rng, limit),
        "ps": what.name if limit == 1 else what.many,
        "w": rng.choice(("wall", "wall", "edge")) if wall == "wall" else wall,
    }
    truth = COMPARE[sign](value_of(what, wall), limit)
    return _tidy(item(rng, "touching_total", templates, truth, program, form="set", **slots))


def free_total(rng: random.Random, scenes: Sequence[Scene]) -> Item | None:
    """There are exactly two black triangles not touching any wall."""
    if not _all(scenes, towers=False):
        return None
    sign = rng.choice((">=", "==", "=="))

    def value_of(what: Phrase, wall: str) -> int:
        return sum(not touches(thing, wall) for scene in scenes for thing in what.find(scene))

    def propose() -> tuple[tuple[Phrase, str, int], bool]:
        what, wall = touching_phrase(rng, rng.choice(scenes))
        limit = max(1, min(6, value_of(what, wall) + rng.choice((-1, 0, 1))))
        return (what, wall, limit), COMPARE[sign](value_of(what, wall), limit)

    made = wanted(rng, propose)
    if made is None:
        return None
    what, wall, limit = made
    words = exact(rng, limit) if sign == "==" else WORDS[sign]
    said, asked = free_phrase(rng, what, wall, many=limit > 1)
    templates = ("there {be} {s} {n} {f}.", "we see {s} {n} {f}.", "{be} there {s} {n} {f}?")
    program = f"total = 0\nfor img in images:\n    total += {asked}\n" + YES.format(test=f"total {sign} {limit}")
    slots: dict[str, Any] = {"be": "is" if limit == 1 else "are", "s": words, "n": number(rng, limit), "f": said}
    truth = COMPARE[sign](value_of(what, wall), limit)
    return _tidy(item(rng, "free_total", templates, truth, program, form="set", **slots))


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
    words = (exact(rng, limit) if rng.random() < 0.6 else "") if sign == "==" else WORDS[sign]
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
    program = f"count = 0\nfor img in images:\n    if {test}:\n        count += 1\n" + YES.format(test=last)
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
    program = f"count = 0\nfor img in images:\n    if {test}:\n        count += 1\n" + YES.format(test="count >= 1")
    return _tidy(item(rng, "tower_color", templates, fits(color, limit), program, form="set"))


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
}
"""Weight and maker of each family."""
