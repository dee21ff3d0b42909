"""Kinds of questions, and the banks: a language model copies what it is shown, so each program is sound on every path.

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

from codevqa.core.answer_words import number_in, truth, whole_number, yes_or_no
from codevqa.core.question_kind import is_statement, question_kind
from codevqa.core.trace import Form
from codevqa.engine.answers import answer_text
from codevqa.primitives import CONSTANTS
from codevqa.primitives.detection import find_object
from codevqa.primitives.visual import KNOWLEDGE, VISUAL
from codevqa.prompts import ProgramExample, PromptSet, load_prompt_set, prompt_set_names
from codevqa.sandbox.sandbox import Sandbox
from codevqa.writing.choice import try_out
from codevqa.writing.prompt_forms import opening_line

KNOWN = VISUAL.extend([find_object, *KNOWLEDGE])
OPENERS = {"open_image", "open_images"}
GOLD = Path(__file__).parents[1] / "benchmarks" / "gold"
SEEDS = 40
"""Worlds are drawn anew so often for a program that has given one answer so far."""


async def check(example: ProgramExample, sandbox: Sandbox, pictures: int) -> None:
    """Runs a program; it must answer, with the kind that its question wants, and not always the same."""
    used = {node.id for node in ast.walk(ast.parse(example.program)) if isinstance(node, ast.Name)}
    assert used & {*KNOWN.names} <= {*sandbox.primitives.names} - OPENERS
    await sandbox.check(f"{opening_line(example.form, 1)}\n{example.program}")
    answers: set[str | None] = set()
    for seed in range(SEEDS):
        trial, _ = await try_out([example.program, ""], sandbox, IMAGES[:pictures], answer_text, seed)
        answers |= {*trial.behaviour}
        if len(answers) > 1:
            break
    wanted = question_kind(example.question)
    assert [answer for answer in answers if answer is None or not answer.strip() or wanted.misfit(answer)] == []
    assert len(answers) > 1, f"answers {answers} whatever the primitives return"


def sound(prompts: PromptSet, examples: Sequence[ProgramExample]) -> None:
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


@pytest.mark.parametrize("name", prompt_set_names())
def test_every_program_of_a_bank_is_sound(name: str) -> None:
    sound(load_prompt_set(name), load_prompt_set(name).examples)


@pytest.mark.parametrize("name", ["gqa", "covr"])
def test_gold_programs_are_sound_and_in_no_bank(name: str) -> None:
    rows = map(json.loads, (GOLD / f"{name}.jsonl").read_text().splitlines())
    prompts = load_prompt_set(name)
    gold = [ProgramExample(row["id"], row["question"], row["program"], prompts.form) for row in rows]
    assert {example.question.lower() for example in gold}.isdisjoint(
        example.question.lower() for example in prompts.examples
    )
    sound(prompts, gold)


@pytest.mark.parametrize("name", prompt_set_names())
def test_a_bank_is_whole(name: str) -> None:
    prompts = load_prompt_set(name)
    assert len(prompts.examples) >= prompts.shots and len(prompts.reading) >= prompts.reading_shots
    for asked in (prompts.examples, prompts.reading):
        assert [id for id, count in Counter(example.id for example in asked).items() if count > 1] == []
    assert len({example.question.lower() for example in prompts.examples}) == len(prompts.examples)
    assert {*prompts.primitives} <= {*KNOWN.names}
    forms: set[Form] = {"image", "set"} if name == "mini" else {prompts.form}
    assert {example.form for example in prompts.examples} <= forms
    assert all(len(captions) <= prompts.captions for example in prompts.reading for captions in example.by_image)
    asking = {example.id for example in prompts.examples if "knowledge_query(" in example.program}
    assert {example.id for example in prompts.knowledge} == asking
    if "get_pos" in prompts.primitives:
        namespace: dict[str, Any] = {}
        exec(prompts.preamble.replace("{api}", ""), namespace)
        assert CONSTANTS.items() <= namespace.items()


KINDS = {
    "Is there a red cup?": ("yes_no", ()),
    "Would you say it is sunny or cloudy?": ("choice", ("sunny", "cloudy")),
    "Is it a cat, a dog, a bird or a fish?": ("choice", ("cat", "dog", "bird", "fish")),
    "Are there more men or women?": ("choice", ("men", "women")),
    "Does it show day or night?": ("choice", ("day", "night")),
    "Is there any sugar or salt?": ("yes_no", ()),
    "Number of cups?": ("number", ()),
    "What is the phone number?": ("open", ()),
    "Can you tell me what color it is?": ("open", ()),
    "Please tell me the color": ("open", ()),
    "Read the sign.": ("open", ()),
    "whats the color": ("open", ()),
    "房子是什么颜色？": ("open", ()),
    "In both images, there is a dog.": ("open", ()),
    "Does the picture contain a lamp or a boat?": ("yes_no", ()),
    "How many cups are there?": ("number", ()),
    "Is the door open or closed?": ("choice", ("open", "closed")),
    "Is the clock small, medium or large?": ("choice", ("small", "medium", "large")),
    "Is the chair to the left or to the right of the girl in a hat?": ("choice", ("left", "right")),
    "Which is higher, the ball or the red cup?": ("choice", ("ball", "red cup")),
    "Is the man holding a bat or swinging it?": ("choice", ()),
    "What is on the table?": ("open", ()),
}


def test_the_kind_is_read_off_the_first_words() -> None:
    kinds = {question: question_kind(question) for question in KINDS}
    assert {question: (kind.kind, kind.choices) for question, kind in kinds.items()} == KINDS


@pytest.mark.parametrize("name", ["gqa", "covr", "nlvr2", "nlvr", "mini"])
def test_every_reading_example_has_an_answer_of_its_kind(name: str) -> None:
    stated, reading = load_prompt_set(name).statements, load_prompt_set(name).reading
    kinds = [(question_kind(example.question, statements=stated), example) for example in reading]
    wrong = [(example.question, example.answer) for kind, example in kinds if kind.misfit(example.answer)]
    assert wrong == []


@pytest.mark.parametrize(
    ("question", "answer"), [("Is it red?", "left"), ("Is it red?", "0"), ("How many?", "yes"), ("How many?", "a lot")]
)
def test_an_answer_of_another_kind_is_told(question: str, answer: str) -> None:
    assert "the question wants" in question_kind(question).misfit(answer)
    assert question_kind("What is it?").misfit(answer) == question_kind("Is it red or blue?").misfit(answer) == ""


def test_a_number_is_found_in_words() -> None:
    numbers = {"four blocks": 4, "there are 2 cups": 2, "no cups": 0}
    numbers |= dict.fromkeys(("a lot", "2 or 3", "1.5", ""))  # type: ignore[arg-type]
    assert {text: number_in(text) for text in numbers} == numbers
    assert question_kind("How many?").fit("-2,000") == "-2,000", "a number that a program counted stays as it is"


def test_yes_and_no_are_read_wherever_they_are_plainly_said() -> None:
    answers = {"No, there is none.": "no", " Yes": "yes", "FALSE": "no", "not at all": "", "nothing": "", "no one": ""}
    answers |= {"So the answer is **no**.": "no", "Certainly, yes!": "yes", "yes and no": "", "There is a cat.": ""}
    answers |= {"It is not true.": "", "The sign says no": "", "Yes or no?": "", '{"answer": "yes"}': "yes"}
    assert {text: yes_or_no(text) for text in answers} == answers
    assert [truth(text) for text in ("Yes.", "True", "no", "yes, it is")] == ["yes", "yes", "no", ""]


def test_a_statement_is_claimed_only_where_data_has_them_and_english_is_plain() -> None:
    plain = ("In both images, there is a dog.", "Two towers touch the edge", "People are standing near a train.")
    other = ("Read the sign.", "whats the color", "Gibt es ein Haus", "house color", "Is it red?", "房子是红色的。")
    assert [text for text in plain if not is_statement(text)] == [text for text in other if is_statement(text)] == []
    assert question_kind(plain[0], statements=True).kind == "yes_no"
    assert question_kind(other[0], statements=True).kind == "open"


def test_a_whole_number_is_all_of_a_text() -> None:
    numbers = {"two hundred and six": 206, "twenty-one": 21, "1,000": 1000, "none": 0, "2.0": 2, "-5": -5}
    numbers |= dict.fromkeys(
        ("half a dozen", "3rd", "B7", "20%", "not two", "2, 2", "two cats", "hundred two", "two three")
    )  # type: ignore[arg-type]
    assert {text: whole_number(text) for text in numbers} == numbers


def test_a_choice_is_put_as_the_question_names_it() -> None:
    kind = question_kind("Which is higher, the red hammer or the blue hammer?")
    assert kind.fit("The red hammer.") == "red hammer"
    side = question_kind("Is it on the top or the bottom side of the picture?")
    assert [side.fit(text) for text in ("Bottom side", "on the bottom", "bottom")] == ["bottom"] * 3
    assert [kind.fit(text) for text in ("red", "not red hammer")] == ["red", "not red hammer"], "nothing is invented"
