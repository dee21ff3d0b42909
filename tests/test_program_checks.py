"""Programs held against their questions before any model is asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from codevqa.core.errors import ProgramAnswerError, SetupError
from codevqa.core.settings import WriterSettings
from codevqa.models.fakes import ScriptedLM
from codevqa.prompts import load
from codevqa.writing.program_checks import RULES, check_program
from codevqa.writing.writer import Writer

REAL = Path(__file__).resolve().parents[2] / "shared" / "real-lm" / "questions.json"

BROKEN = {
    "picture": (
        'img = open_image("Image1.jpg")\nanswer = query(img, "Is there a cup?")',
        "is the picture of an example",
    ),
    "subject": ('answer = query(img, "Is the umbrella open?")', "about none of the things in the question"),
    "primitive": (
        'def query(img, question):\n    pass\n\nanswer = query(img, "Is there a red cup on the table?")',
        "query is there already",
    ),
    "kind": ('answer = "left" if query(img, "Is there a red cup on it?") == "yes" else "right"', "not 'left'"),
    "path": ('if query(img, "Is there a red cup on it?") == "yes":\n    answer = "yes"', "not set on every path"),
    "attribute": ('answer = query(img, "Is there a cup?")', 'says "red" and the program never does'),
    "truth": ('x = query(img, "Is there a red cup?")\nanswer = "yes" if x else "no"', '"no" counts as true'),
    "asked": (
        'color = query(img, "What color is the cup?")\nanswer = query(img, f"What else on the table is {color}?")',
        "asks for a color",
    ),
    "side": (
        'answer = "no"\nfor img in images:\n    if query(img, "Is there a red cup?") == "yes":\n        answer = "yes"',
        "about the left image, which is images[0]",
    ),
}
QUESTION = "Is there a red cup on the table?"
OF_A_SIDE = "Is there a red cup in the left image?"
OF_A_COLOR = "What color is the cup on the table?"
FINE = 'img = open_image("Image13.jpg")\nanswer = query(img, "Is there a red cup on the table?")'


def test_all_rules_are_on_and_one_that_is_none_is_refused() -> None:
    assert WriterSettings().rules == RULES
    with pytest.raises(SetupError, match="No rule 'paths'"):
        Writer(ScriptedLM(""), load("gqa"), settings=WriterSettings(rules=("path", "paths")))


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_finds_its_fault_and_nothing_else_does(rule: str) -> None:
    source, message = BROKEN[rule]
    question = {"side": OF_A_SIDE, "asked": OF_A_COLOR}.get(rule, QUESTION)
    with pytest.raises(ProgramAnswerError, match="line") as caught:
        check_program(source, question, 13, rules=(rule,))
    assert message in str(caught.value)
    check_program(source, question, 13, rules=())
    check_program(FINE, QUESTION, 13)


@pytest.mark.parametrize(
    "source",
    [
        'answer = query(images[0], "Is there a red cup?")',
        'left, right = images\nanswer = query(left, "Is there a red cup?")',
        'for i, img in enumerate(images):\n    if i == 0:\n        answer = query(img, "Is there a red cup?")',
    ],
)
def test_one_of_two_pictures_is_found_in_several_ways(source: str) -> None:
    check_program(source, OF_A_SIDE, 13, rules=("side",))


@pytest.mark.parametrize(
    ("question", "source"),
    [
        (OF_A_COLOR, 'answer = query(img, "What is the colour of the cup?")'),
        (OF_A_COLOR, 'color = query(img, "What color is the cup?")\nanswer = color'),
        ("Which color is the cup, red or blue?", 'answer = query(img, "Is the cup red or blue?")'),
        ("What is the cup on the table made of?", 'answer = query(img, "What material is the cup?")'),
    ],
)
def test_what_is_asked_for_may_be_found_in_several_ways(question: str, source: str) -> None:
    check_program(source, question, 13, rules=("asked",))


@pytest.mark.parametrize(
    "source",
    [
        f'img = open_image("Image{"9" * 6000}.jpg")\nanswer = query(img, "red cup")',
        "answer = " + "1 if x else " * 900 + "2",
        "\n".join(f"a{n} = a{n + 1}" for n in range(600)) + '\na600 = query(img, "red cup")\nanswer = a0',
        "x = query(img, 'red cup')\n" + "y = x == 'a'\n" * 600 + "answer = 'yes'",
        "answer = 'x'\n" * 20_000,
    ],
    ids=["digits", "nested", "chain", "comparisons", "long"],
)
def test_a_hostile_program_ends_in_an_error_of_ours_or_in_none(source: str) -> None:
    try:
        check_program(source, "Is there a red cup?", 13)
    except ProgramAnswerError as error:
        assert error.line is not None


@pytest.mark.parametrize(
    "source",
    [
        'answer = "no"\nfor x in []:\n    answer = "yes"  # red cup',
        'try:\n    answer = query(img, "a red cup?")\nexcept ValueError:\n    answer = "no"',
        'if query(img, "Is there a red cup?") == "yes":\n    answer = "yes"\nelse:\n    answer = "no"',
        "answer = (",
    ],
)
def test_an_answer_on_every_path_is_seen(source: str) -> None:
    check_program(source, "Is there a red cup?", 13, rules=("path",))


@pytest.mark.parametrize(
    "source",
    [
        'if query(img, "a red cup?") == "yes":\n    x = 1\nelse:\n    answer = "no"',
        'if query(img, "a red cup?") == "yes":\n    answer = "yes"\nelse:\n    x = 1',
        'for x in [1]:\n    answer = query(img, "a red cup?")',
        'try:\n    answer = query(img, "a red cup?")\nexcept ValueError:\n    pass',
    ],
)
def test_a_path_without_an_answer_is_seen(source: str) -> None:
    with pytest.raises(ProgramAnswerError, match="not set on every path"):
        check_program(source, "Is there a red cup?", 13, rules=("path",))


@pytest.mark.parametrize(
    ("question", "wrong", "rule"),
    [
        ("Are there five objects in the grey box?", "Are there five birds in the grey box?", "subject"),
        ("Are there five cups in the grey box?", "Are there five grey cups in the box?", "attribute"),
    ],
)
def test_things_of_any_kind_and_boxes_that_are_the_picture_itself_are_asked_about_in_other_words(
    question: str, wrong: str, rule: str
) -> None:
    program = 'n = int(query(img, "How many cups are there?"))\nanswer = "yes" if n == 5 else "no"'
    check_program(program, question, 1, rules=(rule,))
    with pytest.raises(ProgramAnswerError):
        check_program(program, wrong, 1, rules=(rule,))


@pytest.mark.parametrize("name", ["gqa", "covr", "nlvr2", "nlvr", "mini"])
def test_no_program_of_the_banks_is_refused(name: str) -> None:
    for example in load(name).examples:
        check_program(example.program, example.question, 1)


@pytest.mark.skipif(not REAL.is_file(), reason=f"the annotators' programs are not here: {REAL}")
def test_of_seventy_five_programs_by_people_only_the_one_with_a_slip_is_refused() -> None:
    refused = []
    for row in json.loads(REAL.read_text()):
        try:
            check_program(row["program"], row["question"], 1)
        except ProgramAnswerError as error:
            refused.append(str(error))
    assert len(refused) == 1 and '"no" counts as true' in refused[0]
