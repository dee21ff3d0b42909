"""The bench beside another commit: how it decides, and that it runs."""

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))
import bench

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize(
    ("ratios", "expected"),
    [
        ([1.0, 1.0, 1.0], ""),
        ([0.6, 0.9, 1.5], ""),
        ([0.5, 0.89, 0.99], "slower"),
        ([0.5, 0.89, 1.0], "unsure"),
        ([0.8, 0.7, 0.8, 0.6], "slower"),
        ([0.5, 0.5], "unsure"),
    ],
)
def test_verdict(ratios: list[float], expected: str) -> None:
    assert bench.verdict(ratios) == expected


def test_ratios_above_one_are_faster() -> None:
    assert bench.Result("gqa", ((1.0, 2.0), (4.0, 2.0)), 5).ratios == [2.0, 0.5]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["no-such-commit"], "No commit named no-such-commit."),
        (["HEAD", "--language-model", "/no/folder"], "No language model at /no/folder"),
        (["HEAD", "--retriever", "/no/folder"], "No retriever at /no/folder"),
        (["HEAD", "--only", "gqq"], "No row named gqq"),
    ],
)
def test_mistakes_get_one_line(arguments: list[str], line: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert line in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_runs_beside_head() -> None:
    before = worktrees()
    done = run("HEAD", "--rounds", "1", "--scale", "0.02", "--only", "gqa", "retrieval")
    assert done.returncode == 0, done.stderr
    table = [line.split() for line in done.stdout.splitlines()]
    assert [line[0] for line in table[1:3]] == ["gqa", "retrieval"]
    assert "1 of 1" in done.stdout
    assert worktrees() == before


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "bench.py"), *arguments], capture_output=True, text=True, cwd=ROOT
    )


def worktrees() -> str:
    return subprocess.run(["git", "worktree", "list"], capture_output=True, text=True, check=True, cwd=ROOT).stdout
