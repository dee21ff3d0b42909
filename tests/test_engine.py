"""The whole pipeline over fake models (real prompts, sandbox and batching), and what the calls of a program find."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from engine_kit import BLUE, GREEN, RED, engine, reader
from PIL import Image as PILImage
from reading_kit import Letters

from codevqa import Answer, CodeVQA, Program, Question, Settings
from codevqa.core.errors import ErrorRecord, ProgramError, ProgramRuntimeError
from codevqa.core.images import load_picture
from codevqa.core.trace import Call, Evidence, ImageRef
from codevqa.engine.answers import answer_text
from codevqa.models.fakes import FakeCaptioner, FakeDetector, FakeMatcher, ScriptedLM
from codevqa.models.protocols import Box, GenerationRequest, Map, Match, MatchRequest, Models, SimilarityRequest
from codevqa.primitives import Image, primitive
from codevqa.primitives.context import CallContext
from codevqa.prompts import load_prompt_set
from codevqa.writing.writer import Writer


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
    assert list(answer.models) == ["writer", "reader", "matcher", "captioner"]
    assert list(answer.models.values()) == ["writer", "reader", "fake-matcher", "fake-captioner"]


def test_an_answer_is_put_in_the_words_of_its_kind() -> None:
    with engine("x = 'The red ball.'\nanswer = x") as vqa:
        answer = vqa.ask(RED, "Is the red ball or the cup higher?")
    assert (answer.text, answer.fallback) == ("red ball", False)


FITS = [
    ("Do all images show a cat?", "[True, False, True]", ""),
    ("How many images show a cat?", "len(images) > 5", ""),
    ("How many images show a cat?", "images[0]", ""),
    ("How many cats are there?", "[2, 2, 2]", ""),
    ("How many cats are there?", "'half a dozen'", ""),
    ("How many cats are there?", "'two hundred'", "200"),
    ("Is the cat red or blue?", "'not red'", "not red"),
    ("What is the number of the bus?", "'B7'", "B7"),
    ("Is there a cat?", "'yes and no'", ""),
    ("Is there a cat?", "True", "yes"),
    ("Which image shows a cat?", "images.index(images[0])", ""),
    ("Which image shows a cat?", "images[0]", "image 1"),
]


@pytest.mark.parametrize(("question", "value", "text"), FITS)
def test_nothing_is_invented_where_an_answer_does_not_fit(question: str, value: str, text: str) -> None:
    with engine(f"x = {value}\nanswer = x") as vqa:
        answer = vqa.ask([RED, RED], question)
    assert answer.fallback == (not text) and (answer.text == text or not text)


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


class Counting(Letters):
    def __init__(self) -> None:
        self.batches: list[int] = []

    def embed(self, sentences: Sequence[str]) -> npt.NDArray[np.float32]:
        self.batches.append(len(sentences))
        return super().embed(sentences)


def test_questions_that_wait_for_a_worker_are_embedded_together_and_each_counts_its_own() -> None:
    def ask(questions: Sequence[str]) -> tuple[list[Answer], list[int]]:
        retriever = Counting()

        # Questions end one by one, and slowly enough to be embedded one by one.
        def write(_: object) -> str:
            time.sleep(0.01)
            return "answer = 'yes'"

        lm: Any = ScriptedLM(write)
        lm.batch = 1
        writer = Writer(lm, {"image": load_prompt_set("gqa")}, retriever)
        models = Models(reader(), FakeMatcher(6), FakeCaptioner(grid=6))
        with CodeVQA(writer, models, Settings(workers=4)) as vqa:
            answers = vqa.ask_many([(RED, question) for question in questions])
        return answers, retriever.batches[1:]  # the first is the bank

    questions = [f"Is there {'a' * number} cat?" for number in range(1, 41)]
    together, batches = ask(questions)
    assert len(batches) < 20, batches
    for question, answer in list(zip(questions, together, strict=True))[::10]:
        ((alone,), _) = ask([question])
        assert answer.program == alone.program and answer.program is not None
        assert answer.cost is not None and alone.cost is not None
        assert (answer.cost.calls, answer.tokens) == (alone.cost.calls, alone.tokens)


def test_no_work_is_done_twice() -> None:
    program = 'color = query(img, "What color is it?")\nx, y = get_pos(img, "star")\nanswer = "yes" if x else color'
    asked = [(picture, f"Is it {word}?") for picture in (RED, GREEN, BLUE) for word in ("red", "so")]
    with engine(program, batch_wait=5.0) as vqa:  # nothing is late by the clock
        models: Any = vqa.models
        for _ in range(2):
            assert [answer.error for answer in vqa.ask_many(asked)] == [None] * 6
            done = [models.matcher.matches.batches, models.captioner.batches, models.reader.batches]
            assert done == [[6], [6], [3]]


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
found.clear()
first = any(
    query(im, "b?") == "yes"
    for im in images)
answer = [first, best == images[0]]"""
    with engine("") as vqa:
        answer = vqa.run([RED, GREEN], Program(source, form="set"))
        with pytest.raises(ProgramError) as caught:
            vqa.run([RED, GREEN], Program(f"{source}\nanswer = found[0]", form="set"))
    assert answer.value == [True, True]
    assert answer.program is not None and answer.program.source == source
    calls = [(call.line, call.arguments["question"], call.ahead) for call in answer.trace.calls]
    assert calls == [(2, "a?", True), (2, "a?", True), (8, "b?", True)]
    assert caught.value.line == 11


