"""How many pictures of a set fulfil a condition: questions and statements, with the counting program."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .conditions import COMPARE, WORDS, Condition, Maker, sample_condition
from .questions import Item, article, item, number, wanted
from .world import Scene


@dataclass(frozen=True)
class Nouns:
    """What a picture of the set is called."""

    one: str
    many: str
    verbs: tuple[tuple[str, str], ...]
    """Singular and plural of the verbs that go before a condition."""


PICTURES = (
    Nouns("picture", "pictures", (("contains", "contain"), ("has", "have"), ("shows", "show"))),
    Nouns("image", "images", (("contains", "contain"), ("shows", "show"), ("has", "have"))),
)
BOXES = (Nouns("box", "boxes", (("contains", "contain"), ("has", "have"), ("holds", "hold"))),)
TOWERS = (Nouns("tower", "towers", (("has", "have"), ("has", "have"), ("contains", "contain"))),)


def _loop(condition: Condition, last: str) -> str:
    lines = ["count = 0", "for img in images:"]
    lines += [f"    {line}" for line in condition.setup.split("\n") if line]
    lines += [f"    if {condition.test}:", "        count += 1", last]
    return "\n".join(lines)


QUESTIONS: dict[str, tuple[str, ...]] = {
    "any": (
        "is there {aone} with {c}?",
        "does any {one} {have} {c}?",
        "does any of the {many} {have} {c}?",
        "is there at least one {one} with {c}?",
        "does at least one {one} {have} {c}?",
        "is there any {one} with {c}?",
        "~do any of the {many} {have} {c}?",
    ),
    "all": (
        "do all {many} {have} {c}?",
        "does every {one} {have} {c}?",
        "does each {one} {have} {c}?",
        "do all of the {many} {have} {c}?",
        "is there {c} in all {many}?",
        "is there {c} in every {one}?",
        "~does each of the {many} {have} {c}?",
    ),
    "at_most": (
        "{dok} at most {k} {manyk} {have} {c}?",
        "{bek} there at most {k} {manyk} with {c}?",
    ),
    "not_all": ("are there {many} without {c}?", "is there {aone} without {c}?"),
    "none": ("do none of the {many} {have} {c}?", "is there no {one} with {c}?", "does no {one} {have} {c}?"),
    "at_least": (
        "do at least {k} {manyk} {have} {c}?",
        "are there at least {k} {manyk} with {c}?",
        "is there {c} in at least {k} {manyk}?",
        "are there {k} or more {many} with {c}?",
        "~do at least {k} of the {many} {have} {c}?",
    ),
    "exactly": (
        "{dok} exactly {k} {manyk} {have} {c}?",
        "{bek} there exactly {k} {manyk} with {c}?",
        "is there {c} in exactly {k} {manyk}?",
        "~do exactly {k} of the {many} {have} {c}?",
    ),
    "how_many": (
        "how many {many} {have} {c}?",
        "how many {many} are there with {c}?",
        "how many of the {many} {have} {c}?",
        "what is the number of {many} with {c}?",
        "in how many of the {many} is there {c}?",
        "count the {many} with {c}.",
        "how many {many} with {c} are there?",
        "how many {many} are there that {have} {c}?",
        "~in how many {many} is there {c}?",
    ),
}
STATEMENTS: dict[str, tuple[str, ...]] = {
    "any": (
        "there is {aone} with {c}.",
        "there is at least one {one} with {c}.",
        "at least one {one} {has} {c}.",
        "one of the {many} {has} {c}.",
        "there is {aone} that {has} {c}.",
        "some {one} {has} {c}.",
        "{c} is in one of the {many}.",
        "there is {aone} which {has} {c}.",
        "at least one of the {many} {has} {c}.",
        "you can find {aone} with {c}.",
        "{aone} {has} {c}.",
        "there exists {aone} with {c}.",
        "one {one} {has} {c}.",
        "in one of the {many} there is {c}.",
        "there is {aone} having {c}.",
        "~there is one {one} which {has} {c}.",
    ),
    "all": (
        "all {many} {have} {c}.",
        "every {one} {has} {c}.",
        "each {one} {has} {c}.",
        "all of the {many} {have} {c}.",
        "there is {c} in every {one}.",
        "there is {c} in all {many}.",
        "each of the {many} {has} {c}.",
        "every one of the {many} {has} {c}.",
        "in each {one} there is {c}.",
        "the {many} all {have} {c}.",
        "every single {one} {has} {c}.",
        "~there is {c} in each {one}.",
    ),
    "at_most": (
        "at most {k} {manyk} {havek} {c}.",
        "there {bek} at most {k} {manyk} with {c}.",
        "no more than {k} {manyk} {havek} {c}.",
    ),
    "not_all": ("not all {many} {have} {c}.", "not every {one} {has} {c}.", "{aone} does not {have} {c}."),
    "none": (
        "no {one} {has} {c}.",
        "none of the {many} {have} {c}.",
        "there is no {one} with {c}.",
        "there are no {many} with {c}.",
        "not a single {one} {has} {c}.",
    ),
    "at_least": (
        "at least {k} {manyk} {havek} {c}.",
        "there are at least {k} {manyk} with {c}.",
        "there is {c} in at least {k} {manyk}.",
        "there are {k} or more {many} with {c}.",
        "{k} or more {many} {have} {c}.",
        "~at least {k} of the {many} {havek} {c}.",
    ),
    "exactly": (
        "exactly {k} {manyk} {havek} {c}.",
        "only {k} {manyk} {havek} {c}.",
        "there {bek} exactly {k} {manyk} with {c}.",
        "there {bek} {k} {manyk} with {c}.",
        "exactly {k} of the {many} {havek} {c}.",
        "there is {c} in exactly {k} {manyk}.",
        "~there {bek} only {k} {manyk} with {c}.",
    ),
}
WEIGHTS = {
    "any": 3.0,
    "all": 2.0,
    "none": 0.6,
    "at_least": 1.2,
    "exactly": 1.5,
    "how_many": 2.0,
    "at_most": 0.4,
    "not_all": 0.4,
}


def quantified(
    rng: random.Random,
    scenes: Sequence[Scene],
    pool: Sequence[tuple[float, Maker]],
    nouns: Nouns,
    *,
    statement: bool,
    quantifier: str | None = None,
    name: str | None = None,
) -> Item | None:
    """Joins a quantifier with a condition.

    Args:
        rng: Where the chance comes from.
        scenes: The set.
        pool: Makers of conditions, with weights.
        nouns: What the pictures are called.
        statement: A statement to judge, or a question.
        quantifier: One of ``QUESTIONS``; None takes any.
        name: Family name; None takes the quantifier's.
    """
    forms = STATEMENTS if statement else QUESTIONS
    chosen = quantifier or rng.choices(list(forms), [WEIGHTS[one] for one in forms])[0]
    limit = rng.randint(1 if chosen in ("exactly", "at_most") else 2, max(2, min(4, len(scenes))))
    last, check = _ending(chosen, limit, len(scenes))

    def draw() -> tuple[Condition, int] | None:
        condition = sample_condition(rng, pool, rng.choice(scenes))
        if condition is None:
            return None
        if chosen in ("none", "not_all") and condition.after_with.startswith("no "):
            return None
        return condition, sum(condition.truth(scene) for scene in scenes)

    made: tuple[Condition, int] | None
    if chosen == "how_many":
        value = rng.randint(0, len(scenes))
        made = next((one for one in (draw() for _ in range(20)) if one and one[1] == value), None)
    else:
        made = wanted(rng, lambda: None if (one := draw()) is None else (one, check(one[1])))
    if made is None:
        return None
    condition, value = made
    has, have = rng.choice(nouns.verbs)
    slots = {
        "one": nouns.one,
        "aone": f"{article(nouns.one)} {nouns.one}",
        "many": nouns.many,
        "manyk": nouns.one if limit == 1 else nouns.many,
        "has": has,
        "have": have,
        "havek": has if limit == 1 else have,
        "bek": "is" if limit == 1 else "are",
        "dok": "does" if limit == 1 else "do",
        "k": number(rng, limit),
        "c": condition.after_with,
    }
    truth: str | bool = str(value) if chosen == "how_many" else check(value)
    made_item = item(rng, name or chosen, forms[chosen], truth, _loop(condition, last), form="set", **slots)
    fix = " ".join(made_item.question.split())
    return Item(
        fix[:1].upper() + fix[1:], made_item.answer, made_item.program, made_item.type, "set", made_item.wording
    )


def _ending(chosen: str, limit: int, size: int) -> tuple[str, Callable[[int], bool]]:
    yes = 'answer = "yes" if {} else "no"'
    endings: dict[str, tuple[str, Callable[[int], bool]]] = {
        "any": (yes.format("count >= 1"), lambda value: value >= 1),
        "all": (yes.format("count == len(images)"), lambda value: value == size),
        "none": (yes.format("count == 0"), lambda value: value == 0),
        "not_all": (yes.format("count < len(images)"), lambda value: value < size),
        "at_most": (yes.format(f"count <= {limit}"), lambda value: value <= limit),
        "at_least": (yes.format(f"count >= {limit}"), lambda value: value >= limit),
        "exactly": (yes.format(f"count == {limit}"), lambda value: value == limit),
        "how_many": ("answer = str(count)", lambda value: True),
    }
    return endings[chosen]


__all__ = ["BOXES", "COMPARE", "PICTURES", "TOWERS", "WORDS", "Nouns", "quantified"]
