"""``codevqa table`` and what lists and writes tables: rows, files, labels, a killed run, and what is refused."""

import csv
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from cli_kit import GARDEN, SHELF, CommandLine, Done, assert_one_clear_line, environment
from eval_kit import Numbered, fake_engine
from test_tables import DAY, DOGS, Shades, forget_process, paint_shades

from codevqa import CodeVQA
from codevqa.collections.disk_memory import FILE, DiskMemory
from codevqa.core.table import MOST_COLUMNS
from codevqa.eval import evaluate
from codevqa.mini.export import write_datasets

HOUSE, TREES = "house: Is there a house?", "trees: How many trees are there?"
NAMES = ["filepath", "house", "house_chance", "house_wrong"]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield
    forget_process()


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder of four drawings, of which one shows a house."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for path in (GARDEN, *map(Path, SHELF)):
        shutil.copy(path, folder)
    return folder


@pytest.fixture
def shades() -> Shades:
    return Shades()


def rows_of(text: str) -> list[dict[str, Any]]:
    return list(csv.DictReader(io.StringIO(text)))


def read_rows(file: str) -> list[dict[str, Any]]:
    return rows_of(Path(file).read_text("utf-8"))


# -- rows --------------------------------------------------------------------------------------------------------------


def test_a_table_is_printed_as_csv_and_the_second_time_loads_no_model(photos: Path, codevqa: CommandLine) -> None:
    asked = ("table", "photos", "--ask", HOUSE, "--ask", TREES)
    first = codevqa(*asked)
    rows = rows_of(first.stdout)
    assert first.returncode == 0 and "loading mini" in first.stderr
    assert list(rows[0]) == [*NAMES, "trees", "trees_chance", "trees_wrong"]
    assert [row["house"] for row in rows] == ["yes", "no", "no", "no"]
    assert rows[0]["filepath"] == str(photos / "garden.png") and int(rows[0]["trees"]) >= 0
    assert all(0.5 < float(row["house_chance"]) <= 1 for row in rows)
    forget_process()
    again = codevqa(*asked)
    assert again.stdout == first.stdout and "loading" not in again.stderr


def test_files_have_the_rows_that_are_printed(photos: Path, codevqa: CommandLine) -> None:
    asked = ("table", "photos", "--ask", HOUSE)
    printed = codevqa(*asked).stdout
    done = codevqa(*asked, "--out", "rows.csv")
    assert done.stdout == "house  no 3, yes 1\n" and "4 rows in rows.csv" in done.stderr
    assert read_rows("rows.csv") == rows_of(printed)
    assert not codevqa(*asked, "--out", "rows.json", "--quiet").stdout
    lines = codevqa(*asked, "--json").stdout.splitlines()
    assert json.loads(Path("rows.json").read_text("utf-8")) == [json.loads(line) for line in lines]
    codevqa(*asked, "--out", "rows.jsonl")
    assert Path("rows.jsonl").read_text("utf-8").splitlines() == lines


def test_unsure_first_puts_them_on_top(tmp_path: Path, codevqa: CommandLine, shades: Shades) -> None:
    paint_shades(tmp_path / "p", 1, 3, 2)
    asked = ("table", "p", "--ask", "sky: What is the sky? =blue,grey")
    with shades.open() as vqa:
        plain = rows_of(codevqa(*asked, engine=vqa).stdout)
    unsure = rows_of(codevqa(*asked, "--unsure", "first").stdout)
    assert [row["sky"] for row in plain] == ["grey", "", "grey"]
    assert [row["sky"] for row in unsure] == ["", "grey", "grey"] and "green" in unsure[0]["sky_wrong"]


def test_a_program_of_the_user_is_a_column(photos: Path, codevqa: CommandLine) -> None:
    Path("many.py").write_text(
        'img = open_image("Image1.jpg")\nanswer = "some" if query(img, "Is there a house?") == "yes" else "none"'
    )
    done = codevqa("table", "photos", "--program", "homes=many.py", "--ask", HOUSE)
    assert [(row["homes"], row["house"]) for row in rows_of(done.stdout)] == [("some", "yes")] + [("none", "no")] * 3


