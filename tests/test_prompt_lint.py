"""The linter that guards the prompt banks: it finds what was planted, and nothing in a sound set."""

from __future__ import annotations

import ast
import asyncio
import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest
from prompt_kit import gqa_in

from codevqa.primitives import Image, PrimitiveSet, primitive
from codevqa.primitives.visual import VISUAL
from codevqa.prompts import Example, ReadingExample, available, load
from codevqa.writing.lint import Finding, lint, main
from codevqa.writing.lint_outcomes import Outcomes, blank_images, explore, is_yes_no
from codevqa.writing.lint_rules import faults


@pytest.mark.slow
@pytest.mark.parametrize("name", available())
def test_every_set_is_clean(name: str) -> None:
    assert [str(finding) for finding in lint(load(name))] == []


def planted(*programs: str | tuple[str, str], form: str = "image", **changes: object) -> list[Finding]:
    """Lints a set that holds these programs, or (question, program) pairs, and nothing else to find."""
    pairs = [item if isinstance(item, tuple) else (f"What is it, {n}?", item) for n, item in enumerate(programs)]
    examples = [Example(f"x-{n}", question, program, form) for n, (question, program) in enumerate(pairs)]  # type: ignore[arg-type]
    base = load("gqa" if form == "image" else "covr")
    settings = {"shots": 0, "reading_shots": 0, **changes}
    return lint(dataclasses.replace(base.with_bank(examples, []), **settings))  # type: ignore[arg-type]


FINE = 'cat = query(img, "Is there a cat?")\nanswer = "yes" if cat == "yes" else "no"'


def test_a_sound_program_has_no_findings() -> None:
    assert planted(("Is there a cat?", FINE)) == []


@pytest.mark.parametrize(
    ("program", "rule", "line"),
    [
        ('answer = query(img, "Is it?"', "syntax", 1),
        ('x = 1\nanswer = ask(img, "Is it?")', "check", 2),
        ("x = 1\nanswer = query(img)", "check", 2),
        ('x = 1\nimg = find_matching_image([img], "dog")\nanswer = query(img, "What is it?")', "primitive", 2),
        ('x = 1\nif query(img, "Is it?"):\n    answer = "yes"\nelse:\n    answer = "no"', "truth", 2),
        ('x = query(img, "Is it?").lower()\nanswer = "yes" if not x else "no"', "truth", 2),
        ('x = query(img, "Is it?")\ny = x\nanswer = "yes" if y and LEFT < 1 else query(img, "What?")', "truth", 3),
        ('x = query(img, "Is it?")\nanswer = x or "nothing"', "truth", 2),
        ('x = [query(img, f"Is it {n}?") for n in "ab"]\nanswer = "a" if any(x) else query(img, "What?")', "truth", 2),
        (
            'x = []\nx.append(query(img, "Is it?"))\nanswer = "a"\nfor y in x:\n    if y:\n        answer = "b"',
            "truth",
            5,
        ),
        ('n = sum(1 for x in [query(img, "Is it?")] if x)\nanswer = query(img, f"What is {n}?")', "truth", 1),
        ('x = query(img, "Is it?")\nanswer = "a" if x == "Yes" else query(img, "What?")', "comparison", 2),
        ('x = query(img, "Is it red?")\nanswer = "a" if x == "red" else query(img, "What?")', "comparison", 2),
        ('x = query(img, "What color?")\nanswer = "a" if x in ("red", "Blue") else "b"', "comparison", 2),
        ('if query(img, "Is it?") == "yes":\n    answer = "yes"', "answer", None),
        ('answer = ""\nif query(img, "What is it?") == "tulip":\n    answer = "flower"', "answer", None),
        ('answer = get_pos(img, "dog")', "answer", None),
        ('x = {"table": "wood", "dog": "fur"}\nanswer = x[query(img, "What color is it?")]', "runtime", 2),
        ('x = query(img, "Is it?")\nanswer = "yes"', "constant", None),
        ('import math\nimport re as r\nanswer = str(math.floor(get_pos(img, "dog")[0]))', "import", 2),
        ('img = open_image("Image1.jpg")\nanswer = query(img, "What is it?")', "opening", 1),
    ],
)
def test_planted_defects_are_found(program: str, rule: str, line: int | None) -> None:
    found = [finding for finding in planted(program, FINE) if finding.rule != "single-query"]
    assert rule in [finding.rule for finding in found], list(map(str, found))
    finding = next(finding for finding in found if finding.rule == rule)
    assert finding.where == "x-0"
    if line is not None:
        assert finding.line == line
    assert {finding.where for finding in found} == {"x-0"}


