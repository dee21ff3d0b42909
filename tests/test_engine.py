"""The whole pipeline over fake models: real prompts, real sandbox, real batching."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from engine_kit import BLUE, GREEN, RED, engine
from PIL import Image as PILImage

from codevqa import Program, Question, Settings
from codevqa.core.errors import ProgramError
from codevqa.core.trace import ImageRef
from codevqa.models.fakes import ScriptedLM


def test_a_question_about_one_image() -> None:
    program = 'img = open_image("Image13.jpg")\nanswer = query(img, "What color is it?")'
    with engine("\n" + program, answers={"What color is it?": " Red\n"}) as vqa:
        answer = vqa.ask(RED, "What color is it?")
    assert (answer.text, answer.fallback, answer.error, answer.method) == ("red", False, None, "codevqa")
    assert answer.program is not None and answer.program.source == program
    assert answer.program.prompt.endswith("# Image 13: What color is it?") and len(answer.program.examples) == 12
    opened, asked = answer.trace.calls
    assert (opened.name, opened.value) == ("open_image", ImageRef(1))
    assert asked.arguments == {"img": ImageRef(1), "question": "What color is it?"}
    assert asked.value == "red" and asked.seconds > 0
    evidence = asked.evidence[0]
    assert len(evidence.captions[0]) == 2 and len(evidence.relevance[0]) == 6
    assert evidence.completion == " Red" and evidence.prompt.endswith("Q: What color is it?\nA:")
    assert answer.models == {
        "writer": "writer",
        "reader": "reader",
        "matcher": "fake-matcher",
        "captioner": "fake-captioner",
    }


def test_an_answer_is_put_in_the_words_of_its_kind() -> None:
    with engine("x = 'red ball'\nanswer = x") as vqa:
        answer = vqa.ask(RED, "Is the large red ball or the cup higher?")
    assert (answer.text, answer.fallback) == ("large red ball", False)


def test_many_questions_share_batches_and_one_bad_picture_loses_nothing(tmp_path: Path) -> None:
    pictures = [PILImage.new("RGB", (60, 40), (number, 0, 0)) for number in range(8)]
    questions = [Question(picture, f"Is it number {number}?") for number, picture in enumerate(pictures)]
    questions.insert(3, Question(tmp_path / "missing.png", "Is it there?"))
    # Long enough that a busy machine does not pull apart calls made together.
    with engine("answer = query(img, 'Is it red?')", batch_wait=0.1) as vqa:
        answers = vqa.ask_many(questions)
        reads = vqa.models.reader
    assert [answer.question for answer in answers] == [question.text for question in questions]
    assert answers[3].error is not None and answers[3].error.type == "ImageError" and answers[3].text == ""
    assert all(answer.text == "yes" for place, answer in enumerate(answers) if place != 3)
    assert isinstance(reads, ScriptedLM) and max(reads.batches) >= 4


def test_no_work_is_done_twice() -> None:
    program = 'color = query(img, "What color is it?")\nx, y = get_pos(img, "star")\nanswer = "yes" if x else color'
    asked = [(picture, f"Is it {word}?") for picture in (RED, GREEN, BLUE) for word in ("red", "so")]
    with engine(program) as vqa:
        models: Any = vqa.models
        for _ in range(2):
            assert [answer.error for answer in vqa.ask_many(asked)] == [None] * 6
            done = [models.matcher.matches.requests, models.captioner.requests, models.reader.requests]
            assert list(map(len, done)) == [6, 6, 3]


@pytest.mark.parametrize(("ahead", "batches"), [(True, 1), (False, 3)])
def test_a_loop_over_a_set_is_one_batch_when_looked_ahead(ahead: bool, batches: int) -> None:
    with engine("answer = len([i for i in images if query(i, 'a?') == 'yes'])", ahead=ahead, batch_wait=5.0) as vqa:
        assert vqa.ask([RED, GREEN, BLUE], "How many?").text == "3"
        models: Any = vqa.models
        assert models.matcher.matches.calls == batches


def test_run_needs_no_question_and_remembers_the_form() -> None:
    with engine("", settings=Settings(workers=2)) as vqa:
        assert vqa.run(RED, "answer = 1").question == ""
        program = Program('images = open_images("ImageSet7.jpg")\nanswer = query(images[0], "a?")', form="set")
        evidence = vqa.run(RED, program).trace.calls[1].evidence[0]
    assert len(evidence.captions[0]) == 3  # as many as the set's prompts say


def test_calls_of_a_program_that_is_rewritten_keep_their_lines_and_begin_ahead() -> None:
    source = """found = {
    im: query(im, "a?")
    for im in images
}
best = max(found, key=found.get)
del found
def asked(ims):
    for im in ims:
        yield query(im, "b?")
answer = [*asked([best]), best == images[0]]"""
    with engine("") as vqa:
        answer = vqa.run([RED, GREEN], Program(source, form="set"))
        with pytest.raises(ProgramError) as caught:
            vqa.run([RED, GREEN], Program(f"{source}\nanswer = found", form="set"))
    assert answer.value == ["yes", True]
    assert answer.program is not None and answer.program.source == source
    made = [(call.line, call.arguments["question"], call.ahead) for call in answer.trace.calls]
    assert made == [(2, "a?", True), (2, "a?", True), (9, "b?", False)]
    assert caught.value.line == 11


def test_answer_as_json() -> None:
    with engine('answer = query(img, "a?")') as vqa:
        data = json.loads(vqa.ask(RED, 'A "quoted" <question>?').to_json(evidence=False))
    assert " ".join(data) == "question answer program calls fallback error warnings seconds models"
    assert data["calls"][0]["arguments"] == {"img": {"image": 1}, "question": "a?"}
    assert "evidence" not in data["calls"][0]
