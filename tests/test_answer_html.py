"""Answers as pages: which pictures they show, and that a page is whole or not there."""

import dataclasses
from pathlib import Path
from unittest.mock import Mock

import pytest
from engine_kit import GREEN, RED

from codevqa import Answer
from codevqa.core.errors import ImageError, InputError, SetupError
from codevqa.core.images import load_picture
from codevqa.core.trace import Call, Evidence, ImageRef, Program, Trace
from codevqa.pages.answer_page import fragment


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
