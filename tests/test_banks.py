"""The banks of the package: a language model copies what it is shown, so every program must be sound on every path.

Each program runs in random worlds (:mod:`codevqa.writing.worlds`), where what it compares with can hold and can fail.
"""

import ast
import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from sandbox_kit import IMAGES

from codevqa.core.question_kind import question_kind
from codevqa.core.trace import Form
from codevqa.engine.answer_text import answer_text
from codevqa.primitives import CONSTANTS
from codevqa.primitives.detection import find_object
from codevqa.primitives.visual import KNOWLEDGE, VISUAL
from codevqa.prompts import Example, PromptSet, available, load
from codevqa.sandbox.sandbox import Sandbox
from codevqa.writing.prompt_forms import opening_line
from codevqa.writing.worlds import behaviours

KNOWN = VISUAL.extend([find_object, *KNOWLEDGE])
OPENERS = {"open_image", "open_images"}
GOLD = Path(__file__).parents[1] / "benchmarks" / "gold"
SEEDS = 40
"""Worlds are drawn anew so often for a program that has given one answer so far."""


async def check(example: Example, sandbox: Sandbox, pictures: int) -> None:
    """Runs a program; it must answer, with the kind that its question wants, and not always the same."""
    used = {node.id for node in ast.walk(ast.parse(example.program)) if isinstance(node, ast.Name)}
    assert used & {*KNOWN.names} <= {*sandbox.primitives.names} - OPENERS
    await sandbox.check(f"{opening_line(example.form, 1)}\n{example.program}")
    found: set[str | None] = set()
    for seed in range(SEEDS):
        (answers,) = await behaviours([example.program], sandbox, IMAGES[:pictures], answer_text, seed)
        found |= {*answers}
        if len(found) > 1:
            break
    wanted = question_kind(example.question)
    assert [one for one in found if one is None or not one.strip() or wanted.misfit(one)] == []
    assert len(found) > 1, f"answers {found} whatever the primitives return"


def sound(prompts: PromptSet, examples: Sequence[Example]) -> None:
    """Asserts that each program is sound, as if it were one of a bank."""

    async def checked() -> None:
        async with Sandbox(KNOWN.subset(prompts.primitives), workers=2) as sandbox:
            for example in examples:
                pictures = 1 if example.form == "image" else len(prompts.image_labels or ()) or 3
                try:
                    await check(example, sandbox, pictures)
                except Exception as error:
                    error.add_note(f"{example.id}: {example.question}\n{example.program}")
                    raise

    asyncio.run(checked())


@pytest.mark.parametrize("name", available())
def test_every_program_of_a_bank_is_sound(name: str) -> None:
    sound(load(name), load(name).examples)


@pytest.mark.parametrize("name", ["gqa", "covr"])
def test_gold_programs_are_sound_and_in_no_bank(name: str) -> None:
    rows = map(json.loads, (GOLD / f"{name}.jsonl").read_text().splitlines())
    prompts = load(name)
    gold = [Example(row["id"], row["question"], row["program"], prompts.form) for row in rows]
    assert {one.question.lower() for one in gold}.isdisjoint(one.question.lower() for one in prompts.examples)
    sound(prompts, gold)


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