def test_answer_as_json() -> None:
    with engine('answer = query(img, "a?")') as vqa:
        data = json.loads(vqa.ask(RED, 'A "quoted" <question>?').to_json(evidence=False))
    assert " ".join(data) == "question answer program calls fallback error warnings seconds models"
    assert data["calls"][0]["arguments"] == {"img": {"image": 1}, "question": "a?"}
    assert "evidence" not in data["calls"][0]


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


def test_find_matching_image_takes_the_highest_score() -> None:
    scores = {load_picture(picture).key: score for picture, score in ((RED, 0.1), (GREEN, 0.9), (BLUE, -0.3))}
    matcher = FakeMatcher(6, similarity=lambda request: scores[request.picture.key])
    program = 'images = open_images("ImageSet7.jpg")\nanswer = find_matching_image(images, "a frog")'
    with engine(program, matcher=matcher) as vqa:
        answer = vqa.ask([RED, GREEN, BLUE], "Which image shows a frog?")
    assert (answer.text, answer.value) == ("image 2", ImageRef(2))
    assert answer.trace.calls[1].evidence[0].scores == (0.1, 0.9, -0.3)
    assert matcher.similarities.requests[0].text == "a picture of a frog"


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


def test_find_object_where_there_is_a_detector() -> None:
    box = Box(left=0, top=0, right=30, bottom=20, score=0.9)
    with engine("answer = str(find_object(img, 'dog'))", detector=FakeDetector([box])) as vqa:
        assert vqa.ask(RED, "Where?").text == "[(0.0, 12.0, 12.0, 24.0)]"
        with pytest.raises(ProgramRuntimeError, match="needs the name of an object"):
            vqa.run(RED, "answer = len(find_object(img, ' '))")
    with engine("answer = find_object(img, 'dog')", repairs=0) as vqa:
        answer = vqa.ask(RED, "Where?")
        assert answer.error is not None and answer.error.type == "ProgramTypeError"


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("query(img, ' ')", "needs a question"),
        ("get_pos(img, '')", "needs the name of an object"),
        ("find_matching_image([], 'a dog')", "at least one image"),
        ("find_matching_image(images, '')", r"find_matching_image\(\) needs a phrase, not an empty string"),
        ("find_matching_image(images, ' \\n')", r"find_matching_image\(\) needs a phrase, not an empty string"),
        ("open_image('Image0.jpg')", "has 2 images"),
        ("open_image('Image1.jpg.exe')", "there is no image 'Image1.jpg.exe'"),
        ("open_images('Image1.jpg')", "use a name like 'ImageSet1.jpg'"),
    ],
)
def test_primitives_refuse_what_means_nothing(expression: str, words: str) -> None:
    with engine("", settings=Settings(workers=2)) as vqa, pytest.raises(ProgramRuntimeError, match=words):
        vqa.run([RED, GREEN], f"img = images[0]\nanswer = {expression}")


