"""Files that users hand in: read, or refused in one clear line; and ``codevqa eval`` of questions of one's own."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_kit import ROOT, CommandLine, Done, assert_one_clear_line
from eval_kit import fake_engine
from PIL import Image
from report_kit import assert_safe, listed

from codevqa.core import input_files
from codevqa.core.errors import InputError
from codevqa.eval import Store, evaluate, metric_for, open_dataset
from codevqa.eval.report.report import write_report

ONE = {"image": "garden.png", "question": "Is there a house?", "answer": "yes"}


def written(folder: Path, *rows: Any) -> Path:
    for picture in ("garden.png", "harbor.png"):
        shutil.copy(ROOT / "examples" / "pictures" / picture, folder)
    path = folder / "mine.jsonl"
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows), encoding="utf-8")
    return path


def test_lines_become_examples_with_groups(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    path = written(
        tmp_path,
        {**ONE, "room": "a", "note": "x" * 60, "floor": 1, "about": {"a": 1}},
        "",
        {**ONE, "image": None, "images": ["garden.png", "harbor.png"], "answer": ["two", 2], "id": "q", "room": "b"},
        {**ONE, "image": "set", "answer": True},
    )
    shutil.copy(tmp_path / "harbor.png", tmp_path / "set")
    examples = list(open_dataset(f"own:{path}"))
    assert [(example.id, example.form, example.gold) for example in examples] == [
        ("1", "image", ("yes",)),
        ("q", "set", ("two", "2")),
        ("4", "image", ("yes",)),
    ]
    assert examples[0].groups == {"images": "1", "room": "a", "floor": "1"} and examples[2].groups == {"images": "1"}
    assert examples[2].images[0].path == tmp_path / "set" / "harbor.png"
    assert next(iter(open_dataset(str(path), group_by=["floor"]))).groups == {"floor": "1"}
    many = written(tmp_path, *({**ONE, "n": number} for number in range(21)))
    assert next(iter(open_dataset(str(many)))).groups == {}
    assert next(iter(open_dataset(str(many), group_by=["n"]))).groups == {"n": "0"}


def test_a_folder_is_told_by_what_is_there_and_not_by_its_name(tmp_path: Path, codevqa: CommandLine) -> None:
    names = ["photos.2024", "set.png", "holiday.jpg.d", "plain", "album"]
    path = written(tmp_path, *({**ONE, "image": name} for name in names), {**ONE, "image": ["photos.2024", "harbor"]})
    (tmp_path / "harbor.png").rename(tmp_path / "harbor")  # a picture without a suffix
    for name in names[:4]:
        (tmp_path / name).mkdir()
        for number in range(2):
            shutil.copy(tmp_path / "garden.png", tmp_path / name / f"{number}.png")
    shutil.copy(tmp_path / "garden.png", tmp_path / "album")
    paths = [
        [image.path.relative_to(tmp_path).as_posix() for image in example.images] for example in open_dataset(str(path))
    ]
    folders = [[f"{name}/0.png", f"{name}/1.png"] for name in names[:4]]
    assert paths == [*folders, ["album"], ["photos.2024/0.png", "photos.2024/1.png", "harbor"]]
    done = codevqa("ask", "--questions", path, "--quiet")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["error"] for line in lines] == [None] * 6
    (tmp_path / "none").mkdir()
    refused = codevqa("ask", "--questions", written(tmp_path, {**ONE, "image": "none"}), "--quiet")
    assert "has no picture that can be read" in json.loads(refused.stdout)["error"]["message"]
    nothing = codevqa("ask", "--questions", written(tmp_path, {**ONE, "image": ""}), "--quiet")
    assert json.loads(nothing.stdout)["error"]["type"] == "ImageError"  # not all that lies beside the file


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "mine.jsonl has no questions."),
        ([ONE, {**ONE, "question": 3}], 'mine.jsonl, line 2 lacks "images" or "question".'),
        ([{"image": "a.png", "question": "Is it?", "anwser": "yes"}], "line 1 has no answer. A line has"),
        ([{**ONE, "answer": []}], "line 1 has no answer."),
        ([{**ONE, "answer": {"text": "yes"}}], "line 1 has no answer."),
        ([{**ONE, "image": []}], "line 1 names no picture."),
        ([{**ONE, "images": ["a.png"]}], 'line 1 has "image" and "images".'),
        ([{**ONE, "image": ""}], "line 1 names no picture."),
        ([{**ONE, "question": " "}], "line 1 has an empty question."),
        ([{**ONE, "id": "a"}, ONE, {**ONE, "id": "a"}], "line 3: line 1 has the id 'a' too."),
        ([{**ONE, "id": ""}], "line 1 has an id that is empty, or no text or whole number."),
        ([{**ONE, "id": " "}], "line 1 has an id that is empty, or no text or whole number."),
        ([{**ONE, "id": True}], "line 1 has an id that is empty, or no text or whole number."),
        ([ONE, f'{json.dumps(ONE)[:-1]}, "answer": "no"}}'], "mine.jsonl, line 2 has 'answer' twice."),
        ([{**ONE, **dict.fromkeys(map(str, range(2000)), 1)}], "line 1 has 2,003 fields, more than 1,000."),
        ([ONE, "{"], "mine.jsonl, line 2: not JSON"),
        ([ONE, "[1]"], 'line 2 lacks "images" or "question".'),
        ([{**ONE, "image": "gone.png"}], "1 of 1 pictures are missing, first: "),
    ],
)
def test_what_is_wrong_in_a_file_is_told(rows: list[Any], message: str, tmp_path: Path, codevqa: CommandLine) -> None:
    done = codevqa("eval", written(tmp_path, *rows), "--out", tmp_path / "run", "--quiet")
    assert_one_clear_line(done, message)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--group-by", "rom"), "No field of short values 'rom'. Did you mean room?"),
        (("--split", "val"), "has no splits."),
        (("--metric", "strct"), "No variant of the metric of own 'strct'. Did you mean strict?"),
    ],
)
def test_options_that_do_not_fit(words: tuple[str, ...], message: str, tmp_path: Path, codevqa: CommandLine) -> None:
    path = written(tmp_path, {**ONE, "room": "a"})
    assert_one_clear_line(codevqa("eval", path, *words, "--out", tmp_path / "run"), message)
    gone = codevqa("eval", tmp_path / "gone.jsonl", "--out", tmp_path / "run")
    assert_one_clear_line(gone, f"No file {tmp_path / 'gone.jsonl'}.")
    assert_one_clear_line(codevqa("eval", "gqa", "--out", tmp_path / "run"), "gqa needs a folder. Give --data FOLDER.")


def test_metrics_of_own_questions(tmp_path: Path) -> None:
    path = written(tmp_path, {**ONE, "answer": ["The red one.", "2"]}, {**ONE, "answer": ["red"] * 3 + ["pink"] * 7})
    first, ten = open_dataset(str(path))
    assert [metric_for("own").score(first, prediction) for prediction in ("red one", "two", "TWO", "blue", "")] == [
        1,
        1,
        1,
        0,
        0,
    ]
    assert metric_for("own", "strict").score(first, "red one") == 0
    assert metric_for("own", "vqa").score(ten, "red") == pytest.approx(0.9)


def test_an_id_and_an_error_reach_no_terminal_as_commands(tmp_path: Path, codevqa: CommandLine) -> None:
    path = written(
        tmp_path, {**ONE, "id": "\x1b]0;title\x07\nline"}, {**ONE, "image": "\x9b2J\u202e.png", "id": "\x9b"}
    )
    with fake_engine('raise ValueError("\\x1b[2J")') as engine:
        evaluate(engine, open_dataset(str(path)), tmp_path / "run", missing_pictures="skip").close()
        words = ("eval", path, "--out", tmp_path / "run", "--resume", "--missing-pictures", "skip", "--max-failed", "1")
        for done in (codevqa("report", tmp_path / "run"), codevqa(*words, engine=engine)):
            shown = done.stdout + done.stderr
            assert done.returncode == 0 and "\\u001b]0;title\\u0007 line: " in done.stdout, shown
            assert all(map(str.isprintable, shown.splitlines())), shown


def test_a_run_of_own_questions_is_resumed_reported_and_exported(tmp_path: Path, codevqa: CommandLine) -> None:
    path = written(tmp_path, *({**ONE, "room": "ab"[number % 2]} for number in range(4)))
    with fake_engine('answer = "yes"') as engine:
        evaluate(engine, open_dataset(str(path)), tmp_path / "run", limit=2).close()
        with evaluate(engine, open_dataset(str(path)), tmp_path / "run", resume=True) as store:
            assert store.counts()["codevqa", 0] == 4
            changed = written(tmp_path, ONE)
        with pytest.raises(InputError, match="data_hash was"):
            evaluate(engine, open_dataset(str(changed)), tmp_path / "run", resume=True)
    with Store.open(tmp_path / "run") as store:
        assert (store.info.dataset, store.info.split, store.info.unofficial) == ("own", "mine", "")
    report = json.loads(codevqa("report", tmp_path / "run", "--json").stdout)
    assert '"room"' in json.dumps(report) and '"accuracy"' in json.dumps(report)
    done = codevqa("export", tmp_path / "run", "--format", "jsonl", "--out", tmp_path / "out.jsonl")
    assert done.returncode == 0 and len((tmp_path / "out.jsonl").read_text().splitlines()) == 8


def test_a_resumed_run_has_the_groups_that_are_asked_for_now(tmp_path: Path) -> None:
    path = written(tmp_path, *({**ONE, "room": "ab"[number % 2], "floor": number} for number in range(4)))
    with fake_engine('answer = "yes"') as engine:
        evaluate(engine, open_dataset(str(path), group_by=["room"]), tmp_path / "run", limit=3).close()
        again = open_dataset(str(path), group_by=["floor"])
        with evaluate(engine, again, tmp_path / "run", limit=2, resume=True) as store:
            assert [example.groups for example in store.examples()] == [{"floor": str(number)} for number in range(3)]


@pytest.mark.slow
def test_the_commands_of_the_page_work(tmp_path: Path, codevqa: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "own-questions.md").read_text(encoding="utf-8")
    line = page.partition("```json\n")[2].partition("```")[0]
    assert (ROOT / "examples" / "questions.jsonl").read_text(encoding="utf-8").startswith(line)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    for command in page.partition("```sh\n")[2].partition("```")[0].splitlines():
        done = codevqa(*command.split()[1:])
        assert done.returncode == 0 and "codevqa  1.000" in done.stdout, f"{command}\n{done.stdout}\n{done.stderr}"


SET = ROOT / "prompts" / "gqa"
GIVEN = {
    "configuration": ("my.toml", "workers = 1\n"),
    "preamble": ("preamble.txt", (SET / "preamble.txt").read_text("utf-8")),
    "examples": ("examples.jsonl", (SET / "examples.jsonl").read_text("utf-8")),
}
QUESTION = '{"images": ["a.png"], "question": "Is it?"}'
DEEP, LONG = "[" * 5000, "1" * 5000


@pytest.fixture
def read(tmp_path: Path, codevqa: CommandLine) -> Callable[[str], Done]:
    """Runs the command that reads a file, in the place of which the test puts another. None loads a model."""
    shutil.copytree(SET, tmp_path, dirs_exist_ok=True)

    def run(kind: str) -> Done:
        file = tmp_path / GIVEN.get(kind, ("questions.jsonl", ""))[0]
        if kind == "configuration":
            return codevqa("config", "--config", file)
        if kind == "own questions":
            return codevqa("eval", file, "--out", tmp_path / "run")
        if kind == "questions":
            return codevqa("ask", "--questions", file)
        return codevqa("prompt", "-q", "Is it?", "--dataset", tmp_path, "--selection", "fixed", "--form", "completion")

    return run


@pytest.mark.parametrize("kind", ["configuration", "preamble", "questions", "own questions"])
def test_a_file_that_is_not_text_is_refused(kind: str, tmp_path: Path, read: Callable[[str], Done]) -> None:
    file = tmp_path / GIVEN.get(kind, ("questions.jsonl", ""))[0]
    for content, message in (
        (b"\xff\xfea", "is not a text file in UTF-8: invalid start byte at byte 0."),
        (b"a = \0", "is not a text file: it holds NUL."),
    ):
        file.write_bytes(content)
        assert_one_clear_line(read(kind), f"{file} {message}")
    file.unlink()
    assert_one_clear_line(read(kind), f"No file {file}.")
    os.mkfifo(file)  # which would wait for its writer
    assert_one_clear_line(read(kind), f"{file} is not a regular file.")
    file.unlink()
    file.symlink_to("/proc/self/environ")  # as all there, it has no size, and some have no end
    assert_one_clear_line(read(kind), f"{file} is not a regular file.")


@pytest.mark.parametrize(
    ("kind", "content", "message"),
    [
        ("configuration", f"workers = {DEEP}", "my.toml is nested too deeply."),
        ("configuration", f"workers = {LONG}", "my.toml: a number has too many digits."),
        ("configuration", 'prompts = "a\\u0000"', "my.toml: a text holds NUL"),
        ("configuration", "workers = 1 2", "my.toml: not TOML: "),
        ("examples", f'{{"id": {"[" * 200}{"]" * 200}}}', "examples.jsonl, line 1 is nested too deeply."),
        ("examples", '{"id": NaN}', "examples.jsonl, line 1: a number is nan."),
        ("examples", "{", "examples.jsonl, line 1: not JSON: "),
        ("examples", f'\n{{"id": {LONG}}}', "examples.jsonl, line 2: a number has too many digits."),
        ("examples", '{"question": "\\ud800"}', "examples.jsonl, line 1: a text holds NUL or half a surrogate pair."),
        ("examples", "\n \n", "examples.jsonl is empty."),
        ("questions", "", "holds no question"),
    ],
)
def test_a_bad_file_is_refused(
    kind: str, content: str, message: str, tmp_path: Path, read: Callable[[str], Done]
) -> None:
    (tmp_path / GIVEN.get(kind, ("questions.jsonl", ""))[0]).write_text(content)
    done = read(kind)
    assert_one_clear_line(done, message)
    assert len(done.stderr) < 1000


@pytest.mark.parametrize("kind", ["configuration", "preamble", "examples"])
def test_files_of_windows_change_nothing(kind: str, tmp_path: Path, read: Callable[[str], Done]) -> None:
    before = read(kind) if kind != "configuration" else None
    name, text = GIVEN[kind]
    (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    done = read(kind)
    assert (done.returncode, done.stderr) == (0, "")
    assert done == before if before else "workers = 1 " in done.stdout


@pytest.mark.parametrize("line", [f"{QUESTION}\n" * 30_000, QUESTION.replace("?", "?" * (2 << 20))])
def test_a_large_file_is_refused(
    line: str, tmp_path: Path, read: Callable[[str], Done], monkeypatch: pytest.MonkeyPatch, codevqa: CommandLine
) -> None:
    monkeypatch.setattr(input_files, "LARGEST", 1 << 20)
    (tmp_path / "questions.jsonl").write_text(line)
    for kind in ("questions", "own questions"):
        assert_one_clear_line(read(kind), "has more than 1 MB.")
    listed = codevqa("index", "--from", "-", stdin="a.png\n" * 300_000)
    assert_one_clear_line(listed, "- has more than 1 MB.")  # and is not cut short


@pytest.mark.parametrize("name", ["x" * 5000, "\udcff.toml", "a\nb.toml"])
def test_a_name_that_no_file_has_is_refused_in_a_line_that_can_be_read(name: str, codevqa: CommandLine) -> None:
    for words in (("config", "--preset", name), ("ask", "--questions", name)):
        done = codevqa(*words)
        assert_one_clear_line(done, "No " if len(name) < 99 else "xxx...xxx")
        assert len(done.stderr) < 1000


def test_questions_outside_what_the_models_know_are_counted_at_once(tmp_path: Path, codevqa: CommandLine) -> None:
    Image.effect_noise((320, 240), 90).convert("RGB").save(tmp_path / "photo.png")
    rows = [("photo.png", "Is it red?"), ("garden.png", "Is there a zebra?"), ("garden.png", "Is the house red?")]
    file = written(
        tmp_path,
        *({"image": picture, "question": words, "answer": "yes", "steps": words[3]} for picture, words in rows),
    )
    done = codevqa("eval", file, "--out", tmp_path / "run")
    assert done.stdout.splitlines()[1].startswith("2 of 3 questions lie outside what the models know"), done.stdout
    page = write_report([tmp_path / "run"]).page
    result = assert_safe(page.read_text(encoding="utf-8")).text.split(" Result ")[2]
    assert result.startswith("⚠ 2 of 3 questions lie outside what the models know")
    assert listed(page)["keys"] == ["steps"], "a field of one's own keeps its name"
    assert [row["outside"] for row in listed(page)["rows"]] == [["picture"], ["words"], []]
