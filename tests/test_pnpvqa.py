from __future__ import annotations

import asyncio
import dataclasses
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from codevqa.batching.model_services import ModelServices
from codevqa.core.images import load_picture
from codevqa.core.settings import QuerySettings
from codevqa.core.trace import Form, ImageRef
from codevqa.core.wording import Wording
from codevqa.models.base import CaptionRequest, Models
from codevqa.models.fakes import FakeCaptioner, FakeMatcher, ScriptedLM
from codevqa.models.retrieval import Retriever
from codevqa.primitives.pnpvqa import PnPVQA, Reading, _seeds
from codevqa.primitives.reading import render_reading
from codevqa.prompts import PromptSet, ReadingExample
from codevqa.prompts import load as load_prompts

RED = ReadingExample("1", "what COLOR is it?", ("a red car", "the street"), "red")
PAIR = ReadingExample("2", "Both dogs?", (("a dog",), ("a cat", "a mat")), "no")


def test_reading_prompt_of_one_image_byte_for_byte() -> None:
    assert render_reading([RED], [["two dogs", "grass"]], "how MANY dogs?", "image") == (
        "Please answer the question according to the above context.\n===\n"
        "Context: A red car. The street.\n===\nQ: What color is it?\nA: red\n\n===\n"
        "Context: Two dogs. Grass.\n===\nQ: How many dogs?\nA:"
    )


def test_reading_prompt_of_a_set_byte_for_byte() -> None:
    assert render_reading([PAIR], [["a bird"], ["a fish", "water"]], "any birds?", "set") == (
        "Please answer the question according to the above context.\n===\n"
        "Context:\nImage 1: A dog.\nImage 2: A cat. A mat.\n===\nQ: Both dogs?\nA: no\n\n===\n"
        "Context:\nImage 1: A bird.\nImage 2: A fish. Water.\n===\nQ: Any birds?\nA:"
    )


def prompts(**changes: Any) -> PromptSet:
    fields = {"reading": (RED, PAIR), "reading_shots": 1, "captions": 3, "caption_draws": 10, **changes}
    return dataclasses.replace(load_prompts("gqa"), **fields)


def answer(
    reader: ScriptedLM,
    captioner: FakeCaptioner,
    form: Form = "image",
    count: int = 1,
    *,
    bank: PromptSet | None = None,
    seed: int = 0,
    matcher: FakeMatcher | None = None,
    settings: QuerySettings = QuerySettings(patches=5),  # noqa: B008 - frozen
    retriever: Retriever | None = None,
    question: str = "What is it?",
) -> Reading:
    pictures = [
        (ImageRef(number + 1), load_picture(Image.new("RGB", (8, 8), (number, 0, 0)))) for number in range(count)
    ]

    async def main() -> Reading:
        services = ModelServices(
            Models(reader, matcher or FakeMatcher(6), captioner), reader, max_batch=64, max_wait=0.001
        )
        used = bank or prompts()
        method = PnPVQA(services, {"image": used, "set": used}, settings, retriever, seed)
        try:
            return await method.answer(pictures, question, form, form)
        finally:
            services.close()

    return asyncio.run(main())


def distinct() -> FakeCaptioner:
    return FakeCaptioner(lambda request: f"thing {request.seed}")


def by_seed(words: list[str]) -> Callable[[CaptionRequest], str]:
    seen: list[int] = []

    def caption(request: CaptionRequest) -> str:
        assert request.seed is not None and request.patches is not None and len(request.patches) == 5
        seen.append(request.seed)
        return words[len(seen) - 1]

    return caption


def test_a_caption_contained_in_one_already_kept_is_dropped_and_another_is_drawn() -> None:
    reader = ScriptedLM(" Blue \n")
    reading = answer(reader, FakeCaptioner(by_seed(["a red dog", "red dog", "a cat", "", "a red dog runs"])))
    assert reading.evidence[-1].captions == (("a red dog", "a cat", "a red dog runs"),)
    assert reading.text == "blue"
    assert "Context: A red dog. A cat. A red dog runs.\n===\nQ: What is it?\nA:" in reading.evidence[-1].prompt
    assert [len(patches) for patches in reading.evidence[-1].patches[0]] == [5, 5, 5]


def test_drawing_ends_where_captions_repeat() -> None:
    captioner = FakeCaptioner("a dog")
    assert answer(ScriptedLM("x"), captioner).evidence[-1].captions == (("a dog",),)
    assert len(captioner.requests) == 10


def test_the_same_seed_gives_the_same_captions_and_another_does_not() -> None:
    def seeds(seed: int) -> list[int | None]:
        captioner = distinct()
        answer(ScriptedLM("x"), captioner, seed=seed)
        return [request.seed for request in captioner.requests]

    assert seeds(0) == seeds(0) != seeds(1)


