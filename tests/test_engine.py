"""The whole pipeline over fake models: real prompts, real sandbox, real batching."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from engine_kit import Gate
from PIL import Image as PILImage

from codevqa import (
    Answer,
    CodeVQA,
    Limits,
    Models,
    Program,
    QuerySettings,
    Question,
    Settings,
    Writer,
    WriterSettings,
)
from codevqa.core.errors import (
    CodeVQAError,
    ImageError,
    InputError,
    InternalError,
    ModelError,
    ProgramAnswerError,
    ProgramLimitError,
    ProgramRuntimeError,
    ProgramSyntaxError,
    ProgramTypeError,
    QuestionError,
    ServerError,
    SetupError,
)
from codevqa.core.events import Failed
from codevqa.core.trace import ImageRef
from codevqa.models.base import Box, GenerationRequest, Map, MatchRequest
from codevqa.models.fakes import FakeCaptioner, FakeDetector, FakeMatcher, ScriptedLM
from codevqa.primitives import Image, primitive
from codevqa.prompts import load as load_prompts

RED, GREEN, BLUE = (PILImage.new("RGB", (60, 40), color) for color in ("red", "green", "blue"))

METHODS: tuple[Literal["codevqa", "pnpvqa"], ...] = ("codevqa", "pnpvqa")


def reader(answers: dict[str, str] | None = None) -> ScriptedLM:
    def read(request: GenerationRequest) -> str:
        question = str(request.prompt).rsplit("Q: ", 1)[1].removesuffix("\nA:")
        return (answers or {}).get(question, " yes\n")

    return ScriptedLM(read, name="reader")


@contextmanager
def engine(
    programs: str | Sequence[str] | Callable[[GenerationRequest], str],
    *,
    answers: dict[str, str] | None = None,
    settings: Settings | None = None,
    matcher: FakeMatcher | None = None,
    read: ScriptedLM | None = None,
    repairs: int = 1,
    **options: Any,
) -> Iterator[CodeVQA]:
    written = WriterSettings(selection="fixed", repairs=repairs)
    writer = Writer(
        ScriptedLM(programs, name="writer"),
        {"image": load_prompts("gqa"), "set": load_prompts("covr")},
        settings=settings.writer if settings and settings.writer != WriterSettings() else written,
    )
    captioner = FakeCaptioner(lambda request: f"thing {request.seed}", grid=6)
    models = Models(read or reader(answers), matcher or FakeMatcher(6), captioner, options.pop("detector", None))
    used = settings or Settings(query=QuerySettings(captions=2, patches=5), workers=8)
    with CodeVQA(writer, models, used, **options) as vqa:
        yield vqa


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


def test_calls_know_their_lines() -> None:
    with engine('img = open_image("Image13.jpg")\n\nanswer = query(img, "a?")') as vqa:
        lines = [call.line for call in vqa.ask(RED, "a?").trace.calls]
    assert lines in ([1, 3], [None, None])


def at(row: int, column: int) -> Map:
    relevance = np.zeros((6, 6), np.float32)
    relevance[row, column] = 1.0
    return relevance


def test_positions_are_on_the_grid_of_24_with_y_upwards() -> None:
    where = {"star": at(0, 0), "circle": at(5, 5)}

    def relevance(request: MatchRequest) -> Map:
        return where[request.text]

    source = 'img = open_image("Image1.jpg")\nanswer = [get_pos(img, "star"), get_pos(img, "circle")]'
    with engine("", matcher=FakeMatcher(6, relevance=relevance)) as vqa:
        answer = vqa.run(RED, source)
    assert answer.value == [(2.0, 22.0), (22.0, 2.0)]
    assert answer.trace.calls[1].evidence[0].position == (2.0, 22.0)


def test_position_text_of_the_release_matches_the_whole_question() -> None:
    matcher = FakeMatcher(6)
    settings = Settings(query=QuerySettings(captions=1, patches=5), position_text="question")
    with engine('answer = get_pos(img, "red star")[0] > 3', settings=settings, matcher=matcher) as vqa:
        vqa.ask(RED, "Is the red star left?")
    request = matcher.matches.requests[0]
    assert (request.text, request.focus) == ("Is the red star left", "red star")


def test_find_matching_image_takes_the_highest_score() -> None:
    scores = {"red": 0.1, "green": 0.9, "blue": -0.3}
    keys: dict[str, str] = {}
    matcher = FakeMatcher(6, similarity=lambda request: scores[keys[request.picture.key]])
    from codevqa.core.images import load_picture

    pictures = {name: load_picture(PILImage.new("RGB", (9, 9), name)) for name in scores}
    keys.update({picture.key: name for name, picture in pictures.items()})
    program = 'images = open_images("ImageSet7.jpg")\nanswer = find_matching_image(images, "a frog")'
    with engine(program, matcher=matcher) as vqa:
        answer = vqa.ask(list(pictures.values()), "Which image shows a frog?")
    assert (answer.text, answer.value) == ("image 2", ImageRef(2))
    assert answer.trace.calls[1].evidence[0].scores == (0.1, 0.9, -0.3)
    assert matcher.similarities.requests[0].text == "a picture of a frog"


def test_comprehensions_lambdas_functions_and_sort_keys_call_primitives() -> None:
    program = """
