"""A vision-language model answers ``query``, and is the baseline ``direct``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from engine_kit import BLUE, GREEN, RED, reader

from codevqa import CodeVQA, Settings, WriterSettings
from codevqa.core.errors import SetupError
from codevqa.models.base import LookRequest, Models
from codevqa.models.fakes import FakeCaptioner, FakeEyes, FakeMatcher, ScriptedLM
from codevqa.prompts import load
from codevqa.writing.writer import Writer

SHORT = "\nAnswer the question using a single word or phrase."


@contextmanager
def looking(
    program: str, answers: str | Callable[[LookRequest], str] = "yes", *, blip: bool = False, prompts: str = "gqa"
) -> Iterator[tuple[CodeVQA, FakeEyes]]:
    """An engine with eyes that writes one program."""
    eyes, read = FakeEyes(answers), reader()
    sees = Models(read, FakeMatcher(6), FakeCaptioner(grid=6), eyes=eyes) if blip else Models(read, eyes=eyes)
    writer = Writer(
        ScriptedLM(program, name="writer"),
        {"image": load(prompts), "set": load("nlvr2")},
        settings=WriterSettings(selection="fixed", repairs=0),
    )
    with CodeVQA(writer, sees, Settings(workers=4)) as vqa:
        yield vqa, eyes


def test_query_asks_the_eyes_and_shows_what_it_asked() -> None:
    with looking('answer = query(img, "What color is it?")', "Red.") as (vqa, eyes):
        answer = vqa.ask(RED, "What color is the thing?")
    assert answer.text == "red"
    assert [(one.text, one.choices, len(one.pictures)) for one in eyes.requests] == [
        (f"What color is it?{SHORT}", (), 1)
    ]
    (seen,) = answer.trace.calls[0].evidence
    assert (seen.kind, seen.prompt, seen.completion) == ("eyes", f"What color is it?{SHORT}", "Red.")
    assert answer.models["eyes"] == "fake-eyes"
    assert "captioner" not in answer.models


def test_what_can_be_chosen_from_is_told() -> None:
    program = 'answer = query(img, "Is it red or blue?") + query(img, "Is it big?")'
    with looking(program, "red") as (vqa, eyes):
        vqa.run(RED, program)
    assert [one.choices for one in eyes.requests] == [("red", "blue"), ("yes", "no")]


def test_asked_directly_it_sees_all_pictures_and_the_statement_as_a_question() -> None:
    with looking("", "No, it is not.") as (vqa, eyes):
        answer = vqa.ask([RED, GREEN, BLUE], "There is a red thing.", method="direct")
    (asked,) = eyes.requests
    assert (answer.text, answer.method, answer.program, answer.fallback) == ("no", "direct", None, False)
    assert asked.text == f"Is it true that There is a red thing?{SHORT}"
    assert [one.pixels.getpixel((0, 0)) for one in asked.pictures] == [(255, 0, 0), (0, 128, 0), (0, 0, 255)]
    assert answer.trace.baseline[0].kind == "eyes"


def test_a_program_that_fails_is_answered_by_the_eyes() -> None:
    with looking("answer = 1 / 0", "blue", blip=True) as (vqa, _):
        answer = vqa.ask(BLUE, "What color is it?")
        captions = vqa.ask(BLUE, "What color is it?", method="pnpvqa")
    assert (answer.text, answer.fallback, answer.trace.baseline[0].kind) == ("blue", True, "eyes")
    assert captions.trace.baseline[0].kind == "pnpvqa"


def test_a_prompt_set_says_how_answers_are_to_be() -> None:
    with looking('answer = visual_query(img, "What is it?")', "thing", prompts="okvqa") as (vqa, eyes):
        vqa.ask(RED, "What is it?")
    assert "respond with 'Unanswerable'" in eyes.requests[0].text


@pytest.mark.parametrize(("method", "lacks"), [("pnpvqa", "captioner"), ("direct", "vision-language model")])
def test_a_method_that_the_models_cannot_do_is_refused(method: str, lacks: str) -> None:
    eyes = FakeEyes()
    sees = Models(reader(), eyes=eyes) if method == "pnpvqa" else Models(reader(), FakeMatcher(6), FakeCaptioner())
    with (
        CodeVQA(Writer(ScriptedLM(""), load("gqa"), settings=WriterSettings(selection="fixed")), sees) as vqa,
        pytest.raises(SetupError, match=lacks),
    ):
        vqa.ask(RED, "What is it?", method=method)  # type: ignore[arg-type]
    assert not eyes.requests


def test_an_engine_that_sees_nothing_is_refused() -> None:
    writer = Writer(ScriptedLM(""), load("gqa"), settings=WriterSettings(selection="fixed"))
    with pytest.raises(SetupError, match="Nothing here can answer"):
        CodeVQA(writer, Models(reader(), FakeMatcher(6)))
