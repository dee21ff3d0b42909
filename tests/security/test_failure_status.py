"""Output that cannot be written is one clear line, and status 1."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from cli_kit import GARDEN, environment


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize(
    "words", [("models",), pytest.param(("run", "-", GARDEN, "--quiet", "--json"), marks=pytest.mark.slow)], ids=len
)
def test_output_that_cannot_be_written_is_status_one(words: tuple[object, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "codevqa", *map(str, words)],
            input="answer = 'yes'",
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=500,
            env=environment(),
            check=False,
        )
    assert done.returncode == 1, done.stderr
    assert done.stderr.startswith("codevqa: No space left on device") and done.stderr.count("\n") == 1, done.stderr
