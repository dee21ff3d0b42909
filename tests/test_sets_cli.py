"""Commands over folders of pictures: what they print, what they leave out, and what they refuse."""

import csv
import json
import os
import shutil
import subprocess
import sys
import time
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from cli_kit import GARDEN, SHELF, CommandLine, Done, assert_one_clear_line
from engine_kit import engine
from PIL import Image

from codevqa import Answer, CodeVQA, Collection, Settings, Trace
from codevqa.cli import collections
from codevqa.cli.printing import print_text
from codevqa.cli.set_answers import SetAnswer, compare_answers
from codevqa.core.errors import ErrorRecord
from codevqa.core.selection import Pick, Selection
from codevqa.core.trace import ImageRef
from codevqa.models.domain import Domain
from codevqa.presets.assembly import domain_of
from codevqa.presets.configuration import configure

HOUSE = "Is there a house?"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder of four drawings, of which one shows a house, and a file that is no picture."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for path in (GARDEN, *map(Path, SHELF)):
        shutil.copy(path, folder)
    (folder / "notes.jpg").write_text("none")
    return folder


def colors(folder: Path, count: int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        Image.new("RGB", (40, 30), (number, 90, 200)).save(folder / f"{number:03}.png")
    return folder


def test_what_the_models_do_not_know_is_neither_selected_nor_grouped(photos: Path, codevqa: CommandLine) -> None:
    done = codevqa("select", "photos", "a zebra")
    assert done.returncode == 1 and not done.stdout and "don't know 'zebra'" in done.stderr
    done = codevqa("group", "photos", "-q", "What color is the zebra?", "--csv", "rows.csv")
    assert done.stdout.startswith("I don't know") and "don't know 'zebra'" in done.stderr
    rows = list(csv.DictReader(Path("rows.csv").read_text().splitlines()))
    assert len(rows) == 4 and {row["answer"] for row in rows} == {""}
    assert all("don't know 'zebra'" in row["answer_wrong"] for row in rows)


def test_ask_counts_a_folder_and_lists_the_pictures_behind_it(photos: Path, codevqa: CommandLine) -> None:
    asked = ("ask", "photos", "-q", "How many images show a house?")
    done = codevqa(*asked)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert lines[0] == "1" and "  photos/garden.png" in lines and "  photos/shelf-1.png" not in lines
    assert "1 file is left out. notes.jpg: " in done.stderr
    report = json.loads(codevqa(*asked, "--json", "--quiet").stdout)
    assert report["answer"] == "1" and report["pictures"]["1"] == "photos/garden.png" and len(report["pictures"]) == 4
    (selection,) = report["selections"]
    assert [pick["path"] for pick in selection["picked"]] == ["photos/garden.png"]
    assert (selection["count"], selection["left"], selection["unread"]) == (1, 0, [])


@pytest.mark.parametrize("way", ["lines", "nul", "glob", "many"])
def test_lists_patterns_and_many_files_are_collections(way: str, tmp_path: Path, codevqa: CommandLine) -> None:
    paths = [f"many/{path.name}" for path in sorted(colors(tmp_path / "many", 11).iterdir())]
    if way == "lines":
        (tmp_path / "list").write_text("\r\n".join(paths))
    words = {"lines": ["--from", "list"], "nul": ["--from", "-"], "glob": ["many/*.png"], "many": paths}[way]
    stdin = "\0".join(paths) if way == "nul" else ""
    with engine('answer = query(images[10], "Is it blue?")') as vqa:
        done = codevqa("ask", *words, "-q", "Is it?", "--json", "--quiet", stdin=stdin, engine=vqa)
    report = json.loads(done.stdout)
    assert report["answer"] == "yes" and list(report["pictures"].values()) == paths


def test_a_folder_of_one_picture_is_a_set(tmp_path: Path, codevqa: CommandLine) -> None:
    colors(tmp_path / "one", 1)
    with engine(["answer = len(images)"]) as vqa:
        assert codevqa("ask", "one", "-q", "How many images?", "--quiet", engine=vqa).stdout.startswith("1\n")


def make_set_answer(tmp_path: Path, selection: Selection, count: int = 40) -> SetAnswer:
    pictures = Collection(colors(tmp_path / "many", count))
    return SetAnswer(Answer("How many?", str(selection.count), None, Trace()), pictures, (selection,))


def picks(*chances: float, first: int = 1) -> tuple[Pick, ...]:
    return tuple(Pick(ImageRef(number), chance) for number, chance in enumerate(chances, first))


def test_lines_tell_the_range_the_surest_and_what_to_check(tmp_path: Path) -> None:
    selection = Selection("a dog?", picks(*[0.99] * 22, 0.6), picks(0.3, 0.01, first=24), 21, 24)
    lines = list(make_set_answer(tmp_path, selection).lines())
    assert lines[0] == "a dog?: 23, 21 to 24 likely"
    assert lines[1] == "  many/000.png" and lines[21] == "  and 3 more (--all)"
    assert lines[22:] == ["  unsure: many/022.png (60%), many/023.png (30%)"]
    assert "  many/022.png" in make_set_answer(tmp_path, selection).lines(None)


def test_what_ended_early_says_how_far_it_came(tmp_path: Path) -> None:
    selection = Selection("a dog?", picks(0.99), picks(0.1, first=2), 1, 1, left=38)
    ended = make_set_answer(tmp_path, selection)
    assert next(ended.lines()) == "a dog?: stopped after 2 of 40 pictures: 1 so far"
    failed = replace(ended.answer, error=ErrorRecord("ProgramLimitError", "too long"))
    assert "stopped after 2 of 40" in replace(ended, answer=failed).count_text(replace(selection, left=0))
    assert ended.count_text(replace(selection, left=0)) == "1"


def test_compared_numbers_differ_by_ranges(tmp_path: Path) -> None:
    first = make_set_answer(tmp_path, Selection("?", picks(0.9, 0.9, 0.8), (), 2, 4))
    other = replace(first, answer=replace(first.answer, text="9"))
    lines = list(compare_answers(["A", "BB"], [first, other]))
    assert (
        lines[0] == "A   3, 2 to 4 likely  (of 40 pictures)" and lines[2] == "A - BB: -6; their ranges do not overlap"
    )
    words = replace(first, answer=replace(first.answer, text="red"))
    assert len(list(compare_answers(["A", "BB"], [first, words]))) == 2


def test_select_prints_paths_alone_and_copies_over_nothing(photos: Path, tmp_path: Path, codevqa: CommandLine) -> None:
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.write(GARDEN, "deep/garden.png")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "garden.png").write_text("mine")
    done = codevqa("select", "photos", "all.zip", HOUSE, "--copy-to", "out")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["all.zip/deep/garden.png", "photos/garden.png"]
    assert (tmp_path / "out" / "garden.png").read_text() == "mine"
    for name in ("garden-2.png", "garden-3.png"):
        assert (tmp_path / "out" / name).read_bytes() == GARDEN.read_bytes()
    assert codevqa("select", "photos", "all.zip", HOUSE, "--limit", 1, "--quiet").stdout.count("\n") == 1
    with engine(read=" no") as vqa:
        none = codevqa("select", "photos", HOUSE, "--quiet", engine=vqa)
    assert (none.returncode, none.stdout) == (0, "")


