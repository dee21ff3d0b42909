"""What a program leaves in ``answer``, as text and as plain data; and both as JSON."""

from __future__ import annotations

import json

import pytest
from PIL import Image as PILImage

from codevqa.core.answer import Answer
from codevqa.core.errors import ErrorRecord, ProgramAnswerError
from codevqa.core.images import load_picture
from codevqa.core.trace import Call, Evidence, ImageRef, Program, Trace
from codevqa.engine.answer_text import answer_text, plain
from codevqa.primitives import Image

PICTURE = Image(2, load_picture(PILImage.new("RGB", (3, 3))))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "yes"),
        (False, "no"),
        (0, "0"),
        (3.0, "3"),
        (0.25, "0.25"),
        (1234567.0, "1234567"),
        (1234567, "1234567"),
        (123456.789, "123456.789"),
        (0.1 + 0.2, "0.3"),
        (1e-7, "1e-07"),
        (1e300, "1e+300"),
        ("  a dog \n", "a dog"),
        (PICTURE, "image 2"),
        ([PICTURE, "red", True, 2.0], "image 2, red, yes, 2"),
        (["red", "", None, " "], "red"),
        (("a", ["b", "c"]), "a, b, c"),
        ({"red": 2, "wet": True}, "red: 2, wet: yes"),
    ],
)
def test_answer_text(value: object, text: str) -> None:
    assert answer_text(value) == text


@pytest.mark.parametrize(
    ("value", "words"),
    [(None, "left None"), ("", "left ''"), (" ", "left ' '"), ([], "an empty list"), ((), "an empty list"), ({}, "{}")],
)
def test_nothing_to_say(value: object, words: str) -> None:
    with pytest.raises(ProgramAnswerError, match=words):
        answer_text(value)


def test_plain_replaces_images_at_any_depth_and_keeps_the_rest() -> None:
    given = {"a": [PICTURE, (PICTURE, 1)], "b": {"c": PICTURE}, "d": None}
    assert plain(given) == {"a": [ImageRef(2), (ImageRef(2), 1)], "b": {"c": ImageRef(2)}, "d": None}


def call(value: object, **fields: object) -> Call:
    return Call(1, "f", {"img": ImageRef(1), "x": 2.50}, value, 0.123456, 3, **fields)  # type: ignore[arg-type]


def test_a_call_as_one_line() -> None:
    assert str(call([1.0, "a", ImageRef(2)])) == "f(image 1, 2.5) -> [1, 'a', image 2]"
    failed = call(None, error=ErrorRecord("ModelError", "down", 3))
    assert str(failed) == "f(image 1, 2.5) -> failed: down"


def test_json_of_everything_a_call_can_hold() -> None:
    evidence = Evidence(
        "gradcam", (ImageRef(2),), "dog", relevance=(((0.1234567, 0.0),),), scores=(0.5,), position=(1.0, 2.0)
    )
    odd = call({1: float("inf"), "n": float("nan"), "l": (ImageRef(2), -float("inf"))}, evidence=(evidence,))
    failed = call(None, error=ErrorRecord("ModelError", "down", 3))
    error = ErrorRecord("ProgramAnswerError", "nothing", None)
    answer = Answer(
        "Où?", "là", Program("answer = 1"), Trace((odd, failed)), fallback=True, error=error, seconds=1.23456
    )
    line = answer.to_json()
    assert "Où?" in line and "\n" not in line
    data = json.loads(line)
    assert (data["question"], data["answer"], data["program"]) == ("Où?", "là", "answer = 1")
    assert (data["fallback"], data["error"]["type"], data["seconds"]) == (True, "ProgramAnswerError", 1.23456)
    first, second = data["calls"]
    assert first["value"] == {"1": "inf", "n": "nan", "l": [{"image": 2}, "-inf"]}
    assert (first["name"], first["line"], first["seconds"], first["error"]) == ("f", 3, 0.123456, None)
    assert first["arguments"] == {"img": {"image": 1}, "x": 2.5}
    shown = first["evidence"][0]
    assert (shown["images"], shown["relevance"], shown["scores"]) == ([2], [[[0.1234567, 0.0]]], [0.5])
    assert (shown["kind"], shown["text"], shown["position"]) == ("gradcam", "dog", [1.0, 2.0])
    assert second["error"] == {"type": "ModelError", "message": "down", "line": 3} and second["evidence"] == []
    short = answer.to_dict(evidence=False)
    assert all("evidence" not in one for one in short["calls"])
    assert (short["seconds"], short["calls"][0]["seconds"]) == (1.2346, 0.1235)
