"""What kind of answer a question wants, and whether an answer is of that kind."""

import pytest

from codevqa.core.question_kind import QuestionKind, number_in, question_kind, yes_or_no
from codevqa.prompts import load


@pytest.mark.parametrize(
    ("question", "kind", "choices"),
    [
        ("Is there a red cup?", "yes_no", ()),
        ("In both images, there is a dog.", "yes_no", ()),
        ("Does the picture contain a lamp or a boat?", "yes_no", ()),
        ("How many cups are there?", "number", ()),
        ("Is the door open or closed?", "choice", ("open", "closed")),
        ("Is the clock small, medium or large?", "choice", ("small", "medium", "large")),
        ("Is the chair to the left or to the right of the girl in a hat?", "choice", ("left", "right")),
        ("Which is higher, the ball or the red cup?", "choice", ("ball", "red cup")),
        ("Is the man holding a bat or swinging it?", "choice", ()),
        ("What is on the table?", "open", ()),
    ],
)
def test_the_kind_is_read_off_the_first_words(question: str, kind: str, choices: tuple[str, ...]) -> None:
    assert question_kind(question) == QuestionKind(kind, choices)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["gqa", "covr", "nlvr2", "nlvr", "mini"])
def test_every_reading_example_has_an_answer_of_its_kind(name: str) -> None:
    wrong = [(one.question, one.answer) for one in load(name).reading if question_kind(one.question).misfit(one.answer)]
    assert wrong == []


@pytest.mark.parametrize(
    ("question", "answer"), [("Is it red?", "left"), ("Is it red?", "0"), ("How many?", "yes"), ("How many?", "a lot")]
)
def test_an_answer_of_another_kind_is_told(question: str, answer: str) -> None:
    assert "the question wants" in question_kind(question).misfit(answer)
    assert question_kind("What is it?").misfit(answer) == question_kind("Is it red or blue?").misfit(answer) == ""


@pytest.mark.parametrize(
    ("text", "number"),
    [
        *(("four blocks", 4), ("there are 2 cups", 2), ("no cups", 0)),
        *(("a lot", None), ("2 or 3", None), ("1.5", None), ("", None)),
    ],
)
def test_a_number_is_found_in_words(text: str, number: int | None) -> None:
    assert number_in(text) == number
    assert question_kind("How many?").fitted("-2,000") == "-2,000", "a number that a program counted stays as it is"


def test_yes_and_no_are_found_at_the_beginning_only() -> None:
    found = {"No, there is none.": "no", " Yes": "yes", "FALSE": "no", "not at all": "", "nothing": "", "no one": ""}
    assert {text: yes_or_no(text) for text in found} == found


def test_a_choice_is_put_as_the_question_names_it() -> None:
    kind = question_kind("Which is higher, the red hammer or the blue hammer?")
    assert kind.fitted("the red one") == "the red one"
    assert kind.fitted("red") == "red hammer"
    assert kind.fitted("hammer") == "hammer", "either would fit"
