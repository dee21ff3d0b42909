"""Answers as JSON and back, and as pages, which are whole or not there."""

import dataclasses
import functools
import json
import math
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from engine_kit import GREEN, RED

from codevqa.core.answer import Answer
from codevqa.core.errors import ErrorRecord, ImageError, InputError, SetupError
from codevqa.core.events import Answered, Writing
from codevqa.core.images import load_picture
from codevqa.core.trace import Call, Cost, DomainWarning, Draft, Evidence, ImageRef, Program, Trace
from codevqa.pages import page_name
from codevqa.pages.answer_page import fragment

EVIDENCE = Evidence(
    kind="pnpvqa",
    images=(ImageRef(2), ImageRef(1)),
    text="dog",
    captions=(("a dog", "the dog"), ()),
    relevance=(((0.1 + 0.2, 1 / 3), (0.0, 1e-30)),),
    patches=(((1, 2), (3,)), ()),
    scores=(0.5, -1 / 7),
    position=(1.5, 2.25),
    prompt="Context: a dog.\n",
    completion=" dog",
)
PROGRAM = Program("answer = 1", "How many?", "set", ("a", "b"), "# Image 1", "\nanswer = 1")
ERROR = ErrorRecord("ProgramTypeError", "line 1: no", 1)
FULL = Answer(
    question="Où?",
    text="là",
    program=PROGRAM,
    trace=Trace(
        calls=(
            Call(1, "f", {"img": ImageRef(1), "x": 2.5}, (1.0, 2), 0.123456789, 3, (EVIDENCE,), None, True, True),
            Call(2, "g", {}, None, 1e-7, None, (), ErrorRecord("ModelError", "down")),
        ),
        printed="out\n",
        attempts=((dataclasses.replace(PROGRAM, source="answer = "), ERROR),),
        baseline=(EVIDENCE,),
        drafts=(Draft("answer = 1", ("a", "b"), 1 / 3, 1, None, True, "1"), Draft("", (), 0.0, 2, "fails")),
    ),
    confidence=0.75,
    abstained=True,
    value=[ImageRef(1), {"n": (1, 2)}],
    method="pnpvqa",
    fallback=True,
    error=ERROR,
    seconds=1.23456789,
    stages={"writing": 0.75, "other": 0.48456789},
    models={"writer": "lm"},
    tokens=17,
    cost=Cost(0.25, 0.125, 90, 12, {"caption": 2}),
    warnings=(DomainWarning("picture", "Image 2 looks odd", (ImageRef(2),), ("odd",)),),
    sources=("a.png", b"bytes"),
)


def test_an_answer_with_everything_comes_back_equal() -> None:
    plain = Answer("", "", None, Trace())
    empty = {
        field.name for field in dataclasses.fields(Answer) if getattr(FULL, field.name) == getattr(plain, field.name)
    }
    assert not empty, "every field must be set for this test to see it"
    back = Answer.from_json(FULL.to_json())
    assert back == FULL and (back.cost, back.stages) == (FULL.cost, FULL.stages)
    assert [(call.remembered, call.ahead) for call in back.trace.calls] == [(True, True), (False, False)]
    assert Answer.from_dict(FULL.to_dict()) == FULL
    assert Answer.from_json(plain.to_json()) == plain


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, 1, 1.0, -0.0, 2**70, "", "nan", "naïve\ud83d", math.nan, math.inf, -math.inf),
        *([], (), {}, [()], ([1.0],), {"image": 3}, {"image": ImageRef(3)}, {1: "a", "1": "b"}, {(1, 2): None}),
        *(ImageRef(4), [ImageRef(1), (ImageRef(2), True)], {"a": [math.nan, (math.inf,)]}, {"image": True}),
        *({"value_exact": 1}, [["tuple", []]], {True: 1}, {1.5: 2}),
    ],
    ids=repr,
)
def test_every_plain_value_comes_back_with_its_types(value: Any) -> None:
    call = Call(1, "f", {"x": value}, value, 0.0)
    answer = Answer("q", "a", None, Trace((call,)), value)
    line = answer.to_json()
    assert not {"NaN", "Infinity"} & set(json.loads(line, parse_constant=lambda name: pytest.fail(name)))
    back = Answer.from_json(line)
    assert repr(back) == repr(answer)  # repr tells 1 from True and 1.0, and equals for NaN
    assert back == answer or "nan" in repr(value)  # from Python 3.13 on dataclasses that hold NaN are unequal


