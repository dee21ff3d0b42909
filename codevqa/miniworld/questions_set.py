"""Questions and statements about several pictures."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from .conditions import COMPARE, PLAIN, WORDS
from .quantifiers import PICTURES, quantified
from .questions import YES, Item, Phrase, SetFamily, ask_color, ask_count, item, number, phrase, unique, wanted
from .world import COLORS, HELD_OUT, Scene, Thing, sample_scene

SUM = 'total = 0\nfor img in images:\n    total += int(query(img, "{question}"))\n'


def sample_set(
    rng: random.Random,
    *,
    style: Literal["plain", "box"] | None = None,
    size: int | None = None,
    split: Literal["train", "test"] = "train",
) -> list[Scene]:
    """Draws scenes that have something to do with one another: later ones often show looks of earlier ones.

    Args:
        rng: Where the chance comes from.
        style: "plain" or "box"; None takes either. Sets of boxes are all towers or all scattered.
        size: How many; None takes one to five, or three boxes.
        split: As for ``sample_scene``.
    """
    style = style or rng.choice(("plain", "box"))
    count = size or (3 if style == "box" else rng.choice((1, 2, 2, 2, 3, 3, 4, 5)))
    towers = rng.random() < 0.5
    scenes: list[Scene] = []
    while len(scenes) < count:
        most = 8 if style == "plain" or rng.random() < 0.3 else 6
        scene = sample_scene(rng, style=style, max_things=most, split=split)
        if style == "box" and bool(scene.tower) != towers:
            continue
        looks = [(thing.color, thing.kind) for one in scenes for thing in one.things]
        if style == "plain" and looks:
            things = tuple(_again(rng, thing, looks, split) for thing in scene.things)
            scene = replace(scene, things=things)
        scenes.append(scene)
    return scenes


def _again(rng: random.Random, thing: Thing, looks: list[tuple[str, str]], split: str) -> Thing:
    if rng.random() < 0.5:
        return thing
    color, kind = rng.choice(looks)
    color = color if rng.random() < 0.6 else rng.choice(COLORS)
    if split == "train" and (color, kind) in HELD_OUT:
        return thing
    return replace(thing, color=color, kind=kind)


def _quantified(quantifier: str) -> SetFamily:
    def family(rng: random.Random, scenes: Sequence[Scene]) -> Item | None:
        statement = quantifier != "how_many" and rng.random() < 0.35
        nouns = rng.choice(PICTURES)
        return quantified(rng, scenes, PLAIN, nouns, statement=statement, quantifier=quantifier)

    return family


def _marked(rng: random.Random, scenes: Sequence[Scene]) -> tuple[Phrase, Scene] | None:
    """Picks one picture and a phrase that describes something in it and in no other."""
    if len(scenes) < 2:
        return None
    for _ in range(12):
        scene = rng.choice(scenes)
        thing = rng.choice(scene.things)
        what = Phrase(thing.kind, thing.color if rng.random() < 0.8 else None)
        if [one for one in scenes if what.count(one)] == [scene]:
            return what, scene
    return None


WITH = ("with {a}", "with {a}", "that contains {a}", "that shows {a}")


def find_color(rng: random.Random, scenes: Sequence[Scene]) -> Item | None:
    """What color is the star in the picture with a blue circle?"""
    marked = _marked(rng, scenes)
    if marked is None:
        return None
    mark, scene = marked
    found = unique(rng, scene, need_color=False)
    if found is None or mark.holds(found[1]):
        return None
    templates = (
        "what color is the {p} in the {one} {w}?",
        "what is the color of the {p} in the {one} {w}?",
        "in the {one} {w}, what color is the {p}?",
        "tell me the color of the {p} in the {one} {w}.",
        "what color does the {p} have in the {one} {w}?",
        "~which color is the {p} in the {one} {w}?",
    )
    program = f'img = find_matching_image(images, "{mark.name}")\nanswer = query(img, "{ask_color(found[0])}")'
    slots = {
        "p": found[0].name,
        "one": rng.choice(PICTURES).one,
        "w": rng.choice(WITH).format(a=mark.one),
    }
    return item(rng, "find_color", templates, found[1].color, program, form="set", **slots)


def find_count(rng: random.Random, scenes: Sequence[Scene]) -> Item | None:
    """How many stars are there in the picture with a blue circle?"""
    marked = _marked(rng, scenes)
    if marked is None:
        return None
    mark, scene = marked
    what = Phrase() if rng.random() < 0.25 else phrase(rng, scene, size=0.0)
    value = what.count(scene)
    if what.name == mark.name or (value == 0 and rng.random() < 0.8) or (value == 1 and rng.random() < 0.4):
        return None
    templates = (
        "how many {ps} are there in the {one} {w}?",
        "how many {ps} are in the {one} {w}?",
        "in the {one} {w}, how many {ps} are there?",
        "how many {ps} can you see in the {one} {w}?",
        "count the {ps} in the {one} {w}.",
        "how many {ps} does the {one} {w} show?",
        "~what is the number of {ps} in the {one} {w}?",
    )
    program = f'img = find_matching_image(images, "{mark.name}")\nanswer = query(img, "{ask_count(what)}")'
    slots = {"ps": what.many, "one": rng.choice(PICTURES).one, "w": rng.choice(WITH).format(a=mark.one)}
    return item(rng, "find_count", templates, str(value), program, form="set", **slots)


def find_exist(rng: random.Random, scenes: Sequence[Scene]) -> Item | None:
    """Is there a star in the picture with a blue circle?"""
    marked = _marked(rng, scenes)
    if marked is None:
        return None
    mark, scene = marked

    def propose() -> tuple[Phrase, bool] | None:
        what = phrase(rng, scene, size=0.0)
        trivial = what.name == mark.name or (what.kind, what.color) == (mark.kind, None)
        return None if trivial else (what, what.count(scene) > 0)

    what = wanted(rng, propose)
    if what is None:
        return None
    templates = (
        "is there {b} in the {one} {w}?",
        "does the {one} {w} contain {b}?",
        "in the {one} {w}, is there {b}?",
        "does the {one} {w} also show {b}?",
        "the {one} {w} contains {b}.",
        "~can you see {b} in the {one} {w}?",
    )
    program = f'img = find_matching_image(images, "{mark.name}")\nanswer = query(img, "Is there {what.one}?")'
    slots = {"b": what.one, "one": rng.choice(PICTURES).one, "w": rng.choice(WITH).format(a=mark.one)}
    return item(rng, "find_exist", templates, what.count(scene) > 0, program, form="set", **slots)


def total(rng: random.Random, scenes: Sequence[Scene]) -> Item | None:
    """How many red stars are there in all pictures together?"""
    what = Phrase() if rng.random() < 0.1 else phrase(rng, rng.choice(scenes), size=0.0)
    value = sum(what.count(scene) for scene in scenes)
    if (value < 2 and rng.random() < 0.7) or value > 20:
        return None
    templates = (
        "how many {ps} are there in all {many} together?",
        "how many {ps} are there in total?",
        "what is the total number of {ps}?",
        "how many {ps} are in the {many}?",
        "how many {ps} do the {many} show together?",
        "how many {ps} can you see in all {many}?",
        "count the {ps} in all {many}.",
        "how many {ps} are there across all {many}?",
        "~counting all {many}, how many {ps} are there?",
    )
    program = SUM.format(question=ask_count(what)) + "answer = str(total)"
    slots = {"ps": what.many, "many": rng.choice(PICTURES).many}
    return item(rng, "total_count", templates, str(value), program, form="set", **slots)


def total_threshold(rng: random.Random, scenes: Sequence[Scene]) -> Item | None:
    """There are at least four stars in total."""
    sign = rng.choice((">=", ">=", "==", ">", "<"))

    def propose() -> tuple[tuple[Phrase, int], bool] | None:
        what = phrase(rng, rng.choice(scenes), size=0.0)
        value = sum(what.count(scene) for scene in scenes)
        limit = max(2, min(10, value + rng.randint(-1, 1)))
        return None if value == 0 else ((what, limit), COMPARE[sign](value, limit))

    made = wanted(rng, propose)
    if made is None:
        return None
    what, limit = made
    value = sum(what.count(scene) for scene in scenes)
    templates = (
        "are there {s} {n} {ps} in total?",
        "there are {s} {n} {ps} in total.",
        "are there {s} {n} {ps} in the {many}?",
        "the {many} show {s} {n} {ps} in total.",
        "do the {many} show {s} {n} {ps} in total?",
        "together the {many} contain {s} {n} {ps}.",
        "~there are {s} {n} {ps} altogether.",
    )
    program = SUM.format(question=ask_count(what)) + YES.format(test=f"total {sign} {limit}")
    slots = {
        "s": WORDS[sign],
        "n": number(rng, limit),
        "ps": what.many,
        "many": rng.choice(PICTURES).many,
    }
    return item(rng, "total_threshold", templates, COMPARE[sign](value, limit), program, form="set", **slots)


def two_counts(rng: random.Random, scenes: Sequence[Scene]) -> Item | None:
    """Are there more stars in the first picture than in the second?"""
    if len(scenes) != 2:
        return None
    same = rng.random() < 0.35
    flip = rng.random() < 0.5
    one, other = (scenes[1], scenes[0]) if flip else (scenes[0], scenes[1])

    def check(what: Phrase) -> bool:
        return what.count(one) == what.count(other) if same else what.count(one) > what.count(other)

    def propose() -> tuple[Phrase, bool] | None:
        what = Phrase() if rng.random() < 0.15 else phrase(rng, rng.choice(scenes), size=0.0)
        return None if what.count(one) + what.count(other) == 0 else (what, check(what))

    what = wanted(rng, propose)
    if what is None:
        return None
    noun = rng.choice(PICTURES).one
    first, second = rng.choice((("first", "second"), ("left", "right")))
    if flip:
        first, second = second, first
    templates = (
        (
            "do both {one}s contain the same number of {ps}?",
            "do the two {one}s have the same number of {ps}?",
            "both {one}s show the same number of {ps}.",
            "is the number of {ps} the same in both {one}s?",
            "do both {one}s show as many {ps}?",
            "~are there equally many {ps} in both {one}s?",
        )
        if same
        else (
            "are there more {ps} in the {f} {one} than in the {g} {one}?",
            "does the {f} {one} contain more {ps} than the {g} {one}?",
            "there are more {ps} in the {f} {one} than in the {g} {one}.",
            "the {f} {one} has more {ps} than the {g} {one}.",
            "are more {ps} in the {f} {one} than in the {g} {one}?",
            "the {f} {one} contains more {ps} than the {g} one.",
            "is the number of {ps} in the {f} {one} greater than in the {g} {one}?",
            "~does the {f} {one} show more {ps} than the {g} {one}?",
        )
    )
    sign = "==" if same else "<" if flip else ">"
    asked = ask_count(what)
    program = f'first = int(query(images[0], "{asked}"))\nsecond = int(query(images[1], "{asked}"))\n'
    program += YES.format(test=f"first {sign} second")
    slots = {"ps": what.many, "one": noun, "f": first, "g": second}
    return item(rng, "two_counts", templates, check(what), program, form="set", **slots)


def one_of_two(rng: random.Random, scenes: Sequence[Scene]) -> Item | None:
    """Is there a star in the left picture?"""
    if len(scenes) < 2:
        return None
    place = rng.randrange(min(3, len(scenes)))
    names = ("first", "second", "third")
    word = rng.choice((names[place], ("left", "right")[place])) if len(scenes) == 2 else names[place]

    def propose() -> tuple[Phrase, bool]:
        what = phrase(rng, rng.choice(scenes), size=0.0)
        return what, what.count(scenes[place]) > 0

    what = wanted(rng, propose)
    if what is None:
        return None
    templates = (
        "is there {a} in the {f} {one}?",
        "does the {f} {one} contain {a}?",
        "the {f} {one} contains {a}.",
        "there is {a} in the {f} {one}.",
        "can you see {a} in the {f} {one}?",
        "does the {f} {one} show {a}?",
        "in the {f} {one}, is there {a}?",
        "the {f} {one} has {a}.",
        "~the {f} {one} shows {a}.",
    )
    program = f'answer = query(images[{place}], "Is there {what.one}?")'
    slots = {"a": what.one, "f": word, "one": rng.choice(PICTURES).one}
    return item(rng, "in_picture", templates, what.count(scenes[place]) > 0, program, form="set", **slots)


def two_colors(rng: random.Random, scenes: Sequence[Scene]) -> Item | None:
    """Is the star the same color in both pictures?"""
    if len(scenes) != 2:
        return None
    kinds = sorted(
        {thing.kind for thing in scenes[0].things if all(Phrase(thing.kind).count(scene) == 1 for scene in scenes)}
    )
    if not kinds:
        return None
    what = Phrase(rng.choice(kinds))
    truth = what.find(scenes[0])[0].color == what.find(scenes[1])[0].color
    if truth and rng.random() < 0.3:  # sets are drawn so that "yes" comes a little more often
        return None
    templates = (
        "is the {p} the same color in both {many}?",
        "does the {p} have the same color in both {many}?",
        "the {p} has the same color in both {many}.",
        "do both {many} show the {p} in the same color?",
        "do the {ps} in both {many} have the same color?",
        "are the {ps} in the two {many} the same color?",
        "~is the color of the {p} the same in both {many}?",
    )
    asked = ask_color(what)
    program = f'first = query(images[0], "{asked}")\nsecond = query(images[1], "{asked}")\n'
    program += YES.format(test="first == second")
    slots = {"p": what.name, "ps": what.many, "many": rng.choice(PICTURES).many}
    return item(rng, "two_colors", templates, truth, program, form="set", **slots)


def most(rng: random.Random, scenes: Sequence[Scene]) -> Item | None:
    """What is the largest number of stars in one picture?"""
    what = Phrase() if rng.random() < 0.2 else phrase(rng, rng.choice(scenes), size=0.0)
    values = [what.count(scene) for scene in scenes]
    if len(scenes) < 2 or max(values) == 0 or (max(values) == 1 and rng.random() < 0.6):
        return None
    top = rng.random() < 0.75
    templates = (
        ("what is the largest number of {ps} in one {one}?", "what is the highest number of {ps} in any {one}?")
        if top
        else ("what is the smallest number of {ps} in one {one}?", "what is the lowest number of {ps} in any {one}?")
    )
    program = f'counts = [int(query(img, "{ask_count(what)}")) for img in images]\n'
    program += f"answer = str({'max' if top else 'min'}(counts))"
    slots = {"ps": what.many, "one": rng.choice(PICTURES).one}
    value = max(values) if top else min(values)
    return item(rng, "most", templates, str(value), program, form="set", **slots)


def same_number(rng: random.Random, scenes: Sequence[Scene]) -> Item | None:
    """Do all pictures contain the same number of stars?"""
    if len(scenes) < 3:
        return None

    def propose() -> tuple[Phrase, bool] | None:
        what = Phrase() if rng.random() < 0.1 else phrase(rng, rng.choice(scenes), size=0.0)
        values = {what.count(scene) for scene in scenes}
        return None if values == {0} else (what, len(values) == 1)

    what = wanted(rng, propose)
    if what is None:
        return None
    templates = (
        "do all {many} contain the same number of {ps}?",
        "is the number of {ps} the same in all {many}?",
        "all {many} contain the same number of {ps}.",
    )
    program = f'counts = [int(query(img, "{ask_count(what)}")) for img in images]\n'
    program += YES.format(test="min(counts) == max(counts)")
    truth = len({what.count(scene) for scene in scenes}) == 1
    slots = {"ps": what.many, "many": rng.choice(PICTURES).many}
    return item(rng, "same_number", templates, truth, program, form="set", **slots)


FAMILIES: dict[str, tuple[float, SetFamily]] = {
    "count_pictures": (2.0, _quantified("how_many")),
    "all_pictures": (1.2, _quantified("all")),
    "any_picture": (1.2, _quantified("any")),
    "no_picture": (0.5, _quantified("none")),
    "at_least": (1.0, _quantified("at_least")),
    "exactly": (0.8, _quantified("exactly")),
    "find_color": (1.5, find_color),
    "find_count": (1.0, find_count),
    "find_exist": (1.0, find_exist),
    "total_count": (1.2, total),
    "total_threshold": (0.8, total_threshold),
    "two_counts": (1.5, two_counts),
    "in_picture": (1.0, one_of_two),
    "two_colors": (1.5, two_colors),
    "most": (0.5, most),
    "same_number": (0.4, same_number),
}
"""Weight and maker of each family."""