def test_a_rare_branch_without_an_answer_says_when() -> None:
    program = (
        'who = query(img, "Who is there?")\nx, y = get_pos(img, who)\n'
        'if who == "sailor" and x > RIGHT / 2 and y < TOP / 2:\n    size = 1\nelse:\n    answer = who'
    )
    (finding,) = [finding for finding in planted(program) if finding.rule == "answer"]
    assert "query(image 1, 'Who is there?') is 'sailor'" in finding.message
    assert "get_pos(image 1, 'sailor') is (19.5, 4.5)" in finding.message


def test_a_yes_no_question_wants_yes_or_no() -> None:
    program = 'x = query(img, "What color is it?")\nanswer = x'
    assert [finding.rule for finding in planted(("Is it red?", program))] == ["answer"]
    assert [finding.rule for finding in planted(("There is one red dog", program))] == ["answer"]
    assert planted(("Is it red or blue?", program)) == []


def test_truth_values_are_answers_too() -> None:
    assert planted(("Is it red?", 'x = query(img, "Is it red?") == "yes"\nanswer = x')) == []


def test_single_queries_over_the_quota() -> None:
    single = [(f"What is number {n}?", f'answer = query(img, "What is number {n}?")') for n in range(7)]
    others = [(f"Is there a cat {n}?", FINE) for n in range(4)]
    assert [finding.rule for finding in planted(*single, *others)] == ["single-query"]
    assert planted(*single[:6], *others, ("Is there a dog?", FINE)) == []


def test_programs_over_sets() -> None:
    def find(question: str, program: str, **changes: object) -> list[str]:
        return [finding.rule for finding in planted((question, program), form="set", **changes)]

    loop = 'n = 0\nfor one in images:\n    if query(one, "Is it red?") == "yes":\n        n += 1\nanswer = '
    assert find("How many are red?", loop + "n") == []
    assert find("How many are red?", loop + "n if n < 4 else None") == ["answer"]  # only where there are many pictures
    assert find("Is the third red?", 'x = query(images[2], "Is it red?")\nanswer = x') == ["runtime"]
    two = 'x = query(images[1], "Is it red?")\nanswer = x'
    assert find("Is the right one red?", two, image_labels=("Left image", "Right image")) == []


def test_repeated_ids_and_questions() -> None:
    found = planted(("Is there a cat?", FINE), ("is there a  cat", FINE))
    assert [(finding.rule, finding.where) for finding in found] == [("duplicate", "examples.jsonl")]
    base = load("gqa")
    twice = base.with_bank(examples=[*base.examples, dataclasses.replace(base.examples[0], question="Is it new?")])
    assert [finding.message for finding in lint(twice)] == ["id 'gqa-001' is used 2 times"]


@pytest.mark.parametrize("constants", ["LEFT, BOTTOM, RIGHT, TOP = 0, 0, 24, 24", "LEFT=0, BOTTOM=0, RIGHT=24, TOP=24"])
def test_preambles_may_give_the_constants_on_one_line(constants: str) -> None:
    base = dataclasses.replace(load("gqa").with_bank([], []), shots=0, reading_shots=0)
    assert lint(dataclasses.replace(base, preamble=constants + "\n{api}")) == []
    wrong = dataclasses.replace(base, preamble=constants.replace("24", "23") + "\n{api}")
    assert [finding.message for finding in lint(wrong)] == ["RIGHT = 24 is not given", "TOP = 24 is not given"]


def test_findings_about_the_set_itself() -> None:
    base = load("gqa")
    reading = ReadingExample("r", "What?", ("A dog", "a dog.", *"abcdef"), "Dog")
    broken = dataclasses.replace(
        base,
        examples=base.examples[:6],
        reading=(reading,),
        primitives=(*base.primitives, "smell"),
        preamble="LEFT = 0, BOTTOM = 0, RIGHT = 12, TOP = 24\n{api}\n",
    )
    found = [(finding.where, finding.rule) for finding in lint(broken)]
    assert found == [
        ("examples.jsonl", "bank"),
        ("reading.jsonl", "bank"),
        ("r", "reading"),  # eight captions
        ("r", "reading"),  # upper case
        ("r", "reading"),  # a full stop
        ("r", "reading"),  # upper case in the answer
        ("preamble.txt", "preamble"),
        ("prompt.json", "primitive"),
    ]