def test_a_table_that_its_budget_stops_ends_with_1_and_goes_on(
    tmp_path: Path, codevqa: CommandLine, shades: Shades
) -> None:
    paint_shades(tmp_path / "p", *range(12))
    asked = ("table", "p", "--ask", f"dogs: {DOGS}")
    with shades.open(workers=1) as vqa:
        stopped = codevqa(*asked, "--calls", 1, "--out", "rows.csv", engine=vqa)
    left = [row["dogs_wrong"] for row in read_rows("rows.csv")].count("It was not reached.")
    assert stopped.returncode == 1 and left > 0
    assert f"{left} of 12 pictures were not reached: run the same again to go on." in stopped.stderr
    with shades.open() as vqa:
        whole = codevqa(*asked, engine=vqa)
    assert whole.returncode == 0 and [row["dogs"] for row in rows_of(whole.stdout)] == list(map(str, range(12)))


def test_a_long_table_needs_a_yes(
    tmp_path: Path, codevqa: CommandLine, shades: Shades, monkeypatch: pytest.MonkeyPatch
) -> None:
    from codevqa.cli import collections

    paint_shades(tmp_path / "p", *range(40))
    monkeypatch.setattr(collections, "LONG", 0.0)
    asked = ("table", "p", "--ask", f"dogs: {DOGS}", "--price", "1e6,0", "--quiet")
    with shades.open() as vqa:
        refused = codevqa(*asked, engine=vqa)
    assert_one_clear_line(refused, "minutes for 40 pictures")
    assert "by your price" in refused.stderr and "Give --yes" in refused.stderr
    with shades.open() as vqa:
        assert len(rows_of(codevqa(*asked, "--yes", engine=vqa).stdout)) == 40
    assert len(shades.wrote) == 1, "what was finished before is kept"


# -- labels ------------------------------------------------------------------------------------------------------------


def labelled(codevqa: CommandLine, shades: Shades, *words: object) -> Done:
    with shades.open() as vqa:
        return codevqa("table", "p", "--ask", f"day: {DAY}", *words, engine=vqa)


