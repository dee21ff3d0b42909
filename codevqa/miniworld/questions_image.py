"""Questions about one picture: here those about one thing or one kind of things; the families of all.

Where things are is asked in ``questions_space``, what joins or compares two things in ``questions_logic``.
"""

from __future__ import annotations

import random

from . import questions_logic, questions_space
from .questions import (
    YES,
    ImageFamily,
    Item,
    Phrase,
    ask_color,
    ask_count,
    ask_exist,
    ask_size,
    colors_of,
    item,
    kinds_of,
    phrase,
    unique,
    wanted,
)
from .world import SIZES, Scene


def _ask(question: str) -> str:
    return f'answer = query(img, "{question}")'


def exist(rng: random.Random, scene: Scene) -> Item | None:
    """Is there a red star?"""

    def propose() -> tuple[Phrase, bool]:
        what = phrase(rng, scene)
        return what, what.count(scene) > 0

    what = wanted(rng, propose)
    if what is None:
        return None
    templates = (
        "is there {a}?",
        "is there {a} in the picture?",
        "are there any {ps}?",
        "does the picture show {a}?",
        "does the image contain {a}?",
        "can you see {a}?",
        "there is {a}.",
        "does it show {a}?",
        "is there any {p} in the image?",
        "does this picture have {a}?",
        "the picture shows {a}.",
        "are there {ps} here?",
        "~do you see any {ps} in the picture?",
        "~is {a} visible?",
    )
    program = _ask(ask_exist(what))
    return item(rng, "exist", templates, what.count(scene) > 0, program, a=what.one, p=what.name, ps=what.many)


def color(rng: random.Random, scene: Scene) -> Item | None:
    """What color is the star?"""
    found = unique(rng, scene, need_color=False)
    if found is None:
        return None
    templates = (
        "what color is the {p}?",
        "what is the color of the {p}?",
        "which color is the {p}?",
        "what color does the {p} have?",
        "the {p} is what color?",
        "tell me the color of the {p}.",
        "what's the color of the {p}?",
        "in which color is the {p} drawn?",
        "what is the {p}'s color?",
        "~which color does the {p} have?",
    )
    return item(rng, "color", templates, found[1].color, _ask(ask_color(found[0])), p=found[0].name)


def kind(rng: random.Random, scene: Scene) -> Item | None:
    """What is the red object?"""
    for _ in range(8):
        thing = rng.choice(scene.things)
        what = Phrase(None, thing.color, rng.choice((None, None, None, thing.size)))
        if what.count(scene) == 1:
            templates = (
                "what is the {p}?",
                "what shape is the {p}?",
                "what kind of object is {d}?",
                "which object is {d}?",
                "what is {d}?",
                "name the {p}.",
                "which thing is {d}?",
                "what object is {d} in the picture?",
                "~what is the thing that is {d}?",
            )
            described = " and ".join(part for part in (what.size, what.color) if part)
            return item(rng, "kind", templates, thing.kind, _ask(f"What is the {what.name}?"), p=what.name, d=described)
    return None


def size(rng: random.Random, scene: Scene) -> Item | None:
    """What size is the star?"""
    found = unique(rng, scene)
    if found is None or found[0].size is not None:
        return None
    templates = (
        "what size is the {p}?",
        "how big is the {p}?",
        "how large is the {p}?",
        "which size is the {p}?",
        "what size does the {p} have?",
        "is the {p} small, medium or large?",
        "~what is the size of the {p}?",
    )
    program = _ask(ask_size(found[0]))
    return item(rng, "size", templates, found[1].size, program, p=found[0].name)


def count(rng: random.Random, scene: Scene) -> Item | None:
    """How many red stars are there?"""
    what = Phrase() if rng.random() < 0.1 else phrase(rng, scene, size=0.03)
    value = what.count(scene)
    # Zero and one would be most of the answers.
    if value < 2 and rng.random() < (0.8 if value == 0 else 0.5):
        return None
    templates = (
        "how many {ps} are there?",
        "how many {ps} are in the picture?",
        "what is the number of {ps}?",
        "how many {ps} does the picture show?",
        "how many {ps} can you see?",
        "count the {ps}.",
        "how many {ps}?",
        "how many {ps} does the image contain?",
        "what number of {ps} is shown?",
        "how many {ps} are shown?",
        "~how many {ps} do you see?",
    )
    return item(rng, "count", templates, str(value), _ask(ask_count(what)), ps=what.many)