def test_paths_that_are_no_text_come_out_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "odd").mkdir()
    name = b"odd/new\nline \xff.png"
    shutil.copy(GARDEN, os.fsdecode(name))
    command = [sys.executable, "-m", "codevqa", "select", "odd", HOUSE, "--print0", "--quiet"]
    assert subprocess.run(command, capture_output=True, check=True).stdout == name + b"\0"


def test_group_tells_each_answer_with_its_pictures(photos: Path, tmp_path: Path, codevqa: CommandLine) -> None:
    done = codevqa("group", "photos", "-q", HOUSE, "--csv", "all.csv")
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["no", "3", "photos/shelf-1.png,", "photos/shelf-2.png,", "photos/shelf-3.png"],
        ["yes", "1", "photos/garden.png"],
    ]
    rows = list(csv.reader((tmp_path / "all.csv").read_text().splitlines()))
    assert rows[0] == ["filepath", "answer", "answer_chance", "answer_wrong"] and len(rows) == 5
    assert [str(tmp_path / "photos" / "garden.png"), "yes"] in [row[:2] for row in rows]


def test_compare_runs_one_program_on_each_folder(photos: Path, tmp_path: Path, codevqa: CommandLine) -> None:
    colors(tmp_path / "other", 2)

    def said(*words: str) -> str:
        with engine(["answer = len(images) * 10"]) as vqa:  # which writes no second one
            return codevqa("compare", "photos", "other", "-q", "How many?", *words, "--quiet", engine=vqa).stdout

    answers = json.loads(said("--json"))["answers"]
    assert [answer["answer"] for answer in answers] == ["40", "20"] and len(
        {answer["program"] for answer in answers}
    ) == 1
    assert said().splitlines()[-1] == "photos - other: 20"


