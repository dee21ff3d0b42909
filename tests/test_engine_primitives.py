"""What the calls of a program find in the whole pipeline: pictures, positions, boxes, primitives of one's own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from engine_kit import BLUE, GREEN, RED, engine

from codevqa import Answer, Question, Settings
from codevqa.core.errors import ProgramRuntimeError
from codevqa.core.images import load_picture
from codevqa.core.trace import Evidence, ImageRef
from codevqa.models.base import Box, Map, Match, MatchRequest, SimilarityRequest
from codevqa.models.fakes import FakeDetector, FakeMatcher
from codevqa.primitives import Image, primitive
from codevqa.primitives.context import CallContext


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
        return [Match(one.relevance, np.float32(one.logit)) for one in super().match(requests)]  # type: ignore[arg-type]

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
        score for call in answer.trace.calls if call.name != "sizes" for one in call.evidence for score in one.scores
    ]
    assert len(scores) > 3 and {type(score) for score in scores} == {float}