def verify(rng: random.Random, scene: Scene) -> Item | None:
    """Is the star red?"""
    found = unique(rng, scene, need_color=False)
    if found is None:
        return None
    what, thing = found
    truth = rng.random() < 0.5
    others = [option for option in colors_of(scene) if option != thing.color]
    shown = thing.color if truth else rng.choice(others)
    templates = (
        "is the {p} {c}?",
        "is the color of the {p} {c}?",
        "the {p} is {c}.",
        "is that {p} {c}?",
        "is {c} the color of the {p}?",
        "is the {p} in the picture {c}?",
        "~does the {p} have the color {c}?",
    )
    program = f'color = query(img, "{ask_color(what)}")\n' + YES.format(test=f'color == "{shown}"')
    return item(rng, "verify", templates, truth, program, p=what.name, c=shown)


def verify_size(rng: random.Random, scene: Scene) -> Item | None:
    """Is the red star large?"""
    found = unique(rng, scene)
    if found is None or found[0].size:
        return None
    truth = rng.random() < 0.5
    shown = found[1].size if truth else rng.choice([one for one in SIZES if one != found[1].size])
    templates = ("is the {p} {c}?", "is the size of the {p} {c}?")
    program = f'size = query(img, "{ask_size(found[0])}")\n' + YES.format(test=f'size == "{shown}"')
    return item(rng, "verify_size", templates, truth, program, p=found[0].name, c=shown)


def choose_color(rng: random.Random, scene: Scene) -> Item | None:
    """Is the star red or blue?"""
    found = unique(rng, scene, need_color=False)
    if found is None:
        return None
    options = [found[1].color, rng.choice([one for one in colors_of(scene) if one != found[1].color])]
    rng.shuffle(options)
    templates = (
        "is the {p} {c} or {d}?",
        "which color is the {p}, {c} or {d}?",
        "what color is the {p}, {c} or {d}?",
        "is the color of the {p} {c} or {d}?",
        "does the {p} look {c} or {d}?",
        "~what is the {p}, {c} or {d}?",
    )
    c, d = options
    return item(rng, "choose_color", templates, found[1].color, _ask(ask_color(found[0])), p=found[0].name, c=c, d=d)


def choose_kind(rng: random.Random, scene: Scene) -> Item | None:
    """Is the red object a star or a circle?"""
    thing = rng.choice(scene.things)
    what = Phrase(None, thing.color)
    if what.count(scene) != 1:
        return None
    options = [thing.kind, rng.choice([one for one in kinds_of(scene) if one != thing.kind])]
    rng.shuffle(options)
    first, second = (Phrase(one) for one in options)
    templates = (
        "is the {p} {a} or {b}?",
        "what is the {p}, {a} or {b}?",
        "which is the {p}, {a} or {b}?",
        "the {p}, is it {a} or {b}?",
        "~is that {p} {a} or {b}?",
    )
    program = f'first = query(img, "{ask_exist(Phrase(first.kind, thing.color))}")\n'
    program += f'answer = "{first.head}" if first == "yes" else "{second.head}"'
    return item(rng, "choose_kind", templates, thing.kind, program, p=what.name, a=first.one, b=second.one)


FAMILIES: dict[str, tuple[float, ImageFamily]] = {
    "exist": (2.0, exist),
    "color": (1.2, color),
    "kind": (1.0, kind),
    "size": (0.5, size),
    "count": (2.0, count),
    "verify": (0.7, verify),
    "choose_color": (0.5, choose_color),
    "choose_kind": (0.5, choose_kind),
    "relation": (2.0, questions_space.relation),
    "exist_relation": (0.8, questions_space.exist_relation),
    "two_relations": (0.6, questions_space.two_relations),
    "which_side": (1.2, questions_space.which_side),
    "which_thing": (1.0, questions_space.which_thing),
    "half": (1.0, questions_space.half),
    "and": (1.2, questions_logic.both_exist),
    "or": (1.2, questions_logic.either_exists),
    "but_not": (0.5, questions_logic.one_not_other),
    "same_color": (1.0, questions_logic.same_color),
    "compare": (1.0, questions_logic.compare),
    "threshold": (1.0, questions_logic.threshold),
    "total": (0.6, questions_logic.total),
    "same_size": (0.3, questions_logic.bigger),
    "verify_size": (0.3, verify_size),
}
"""Weight and maker of each family."""