def test_index_says_where_it_lies_and_can_be_dropped(tmp_path: Path, codevqa: CommandLine) -> None:
    colors(tmp_path / "many", 3)
    done = codevqa("index", "many")
    assert done.stdout.startswith("3 pictures, ") and " MB in " in done.stdout, done.stderr
    folder = Path(done.stdout.split(" MB in ")[1].strip())
    assert list(folder.rglob("*.safetensors"))
    assert codevqa("index", "many", "--drop").stdout == f"deleted {folder}\n" and not folder.exists()


def test_index_computes_each_picture_once(photos: Path) -> None:
    counts: list[tuple[int, int]] = []
    for forwards in (4, 0):
        with CodeVQA.from_preset("mini") as vqa:
            vqa.index(Collection(photos), lambda *numbers: counts.append(numbers))
            assert vqa.models.matcher.stats.vision_forwards == forwards  # type: ignore[union-attr]
    assert counts == [(4, 4)] * 2


def test_a_long_run_needs_a_yes(tmp_path: Path, codevqa: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    colors(tmp_path / "many", 12)
    monkeypatch.setattr(collections, "LONG", 0.0)
    monkeypatch.setattr(collections, "PATIENT", 0.0)

    def read(_: object) -> str:
        time.sleep(0.05)
        return " yes"

    def asked(*words: str, stdin: str = "") -> Done:
        with engine(read=read, settings=Settings(max_batch=1)) as vqa:
            return codevqa("group", "many", "-q", "Is it blue?", *words, stdin=stdin, engine=vqa)

    assert_one_clear_line(asked("--quiet"), "This takes about 0 minutes for 12 pictures")
    assert asked("--quiet", "--yes").stdout.startswith("yes      12  many/000.png")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("select", "empty", "a dog"), "empty has no picture that can be read. Give a folder"),
        (("select", "deep", "a dog"), "Look into its folders with --recursive."),
        (("ask", "nowhere/", "-q", "Is it?"), "nowhere"),
        (("ask", "*.gif", "-q", "Is it?"), "No picture matches *.gif."),
        (("ask", "--from", "nowhere", "-q", "Is it?"), "No file nowhere"),
        (("ask", "deep", "--from", "-", "-q", "Is it?"), "--from does not go with pictures."),
        (("ask", "--from", "-", "-q", "Is it?"), "The list - names no picture."),
        (("ask", "--from", "-"), "so you cannot type questions"),
        (("select", "deep/sub", "a dog", "--copy-to", "file"), "file is no folder for copies"),
        (("select", "deep/sub", "a dog", "--print0", "--json"), "--print0 does not go with --json."),
        (("select", "deep/sub"), "There are no pictures, or no description."),
        (("group", "deep/sub", "-q", " "), "The question is empty."),
        (("group", "deep/sub", "-q", "Is it?", "--csv", "nowhere/a.csv"), "There is no folder 'nowhere'."),
        (("compare", "deep/sub", "-q", "Is it?"), "One folder cannot be compared."),
        (("index",), "No picture was given."),
    ],
)
def test_what_cannot_be_done_is_told(
    words: tuple[str, ...], message: str, tmp_path: Path, codevqa: CommandLine
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    colors(tmp_path / "deep" / "sub", 1)
    done = codevqa(*words)
    assert_one_clear_line(done, message)
    assert "loading" not in done.stderr


def test_a_folder_of_another_kind_is_declined_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    domain = domain_of(configure("mini"))
    assert domain is not None
    monkeypatch.setattr(Domain, "score", lambda self, pixels: 1.0)
    pictures = Collection(colors(tmp_path / "many", 6)).open()
    pictured, worded = domain.check(pictures, "Is there a dinosaur?")
    assert pictured.message.startswith("6 of 6 images look unlike what these models know: ")
    assert len(pictured.images) == 6 and worded.message == "These models don't know 'dinosaur'."
    assert domain.check(pictures[:2], "")[0].message.startswith("Image 1 (000.png), image 2 (001.png) look")


def test_what_is_printed_moves_no_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    print_text("a\x1b[2Jb.png", "a\u202eb.png")
    assert capsys.readouterr().out == "a\\u001b[2Jb.png\na\\u202eb.png\n"
