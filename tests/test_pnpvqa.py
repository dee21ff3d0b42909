import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from reading_kit import Letters, read

from codevqa.core.question_kind import Wording
from codevqa.core.settings import QuerySettings
from codevqa.core.trace import Form
from codevqa.models.fakes import FakeCaptioner, FakeMatcher, ScriptedLM
from codevqa.models.protocols import CaptionRequest, Map
from codevqa.primitives.patches import Patches
from codevqa.prompts import PromptSet, ReadingExample
from codevqa.prompts import load_prompt_set as load_prompts

RED = ReadingExample("1", "what COLOR is it?", ("a red car", "the street"), "red")
PAIR = ReadingExample("2", "Both dogs?", (("a dog",), ("a cat", "a mat")), "no")


def prompts(**changes: Any) -> PromptSet:
    fields = {"reading": (RED, PAIR), "reading_shots": 1, "captions": 3, "caption_draws": 10, **changes}
    return dataclasses.replace(load_prompts("gqa"), **fields)


FIVE = QuerySettings(patches=5)


def test_a_caption_contained_in_one_already_kept_is_dropped_and_another_is_drawn() -> None:
    words = iter(["a red dog", "red dog", "a cat", "", "a red dog runs"])

    def caption(request: CaptionRequest) -> str:
        assert request.patches is not None and len(request.patches) == 5
        return next(words)

    captioner = FakeCaptioner(caption, grid=6)
    reading = read("What is it?", ScriptedLM(" Blue \n"), {"image": prompts()}, FIVE, captioner=captioner)
    assert reading.evidence[-1].captions == (("a red dog", "a cat", "a red dog runs"),)
    assert reading.text == "blue"
    assert "Context: A red dog. A cat. A red dog runs.\n===\nQ: What is it?\nA:" in reading.evidence[-1].prompt
    assert [len(patches) for patches in reading.evidence[-1].patches[0]] == [5, 5, 5]


def test_drawing_ends_where_captions_repeat() -> None:
    captioner = FakeCaptioner("a dog", grid=6)
    reading = read("What is it?", ScriptedLM("x"), {"image": prompts()}, FIVE, captioner=captioner)
    assert reading.evidence[-1].captions == (("a dog",),)
    assert len(captioner.requests) == 10


OF_RED = "Context: A red car. The street.\n===\nQ: What color is it?\nA: red"
OF_PAIR = "Context:\nImage 1: A dog.\nImage 2: A cat. A mat.\n===\nQ: Both dogs?\nA: no"


@pytest.mark.parametrize(
    ("form", "own", "others", "example", "asked"),
    [
        ("image", (PAIR,), (RED,), OF_PAIR, "Context:\nA hat."),
        ("image", (PAIR, RED), (), OF_RED, "Context: A hat."),
        ("image", (), (RED,), OF_RED, "Context: A hat."),
        ("set", (RED,), (PAIR,), OF_PAIR, "Context:\nImage 1: A hat."),
        ("set", (RED,), (), OF_RED, "Context:\nImage 1: A hat."),
    ],
)
def test_no_question_is_read_without_examples_where_there_are_some(
    form: Form, own: tuple[ReadingExample, ...], others: tuple[ReadingExample, ...], example: str, asked: str
) -> None:
    """A set's bank that holds sets alone shows them before a single picture, whose captions stand as theirs do."""
    task: Form = "set" if form == "image" else "image"
    banks: dict[Form, PromptSet] = {form: prompts(reading=others), task: prompts(reading=own)}
    hat = FakeCaptioner("a hat", grid=6)
    reading = read("what SIZE?", ScriptedLM("x"), banks, QuerySettings(), form=form, task=task, captioner=hat)
    head = "Please answer the question according to the above context."
    assert reading.evidence[-1].prompt == f"{head}\n===\n{example}\n\n===\n{asked}\n===\nQ: What size?\nA:"


BANK = tuple(ReadingExample(word, f"{word * 3}?", ("a",), "yes") for word in ("a", "b", "z"))
SETS = tuple(ReadingExample(word, f"{word * 3}?", (("a",),), "yes") for word in ("y", "d", "z"))


