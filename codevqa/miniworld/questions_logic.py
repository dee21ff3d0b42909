"""Questions about one picture that join two things, compare them, or hold a count against another."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from .conditions import COMPARE, WORDS
from .questions import (
    YES,
    Item,
    Phrase,
    ask_color,
    ask_count,
    ask_exist,
    ask_size,
    item,
    number,
    pair,
    phrase,
    unique,
    wanted,
)
from .world import Scene, Thing


def _two(rng: random.Random, scene: Scene) -> tuple[Phrase, Phrase] | None:
    first, second = phrase(rng, scene, size=0.03, generic=0.03), phrase(rng, scene, size=0.03, generic=0.03)
    return None if first.overlaps(second) else (first, second)


def _both(first: str, second: str) -> str:
    return f'first = query(img, "{first}")\nsecond = query(img, "{second}")\n'


def _both_counted(first: Phrase, second: Phrase) -> str:
    return f'first = int(query(img, "{ask_count(first)}"))\nsecond = int(query(img, "{ask_count(second)}"))\n'


def _judged(
    rng: random.Random,
    scene: Scene,
    name: str,
    templates: Sequence[str],
    test: str,
    truth: Callable[[bool, bool], bool],
) -> Item | None:
    """Asks about two things at once.

    Args:
        rng: Where the chance comes from.
        scene: What is asked about.
        name: Family name.
        templates: Wordings, with the phrases in the slots ``a`` and ``b`` ("a star"), ``ps`` and ``qs`` ("stars") and
            ``q`` ("star").
        test: The answer as a Python expression over ``first`` and ``second``, each "yes" or "no".
        truth: The same over whether the scene shows the one and the other.
    """

    def check(first: Phrase, second: Phrase) -> bool:
        return truth(first.count(scene) > 0, second.count(scene) > 0)

    made = wanted(rng, lambda: None if (found := _two(rng, scene)) is None else (found, check(*found)))
    if made is None:
        return None
    first, second = made
    slots = {"a": first.one, "b": second.one, "ps": first.many, "qs": second.many, "q": second.name}
    program = _both(ask_exist(first), ask_exist(second)) + YES.format(test=test)
    return item(rng, name, templates, check(first, second), program, form="image", **slots)


def both_exist(rng: random.Random, scene: Scene) -> Item | None:
    """Is there a red star and a blue circle?"""
    templates = (
        "is there {a} and {b}?",
        "are there both {ps} and {qs}?",
        "does the picture show {a} and {b}?",
        "are there {ps} and {qs} in the picture?",
        "does the image contain both {a} and {b}?",
        "there is {a} and {b}.",
        "do you see {a} and {b}?",
        "does the picture have both {ps} and {qs}?",
        "is there {a} as well as {b}?",
        "~can you see both {a} and {b}?",
    )
    return _judged(rng, scene, "and", templates, 'first == "yes" and second == "yes"', lambda one, two: one and two)


def either_exists(rng: random.Random, scene: Scene) -> Item | None:
    """Is there a red star or a blue circle?"""
    templates = (
        "is there {a} or {b}?",
        "are there any {ps} or {qs}?",
        "is there either {a} or {b} in the picture?",
        "does the picture contain {a} or {b}?",
        "are there {ps} or {qs}?",
        "there is {a} or {b}.",
        "do you see {a} or {b}?",
        "does the picture have any {ps} or {qs}?",
        "is there {a} or is there {b}?",
        "~can you see {a} or {b}?",
    )
    return _judged(rng, scene, "or", templates, 'first == "yes" or second == "yes"', lambda one, two: one or two)


def one_not_other(rng: random.Random, scene: Scene) -> Item | None:
    """Is there a red star but no blue circle?"""
    templates = (
        "is there {a} but no {q}?",
        "is there {a} and no {q}?",
        "is there {a} without {b}?",
        "there is {a} but no {q}.",
        "~does the picture show {a} but no {q}?",
    )
    return _judged(
        rng, scene, "but_not", templates, 'first == "yes" and second == "no"', lambda one, two: one and not two
    )


def same_color(rng: random.Random, scene: Scene) -> Item | None:
    """Are the star and the circle the same color?"""

    def propose() -> tuple[tuple[Phrase, Thing, Phrase, Thing], bool] | None:
        first, second = unique(rng, scene, need_color=False), unique(rng, scene, need_color=False)
        if first is None or second is None or first[1] is second[1]:
            return None
        return (*first, *second), first[1].color == second[1].color

    made = wanted(rng, propose)
    if made is None:
        return None
    first, one, second, two = made
    differ = rng.random() < 0.35
    templates: tuple[str, ...] = (
        (
            "are the {p} and the {q} different colors?",
            "are the {p} and the {q} of different color?",
            "is the color of the {p} different from the color of the {q}?",
            "do the {p} and the {q} have different colors?",
            "is the {p} a different color than the {q}?",
            "~do the {p} and the {q} differ in color?",
        )
        if differ
        else (
            "are the {p} and the {q} the same color?",
            "do the {p} and the {q} have the same color?",
            "is the {p} the same color as the {q}?",
            "the {p} and the {q} have the same color.",
            "are the {p} and the {q} of the same color?",
            "is the color of the {p} the same as the color of the {q}?",
            "do the {p} and the {q} share a color?",
            "~does the {p} have the same color as the {q}?",
        )
    )
    test = "first != second" if differ else "first == second"
    program = _both(ask_color(first), ask_color(second)) + YES.format(test=test)
    truth = (one.color == two.color) != differ
    name = "different_color" if differ else "same_color"
    return item(rng, name, templates, truth, program, p=first.name, q=second.name)


def bigger(rng: random.Random, scene: Scene) -> Item | None:
    """Are the star and the circle the same size?"""

    def propose() -> tuple[tuple[Phrase, Thing, Phrase, Thing], bool] | None:
        both = pair(rng, scene)
        if both is None or both[0].size or both[2].size:
            return None
        return both, both[1].size == both[3].size

    made = wanted(rng, propose)
    if made is None:
        return None
    first, one, second, two = made
    templates = ("are the {p} and the {q} the same size?", "do the {p} and the {q} have the same size?")
    program = _both(ask_size(first), ask_size(second)) + YES.format(test="first == second")
    return item(rng, "same_size", templates, one.size == two.size, program, p=first.name, q=second.name)


def compare(rng: random.Random, scene: Scene) -> Item | None:
    """Are there more stars than circles?"""
    sign = rng.choice((">", ">", "<", "=="))

    def check(first: Phrase, second: Phrase) -> bool:
        return COMPARE[sign](first.count(scene), second.count(scene))

    def propose() -> tuple[tuple[Phrase, Phrase], bool] | None:
        found = _two(rng, scene)
        if found is None or found[0].count(scene) + found[1].count(scene) == 0:
            return None
        return found, check(*found)

    made = wanted(rng, propose)
    if made is None:
        return None
    first, second = made
    templates = {
        ">": (
            "are there more {ps} than {qs}?",
            "does the picture show more {ps} than {qs}?",
            "there are more {ps} than {qs}.",
            "do you see more {ps} than {qs}?",
            "is the number of {ps} greater than the number of {qs}?",
            "does the image contain more {ps} than {qs}?",
            "~can you see more {ps} than {qs}?",
        ),
        "<": (
            "are there fewer {ps} than {qs}?",
            "does the picture show fewer {ps} than {qs}?",
            "are there less {ps} than {qs}?",
        ),
        "==": (
            "are there as many {ps} as {qs}?",
            "is the number of {ps} equal to the number of {qs}?",
            "are there equally many {ps} and {qs}?",
            "does the picture show as many {ps} as {qs}?",
            "~is the number of {ps} the same as the number of {qs}?",
        ),
    }[sign]
    program = _both_counted(first, second) + YES.format(test=f"first {sign} second")
    return item(rng, "compare", templates, check(first, second), program, ps=first.many, qs=second.many)


def threshold(rng: random.Random, scene: Scene) -> Item | None:
    """Are there at least two stars?"""
    sign = rng.choice((">=", ">=", "==", ">", "<"))

    def propose() -> tuple[tuple[Phrase, int], bool] | None:
        what = Phrase() if rng.random() < 0.15 else phrase(rng, scene, size=0.03)
        limit = max(1, min(6, what.count(scene) + rng.randint(-1, 1)))
        limit = max(2, limit) if sign == "<" or rng.random() < 0.9 else limit
        return None if what.count(scene) == 0 else ((what, limit), COMPARE[sign](what.count(scene), limit))

    made = wanted(rng, propose)
    if made is None:
        return None
    what, limit = made
    templates = (
        "are there {s} {n} {ps}?",
        "does the picture show {s} {n} {ps}?",
        "there are {s} {n} {ps}.",
        "do you see {s} {n} {ps}?",
        "does the image contain {s} {n} {ps}?",
        "is it true that there are {s} {n} {ps}?",
        "~can you see {s} {n} {ps}?",
    )
    program = f'count = int(query(img, "{ask_count(what)}"))\n' + YES.format(test=f"count {sign} {limit}")
    shown = what.name if limit == 1 else what.many
    slots = {"s": WORDS[sign], "n": number(rng, limit), "ps": shown}
    return item(rng, "threshold", templates, COMPARE[sign](what.count(scene), limit), program, form="image", **slots)


def total(rng: random.Random, scene: Scene) -> Item | None:
    """How many stars and circles are there in total?"""
    found = _two(rng, scene)
    if found is None:
        return None
    first, second = found
    value = first.count(scene) + second.count(scene)
    if first.count(scene) == 0 or (second.count(scene) == 0 and rng.random() < 0.7):
        return None
    templates = (
        "how many {ps} and {qs} are there in total?",
        "how many {ps} and {qs} are there altogether?",
        "what is the total number of {ps} and {qs}?",
        "how many {ps} and {qs} are there?",
        "how many {ps} and {qs} does the picture show together?",
        "what is the sum of {ps} and {qs}?",
        "~counting {ps} and {qs} together, how many are there?",
    )
    program = _both_counted(first, second) + "answer = str(first + second)"
    return item(rng, "total", templates, str(value), program, ps=first.many, qs=second.many)