def test_labels_of_a_few_pictures_give_an_interval_for_all(
    tmp_path: Path, codevqa: CommandLine, shades: Shades
) -> None:
    paint_shades(tmp_path / "p", *range(60))
    done = labelled(codevqa, shades, "--label", 20, "--out", "truths.csv")
    assert "Say the truth of 20 random and 5 unsure pictures in day_truth; then give the file" in done.stderr
    rows = read_rows("truths.csv")
    assert [row["picked"] != "" for row in rows] == [True] * 25 + [False] * 35
    for row in rows[:25]:  # in truth it is always day
        row["day_truth"] = "Yes"
    with Path("truths.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    shades.read = []
    done = labelled(codevqa, shades, "--labels", "truths.csv", "--out", "after.csv")
    first, other = done.stdout.splitlines()
    assert first.startswith("day = yes: ") and first.endswith("; the models alone say 30")
    assert int(first.split()[3]) > 50 and "of 20 random pictures" in other and not shades.read
    after = read_rows("after.csv")
    assert [row["day_truth"] for row in after].count("yes") == 25
    assert {row["day_chance"] for row in after} != {row["day_chance"] for row in rows}


@pytest.mark.parametrize(
    ("header", "line", "message"),
    [
        ("filepath,day_truth", "{p}/000.png,maybe", "line 2: day is yes or no, not 'maybe'"),
        ("filepath,dogs_truth", "{p}/000.png,many", "line 2: dogs is a number, not 'many'"),
        ("filepath,sky_truth", "{p}/000.png,green", "line 2: sky is one of blue, grey, not 'green'"),
        ("filepath,day_truth", "/nowhere.png,yes", "The labels name /nowhere.png, which is not among the pictures."),
        ("filepath,day_truth", "{p}/000.png,", "truths.csv has no truths yet. Fill in day_truth"),
        ("filepath,day_truth,day_truth", "{p}/000.png,yes,no", "truths.csv has 'day_truth' twice."),
        ("filepath,day_truth", "{p}/000.png," + "y" * 200_000, "truths.csv, line 2: not CSV: field larger than"),
        ("filepath,cat_truth", "{p}/000.png,yes", "truths.csv has no column of truths. Make it with --label N"),
        ("filepath,picked,day_truth", "{p}/000.png,unsure,yes", "No random picture has a label of day."),
    ],
)
def test_truths_that_cannot_be_are_told(
    header: str, line: str, message: str, tmp_path: Path, codevqa: CommandLine, shades: Shades
) -> None:
    folder = paint_shades(tmp_path / "p", 1, 2)
    Path("truths.csv").write_text(f"{header}\n{line.format(p=folder)}\n")
    more = ("--ask", f"dogs: {DOGS}", "--ask", "sky: What is the sky? =blue,grey", "--quiet")
    done = labelled(codevqa, shades, "--labels", "truths.csv", *more)
    assert done.returncode == 2 and not done.stdout
    told = [line for line in done.stderr.splitlines() if "they are taken for a random sample" not in line]
    assert len(told) == 1 and message in told[0]


def test_a_list_names_pictures_and_what_is_true_of_them(tmp_path: Path, codevqa: CommandLine, shades: Shades) -> None:
    paint_shades(tmp_path / "p", 1, 2, 3)
    Path("list.csv").write_text("path,day_truth\np/002.png,no\np/001.png,no\n")
    with shades.open() as vqa:
        done = codevqa("table", "--from", "list.csv", "--ask", f"day: {DAY}", "--out", "rows.csv", engine=vqa)
    assert "day = yes: 0 of 2 pictures" in done.stdout and "right on 1 of 2 random pictures" in done.stdout
    rows = read_rows("rows.csv")
    assert [Path(row["filepath"]).name for row in rows] == ["002.png", "001.png"]
    assert [(row["day"], row["day_truth"]) for row in rows] == [("no", "no"), ("yes", "no")]
    Path("list.csv").write_text("path,day_truth\np/002.png,perhaps\n")
    assert_one_clear_line(codevqa("table", "--from", "list.csv", "--ask", f"day: {DAY}"), "not 'perhaps'")


def test_tasks_for_label_studio_carry_the_answers(tmp_path: Path, codevqa: CommandLine, shades: Shades) -> None:
    folder = paint_shades(tmp_path / "p", 2, 3)
    done = labelled(codevqa, shades, "--ask", f"dogs: {DOGS}", "--label-studio", "tasks.json")
    assert done.returncode == 0 and "2 tasks in tasks.json, their configuration in tasks.xml" in done.stderr
    tasks = json.loads(Path("tasks.json").read_text())
    assert [task["data"]["image"].endswith(f"/00{place}.png") for place, task in enumerate(tasks)] == [True] * 2
    assert f"={str(folder)[1:]}/" in tasks[0]["data"]["image"]
    results = [result["value"] for result in tasks[1]["predictions"][0]["result"]]
    assert results == [{"choices": ["no"]}, {"number": 3}]
    tags = [element.tag for element in ElementTree.fromstring(Path("tasks.xml").read_text()).iter()]
    assert {"Image", "Choices", "Number"} <= set(tags)


# -- other commands ----------------------------------------------------------------------------------------------------


def test_select_group_and_compare_write_the_same_columns(photos: Path, tmp_path: Path, codevqa: CommandLine) -> None:
    question = ("-q", "Is there a house?", "--quiet")
    codevqa("select", "photos", "a house", "--out", "select.csv", "--quiet")
    codevqa("group", "photos", *question, "--out", "group.csv")
    (tmp_path / "other").mkdir()
    for path in SHELF[:2]:
        shutil.copy(path, tmp_path / "other")
    codevqa("compare", "photos", "other", "-q", "How many images show a house?", "--out", "compare.csv", "--quiet")
    selected, grouped, compared = (read_rows(f"{name}.csv") for name in ("select", "group", "compare"))
    assert list(selected[0]) == ["filepath", "selected", "selected_chance", "selected_wrong"]
    assert list(grouped[0]) == ["filepath", "answer", "answer_chance", "answer_wrong"]
    assert list(compared[0]) == ["filepath", "set", "answer", "answer_chance", "answer_wrong"]
    files = [str(photos / name) for name in ("garden.png", "shelf-1.png", "shelf-2.png", "shelf-3.png")]
    for rows, name in ((selected, "selected"), (grouped, "answer")):
        assert [row["filepath"] for row in rows] == files
        assert [row[name] for row in rows] == ["yes", "no", "no", "no"]
        assert all(0.5 < float(row[f"{name}_chance"]) <= 1 or row[name] == "no" for row in rows)
    assert [row["set"] for row in compared] == ["photos"] * 4 + ["other"] * 2
    assert [row["answer"] for row in compared] == ["yes"] + ["no"] * 5
    for command in (("select", "photos", "a house"), ("group", "photos", *question)):
        assert_one_clear_line(codevqa(*command, "--out", "x.txt"), "A table is not written to 'x.txt'")


def test_runs_lists_tables_and_evaluations(tmp_path: Path, codevqa: CommandLine, shades: Shades) -> None:
    nothing = codevqa("runs")
    assert (nothing.returncode, nothing.stdout) == (0, "") and "No runs here, and no tables." in nothing.stderr
    paint_shades(tmp_path / "p", 1, 2, 3)
    labelled(codevqa, shades)
    with fake_engine() as vqa:
        evaluate(vqa, Numbered(tmp_path / "data", 2), out=tmp_path / "all" / "run").close()
    forget_process()
    run, table = codevqa("runs").stdout.splitlines()
    assert "all/run" in run and "gqa val, 2 questions" in run and "codevqa 100.0 %" in run
    assert "table  3 pictures  Is it day?" in table and "writer" in table
    report = json.loads(codevqa("runs", "--json").stdout)
    assert [(entry["question"], entry["pictures"]) for entry in report["tables"]] == [(DAY, 3)]
    assert [entry["questions"] for entry in report["runs"]] == [2]
    (tmp_path / "all" / "run" / "run.sqlite").write_text("none of ours")
    broken = codevqa("runs", "all")
    assert broken.returncode == 0 and "all/run: " in broken.stdout.splitlines()[0]


# -- a table that is killed --------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_killed_table_goes_on_and_equals_an_undisturbed_run(tmp_path: Path, codevqa: CommandLine) -> None:
    write_datasets(tmp_path / "drawn", images=20, splits=["val"], only=["gqa"])
    source = sorted((tmp_path / "drawn").rglob("*.jpg"))
    folder = tmp_path / "many"
    folder.mkdir()
    for place, path in enumerate(source):
        shutil.copy(path, folder / f"{place:02}.jpg")
    words = ["table", "many", "--ask", HOUSE, "--ask", TREES, "--quiet"]
    process = subprocess.Popen(
        [sys.executable, "-m", "codevqa", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
        start_new_session=True,
    )
    file, deadline = tmp_path / "cache" / "codevqa" / "memory" / FILE, time.monotonic() + 120
    try:
        while sum(count for *_, count in _questions(file)) < 6:
            assert process.poll() is None and time.monotonic() < deadline, "it ended before it was killed"
            time.sleep(0.01)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
    kept = sum(count for *_, count in _questions(file))
    assert not output and 6 <= kept < 2 * len(source)
    with CodeVQA.from_preset("mini") as vqa:
        asked: list[str] = []
        ask_stream = vqa.ask_stream

        def counting(questions: Any, **options: Any) -> Any:
            def told() -> Iterator[Any]:
                for request in questions:
                    asked.append(request.question)
                    yield request

            return ask_stream(told(), **options)

        vqa.ask_stream = counting  # type: ignore[method-assign]
        resumed = codevqa(*words, engine=vqa)
    assert resumed.returncode == 0 and len(asked) == 2 * len(source) - kept
    rows = rows_of(resumed.stdout)
    assert [Path(row["filepath"]).name for row in rows] == [f"{place:02}.jpg" for place in range(len(source))]
    undisturbed = codevqa(*words, XDG_CACHE_HOME=str(tmp_path / "other cache"))
    assert resumed.stdout == undisturbed.stdout


def _questions(file: Path) -> list[tuple[str, str, str, int]]:
    if not file.exists():
        return []
    try:
        memory = DiskMemory(file, read_only=True)
    except Exception:  # noqa: BLE001 - it is being made
        return []
    try:
        return memory.questions()
    finally:
        memory.close()


# -- what is refused ---------------------------------------------------------------------------------------------------


MANY = [word for number in range(MOST_COLUMNS + 1) for word in ("--ask", f"c{number}: Is it?")]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "A table needs questions."),
        (("--ask", "Is it day?"), "--ask 'Is it day?' has no name."),
        (("--ask", ": Is it day?"), "--ask ': Is it day?' has no name."),
        (("--ask", "day:"), "The column day has no question."),
        (("--ask", "day: Is it?", "--ask", "Day: Is it so?"), "Two columns are called 'day'."),
        (("--ask", "day: Is it?", "--program", "day=own.py"), "Two columns are called 'day'."),
        (("--ask", "metadata: Is it?"), "A column cannot be called 'metadata'."),
        (("--ask", "day_chance: Is it?"), "A column cannot be called 'day_chance'."),
        (tuple(MANY), "A table of 51 questions is too wide. The limit is 50."),
        (("--ask", "sky: What is it? =grey"), "The choices of sky are fewer than two"),
        (("--ask", f"long: {'Is it so? ' * 200}"), "1,000"),
        (("--program", "own.py"), "--program 'own.py' must be NAME=FILE.py."),
        (("--program", "own=nowhere.py"), "No file nowhere.py."),
        (("--ask", "day: Is it?", "--out", "x.txt"), "A table is not written to 'x.txt'. End its name in .csv"),
        (("--ask", "day: Is it?", "--out", "nowhere/x.csv"), "There is no folder 'nowhere'."),
        (("--ask", "day: Is it?", "--money", "1"), "--money needs --price."),
        (("--ask", "day: Is it?", "--price", "cheap"), "--price 'cheap' must be two numbers, IN,OUT."),
        (("--ask", "day: Is it?", "--label", "10"), "--label needs a table to write them in. Give --out FILE.csv."),
        (("--ask", "day: Is it?", "--label", "10", "--out", "x.json"), "--label needs a table to write them in."),
        (("--ask", "day: Is it?", "--label", "9", "--out", "x.csv"), "'--label'"),
        (("--ask", "day: Is it?", "--labels", "nowhere.csv"), "No file nowhere.csv."),
        (("--ask", "day: Is it?", "--unsure", "last"), "'--unsure'"),
    ],
)
def test_what_cannot_be_done_is_told_before_a_model_is_loaded(
    words: tuple[str, ...], message: str, tmp_path: Path, codevqa: CommandLine
) -> None:
    paint_shades(tmp_path / "p", 1)
    Path("own.py").write_text("answer = 1")
    done = codevqa("table", "p", *words)
    assert_one_clear_line(done, message)
    assert "loading" not in done.stderr


