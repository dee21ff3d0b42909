"""``--trace``: a page beside the answer, whatever became of the program, and one clear line where it cannot be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_kit import GARDEN, SHELF, CommandLine, assert_one_clear_line
from engine_kit import engine
from pages_kit import Read

from codevqa.core.answer import Answer
from codevqa.core.errors import SetupError

ASKED = ("ask", GARDEN, "-q", "Is it red?", "--quiet", "--trace")


def page_of(path: Path) -> tuple[Read, Answer]:
    page = Read(path.read_text(encoding="utf-8"))
    return page, Answer.from_json(page.one("script", id="cv-answer-data").text)


def test_ask_writes_the_page_of_the_answer_it_prints(tmp_path: Path, codevqa: CommandLine) -> None:
    trace = tmp_path / "out.html"
    question = ("-q", "How many pictures contain a purple cup?")
    done = codevqa("ask", *SHELF, *question, "--trace", trace, "--json", "--evidence")
    assert done.returncode == 0 and done.stderr.splitlines()[-1] == f"codevqa: trace written to {trace}"
    page, answer = page_of(trace)
    assert answer == Answer.from_json(done.stdout)
    assert page.one(cls="cv-answer").text == "2"
    assert len(page.all("img", cls="cv-heat")) == 3 and "shelf-2.png" in page.one("body").text
    assert list(tmp_path.iterdir()) == [trace]


def test_a_fallback_is_said_and_has_a_page(tmp_path: Path, codevqa: CommandLine) -> None:
    trace = tmp_path / "out.html"
    with engine("answer = nothing", repairs=0) as vqa:
        done = codevqa(*ASKED, trace, engine=vqa)
    assert (done.stdout, done.stderr) == ("yes\n", "")
    page, answer = page_of(trace)
    assert answer.fallback and answer.error is not None and answer.error.type in page.one("body").text
    with engine("answer = nothing", repairs=0) as vqa:
        loud = codevqa(*ASKED[:4], engine=vqa)
    assert "codevqa: the program failed (" in loud.stderr and "plain PnP-VQA answered instead" in loud.stderr


@pytest.mark.parametrize(
    ("source", "text", "line"),
    [
        ("print('hello')\nanswer = query(img, 'Is it red?')\n", "yes", None),
        ("x = query(img, 'Is it red?')\ny = get_pos(img, '')\nanswer = x\n", "", "2"),
        ("answer = nothing\n", "", "1"),
    ],
    ids=["answers", "fails", "is refused"],
)
def test_run_writes_the_page_of_a_program(
    source: str, text: str, line: str | None, tmp_path: Path, codevqa: CommandLine
) -> None:
    trace = tmp_path / "out.html"
    with engine() as vqa:
        done = codevqa("run", "-", GARDEN, "--trace", trace, stdin=source, engine=vqa)
    assert done.returncode == (line is not None) and f"trace written to {trace}" in done.stderr, done.stderr
    page, answer = page_of(trace)
    assert answer.text == text
    assert [one.attributes["data-line"] for one in page.all(cls="cv-failing")] == ([line] if line else [])


def test_a_page_is_written_into_a_folder_under_a_page_s_name(tmp_path: Path, codevqa: CommandLine) -> None:
    picture = tmp_path / "a.png"
    picture.write_bytes(GARDEN.read_bytes())
    for place, words in ((tmp_path / "no" / "out.html", "There is no folder"), (picture, "a name that ends in .html")):
        done = codevqa(*ASKED, place)
        assert_one_clear_line(done, words)
        assert "loading" not in done.stderr
    assert picture.read_bytes() == GARDEN.read_bytes()


def test_an_answer_is_printed_before_its_page_fails(
    tmp_path: Path, codevqa: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise SetupError("Cannot write out.html: No space left on device.")

    monkeypatch.setattr(Answer, "save_html", full)
    with engine("answer = query(img, 'Is it red?')") as vqa:
        done = codevqa(*ASKED, tmp_path / "out.html", "--json", engine=vqa)
    assert done.returncode == 2 and "No space left" in done.stderr
    assert json.loads(done.stdout)["answer"] == "yes"
