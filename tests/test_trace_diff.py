"""``codevqa trace-diff``: every change is told, nothing else is, and files that are no answers are one clear line."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pages_kit import PLACED, READ, SOURCE, SYNTAX, TYPE, answer, asked, hostile, peaked, picture
from typer.testing import CliRunner

from codevqa.cli.main import app, main
from codevqa.core.answer import Answer
from codevqa.core.errors import ErrorRecord
from codevqa.core.trace import Call, DomainWarning, Evidence, ImageRef, Program, Trace
from codevqa.pages import trace_page
from codevqa.pages.differences import compare, describe
from codevqa.pages.reading import Told

PICTURES = (picture(60, 40, name="first.png"), picture(40, 40, "red", "second.png"), picture(30, 50, "green"))


def told(first: Answer, second: Answer) -> list[str]:
    return list(describe(compare(Told(first), Told(second))))


def behind(**changed: object) -> Answer:
    """An answer of one call with evidence, some of it changed."""
    return replace(answer(), trace=Trace((replace(asked(1), evidence=(replace(READ, **changed),)),)))  # type: ignore[arg-type]


# -- what is told ----------------------------------------------------------------------------------------------------


def test_the_same_answer_differs_in_time_alone() -> None:
    first = answer()
    calls = tuple(replace(call, seconds=9.0, remembered=True) for call in first.trace.calls)
    second = replace(first, seconds=60.0, trace=replace(first.trace, calls=calls))
    assert told(first, second) == ["no difference but in time", "time: 3.50 s -> 1 min 0 s"]
    assert compare(Told(first), Told(second)).to_dict()["equal"] is True


def test_rounding_is_no_difference() -> None:
    placed = replace(PLACED, scores=(3.25 * (1 + 1e-6),), position=(20.5 + 1e-7, 18.5))
    shaken = tuple(tuple(cell + 1e-7 for cell in row) for row in PLACED.relevance[0])
    placed = replace(placed, relevance=(shaken,))
    first = answer(trace=Trace((Call(1, "get_pos", {}, (20.5, 18.5), 0.1, 1, (PLACED,)),)))
    second = answer(trace=Trace((Call(1, "get_pos", {}, (20.5 + 1e-7, 18.5), 0.1, 1, (placed,)),)))
    assert first != second and told(first, second)[0] == "no difference but in time"


ERROR = ErrorRecord("ValueError", "no")
CHANGES: list[tuple[str, Answer, Answer, list[str]]] = [
    ("question", answer(), answer(question="Is it?"), ["question: 'Is it there?' -> 'Is it?'"]),
    (
        "models",
        answer(),
        answer(models={"writer": "other", "matcher": "new"}),
        ["models:", "  writer: writing-model -> other", "  reader: reading-model -> none", "  matcher: none -> new"],
    ),
    ("answer", answer(), answer(text="yes"), ["answer: 'no' -> 'yes'"]),
    ("value", answer(), answer(value=False), ["value behind the answer: 'no' -> False"]),
    ("true is not one", answer(value=1), answer(value=True), ["value behind the answer: 1 -> True"]),
    ("tokens", answer(), answer(tokens=1235), ["tokens: 1234 -> 1235"]),
    (
        "fallback",
        answer(),
        answer(fallback=True, error=TYPE),
        ["fallback: False -> True", "error: none -> ProgramTypeError: line 4: no name 'cat'"],
    ),
    (
        "method",
        answer(program=None),
        answer(program=None, method="pnpvqa"),
        ["written:", "  method: 'codevqa' -> 'pnpvqa'"],
    ),
    (
        "examples",
        answer(),
        answer(program=Program(SOURCE, "Is it there?", "image", ("a",), "OTHER", "THE COMPLETION")),
        ["written:", "  examples: ['mini-7', 'mini-3'] -> ['a']"],
    ),
    (
        "prompt",
        answer(),
        answer(program=Program(SOURCE, "Is it there?", "set", ("mini-7", "mini-3"), "OTHER", "AROUND")),
        [
            "written:",
            "  form: 'image' -> 'set'",
            "  prompt for the program: 10 letters -> 5 letters",
            "  completion around the program: 'THE COMPLETION' -> 'AROUND'",
        ],
    ),
    (
        "attempts",
        answer(trace=Trace()),
        answer(trace=Trace(attempts=((Program("x = ("), SYNTAX),))),
        ["written:", "  attempts that failed: none -> ProgramSyntaxError: line 1: '(' was never closed"],
    ),
    (
        "printed",
        answer(trace=Trace(printed="one\n")),
        answer(trace=Trace(printed="two\n")),
        ["printed:", "  --- A", "  +++ B", "  @@ -1 +1 @@", "  -one", "  +two"],
    ),
    (
        "baseline",
        answer(trace=Trace(baseline=(READ,))),
        answer(trace=Trace(baseline=(replace(READ, completion=" No"),))),
        ["baseline:", "  the reading language model wrote: ' Yes' -> ' No'"],
    ),
    (
        "value of a call",
        answer(trace=Trace((asked(1), asked(2)))),
        answer(trace=Trace((asked(1), asked(2, "no")))),
        ["calls:", "  query(image 1, 'Is there a 2?'): 'yes' -> 'no'"],
    ),
    (
        "calls of one alone",
        answer(trace=Trace((asked(1), asked(2)))),
        answer(trace=Trace((asked(2), asked(3, "red")))),
        [
            "calls:",
            "  only in A: query(image 1, 'Is there a 1?') = 'yes'",
            "  only in B: query(image 1, 'Is there a 3?') = 'red'",
        ],
    ),
    (
        "order of calls",
        answer(trace=Trace((asked(1), asked(2)))),
        answer(trace=Trace((asked(2), asked(1)))),
        ["calls:", "  the calls that are in both run in another order"],
    ),
    (
        "a call that fails",
        answer(trace=Trace((asked(1),))),
        answer(trace=Trace((asked(1, error=ERROR),))),
        ["calls:", "  query(image 1, 'Is there a 1?'): 'yes' -> failed: ValueError: no"],
    ),
    (
        "a warning",
        answer(),
        answer(warnings=(DomainWarning("words", "no 'dog'", words=("dog",)),)),
        ["warnings: [] -> [\"no 'dog'\"]"],
    ),
    (
        "equal calls in turn",
        answer(trace=Trace((asked(1), asked(1, "no")))),
        answer(trace=Trace((asked(1), asked(1), asked(1)))),
        [
            "calls:",
            "  query(image 1, 'Is there a 1?'): 'no' -> 'yes'",
            "  only in B: query(image 1, 'Is there a 1?') = 'yes'",
        ],
    ),
]


@pytest.mark.parametrize(
    ("first", "second", "lines"), [case[1:] for case in CHANGES], ids=[case[0] for case in CHANGES]
)
def test_a_change_is_told_and_nothing_else(first: Answer, second: Answer, lines: list[str]) -> None:
    found = compare(Told(first), Told(second))
    assert not found.equal and not compare(Told(second), Told(first)).equal
    assert told(first, second) == [*lines, "time: 3.50 s -> 3.50 s"]


def test_the_program_is_told_as_a_unified_diff() -> None:
    assert answer().program is not None
    second = answer(program=replace(answer().program, source=SOURCE.replace('"cat")', '"cow")')))  # type: ignore[type-var]
    lines = told(answer(), second)
    assert lines[:4] == ["program:", "  --- A", "  +++ B", "  @@ -1,5 +1,5 @@"]
    assert '  -x, y = get_pos(img, "cat")' in lines and '  +x, y = get_pos(img, "cow")' in lines


@pytest.mark.parametrize(
    ("changed", "lines"),
    [
        (
            {"captions": (("a cat on a mat", "a blue cat"),)},
            ["captions of image 1: only in A: 'a red cat'", "captions of image 1: only in B: 'a blue cat'"],
        ),
        (
            {"captions": (("a cat on a mat", "a red cat"),)},
            ["captions of image 1: the same ones, in another order or number"],
        ),
        ({"position": (1.5, 2.0)}, ["position: None -> (1.5, 2)"]),
        ({"scores": (0.5,)}, ["scores: [] -> [0.5]"]),
        ({"completion": "No"}, ["the reading language model wrote: ' Yes' -> 'No'"]),
        ({"prompt": "?"}, ["the prompt that the reading language model saw differs"]),
        ({"patches": (((1,), (2,)),)}, ["sampled patches of image 1 differ"]),
        ({"relevance": (peaked(16, 16, 9, 9),)}, ["heat map of image 1 differs by up to 1e+02 % of its peak"]),
        ({"relevance": (peaked(8, 8, 1, 1),)}, ["heat map of image 1: grid of 16x16 -> 8x8"]),
        ({"relevance": ()}, ["heat map of image 1: only in A"]),
        ({"kind": "own"}, ["kind of evidence: pnpvqa -> own"]),
        ({"text": "Is it?"}, ["asked: 'Is there a cat?' -> 'Is it?'"]),
        ({"images": (ImageRef(2),)}, ["pictures: [image 1] -> [image 2]"]),
    ],
)
def test_changed_evidence_behind_an_equal_value_is_told(changed: dict[str, object], lines: list[str]) -> None:
    found = told(behind(), behind(**changed))
    assert found[0] == "calls:" and found[-1].startswith("time:")
    assert found[1] == "  query(image 1, 'Is there a 1?'): 'yes' in both, found otherwise:"
    assert found[2:-1] == [f"    {line}" for line in lines]


def test_more_evidence_than_before_is_told() -> None:
    second = replace(answer(), trace=Trace((replace(asked(1), evidence=(READ, READ)),)))
    assert "    pieces of evidence: 1 -> 2" in told(behind(), second)


def test_every_field_of_an_answer_counts() -> None:
    """Whatever is added to answers later must be compared too, or left out here on purpose."""
    assert set(Answer.__dataclass_fields__) == {
        "question", "text", "program", "trace", "value", "method", "fallback", "error", "seconds", "models", "tokens",
        "sources", "warnings", "cost",
    }  # fmt: skip
    assert set(Trace.__dataclass_fields__) == {"calls", "printed", "attempts", "baseline"}
    assert set(Evidence.__dataclass_fields__) == {
        "kind", "images", "text", "captions", "relevance", "patches", "scores", "position", "prompt", "completion",
    }  # fmt: skip


# -- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def written(name: str, found: Answer, pictures: tuple[object, ...] = PICTURES) -> Path:
        path = tmp_path / name
        html = name.endswith(".html")
        path.write_text(trace_page(found, pictures) if html else found.to_json(), encoding="utf-8")  # type: ignore[arg-type]
        return path

    return written


def run(*words: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["trace-diff", *map(str, words)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout


@pytest.mark.parametrize(("one", "other"), [("a.html", "b.html"), ("a.json", "b.html"), ("a.json", "b.json")])
def test_pages_and_json_compare_alike(one: str, other: str, write: Callable[..., Path]) -> None:
    first, changed = write(one, answer()), write(other, answer(text="yes"))
    assert run(first, changed) == (1, "answer: 'no' -> 'yes'\ntime: 3.50 s -> 3.50 s\n")
    same = write(other, answer(seconds=1.0))
    assert run(first, same) == (0, "no difference but in time\ntime: 3.50 s -> 1.00 s\n")


def test_other_pictures_are_told_where_both_are_pages(write: Callable[..., Path]) -> None:
    first = write("a.html", answer())
    renamed = picture(60, 40, name="renamed.png")  # the same picture by another name
    assert renamed.key == PICTURES[0].key
    status, out = run(first, write("b.html", answer(), (renamed, picture(30, 50, "green", "second.png"))))
    assert status == 1
    green, red = PICTURES[2].key[:12], PICTURES[1].key[:12]
    assert out.splitlines() == [
        "pictures:",
        "  number of pictures: 3 -> 2",
        f"  image 2: second.png ({red}) -> second.png ({green})",
        "time: 3.50 s -> 3.50 s",
    ]
    assert run(first, write("c.json", answer()))[0] == 0


def test_json_output_holds_the_same(write: Callable[..., Path]) -> None:
    first, second = write("a.html", answer()), write("b.json", answer(text="yes", trace=Trace((asked(1),))))
    status, out = run(first, second, "--json")
    data = json.loads(out)
    assert status == 1 and data["equal"] is False
    assert data["answer"] == [{"what": "answer", "first": "'no'", "second": "'yes'"}]
    assert {one["kind"] for one in data["calls"]} == {"only in A", "only in B"}
    assert data["seconds"] == [3.5, 3.5] and data["question"] is None
    status, out = run(first, first, "--json")
    assert status == 0 and json.loads(out)["equal"] is True


def test_hostile_answers_come_back_whole_and_cannot_drive_the_terminal(write: Callable[..., Path]) -> None:
    found, pictures = hostile()
    first = write("a.html", found, pictures)
    assert run(first, first)[0] == 0
    assert found.program is not None
    driving = replace(found.program, source="\x1b[2Jgone \x07 \u202e")
    status, out = run(first, write("b.html", replace(found, program=driving), pictures))
    assert status == 1 and "[2Jgone" in out
    assert not [letter for letter in out if not letter.isprintable() and letter != "\n"]


def clear_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: object) -> str:
    monkeypatch.setattr("sys.argv", ["codevqa", "trace-diff", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capsys.readouterr()
    assert ended.value.code == 2 and out == ""
    (line,) = err.splitlines()
    assert line.startswith("codevqa: ")
    return line


def test_files_that_are_no_answers_are_one_clear_line(
    tmp_path: Path, write: Callable[..., Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    good = write("good.json", answer())
    damaged = json.loads(answer().to_json())
    page = trace_page(answer(), PICTURES)
    cases: dict[str, tuple[str | bytes, str]] = {
        "short.json": (answer().to_json(evidence=False), "written without its evidence"),
        "list.json": ("[1, 2]", "no answer"),
        "empty.json": ("", "no JSON"),
        "deep.json": ("[" * 100_000, "nested too deeply"),
        "number.json": (json.dumps({**damaged, "question": 5}), "damaged"),
        "program.json": (json.dumps({**damaged, "written": {**damaged["written"], "source": 5}}), "damaged"),
        "lost.json": (json.dumps({key: value for key, value in damaged.items() if key != "calls"}), "damaged"),
        "binary.json": (b"\xff\xfe\x00\x01", "not a text file"),
        "other.html": ("<!doctype html><p>Hello", "no trace page"),
        "cut.html": (page[: page.index("cv-answer-data") + 300], "no trace page"),
        "spoilt.html": (page.replace('"question": ', '"question" ', 1), "no JSON"),
        "pictures.html": (page.replace('"key": ', '"kex": '), "damaged"),
    }
    for name, (content, words) in cases.items():
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        line = clear_line(capsys, monkeypatch, good, path)
        assert words in line and name in line, line
    for missing in (tmp_path / "none.json", tmp_path, tmp_path / ("x" * 300)):
        assert "Cannot read" in clear_line(capsys, monkeypatch, missing, good)