images = open_images("ImageSet7.jpg")
def red(image):
    return query(image, "Is it red?") == "yes"
ordered = sorted(images, key=lambda image: get_pos(image, "dog")[0])
count = len([image for image in images if red(image)])
every = all(query(image, "Is it wet?") == "yes" for image in images)
answer = f"{count} {every} {len(ordered)}"
"""
    with engine(program) as vqa:
        answer = vqa.ask([RED, GREEN, BLUE], "What is here?")
    assert (answer.text, answer.fallback) == ("3 True 3", False)


@pytest.mark.parametrize(
    ("expression", "text"),
    [("True", "yes"), ("1 > 2", "no"), ("3", "3"), ("2.0", "2"), ("['a', 'b']", "a, b"), ("' red '", "red")],
)
def test_what_a_program_leaves_becomes_text(expression: str, text: str) -> None:
    with engine("") as vqa:
        assert vqa.run(RED, f"answer = {expression}").text == text


def test_the_baseline_writes_no_program() -> None:
    with engine("answer = 'never'") as vqa:
        answer = vqa.ask([RED, GREEN], "Are both red?", method="pnpvqa")
    assert (answer.text, answer.program, answer.method, answer.fallback) == ("yes", None, "pnpvqa", False)
    assert answer.trace.baseline[0].prompt.count("\nImage 2: ") >= 1


@pytest.mark.parametrize(
    ("program", "error"),
    [
        ("answer = (", "ProgramSyntaxError"),
        ("answer = qury(img, 'a')", "ProgramTypeError"),
        ("answer = query(img)", "ProgramTypeError"),
        ("answer = [][1]", "ProgramRuntimeError"),
        ("while True: answer = 1", "ProgramLimitError"),
        ("x = 1", "UnsetAnswerError"),
        ("answer = None", "ProgramAnswerError"),
        ("answer = ''", "ProgramAnswerError"),
    ],
)
def test_a_program_that_fails_is_a_marked_fallback_with_a_typed_error(program: str, error: str) -> None:
    settings = Settings(query=QuerySettings(captions=1, patches=5), limits=Limits(seconds=0.2), workers=4)
    with engine(program, answers={"Is it red?": "perhaps"}, settings=settings, repairs=0) as vqa:
        answer = vqa.ask(RED, "Is it red?")
    assert answer.fallback and answer.text == "perhaps"
    assert answer.error is not None and answer.error.type == error
    assert answer.program is not None and answer.program.source == program
    assert answer.trace.attempts[0][1] == answer.error and answer.trace.baseline


def test_one_repair_mends_a_program_that_fails_the_check() -> None:
    with engine(["answer = qury(img, 'a')", "answer = query(img, 'Is it red?')"]) as vqa:
        answer = vqa.ask(RED, "Is it red?")
    assert (answer.text, answer.fallback, answer.error) == ("yes", False, None)
    assert [attempt[1].type for attempt in answer.trace.attempts] == ["ProgramTypeError"]


BREAKS = "found = query(img, 'Is it red?')\nanswer = [][0]"


def test_a_program_that_fails_while_it_runs_goes_back_once_with_its_line_and_values() -> None:
    with engine([BREAKS, "answer = query(img, 'Is it red?')"]) as vqa:
        answer = vqa.ask(RED, "Is it red?")
        writer = vqa.writer.language_model
    assert (answer.text, answer.fallback, answer.error) == ("yes", False, None)
    assert [attempt[1].type for attempt in answer.trace.attempts] == ["ProgramRuntimeError"]
    assert len(answer.trace.calls) == 1, "the calls of the program that failed are not the answer's"
    assert isinstance(writer, ScriptedLM) and len(writer.requests) == 2
    said = str(writer.requests[1].prompt)
    assert "line 2: IndexError" in said and "query(image 1, 'Is it red?') -> 'yes'" in said


def test_a_program_that_has_called_models_is_not_started_over_where_that_is_switched_off() -> None:
    settings = Settings(writer=WriterSettings(repair_runs=False), query=QuerySettings(captions=1, patches=5), workers=4)
    with engine(BREAKS, settings=settings) as vqa:
        answer = vqa.ask(RED, "Is it red?")
        writer = vqa.writer.language_model
    assert answer.fallback and len(answer.trace.attempts) == 1
    assert isinstance(writer, ScriptedLM) and len(writer.requests) == 1


@pytest.mark.parametrize(
    ("question", "left", "text"),
    [
        ("Is it red?", "True", "yes"),
        ("Is it red?", "'No, it is blue.'", "no"),
        ("How many are there?", "'four blocks'", "4"),
        ("Is the large red ball or the cup higher?", "'red ball'", "large red ball"),
    ],
)
def test_an_answer_is_put_in_the_words_of_its_kind(question: str, left: str, text: str) -> None:
    with engine(f"x = {left}\nanswer = x") as vqa:
        answer = vqa.ask(RED, question)
    assert (answer.text, answer.fallback) == (text, False)


def test_an_answer_of_another_kind_goes_back_and_is_never_given() -> None:
    with engine("x = 'left'\nanswer = x") as vqa:
        answer = vqa.ask(RED, "Is it red?")
    assert (
        answer.fallback
        and [error.message for _, error in answer.trace.attempts]
        == ['the question wants "yes" or "no", not \'left\''] * 2
    )
    settings = Settings(writer=WriterSettings(fit=False), query=QuerySettings(captions=1, patches=5), workers=4)
    with engine("x = 'left'\nanswer = x", settings=settings) as vqa:
        assert vqa.ask(RED, "Is it red?").text == "left"


def test_a_picture_read_as_another_kind_is_no_reason_to_write_again() -> None:
    with engine("answer = query(img, 'Is it red or blue?')", read=ScriptedLM(" yes")) as vqa:
        answer = vqa.ask(RED, "Is it red or blue?")
        writer = vqa.writer.language_model
    assert isinstance(writer, ScriptedLM) and len(writer.requests) == 1
    assert answer.fallback and answer.error is not None and answer.error.type == "MisreadError"
    # Asked for something else, it is the program that is wrong.
    with engine("answer = query(img, 'Is it red?')", read=ScriptedLM(" yes")) as vqa:
        answer = vqa.ask(RED, "Is it red or blue?")
    assert len(answer.trace.attempts) == 2


def test_a_program_held_to_its_question_goes_back_but_runs_where_nothing_mends_it() -> None:
    dropped = "answer = query(img, 'Is there a ball?')"
    with engine([dropped, "answer = query(img, 'Is there a green ball?')"]) as vqa:
        answer = vqa.ask(RED, "Is there a green ball?")
    assert [error.message for _, error in answer.trace.attempts] == [
        'line 1: the question says "green" and the program never does: keep it with the thing it describes'
    ]
    with engine(dropped) as vqa:
        answer = vqa.ask(RED, "Is there a green ball?")
    assert not answer.fallback and answer.program is not None and answer.program.source == dropped


def test_a_model_that_is_down_is_an_error_not_a_fallback() -> None:
    def down(request: GenerationRequest) -> str:
        raise ServerError("The server is down.")

    with engine(down) as vqa, pytest.raises(ServerError, match="down"):
        vqa.ask(RED, "Is it red?")
    with (
        engine(
            "try:\n    answer = query(img, 'a')\nexcept Exception:\n    answer = 'caught'", read=ScriptedLM(down)
        ) as vqa,
        pytest.raises(ModelError, match="down"),
    ):
        vqa.ask(RED, "Is it red?")


def test_many_questions_share_batches_and_one_bad_picture_loses_nothing(tmp_path: Path) -> None:
    pictures = [PILImage.new("RGB", (60, 40), (number, 0, 0)) for number in range(8)]
    questions = [Question(picture, f"Is it number {number}?") for number, picture in enumerate(pictures)]
    questions.insert(3, Question(tmp_path / "missing.png", "Is it there?"))
    # Long enough that a busy machine does not pull apart calls made together.
    settings = Settings(query=QuerySettings(captions=2, patches=5), workers=8, batch_wait=0.1)
    with engine("answer = query(img, 'Is it red?')", settings=settings) as vqa:
        answers = vqa.ask_many(questions)
        reads = vqa.models.reader
    assert [answer.question for answer in answers] == [question.text for question in questions]
    assert answers[3].error is not None and answers[3].error.type == "ImageError" and answers[3].text == ""
    assert all(answer.text == "yes" for place, answer in enumerate(answers) if place != 3)
    assert isinstance(reads, ScriptedLM) and max(reads.batches) >= 4


def test_async_twins_work_from_any_loop() -> None:
    async def main(vqa: CodeVQA) -> list[str]:
        one = await vqa.ask_async(RED, "Is it red?")
        many = await vqa.ask_many_async([Question(RED, "Is it red?")] * 2)
        ran = await vqa.run_async(RED, "answer = 'x'")
        return [one.text, *(answer.text for answer in many), ran.text]

    with engine("answer = query(img, 'a')") as vqa:
        assert asyncio.run(main(vqa)) == ["yes", "yes", "yes", "x"]


def test_threads_share_one_engine() -> None:
    texts: list[str] = []
    with engine("answer = query(img, 'a')") as vqa:
        threads = [threading.Thread(target=lambda: texts.append(vqa.ask(RED, "a?").text)) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert texts == ["yes"] * 6


@pytest.mark.parametrize(
    ("source", "error", "words"),
    [
        ("answer = (", ProgramSyntaxError, "line 1"),
        ("a = 1\nanswer = nothing", ProgramTypeError, "line 2"),
        ("a = 1\nb = []\nanswer = b[a]", ProgramRuntimeError, "line 3"),
        ("while True: answer = 1", ProgramLimitError, "second"),
        ("a = 1", ProgramAnswerError, "answer"),
    ],
)
def test_run_raises_what_went_wrong(source: str, error: type[Exception], words: str) -> None:
    settings = Settings(limits=Limits(seconds=0.2), workers=2)
    with engine("", settings=settings) as vqa, pytest.raises(error, match=words):
        vqa.run(RED, source)


def test_an_error_names_its_line_once() -> None:
    with engine("", settings=Settings(workers=2)) as vqa:
        for _ in range(2):  # the second comes from the memory of checks
            with pytest.raises(ProgramTypeError, match=r"^line 2: (?!line)") as caught:
                vqa.run(RED, "a = 1\nanswer = nothing")
    assert (caught.value.line, caught.value.record().line) == (2, 2)


def test_run_takes_a_program_of_an_answer_again() -> None:
    with engine('img = open_image("Image13.jpg")\nanswer = query(img, "a?")') as vqa:
        answer = vqa.ask(RED, "Is it red?")
        assert isinstance(answer.program, Program)
        again = vqa.run(RED, answer.program)
    assert (again.text, again.question) == ("yes", "Is it red?")


@pytest.mark.parametrize(("question", "words"), [("", "empty"), (" \n", "empty"), ("a" * 1001, "1,001 characters")])
def test_unusable_questions(question: str, words: str) -> None:
    with engine("") as vqa, pytest.raises(QuestionError, match=words):
        vqa.ask(RED, question)


def test_unusable_pictures(tmp_path: Path) -> None:
    with engine("") as vqa:
        with pytest.raises(ImageError, match="No picture at"):
            vqa.ask(tmp_path / "a.png", "Is it red?")
        with pytest.raises(ImageError, match="No picture was given"):
            vqa.ask([], "Is it red?")
        with pytest.raises(InputError, match="needs one image, not 2"):
            vqa.ask([RED, RED], "Is it red?", form="image")


def test_a_primitive_of_the_user_s() -> None:
    @primitive
    def width(img: Image) -> int:
        """Returns the width of the image in pixels."""
        return img.picture.pixels.width

    with engine("answer = width(img)", primitives=[width]) as vqa:
        answer = vqa.ask(RED, "How wide is it?")
        assert "width(img: Image) -> int: Returns the width" in vqa.prompt("How wide is it?")
    assert (answer.text, answer.fallback) == ("60", False)


def test_a_primitive_of_the_user_s_that_breaks_is_a_marked_fallback() -> None:
    @primitive
    def broken(img: Image) -> int:
        """Breaks."""
        raise ZeroDivisionError("by\nzero")

    with engine(["answer = broken(img)"] * 5, primitives=[broken]) as vqa:
        answers = vqa.ask_many([Question(RED, "How wide?"), Question(RED, "How high?")])
        with pytest.raises(ProgramRuntimeError, match=r"line 1: broken\(\) failed: ZeroDivisionError: by zero"):
            vqa.run(RED, "answer = broken(img)")
    assert [(answer.text, answer.fallback) for answer in answers] == [("yes", True)] * 2
    assert answers[0].trace.calls[0].error is not None
    assert answers[0].trace.calls[0].error.type == "ZeroDivisionError"


def test_run_needs_no_question_and_remembers_the_form() -> None:
    with engine("", settings=Settings(workers=2)) as vqa:
        assert vqa.run(RED, "answer = 1").question == ""
        program = Program('images = open_images("ImageSet7.jpg")\nanswer = query(images[0], "a?")', form="set")
        evidence = vqa.run(RED, program).trace.calls[1].evidence[0]
    assert len(evidence.captions[0]) == 3  # as many as the set's prompts say


def test_find_object_where_there_is_a_detector() -> None:
    box = Box(left=0, top=0, right=30, bottom=20, score=0.9)
    with engine("answer = str(find_object(img, 'dog'))", detector=FakeDetector([box])) as vqa:
        assert vqa.ask(RED, "Where?").text == "[(0.0, 12.0, 12.0, 24.0)]"
        with pytest.raises(ProgramRuntimeError, match="needs the name of an object"):
            vqa.run(RED, "answer = len(find_object(img, ' '))")
    with engine("answer = find_object(img, 'dog')", repairs=0) as vqa:
        answer = vqa.ask(RED, "Where?")
        assert answer.error is not None and answer.error.type == "ProgramTypeError"


def test_one_picture_may_be_a_set() -> None:
    with engine('images = open_images("ImageSet7.jpg")\nanswer = len(images)') as vqa:
        assert vqa.ask([RED], "How many?", form="set").text == "1"
        writer = vqa.writer.language_model
    assert isinstance(writer, ScriptedLM) and str(writer.requests[0].prompt).endswith("# Image Set 7: How many?")


@pytest.mark.parametrize("path", ["/etc/passwd", "../Image1.jpg", "http://a/Image1.jpg", "Image-1.jpg"])
def test_open_image_opens_nothing_but_the_question_s_pictures(path: str) -> None:
    with engine("", settings=Settings(workers=2)) as vqa, pytest.raises(ProgramRuntimeError, match="there is no image"):
        vqa.run(RED, f'answer = open_image("{path}")')


def test_open_image_by_number_in_a_set() -> None:
    with engine("", settings=Settings(workers=2)) as vqa:
        assert vqa.run([RED, GREEN], 'answer = open_image("Image2.jpg")').text == "image 2"
        with pytest.raises(ProgramRuntimeError, match="has 2 images"):
            vqa.run([RED, GREEN], 'answer = open_image("Image3.jpg")')


def test_answer_as_json() -> None:
    with engine('answer = query(img, "a?")') as vqa:
        answer = vqa.ask(RED, 'A "quoted" <question>?')
    data = json.loads(answer.to_json(evidence=False))
    assert list(data) == [
        "question",
        "answer",
        "program",
        "calls",
        "fallback",
        "error",
        "warnings",
        "seconds",
        "models",
    ]
    assert data["calls"][0]["arguments"] == {"img": {"image": 1}, "question": "a?"}
    assert "evidence" not in data["calls"][0]
    full = json.loads(answer.to_json())
    assert full["calls"][0]["evidence"][0]["captions"]
    assert {**full, "calls": [], "seconds": 0}.items() >= {**data, "calls": [], "seconds": 0}.items()
    assert Answer.from_json(answer.to_json()) == answer


def test_closing_twice_is_harmless() -> None:
    with engine("") as vqa:
        vqa.close()
    vqa.close()


@pytest.mark.parametrize("method", ["codevqa", "pnpvqa"])
def test_the_longest_question_is_a_setting(method: Literal["codevqa", "pnpvqa"]) -> None:
    settings = Settings(query=QuerySettings(captions=1, patches=5), workers=2, max_question=5)
    with engine("answer = 1", settings=settings) as vqa:
        assert vqa.ask(RED, " 12345 ", method=method).question == "12345"
        with pytest.raises(QuestionError, match=r"6 characters.*limit is 5"):
            vqa.ask(RED, "123456", method=method)
        with pytest.raises(QuestionError, match="6 characters"):
            vqa.prompt("123456")
        with pytest.raises(QuestionError, match="empty"):
            vqa.prompt(" ")


def test_every_repair_is_kept_and_the_last_program_is_the_answer_s() -> None:
    with engine([f"answer = qury{number}(img)" for number in range(5)], repairs=2) as vqa:
        answer = vqa.ask(RED, "Is it red?")
    assert [attempt[0].source for attempt in answer.trace.attempts] == [f"answer = qury{n}(img)" for n in range(3)]
    assert answer.fallback and answer.program is not None and answer.program.source == "answer = qury2(img)"
    assert answer.error == answer.trace.attempts[-1][1]


def test_what_a_program_prints_and_how_long_it_took() -> None:
    program = "print('looking')\nanswer = query(img, 'a?')"
    with engine(program) as vqa:
        answers = [vqa.ask(RED, "a?"), vqa.run(RED, program)]
    for answer in answers:
        assert answer.trace.printed == "looking\n"
        assert answer.seconds >= answer.trace.calls[0].seconds > 0


def test_workers_bound_how_many_questions_are_under_way() -> None:
    settings = Settings(query=QuerySettings(captions=1, patches=5), workers=2, batch_wait=0.05)
    with engine("", settings=settings) as vqa:
        answers = vqa.ask_many([Question(RED, f"{number}?") for number in range(6)], method="pnpvqa")
        reads = vqa.models.reader
    assert isinstance(reads, ScriptedLM) and max(reads.batches) == 2
    assert [answer.question for answer in answers] == [f"{number}?" for number in range(6)]


def test_batches_are_no_larger_than_the_setting() -> None:
    settings = Settings(query=QuerySettings(captions=7, patches=5), workers=2, batch_wait=0.05, max_batch=3)
    with engine("answer = query(img, 'a')", settings=settings) as vqa:
        vqa.ask(RED, "a?")
        captioner = vqa.models.captioner
    assert isinstance(captioner, FakeCaptioner) and max(captioner.batches) == 3


def test_limits_are_a_setting() -> None:
    settings = Settings(limits=Limits(calls=2), query=QuerySettings(captions=1, patches=5), workers=2)
    with engine("", settings=settings) as vqa:
        assert vqa.run(RED, "answer = [get_pos(img, 'a')[0] for _ in range(2)]").text
        with pytest.raises(ProgramLimitError, match="2"):
            vqa.run(RED, "answer = [get_pos(img, 'a')[0] for _ in range(3)]")


def test_the_seed_decides_the_captions() -> None:
    def captions(seed: int) -> object:
        settings = Settings(query=QuerySettings(captions=2, patches=5), workers=2, seed=seed)
        with engine("", settings=settings) as vqa:
            return vqa.run(RED, "answer = query(img, 'a')").trace.calls[0].evidence[0].captions

    assert captions(0) == captions(0) != captions(1)


def test_prompts_that_serve_no_set_refuse_one_by_either_method() -> None:
    writer = Writer(
        ScriptedLM("answer = 1"), {"image": load_prompts("gqa")}, settings=WriterSettings(selection="fixed")
    )
    models = Models(reader(), FakeMatcher(6), FakeCaptioner(grid=6))
    with CodeVQA(writer, models, Settings(workers=2)) as vqa:
        for method in METHODS:
            with pytest.raises(SetupError, match="no examples about a set of images"):
                vqa.ask([RED, GREEN], "Are both red?", method=method)


def test_a_question_lost_to_an_error_keeps_its_method(tmp_path: Path) -> None:
    with engine("answer = 1") as vqa:
        for method in METHODS:
            (answer,) = vqa.ask_many([Question(tmp_path / "none.png", "a?")], method=method)
            assert (answer.method, answer.text, answer.error is not None) == (method, "", True)


class Letters:
    """Embeds by letters and remembers what it was asked."""

    name = "letters"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def embed(self, sentences: Sequence[str]) -> Map:
        self.asked += sentences
        return np.array([[text.lower().count(one) for one in "abcdefghijklmnopqrstuvwxyz"] for text in sentences], "f4")


def test_the_retriever_serves_writer_and_reader_and_every_model_is_named() -> None:
    retriever = Letters()
    prompts = {"image": load_prompts("gqa"), "set": load_prompts("covr")}
    writer = Writer(ScriptedLM("answer = query(img, 'Is the zebra wet?')"), prompts, retriever)  # type: ignore[arg-type]
    models = Models(reader(), FakeMatcher(6), FakeCaptioner(grid=6), FakeDetector())
    near = QuerySettings(captions=1, patches=5, shots=2, selection="nearest")
    with CodeVQA(writer, models, Settings(query=near, workers=2)) as vqa:
        answer = vqa.ask(RED, "What is this?")
    assert {"What is this?", "Is the zebra wet?"} <= set(retriever.asked)
    assert (answer.models["retriever"], answer.models["detector"]) == ("letters", "fake-detector")


def test_a_query_about_one_picture_of_a_set_reads_as_the_set_s_prompts_say() -> None:
    settings = Settings(query=QuerySettings(patches=5), workers=2)
    program = 'images = open_images("ImageSet7.jpg")\nanswer = query(images[1], "a?")'
    with engine(program, settings=settings) as vqa:
        evidence = vqa.ask([RED, GREEN], "Is it?").trace.calls[-1].evidence[0]
    assert len(evidence.captions[0]) == 3 and evidence.images == (ImageRef(2),)


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("query(img, ' ')", "needs a question"),
        ("get_pos(img, '')", "needs the name of an object"),
        ("find_matching_image([], 'a dog')", "at least one image"),
        ("open_image('Image0.jpg')", "has 2 images"),
        ("open_image('Image1.jpg.exe')", "there is no image 'Image1.jpg.exe'"),
        ("open_images('Image1.jpg')", "use a name like 'ImageSet1.jpg'"),
    ],
)
def test_primitives_refuse_what_means_nothing(expression: str, words: str) -> None:
    with engine("", settings=Settings(workers=2)) as vqa, pytest.raises(ProgramRuntimeError, match=words):
        vqa.run([RED, GREEN], f"img = images[0]\nanswer = {expression}")


def test_positions_and_boxes_keep_their_scores() -> None:
    detector = FakeDetector([Box(0, 0, 30, 20, 0.4), Box(0, 0, 3, 2, 0.9)])
    matcher = FakeMatcher(6, logit=1.5)
    source = "answer = str(get_pos(img, 'dog')) + str(len(find_object(img, 'dog')))"
    with engine("", settings=Settings(workers=2), detector=detector, matcher=matcher) as vqa:
        position, boxes = vqa.run(RED, source).trace.calls
    assert position.evidence[0].scores == (1.5,)
    assert (boxes.evidence[0].kind, boxes.evidence[0].text, boxes.evidence[0].scores) == (
        "detection",
        "dog",
        (0.9, 0.4),
    )


def children() -> set[str]:
    found: set[str] = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # a thread may end while they are listed
            found.update((task / "children").read_text().split())
    return found


@pytest.mark.skipif(not Path(f"/proc/self/task/{os.getpid()}/children").exists(), reason="lists children as Linux does")
def test_closing_leaves_no_process_and_no_thread() -> None:
    before, threads = children(), set(threading.enumerate())
    with engine("answer = query(img, 'a')") as vqa:
        vqa.ask(RED, "a?")
        assert children() - before and set(threading.enumerate()) - threads
    assert not children() - before
    assert not {one.name for one in set(threading.enumerate()) - threads}
    with pytest.raises(RuntimeError, match="closed"):
        vqa.ask(RED, "a?")


def test_cancelling_an_ask_stops_its_program_and_leaves_the_engine_usable() -> None:
    gate = Gate()

    async def main(vqa: CodeVQA) -> str:
        asking = asyncio.ensure_future(vqa.ask_async(RED, "Is it red?"))
        assert await asyncio.to_thread(gate.entered.wait, 10)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        gate.open.set()
        return (await vqa.ask_async(RED, "Is it wet?", method="pnpvqa")).text

    program, settings = "answer = query(img, 'First?') + query(img, 'Second?')", Settings(ahead=False)
    with engine(program, read=ScriptedLM(gate), settings=settings) as vqa:
        assert asyncio.run(main(vqa)) == "yes"
    assert gate.questions == ["First?", "Is it wet?"]


def test_closing_while_an_ask_runs_ends_it_and_does_not_hang() -> None:
    gate, ended = Gate(), list[str]()

    def ask(vqa: CodeVQA) -> None:
        try:
            ended.append(vqa.ask(RED, "Is it red?").text)  # it may be quicker than the close
        except (futures.CancelledError, CodeVQAError) as error:
            ended.append(type(error).__name__)

    with engine("answer = query(img, 'First?')", read=ScriptedLM(gate)) as vqa:
        asking = threading.Thread(target=ask, args=(vqa,), daemon=True)
        asking.start()
        assert gate.entered.wait(10)
        closing = threading.Thread(target=vqa.close, daemon=True)
        closing.start()
        gate.open.set()
        closing.join(10)
        asking.join(10)
    assert not closing.is_alive() and not asking.is_alive() and len(ended) == 1


@pytest.mark.parametrize("question", ["is \ud800 it", "a\udfff?"])
def test_half_a_surrogate_pair_is_no_question(question: str) -> None:
    with engine("answer = query(img, 'a')") as vqa:
        with pytest.raises(QuestionError, match="half a surrogate pair"):
            vqa.ask(RED, question)
        lost, found = vqa.ask_many([Question(RED, question), Question(RED, "Is it red?")])
    assert lost.error is not None and lost.error.type == "QuestionError" and found.text == "yes"


def test_a_mistake_of_ours_costs_its_own_question_only(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def mistaken(question: str, longest: int) -> str:
        raise ZeroDivisionError("a mistake") if "broken" in question else QuestionError("typed")

    monkeypatch.setattr("codevqa.engine.question_run.checked_question", mistaken)
    with engine("answer = 1") as vqa:
        first, second = vqa.ask_many([Question(RED, "Is it broken?"), Question(RED, "Is it red?")])
        with pytest.raises(InternalError, match=r"codevqa made a mistake: ZeroDivisionError\. .* report") as caught:
            vqa.ask(RED, "Is it broken?")
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        (failed,) = vqa.watch(RED, "Is it broken?")
        assert isinstance(failed, Failed) and failed.error.type == "InternalError"
    assert [answer.error and answer.error.type for answer in (first, second)] == ["InternalError", "QuestionError"]
    assert "A question failed: 'Is it broken?'" in caplog.text


def test_a_mended_program_about_something_else_is_not_run() -> None:
    asked = "Is the red cup on the table?"
    programs = ["answer = qury(img)", "answer = query(img, 'How large is the suitcase?')"]
    with engine(programs, answers={asked: " yes"}) as vqa:
        answer = vqa.ask(RED, asked)
    assert answer.fallback and answer.text == "yes" and answer.trace.calls == ()
    assert answer.error is not None and "about none of the things in the question" in answer.error.message
    with engine(programs[1:], repairs=0) as vqa:
        assert not vqa.ask(RED, asked).fallback, "where nothing is mended, what may be wrong is run"