class NumPyMatcher(FakeMatcher):
    """A matcher that gives NumPy's numbers, as code over arrays does."""

    def match(self, requests: Sequence[MatchRequest]) -> list[Match]:
        return [Match(each.relevance, np.float32(each.logit)) for each in super().match(requests)]  # type: ignore[arg-type]

    def similarity(self, requests: Sequence[SimilarityRequest]) -> list[float]:
        return list(np.array(super().similarity(requests), np.float32))


@primitive
def sizes(context: CallContext, img: Image) -> tuple[list[float], int, bool, str]:
    """Returns numbers of NumPy's."""
    score = np.float32(0.1)
    context.record(Evidence("sizes", scores=(score,), relevance=(((score,),),), position=(score, score)))  # type: ignore[arg-type]
    return [np.float64(0.1), score], np.int64(3), np.bool_(True), np.str_("a")  # type: ignore[return-value, list-item]


def test_numbers_of_numpy_s_are_python_s_once_they_come_in() -> None:
    box = Box(*np.array([0, 0, 30, 20, 0.9], np.float32))
    lists = "find_matching_image(images, 'dog'), get_pos(images[0], 'dog')"
    source = f"answer = [{lists}, find_object(images[0], 'dog'), sizes(images[0]), query(images[0], 'Is it?')]"
    options = {"detector": FakeDetector([box]), "matcher": NumPyMatcher(6, logit=1.5), "primitives": [sizes]}
    with engine("", settings=Settings(workers=2), **options) as vqa:  # type: ignore[arg-type]
        answer = vqa.run([RED, GREEN], source)
    again = Answer.from_json(answer.to_json())
    assert again == answer and again.trace == answer.trace and len(answer.trace.calls) == 5
    assert answer.value[3] == ([0.1, float(np.float32(0.1))], 3, True, "a")
    scores = [
        score
        for call in answer.trace.calls
        if call.name != "sizes"
        for evidence in call.evidence
        for score in evidence.scores
    ]
    assert len(scores) > 3 and {type(score) for score in scores} == {float}


PICTURE = Image(2, load_picture(PILImage.new("RGB", (3, 3))))


TEXTS: list[tuple[object, str]] = [
    *((True, "yes"), (False, "no"), (0, "0"), (3.0, "3"), (0.25, "0.25"), (0.1 + 0.2, "0.3"), (1e-7, "1e-07")),
    *((1234567.0, "1234567"), (1234567, "1234567"), (123456.789, "123456.789"), (1e300, "1e+300")),
    *(("  a dog \n", "a dog"), (PICTURE, "image 2")),
    ([PICTURE, "red", True, 2.0], "image 2, red, yes, 2"),
    (["red", "", None, " "], "red"),
    (("a", ["b", "c"]), "a, b, c"),
    ({"red": 2, "wet": True}, "red: 2, wet: yes"),
]


def test_answer_text() -> None:
    assert [answer_text(value) for value, _ in TEXTS] == [text for _, text in TEXTS]


def test_a_call_as_one_line() -> None:
    arguments = {"img": ImageRef(1), "x": 2.50}
    assert str(Call(1, "f", arguments, [1.0, "a", ImageRef(2)], 0.1)) == "f(image 1, 2.5) -> [1, 'a', image 2]"
    failed = Call(1, "f", arguments, None, 0.1, error=ErrorRecord("ModelError", "down", 3))
    assert str(failed) == "f(image 1, 2.5) -> failed: down"


def test_all_seconds_of_an_answer_are_of_a_stage() -> None:
    def write(request: GenerationRequest) -> str:
        time.sleep(0.2)
        return "\nanswer = query(img, 'x')"

    def read(request: GenerationRequest) -> str:
        time.sleep(0.1)
        return " red\n"

    with engine(write, read) as vqa:
        answer, baseline = vqa.ask(RED, "What color is it?"), vqa.ask(GREEN, "Is it?", method="pnpvqa")
    assert sum(answer.stages.values()) == pytest.approx(answer.seconds)
    assert answer.stages["writing"] > 0.2 and answer.stages["running"] > 0.1 and answer.stages["choosing"] > 0
    assert baseline.stages["reading"] > 0.1 and "writing" not in baseline.stages