@pytest.mark.parametrize(
    ("selection", "about", "shown"),
    [
        ("nearest", None, ["Zzz?", "Bbb?"]),
        ("fixed", None, ["Aaa?", "Bbb?"]),
        ("nearest", "aab?", ["Zzz?", "Bbb?"]),
        ("question", "aab?", ["Aaa?", "Bbb?"]),  # of a part, those of the user's question
    ],
)
def test_reading_examples_of_the_form_most_similar_first(selection: Any, about: str | None, shown: list[str]) -> None:
    bank = prompts(reading=(*SETS, *BANK), reading_shots=2)
    settings = QuerySettings(captions=1, selection=selection)
    reading = read("zzb?", ScriptedLM("x"), {"image": bank}, settings, retriever=Letters(), about=about)
    lines = reading.evidence[-1].prompt.splitlines()
    assert [line[3:] for line in lines if line.startswith("Q: ")][:-1] == shown


def test_the_number_of_reading_examples_is_the_reader_s_where_it_was_trained_with_one() -> None:
    bank = prompts(reading_shots=1)
    for trained, asked, shown in ((0, None, 0), (None, None, 1), (0, 1, 1)):
        reader = ScriptedLM("x")
        reader.reading_shots = trained  # type: ignore[attr-defined]
        reading = read("What is it?", reader, {"image": bank}, QuerySettings(captions=1, shots=asked))
        assert reading.evidence[-1].prompt.count("What color is it?") == shown


WORDINGS = [
    # wording, form, what the reader is asked, where the matcher looks
    ("plain", "set", 'The "left" sign says stop.', 'The "left" sign says STOP.'),
    ("asked", "set", 'Is it true that the "left" sign says stop?', 'The "left" sign says STOP.'),
    ("release", "set", "Is it true that the left sign says stop?", "Is it true that the left sign says stop"),
    ("release", "image", "The left sign says stop", "the left sign says stop"),
]


@pytest.mark.parametrize(("wording", "form", "asked", "looked_for"), WORDINGS)
def test_a_statement_is_put_as_its_wording_says(wording: Wording, form: Form, asked: str, looked_for: str) -> None:
    matcher = FakeMatcher(6)
    statement = 'The "left" sign says STOP.'
    for bank, settings in (
        (prompts(reading_wording=wording, statements=True), QuerySettings(patches=5)),
        (prompts(statements=True), QuerySettings(patches=5, wording=wording)),
    ):
        reading = read(statement, ScriptedLM("True"), {form: bank}, settings, form=form, task=form, matcher=matcher)
        assert reading.evidence[-1].prompt.endswith(f"\nQ: {asked}\nA:")
        assert matcher.matches.requests[-1].text == looked_for
        assert (reading.evidence[-1].text, reading.text) == (statement, "yes")


@pytest.mark.parametrize(
    ("wording", "asked", "looked_for"),
    [("asked", "The stop sign!\nA:", "The STOP sign!"), ("release", "The stop sign\nA:", "the stop sign")],
)
def test_what_a_program_asks_is_never_another_question(wording: Wording, asked: str, looked_for: str) -> None:
    matcher, settings = FakeMatcher(6), QuerySettings(wording=wording)
    about: Any = {"task": "set", "about": "Both are red."}
    reading = read("The STOP sign!", ScriptedLM("x"), {"set": prompts()}, settings, matcher=matcher, **about)
    assert reading.evidence[-1].prompt.rsplit("\nQ: ")[-1] == asked
    assert matcher.matches.requests[-1].text == looked_for


def choice(relevance: Map, count: int, seed: int) -> tuple[int, ...]:
    """The definition."""
    weights: npt.NDArray[np.float64] = relevance.astype(np.float64).ravel()
    if not np.isfinite(weights.sum()) or weights.sum() <= 0:
        weights = np.ones_like(weights)
    weights = weights / weights.sum() + 1e-12
    drawn = np.random.default_rng(seed).choice(weights.size, count, replace=False, p=weights / weights.sum())
    return tuple(sorted(drawn.tolist()))


@pytest.mark.parametrize("sharpness", [1, 6, 60])
def test_patches_are_those_that_numpy_draws(sharpness: float) -> None:
    maps: list[Map] = list((np.random.default_rng(3).random((30, 12, 12)) ** sharpness).astype(np.float32))
    maps[4][:], maps[5][:], maps[6][0, 0] = 0, np.nan, np.inf
    for seed, relevance in enumerate(maps, 2**40):
        chances = Patches(relevance, 20)
        assert [chances.draw(seed), chances.draw(seed + 1)] == [
            choice(relevance, 20, seed),
            choice(relevance, 20, seed + 1),
        ]


def test_a_small_picture_gives_all_its_patches() -> None:
    assert Patches(np.ones((3, 3), np.float32), 10).draw(0) == tuple(range(9))
