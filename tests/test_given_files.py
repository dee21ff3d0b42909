"""Files that users hand in (prompts, configurations, questions, data sets): read, or refused in one clear line."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_kit import CommandLine, Done, assert_one_clear_line

from codevqa.core import given_files

SET = Path(__file__).resolve().parents[1] / "prompts" / "gqa"
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
        if kind == "questions":
            return codevqa("ask", "--questions", file)
        return codevqa("prompt", "-q", "Is it?", "--dataset", tmp_path, "--selection", "fixed", "--form", "completion")

    return run


@pytest.mark.parametrize("kind", ["configuration", "preamble", "questions"])
def test_a_file_that_is_not_text_is_refused(kind: str, tmp_path: Path, read: Callable[[str], Done]) -> None:
    file = tmp_path / GIVEN.get(kind, ("questions.jsonl", ""))[0]
    for content, said in (
        (b"\xff\xfea", "is not a text file in UTF-8: invalid start byte at byte 0."),
        (b"a = \0", "is not a text file: it holds NUL."),
    ):
        file.write_bytes(content)
        assert_one_clear_line(read(kind), f"{file} {said}")
    file.unlink()
    assert_one_clear_line(read(kind), f"No file {file}.")
    os.mkfifo(file)  # which would wait for its writer
    assert_one_clear_line(read(kind), f"{file} is not a regular file.")


@pytest.mark.parametrize(
    ("kind", "content", "said"),
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
def test_a_bad_file_is_refused(kind: str, content: str, said: str, tmp_path: Path, read: Callable[[str], Done]) -> None:
    (tmp_path / GIVEN.get(kind, ("questions.jsonl", ""))[0]).write_text(content)
    done = read(kind)
    assert_one_clear_line(done, said)
    assert len(done.stderr) < 1000


@pytest.mark.parametrize("kind", ["configuration", "preamble", "examples"])
def test_files_of_windows_change_nothing(kind: str, tmp_path: Path, read: Callable[[str], Done]) -> None:
    before = read(kind) if kind != "configuration" else None
    name, text = GIVEN[kind]
    (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    done = read(kind)
    assert (done.returncode, done.stderr) == (0, "")
    assert done == before if before else "workers = 1 " in done.stdout


def test_a_large_file_is_refused(tmp_path: Path, read: Callable[[str], Done], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(given_files, "LARGEST", 1 << 20)
    (tmp_path / "questions.jsonl").write_text(f"{QUESTION}\n" * 30_000)
    assert_one_clear_line(read("questions"), "has more than 1 MB.")


@pytest.mark.parametrize("name", ["x" * 5000, "\udcff.toml", "a\nb.toml"])
def test_a_name_that_no_file_has_is_refused_in_a_line_that_can_be_read(name: str, codevqa: CommandLine) -> None:
    for words in (("config", "--preset", name), ("ask", "--questions", name)):
        done = codevqa(*words)
        assert_one_clear_line(done, "No " if len(name) < 99 else "xxx...xxx")
        assert len(done.stderr) < 1000
