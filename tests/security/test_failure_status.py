"""Output that cannot be written is one clear line, and status 1."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from cli_kit import GARDEN, environment

PROGRAM = "answer = 'yes'"


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
