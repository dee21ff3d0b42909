"""A hundred commands, good and bad: each ends with the status of its outcome, and a full disk is one clear line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from cli_kit import GARDEN, ROOT, SHELF, CommandLine, environment

PROGRAM = "answer = 'yes'"
BAD = ROOT / "README.md"
COMMANDS: list[tuple[int, tuple[object, ...], str]] = [
    # Status, words, standard input. The program of "run -" comes from there.
    (0, ("ask", GARDEN, "-q", "Is there a red house?"), ""),
    (0, ("ask", GARDEN, "-q", "Is there a red house?", "--json", "--quiet"), ""),
    (0, ("ask", GARDEN, "-q", "Is there a red house?", "--method", "pnpvqa"), ""),
    (0, ("ask", *SHELF, "-q", "Is there a red bell in each picture?"), ""),
    (0, ("run", "-", GARDEN), PROGRAM),
    (0, ("prompt", "-q", "Is it?"), ""),
    (0, ("models",), ""),
    (0, ("--version",), ""),
    (0, ("--help",), ""),
    (0, ("ask", "--help"), ""),
    (1, ("run", "-", GARDEN), "answer = 1 / 0"),
    (1, ("run", "-", GARDEN), "answer ="),
    (1, ("run", "-", GARDEN), "answer = nothing"),
    (1, ("run", "-", GARDEN), "x = 'a'\nwhile True:\n    x += x\nanswer = x"),
    (1, ("run", "-", GARDEN), "x = 1"),
    (1, ("ask", GARDEN, "-q", "Is it?", "--lm", "openai-completion:none"), ""),
    (2, ("ask", "missing.png", "-q", "Is it?"), ""),
    (2, ("ask", BAD, "-q", "Is it?"), ""),
    (2, ("ask", GARDEN, "-q", " "), ""),
    (2, ("ask", GARDEN, "-q", "Is it?", "--preset", "none"), ""),
    (2, ("ask", GARDEN, "-q", "Is it?", "--method", "none"), ""),
    (2, ("ask", GARDEN, "-q", "Is it?", "--dataset", "none"), ""),
    (2, ("run", "missing.py", GARDEN), ""),
    (2, ("export", ROOT), ""),
    (2, ("report", ROOT), ""),
    (2, ("diff", ROOT, ROOT), ""),
    (2, ("no-such-command",), ""),
    (2, ("ask", "--no-such-option"), ""),
]


@pytest.mark.slow
def test_of_a_hundred_commands_each_ends_with_its_status(codevqa: CommandLine) -> None:
    nobody = {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}  # where nothing listens
    wrong = []
    for number in range(100):
        status, words, stdin = COMMANDS[number * 7 % len(COMMANDS)]  # good and bad by turns
        done = codevqa(*words, stdin=stdin, **nobody)
        if done.returncode != status or "Traceback" in done.stderr or (status and done.stdout):
            wrong.append((words, stdin, done))
    assert not wrong, f"{len(wrong)} of 100, first: {wrong[0]}"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize(
    ("words", "stdin"),
    [
        pytest.param(("ask", GARDEN, "-q", "Is it?", "--quiet"), "", id="ask", marks=pytest.mark.slow),
        pytest.param(("run", "-", GARDEN, "--quiet", "--json"), PROGRAM, id="run", marks=pytest.mark.slow),
        pytest.param(("prompt", "-q", "Is it?"), "", id="prompt", marks=pytest.mark.slow),
        pytest.param(("models",), "", id="models"),
        pytest.param(("--version",), "", id="version"),
        pytest.param(("--help",), "", id="help"),
    ],
)
def test_output_that_cannot_be_written_is_status_one(words: tuple[object, ...], stdin: str) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "codevqa", *map(str, words)],
            input=stdin,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=500,
            env=environment(),
            check=False,
        )
    assert done.returncode == 1, done.stderr
    assert done.stderr.startswith("codevqa: No space left on device") and done.stderr.count("\n") == 1, done.stderr
