"""Sets that no prompt holds: read in parts, or refused before a model runs; and programs over thousands of pictures."""

import random
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest
from engine_kit import engine
from PIL import Image as PILImage

from codevqa import CodeVQA, Settings
from codevqa.collections.collection import Collection
from codevqa.core.errors import ModelError, ProgramRuntimeError, PromptTooLongError
from codevqa.core.question_kind import joins
from codevqa.engine.program_calls import DETAILED
from codevqa.mini.sampling import sample_scene
from codevqa.mini.world import draw_scene
from codevqa.models.fakes import FakeCaptioner, FakeMatcher, ScriptedLM
from codevqa.models.protocols import GenerationRequest

COUNT = "How many pictures show a dog?"


class SmallReader(ScriptedLM):
    """A reader with little room, which counts words as tokens, and says how many pictures it was told of."""

    context = 600

    def __init__(self, says: str = "") -> None:
        super().__init__(lambda request: says or str(_shown(request)), name="small")

    def count(self, prompt: object) -> int:
        return len(str(prompt).split())


def _shown(request: GenerationRequest) -> int:
    return str(request.prompt).rsplit("Context:", 1)[1].count("Image ")


@pytest.fixture(scope="module")
def pictures() -> list[PILImage.Image]:
    return [PILImage.new("RGB", (40, 30), (number, 99, 7)) for number in range(60)]


def test_numbers_of_parts_that_fit_are_summed(pictures: list[PILImage.Image]) -> None:
    with engine(read=SmallReader()) as vqa:
        answer = vqa.ask(pictures, COUNT, method="pnpvqa")
    parts = [[image.index for image in part.images] for part in answer.trace.baseline]
    assert answer.text == "60" and len(parts) > 1 and [*chain(*parts)] == [*range(1, 61)]
    assert all(len(part.prompt.split()) < SmallReader.context for part in answer.trace.baseline)
    assert answer.in_parts.startswith(f"read in {len(parts)} parts of up to") and "summed" in answer.in_parts


@pytest.mark.parametrize("question", ["What is in most pictures?", "Do all pictures show the same dog?"])
def test_what_parts_cannot_tell_is_refused_before_a_model_runs(pictures: list[PILImage.Image], question: str) -> None:
    captioner, matcher, reader = FakeCaptioner(grid=6), FakeMatcher(6), SmallReader()
    failing = "x = find_matching_image(images, 'a dog')\nanswer = ['a'][len(images)]"
    with engine(failing, reader, captioner=captioner, matcher=matcher) as vqa:
        with pytest.raises(PromptTooLongError, match=r"small has no room for 60 pictures at once: about \d+ fit\."):
            vqa.ask(pictures, question, method="pnpvqa")
        # So is the fallback of a program that fails: both are told, the cause of the missing answer first.
        message = (
            r"^The fallback failed: small has no room .* Before that, the program failed: ProgramRuntimeError: line"
        )
        with pytest.raises(PromptTooLongError, match=message) as caught:
            vqa.ask(pictures, question)
        program = caught.value.__cause__
        assert isinstance(program, ProgramRuntimeError) and program.answer is not None
    assert not captioner.calls and not reader.calls
    assert [call.name for call in program.answer.trace.calls] == ["find_matching_image"]


def test_a_part_without_a_number_is_no_quiet_zero(pictures: list[PILImage.Image]) -> None:
    with engine(read=SmallReader("lots")) as vqa, pytest.raises(ModelError, match=r"Part 1 of .* answered 'lots'"):
        vqa.ask(pictures, COUNT, method="pnpvqa")


def test_yes_joins_as_the_wording_says() -> None:
    expected = {
        "Is there a picture of a dog?": "any",
        "Does at least one picture show a dog?": "any",
        "All pictures show a dog.": "all",
        "Does every picture contain a dog?": "all",
        "Is there a dog in every picture?": "",
        "Is there exactly one dog?": "",
        "Is the dog red?": "",
        "How many pictures show two dogs?": "sum",
        "How many different dogs are there?": "",
    }
    assert {question: joins(question) for question in expected} == expected


def test_a_vision_language_model_is_shown_what_it_has_room_for() -> None:
    drawn = [draw_scene(sample_scene(random.Random(number))) for number in range(24)]
    with CodeVQA.from_preset("mini-vlm") as vqa:
        answer = vqa.ask(drawn, "How many pictures contain a cup?", method="direct")
        parts = answer.trace.baseline
        assert len(parts) > 1 and sum(len(part.images) for part in parts) == 24
        assert int(answer.text) == sum(int(part.completion) for part in parts)
        with pytest.raises(PromptTooLongError, match=r"about [1-9]"):
            vqa.ask(drawn, "What is in most pictures?", method="direct")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """1,200 pictures, more than are decoded for a question at once."""
    folder = tmp_path_factory.mktemp("many")
    for number in range(1200):
        PILImage.new("RGB", (8, 8), (number % 256, number // 256, 0)).save(folder / f"{number:04}.bmp")
    yield folder


def test_a_loop_over_a_large_collection_runs_ahead_and_keeps_its_trace_small(folder: Path, tmp_path: Path) -> None:
    settings = Settings(workers=8)
    with engine(settings=settings) as vqa:
        pictures = Collection(folder, index=tmp_path)
        answer = vqa.run(pictures, 'answer = [query(img, "Is there a dog?") for img in images]')
    calls = answer.trace.calls
    assert answer.value == ["yes"] * 1200 and all(call.ahead for call in calls)
    detailed = [bool(call.evidence[0].relevance and call.evidence[0].prompt) for call in calls]
    assert detailed == [True] * DETAILED + [False] * (1200 - DETAILED) and calls[-1].evidence[0].captions
