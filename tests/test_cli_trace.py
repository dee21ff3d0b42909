"""``--trace``: a page beside the answer, whatever became of the program, and one clear line where it cannot be."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cli_kit import GARDEN, SHELF, CommandLine, assert_one_clear_line
from pages_kit import Read

from codevqa import CodeVQA, Models, QuerySettings, Settings, Writer, WriterSettings
from codevqa.cli.ask import ask
from codevqa.cli.run import run
from codevqa.core.answer import Answer
from codevqa.core.errors import InputError, ProgramError, SetupError
from codevqa.models.fakes import FakeCaptioner, FakeMatcher, ScriptedLM
from codevqa.prompts import load as load_prompts


def page_of(path: Path) -> tuple[Read, Answer]:
    page = Read(path.read_text(encoding="utf-8"))
    return page, Answer.from_json(page.one("script", id="cv-answer-data").text)


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The engine of both commands, with a model that writes what the list says; the list tells what was opened too."""
    script = ["answer = query(img, 'Is it red?')"]

    @contextmanager
    def opened(*_: object) -> Iterator[CodeVQA]:
        lm = ScriptedLM(lambda request: "yes" if "Q: " in str(request.prompt) else script[0])
        writer = Writer(lm, load_prompts("gqa"), settings=WriterSettings(selection="fixed", repairs=0))
        settings = Settings(workers=1, query=QuerySettings(captions=1))
        with CodeVQA(writer, Models(lm, FakeMatcher(6), FakeCaptioner(grid=6)), settings) as vqa:
            script.append("opened")
            yield vqa

    for name in ("ask", "run"):
        monkeypatch.setattr(sys.modules[f"codevqa.cli.{name}"], "open_engine", opened)
    return script


def test_ask_writes_the_page_of_the_answer_it_prints(tmp_path: Path, codevqa: CommandLine) -> None:
    trace = tmp_path / "out.html"
    words = (
        "ask",
        *SHELF,
        "-q",
        "How many pictures contain a purple cup?",
        "--trace",
        str(trace),
        "--json",
        "--evidence",
    )
    done = codevqa(*words)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == f"codevqa: trace written to {trace}"
    page, answer = page_of(trace)
    assert answer == Answer.from_json(done.stdout)
    assert page.one(cls="cv-answer").text == "2"
    assert [one.text for one in page.all(cls="cv-value")] == [
        "images 1 to 3, shelf-1.png, shelf-2.png, shelf-3.png",
        "'yes'",
        "'no'",
        "'yes'",
    ]
    assert "begun ahead" in page.one(cls="cv-facts-row").text
    assert len(page.all("img", cls="cv-heat")) == 3 and len(page.all("img", cls="cv-patches")) > 3
    assert "shelf-2.png" in page.one("body").text
    assert list(tmp_path.iterdir()) == [trace]