def test_what_cannot_be_restored_says_so() -> None:
    with pytest.raises(InputError, match="without its evidence"):
        Answer.from_json(FULL.to_json(evidence=False))
    for text in ("[]", "{}", "3"):
        with pytest.raises(InputError, match="is no answer"):
            Answer.from_json(text)
    with pytest.raises(InputError, match="not JSON"):
        Answer.from_json("{")
    whole = FULL.to_dict()
    deep: Any = functools.reduce(lambda inner, _: [inner], range(200), list[Any]())
    for data in ({**whole, "seconds": "soon"}, {**whole, "value": deep, "value_exact": None}):
        with pytest.raises(InputError, match="damaged"):
            Answer.from_dict(data)
    assert Answer.from_dict({**whole, "sources": ["/etc/hosts"]}).sources == (), "no file of this machine is shown"


def test_the_pictures_stay_out_of_json_repr_and_comparison() -> None:
    assert "a.png" not in FULL.to_json() and "a.png" not in repr(FULL)
    for record in (FULL.trace, *FULL.trace.calls, Answered(FULL), Writing("a\n" * 300)):
        assert len(repr(record)) < 140 and "\n" not in repr(record)
    assert dataclasses.replace(FULL, sources=()) == FULL and Answer.from_json(FULL.to_json()).sources == ()


def answer(*sources: object, refs: tuple[int, ...] = (1,)) -> Answer:
    evidence = Evidence("itc", tuple(map(ImageRef, refs)), "a picture of <b>a dog</b>", scores=(0.5,) * len(refs))
    call = Call(1, "find_matching_image", {"images": [ImageRef(1)], "phrase": "dog"}, ImageRef(1), 0.1, 1, (evidence,))
    program = Program('answer = find_matching_image(images, "dog")', "Which?")
    return Answer("Which <i>one</i>?", "image 1", program, Trace((call,)), sources=tuple(sources))  # type: ignore[arg-type]


def test_the_page_holds_question_program_and_pictures(tmp_path: Path) -> None:
    page = tmp_path / "out.html"
    answer(RED).save_html(page)
    text = page.read_text(encoding="utf-8")
    assert "Which &lt;i&gt;one&lt;/i&gt;?" in text and "data:image/" in text and "find_matching_image" in text
    assert "<i>one" not in text and "<b>a dog" not in text
    answer(load_picture(GREEN)).save_html(str(page), [RED])  # replaced, with the pictures given
    assert page.read_text(encoding="utf-8") == text
    assert [path.name for path in tmp_path.iterdir()] == ["out.html"]


def test_in_a_folder_a_page_is_named_by_picture_and_question(tmp_path: Path) -> None:
    RED.save(tmp_path / "Red Hall.png")
    place = answer(tmp_path / "Red Hall.png", GREEN).save_html(tmp_path)
    assert place == tmp_path / "red-hall-and-1-more-which-i-one-i.html" and place.exists()
    assert " – Red Hall and 1 more</title>" in place.read_text(encoding="utf-8")
    assert page_name("Où est " + "ü" * 200, ()) == f"où-est-{'ü' * 53}.html"
    assert page_name("../?", ()) == "answer.html"


def test_an_answer_without_its_pictures_says_so(tmp_path: Path) -> None:
    page = tmp_path / "out.html"
    back = Answer.from_json(answer(RED).to_json())
    with pytest.raises(InputError, match=r"no pictures with it.*images="):
        back.save_html(page)
    with pytest.raises(ImageError, match="No picture at"):
        answer(tmp_path / "gone.png").save_html(page)
    with pytest.raises(InputError, match="about 3 images or more, and 2 were given"):
        answer(RED, GREEN, refs=(1, 3)).save_html(page)
    assert not list(tmp_path.iterdir())
    back.save_html(page, RED)
    assert page.exists()


def test_a_page_that_fails_half_way_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "out.html"
    page.write_text("old")

    monkeypatch.setattr(Path, "replace", Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(SetupError, match="No space left on device"):
        answer(RED).save_html(page)
    assert page.read_text() == "old" and len(list(tmp_path.iterdir())) == 1


def test_a_notebook_shows_the_answer_with_pictures_or_without(tmp_path: Path) -> None:
    path = tmp_path / "red.png"
    RED.save(path)
    asked = answer(path)
    shown = asked._repr_html_()
    assert shown == fragment(asked) and "data:image/" in shown and "<script" not in shown
    path.unlink()
    for gone in (asked, dataclasses.replace(asked, sources=()), answer(RED, refs=(2,))):
        shown = gone._repr_html_()
        assert "find_matching_image" in shown and "&lt;i&gt;one" in shown