def test_primitives_of_ones_own_are_exercised() -> None:
    @primitive
    def count(img: Image, phrase: str) -> int:
        """Counts the objects that the phrase names."""
        raise AssertionError("the linter never calls the real one")

    program = 'n = count(img, "dog")\nif n > 0:\n    answer = n'
    base = load("gqa")
    mine = dataclasses.replace(
        base.with_bank([Example("x", "How many dogs?", program)], []),
        primitives=(*base.primitives, "count"),
        shots=0,
        reading_shots=0,
    )
    (finding,) = lint(mine, PrimitiveSet([*VISUAL, count]))
    assert (finding.rule, finding.where) == ("answer", "x")
    assert "count(image 1, 'dog') is 0" in finding.message


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return gqa_in(tmp_path)


def test_the_command_reports_and_exits(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(folder)]) == 0
    with (folder / "examples.jsonl").open("a") as handle:
        handle.write(json.dumps({"id": "bad", "question": "Bad?", "program": "answer = "}) + "\n")
    assert main([str(folder)]) == 1
    assert "gqa bad, line 1: syntax: " in capsys.readouterr().out
    assert main(["nope"]) == 1
    assert "No prompt set 'nope'" in capsys.readouterr().err


@pytest.mark.slow
def test_the_command_ends_cleanly_in_its_own_process() -> None:
    command = [sys.executable, "-m", "codevqa.writing.lint", "gqa"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "gqa: 83 programs, 0 findings\n"


# -- its parts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("Is there a cat or a dog?", True),
        ("Are there either cats or dogs?", True),
        ("Is it true that the cat or the dog sleeps?", True),
        ("Does the sky look clear?", True),
        ("Is the cup red or blue?", False),
        ("What is it?", False),
        ("Island or sea?", False),
    ],
)
def test_yes_no_questions(question: str, expected: bool) -> None:
    assert is_yes_no(question) is expected


def test_explore_walks_every_way_once_and_stops_at_its_limit() -> None:
    seen: list[tuple[object, ...]] = []
    query = VISUAL.get("query")
    images = blank_images(1)

    async def play(outcomes: Outcomes) -> None:
        first = outcomes.answer(query, {"img": images[0], "question": "Is it?"})
        values = [first, outcomes.answer(query, {"img": images[0], "question": "Is it?"})]
        if first == "yes":
            values += [outcomes.answer(query, {"img": images[0], "question": f"Is it {n}?"}) for n in range(3)]
        seen.append(tuple(values))

    assert asyncio.run(explore(play, lambda: Outcomes(images), 64)) == 9
    assert len(set(seen)) == 9
    assert all(values[0] == values[1] for values in seen)  # the same question, the same answer
    seen.clear()
    assert asyncio.run(explore(play, lambda: Outcomes(images), 5)) == 5
    assert seen[0] == ("yes",) * 5 and seen[1] == ("no", "no")


@pytest.mark.parametrize(
    ("kind", "ways"),
    [
        (bool, 2),
        (int, 2),
        (float, 2),
        (Image, 3),
        (tuple[float, float], 4),
        (list[tuple[float, float, float, float]], 7),
        (str | None, 3),
        (tuple[int, bool], 4),
        (list[Image], 1),
    ],
)
def test_values_of_every_kind_are_invented(kind: object, ways: int) -> None:
    seen: list[object] = []

    async def real(img: Image) -> object:
        """Returns what was invented last."""
        return seen[-1]

    real.__annotations__ = {"img": Image, "return": kind}
    made = primitive(real)
    images = blank_images(3)

    async def play(outcomes: Outcomes) -> None:
        seen.append(outcomes.answer(made, {"img": images[0]}))
        await made.call(None, {"img": images[0]})  # a value that is not of the declared type is refused

    asyncio.run(explore(play, lambda: Outcomes(images), 64))
    assert len({repr(value) for value in seen}) == ways == len(seen)


def test_lists_of_answers_may_be_tested_for_being_empty() -> None:
    source = 'x = []\nx.append(query(img, "What?"))\nif x and len(x) > 1:\n    pass\nif not x:\n    pass'
    assert list(faults(ast.parse(source), {"query"}, {"query"})) == []
