"""Each command ends with the status of its outcome, and a full disk is one clear line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from cli_kit import GARDEN, ROOT, CommandLine, environment

PROGRAM = "answer = 'yes'"
BAD = ROOT / "README.md"
COMMANDS: list[tuple[int, tuple[object, ...], str]] = [
    # Status, words, standard input. The program of "run -" comes from there.
    (0, ("ask", GARDEN, "-q", "Is there a red house?"), ""),
    (0, ("run", "-", GARDEN), PROGRAM),
    (0, ("prompt", "-q", "Is it?"), ""),
    (0, ("--help",), ""),
    (1, ("run", "-", GARDEN), "answer = 1 / 0"),
    (1, ("ask", GARDEN, "-q", "Is it?", "--lm", "openai-completion:none"), ""),
    (2, ("ask", BAD, "-q", "Is it?"), ""),
    (2, ("ask", GARDEN, "-q", "Is it?", "--method", "none"), ""),
    (2, ("report", ROOT), ""),
    (2, ("no-such-command",), ""),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "words", "stdin"),
    COMMANDS,
    ids=lambda given: " ".join(map(str, given))[:30] if isinstance(given, tuple) else None,
)
def test_a_command_ends_with_the_status_of_its_outcome(
    codevqa: CommandLine, status: int, words: tuple[object, ...], stdin: str
) -> None:
    done = codevqa(*words, stdin=stdin, OPENAI_BASE_URL="http://127.0.0.1:9/v1")  # where nothing listens
    assert done.returncode == status and "Traceback" not in done.stderr
    assert not (status and done.stdout)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize(
    ("words", "stdin"),
    [
        pytest.param(("ask", GARDEN, "-q", "Is it?", "--quiet"), "", id="ask", marks=pytest.mark.slow),
        pytest.param(("run", "-", GARDEN, "--quiet", "--json"), PROGRAM, id="run", marks=pytest.mark.slow),
        pytest.param(("models",), "", id="models"),
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
