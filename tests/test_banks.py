"""The banks of the package: a language model copies what it is shown, so every program must be sound on every path.

Each program is run many times in CPython against invented answers of its primitives. These are texts that refuse to be
used as truth values, or to be compared with something that they can never be.
"""

from __future__ import annotations

import ast
import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from codevqa.core.question_kind import question_kind
from codevqa.core.trace import Form
from codevqa.primitives import CONSTANTS
from codevqa.primitives.visual import KNOWLEDGE, VISUAL, find_object
from codevqa.prompts import Example, PromptSet, available, load
from codevqa.sandbox.sandbox import Sandbox
from codevqa.writing.prompt_forms import opening_line

KNOWN = VISUAL.extend([find_object, *KNOWLEDGE])
OPENERS = {"open_image", "open_images"}
RUNS, MORE = 32, 2000
"""Runs of a program, and those of one that has given the same answer so far."""


class Text(str):
    """What a model answers a question."""

    __slots__ = ("yes_no",)
    yes_no: bool

    def __bool__(self) -> bool:
        raise AssertionError(f'{self!r} is used as a truth value, and "no" counts as true')

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, str), f"{self!r} is a text and never equals {other!r}"
        if isinstance(other, Text):
            return str.__eq__(self, other)
        assert other and str(other) == other.strip().lower(), f"answers are lower case and never equal {other!r}"
        assert not self.yes_no or other in ("yes", "no"), f"{self!r} is yes or no and never equals {other!r}"
        return str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


def text(value: str, yes_no: bool = False) -> Text:
    made = Text(value)
    made.yes_no = yes_no
    return made


def compared(source: str) -> list[str]:
    """Returns the words and numbers that a program compares with: its branches turn on them."""
    found = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Compare)]
    values = [node.value for one in found for node in ast.walk(one) if isinstance(node, ast.Constant)]
    return [str(value) for value in values if value not in ("", "yes", "no")]


def invented(words: Sequence[str], seed: int) -> dict[str, Callable[..., Any]]:
    """Returns primitives that answer at random, equal calls alike; also with these words."""
    dice = random.Random(seed)
    numbers = [word for word in words if word.isdigit()]
    nos, noughts = ["no"] * (1 + seed % 3 * 5), ["0"] * (1 + seed // 3 % 3 * 5)  # sums come out small, too
    kept: dict[object, Any] = {}

    def reply(question: str) -> Text:
        wanted = question_kind(question)
        if wanted.kind == "yes_no":
            return text(dice.choice(["yes", *nos]), yes_no=True)
        if wanted.kind == "number":
            above = [str(int(number) + 1) for number in numbers]
            return text(dice.choice(["1", "2", *noughts, *numbers, *above]))
        return text(dice.choice([*(wanted.choices or ("table", "dog")), *(word for word in words if word.islower())]))

    def place() -> tuple[float, float]:
        return dice.choice((4.5, 19.5)), dice.choice((4.5, 19.5))

    def boxes() -> list[tuple[float, float, float, float]]:
        return [(*place(), *place()) for _ in range(dice.choice((0, 1, 2)))]

    def once(answer: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *asked: kept.setdefault(repr(asked), answer(*asked))

    return {
        "query": once(lambda _, question: reply(question)),
        "visual_query": once(lambda _, question: reply(question)),
        "knowledge_query": once(reply),
        "get_pos": once(lambda *_: place()),
        "find_matching_image": once(lambda images, _: dice.choice(images)),
        "find_object": once(lambda *_: boxes()),
    }


def answers(example: Example, prompts: PromptSet) -> set[str]:
    """Returns what a program answers, run after run."""
    code, words, found = compile(example.program, example.id, "exec"), compared(example.program), set[str]()
    seed = 0
    while seed < RUNS or (len(found) == 1 and seed < MORE):
        pictures = [f"image {n}" for n in range(len(prompts.image_labels or ()) or 2 + seed % 4)]
        given = {"images": pictures} if example.form == "set" else {"img": pictures[0]}
        offered = {name: one for name, one in invented(words, seed).items() if name in prompts.primitives}
        space: dict[str, Any] = {**CONSTANTS, **offered, **given}
        exec(code, space)
        value = space["answer"]
        assert isinstance(value, str | int), f"{value!r} is no answer"
        found.add(("no", "yes")[value] if isinstance(value, bool) else str(value))
        seed += 1
    return found


def check(example: Example, prompts: PromptSet) -> None:
    """Runs a program; it must answer, with the kind that its question wants, and not always the same."""
    used = {node.id for node in ast.walk(ast.parse(example.program)) if isinstance(node, ast.Name)}
    assert used & {*KNOWN.names} <= {*prompts.primitives} - OPENERS
    found = answers(example, prompts)
    wanted = question_kind(example.question)
    assert [said for one in found if (said := wanted.misfit(one) or not one.strip())] == []
    assert len(found) > 1, f"answers {found} whatever the primitives return"


@pytest.mark.parametrize("name", available())
def test_every_program_of_a_bank_is_sound(name: str) -> None:
    prompts = load(name)
    for example in prompts.examples:
        try:
            check(example, prompts)
        except Exception as error:
            error.add_note(f"{example.id}: {example.question}\n{example.program}")
            raise

    async def checked() -> None:
        sandbox = Sandbox(KNOWN.subset(prompts.primitives), workers=2)
        try:
            for example in prompts.examples:
                await sandbox.check(f"{opening_line(example.form, 1)}\n{example.program}")
        finally:
            await sandbox.aclose()

    asyncio.run(checked())


@pytest.mark.parametrize("name", available())
def test_a_bank_is_whole(name: str) -> None:
    prompts = load(name)
    assert len(prompts.examples) >= prompts.shots and len(prompts.reading) >= prompts.reading_shots
    for asked in (prompts.examples, prompts.reading):
        assert [id for id, count in Counter(one.id for one in asked).items() if count > 1] == []
    assert len({one.question.lower() for one in prompts.examples}) == len(prompts.examples)
    assert {*prompts.primitives} <= {*KNOWN.names}
    forms: set[Form] = {"image", "set"} if name == "mini" else {prompts.form}
    assert {one.form for one in prompts.examples} <= forms
    assert all(len(captions) <= prompts.captions for one in prompts.reading for captions in one.by_image)
    asking = {one.id for one in prompts.examples if "knowledge_query(" in one.program}
    assert {one.id for one in prompts.knowledge} == asking
    if "get_pos" in prompts.primitives:
        given: dict[str, Any] = {}
        exec(prompts.preamble.replace("{api}", ""), given)
        assert CONSTANTS.items() <= given.items()