def test_a_table_of_no_pictures_is_told(codevqa: CommandLine) -> None:
    assert_one_clear_line(codevqa("table", "--ask", HOUSE), "No picture was given.")
    assert_one_clear_line(codevqa("table", "nowhere", "--ask", HOUSE), "No picture or folder at nowhere.")


def test_paths_that_are_no_text_leave_the_json_readable(tmp_path: Path, codevqa: CommandLine, shades: Shades) -> None:
    paint_shades(tmp_path / "p", 1)
    (tmp_path / "p" / "000.png").rename(os.fsdecode(os.fsencode(tmp_path / "p") + b"/\xff.png"))
    assert labelled(codevqa, shades, "--out", "rows.json").returncode == 0
    assert len(json.loads(Path("rows.json").read_bytes())) == 1


def test_truths_of_pictures_that_were_not_picked_are_no_random_sample(
    tmp_path: Path, codevqa: CommandLine, shades: Shades
) -> None:
    folder = paint_shades(tmp_path / "p", *range(1, 60))
    picked = [f"{folder}/{place:03}.png,random,{'no' if place % 2 == 0 else 'yes'}" for place in range(10)]
    chosen = [f"{folder}/{place:03}.png,,yes" for place in range(20, 40)]
    Path("truths.csv").write_text("\n".join(["filepath,picked,day_truth", *picked, *chosen]))
    assert "of 10 random pictures" in labelled(codevqa, shades, "--labels", "truths.csv").stderr


def test_a_price_that_is_no_number_is_refused(tmp_path: Path, codevqa: CommandLine, shades: Shades) -> None:
    paint_shades(tmp_path / "p", *range(4))
    done = labelled(codevqa, shades, "--price", "nan,nan", "--money", "0.001", "--quiet")
    assert_one_clear_line(done, "--price 'nan,nan' must be two numbers")


def test_the_picture_of_a_set_of_one_has_its_answer(photos: Path, tmp_path: Path, codevqa: CommandLine) -> None:
    (tmp_path / "other").mkdir()
    shutil.copy(GARDEN, tmp_path / "other")
    done = codevqa("compare", "photos", "other", "-q", "How many images show a house?", "--out", "rows.csv", "--quiet")
    assert "other   1" in done.stdout
    assert [row["answer"] for row in read_rows("rows.csv") if row["set"] == "other"] == ["yes"]