def test_a_fallback_is_written_too(tmp_path: Path, scripted: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    scripted[0] = "x = query(img, 'Is it red?')\nanswer = nothing"
    trace = tmp_path / "out.html"
    ask([str(GARDEN)], "Is it red?", trace=trace, quiet=True)
    assert capsys.readouterr() == ("yes\n", "")
    page, answer = page_of(trace)
    assert answer.fallback and answer.error is not None
    assert "The program failed" in page.one(cls="cv-fallback").text and answer.error.type in page.one("body").text
    assert page.one(cls="cv-failing").attributes["data-line"] == str(answer.error.line)


def test_run_writes_the_page_of_a_program(tmp_path: Path, scripted: list[str]) -> None:
    program, trace = tmp_path / "p.py", tmp_path / "out.html"
    program.write_text("print('hello')\nanswer = query(img, 'Is it red?')\n")
    run(str(program), [str(GARDEN)], trace=trace)
    page, answer = page_of(trace)
    assert answer.text == "yes" and answer.trace.printed == "hello\n"
    assert "written by hand" in page.one(cls="cv-verdict").text


def test_run_writes_the_page_of_a_program_that_fails(
    tmp_path: Path, scripted: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    program, trace = tmp_path / "p.py", tmp_path / "out.html"
    program.write_text("x = query(img, 'Is it red?')\ny = get_pos(img, '')\nanswer = x\n")
    with pytest.raises(ProgramError, match="line 2"):
        run(str(program), [str(GARDEN)], trace=trace)
    assert f"trace written to {trace}" in capsys.readouterr().err
    page, answer = page_of(trace)
    assert answer.text == "" and [call.value for call in answer.trace.calls] == ["yes", None]
    assert page.one(cls="cv-failing").attributes["data-line"] == "2"
    assert [one.text for one in page.all(cls="cv-value")] == ["'yes'", "failed"]
    # One that does not even pass its check has a page as well.
    program.write_text("answer = nothing\n")
    with pytest.raises(ProgramError):
        run(str(program), [str(GARDEN)], trace=trace)
    assert "nothing" in page_of(trace)[0].one(cls="cv-why").text


def test_no_page_without_being_asked(tmp_path: Path, scripted: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ask([str(GARDEN)], "Is it red?")
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written_is_told_before_models_are_loaded(tmp_path: Path, codevqa: CommandLine) -> None:
    program = tmp_path / "p.py"
    program.write_text("answer = 1\n")
    places = {
        str(tmp_path / "no" / "out.html"): "there is no folder",
        str(tmp_path): "it is a folder",
        str(tmp_path / ("x" * 300)): "File name too long",
        str(program / "out.html"): "there is no folder",
    }
    for place, words in places.items():
        assert_one_clear_line(codevqa("ask", str(GARDEN), "-q", "Is it red?", "--trace", place, "--quiet"), words)
    done = codevqa("run", str(program), str(GARDEN), "--trace", str(program), "--quiet")
    assert_one_clear_line(done, "it exists and is not a trace page")
    assert program.read_text() == "answer = 1\n"
    assert "loading" not in codevqa("ask", str(GARDEN), "-q", "Is it red?", "--trace", str(tmp_path)).stderr


def test_a_file_that_is_no_page_is_replaced_by_one(tmp_path: Path, scripted: list[str]) -> None:
    copy, link, text, other = (tmp_path / name for name in ("a.png", "link.html", "notes.txt", "other.html"))
    copy.write_bytes(GARDEN.read_bytes())
    link.symlink_to(copy)
    text.write_text("mine")
    other.write_text("<!doctype html><title>mine</title>")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    before = {one: one.read_bytes() for one in (copy, text, other)}
    for place in (copy, link, text, other, pipe):
        with pytest.raises(InputError, match="it exists and is not a trace page"):
            ask([str(GARDEN)], "Is it red?", trace=place)
    assert {one: one.read_bytes() for one in before} == before and pipe.is_fifo() and "opened" not in scripted


def test_a_page_is_not_replaced_by_the_next(tmp_path: Path, scripted: list[str]) -> None:
    page = tmp_path / "out.html"
    for question in ("Is it red?", "Is it blue?"):
        ask([str(GARDEN)], question, trace=page)
        assert page_of(page)[1].question == question


def test_an_answer_is_printed_before_its_page_fails(
    tmp_path: Path, scripted: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object, **__: object) -> None:
        raise SetupError("Cannot write out.html: No space left on device.")

    monkeypatch.setattr(Answer, "save_html", full)
    with pytest.raises(SetupError, match="No space left"):
        ask([str(GARDEN)], "Is it red?", trace=tmp_path / "out.html", quiet=True, json=True)
    assert json.loads(capsys.readouterr().out)["answer"] == "yes"
    # A failing program stays what is reported; that its page could not be written is said beside it.
    program = tmp_path / "p.py"
    program.write_text("answer = nothing\n")
    with pytest.raises(ProgramError, match="nothing"):
        run(str(program), [str(GARDEN)], trace=tmp_path / "out.html")
    assert "No space left" in capsys.readouterr().err