def test_an_empty_reading_is_asked_again_and_is_then_empty() -> None:
    reader = ScriptedLM(["", " ", "red"])
    assert answer(reader, distinct()).text == "red"
    silent = ScriptedLM("")
    reading = answer(silent, distinct())
    assert len(silent.requests) == 5
    assert (reading.text, reading.evidence[-1].completion) == ("", "")
    assert reading.evidence[-1].prompt.endswith("Q: What is it?\nA:")


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
    reader = ScriptedLM("x")
    picture = (ImageRef(1), load_picture(Image.new("RGB", (8, 8))))
    task: Form = "set" if form == "image" else "image"

    async def main() -> Reading:
        models = Models(reader, FakeMatcher(6), FakeCaptioner("a hat"))
        services = ModelServices(models, reader, max_batch=8, max_wait=0.001)
        banks: dict[Form, PromptSet] = {form: prompts(reading=others), task: prompts(reading=own)}
        return await PnPVQA(services, banks, QuerySettings(), None, 0).answer([picture], "What?", form, task)

    prompt = asyncio.run(main()).evidence[-1].prompt
    assert prompt.partition("\n===\n")[2] == f"{example}\n\n===\n{asked}\n===\nQ: What?\nA:"


def test_examples_of_a_part_are_those_of_the_user_s_question() -> None:
    bank = prompts(reading=(*SETS, *BANK), reading_shots=1)
    reader = ScriptedLM("x")
    picture = (ImageRef(1), load_picture(Image.new("RGB", (8, 8))))

    async def main(settings: QuerySettings) -> None:
        services = ModelServices(Models(reader, FakeMatcher(6), distinct()), reader, max_batch=8, max_wait=0.001)
        method = PnPVQA(services, {"image": bank, "set": bank}, settings, Letters(), 0)
        await method.answer([picture], "zz?", "image", "set", about="bbb?")

    asyncio.run(main(QuerySettings(captions=1)))
    asyncio.run(main(QuerySettings(captions=1, selection="nearest")))
    assert [shown(str(request.prompt)) for request in reader.requests] == [["Bbb?"], ["Zzz?"]]


def test_a_seed_is_a_hash_of_seed_picture_question_and_draw() -> None:
    def seed(place: int) -> int:
        digest = hashlib.sha256(f"7\x1fpicture\x1fwhat is it\x1f{place}".encode()).digest()
        return int.from_bytes(digest[:8], "big") >> 1

    assert _seeds(range(8, 12), 7, "picture", "what is it") == [seed(place) for place in range(8, 12)]


class Letters:
    """Embeds by letters."""

    name = "letters"

    def embed(self, sentences: Sequence[str]) -> npt.NDArray[np.float32]:
        return np.array([[text.lower().count(one) for one in "abcdefghijklmnopqrstuvwxyz"] for text in sentences], "f4")


def shown(prompt: str) -> list[str]:
    return [line[3:] for line in prompt.splitlines() if line.startswith("Q: ")][:-1]


BANK = tuple(ReadingExample(word, f"{word * 3}?", ("a",), "yes") for word in ("a", "b", "z"))
SETS = tuple(ReadingExample(word, f"{word * 3}?", (("a",),), "yes") for word in ("y", "d", "z"))


def test_nearest_reading_examples_of_the_form_most_similar_first() -> None:
    bank = prompts(reading=(*SETS, *BANK), reading_shots=2)
    reader = ScriptedLM("x")
    answer(reader, distinct(), bank=bank, retriever=Letters(), question="zzb?")
    assert shown(str(reader.requests[-1].prompt)) == ["Zzz?", "Bbb?"]
    fixed = QuerySettings(selection="fixed")
    answer(reader, distinct(), bank=bank, retriever=Letters(), question="zzb?", settings=fixed)
    assert shown(str(reader.requests[-1].prompt)) == ["Aaa?", "Bbb?"]


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
        (prompts(reading_wording=wording), QuerySettings(patches=5)),
        (prompts(), QuerySettings(patches=5, wording=wording)),
    ):
        reading = answer(
            ScriptedLM("True"), distinct(), form, bank=bank, matcher=matcher, settings=settings, question=statement
        )
        assert reading.evidence[-1].prompt.endswith(f"\nQ: {asked}\nA:")
        assert matcher.matches.requests[-1].text == looked_for
        assert (reading.evidence[-1].text, reading.text) == (statement, "yes")


def test_what_a_program_asks_is_never_turned_into_another_question() -> None:
    picture = (ImageRef(1), load_picture(Image.new("RGB", (8, 8))))
    reader, matcher = ScriptedLM("x"), FakeMatcher(6)

    async def main(wording: Wording) -> tuple[str, str]:
        services = ModelServices(Models(reader, matcher, distinct()), reader, max_batch=8, max_wait=0.001)
        method = PnPVQA(services, {"set": prompts()}, QuerySettings(wording=wording), None, 0)
        reading = await method.answer([picture], "The STOP sign!", "image", "set", about="Both are red.")
        return reading.evidence[-1].prompt.rsplit("\nQ: ")[-1], matcher.matches.requests[-1].text

    assert asyncio.run(main("asked")) == ("The stop sign!\nA:", "The STOP sign!")
    assert asyncio.run(main("release")) == ("The stop sign\nA:", "the stop sign")
