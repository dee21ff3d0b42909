"""Benchmarks: processes start together and end together, seeds are pooled, intervals hold what they promise."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

ROOT = Path(__file__).resolve().parents[1]
coverage = import_module("benchmarks.coverage")


@pytest.mark.slow
def test_the_speed_of_two_processes(tmp_path: Path) -> None:
    words = ["mix", "--size", "tiny", "--device", "cpu", "--pictures", "3", "--questions", "2", "--processes", "2"]
    words += ["--reference", "1", "--json", str(tmp_path / "found.json")]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, ROOT / "benchmarks/speed.py", *words], check=True, env=environment, timeout=500)
    found = json.loads((tmp_path / "found.json").read_text())
    assert (found["items"], found["processes"], found["failed"]) == (6, 2, 0)  # an odd picture is not lost
    assert found["done for each"]["matcher's vision forwards"] == pytest.approx(0.5)  # a picture has one process
    assert found["ratio"] > 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The number of unique classes")
def test_seeds_are_pooled_as_data_of_their_own(tmp_path: Path) -> None:
    import seeds  # processes of the tests above load this file, too
    from eval_kit import fake_engine

    from codevqa.eval.task import METHODS
    from codevqa.models.fakes import FakeEyes

    plan = seeds.Plan(tmp_path, (3, 4), images=4, guess=True, methods=METHODS)
    made = list(seeds.lines(plan, lambda data: lambda: fake_engine('answer = "yes"', eyes=FakeEyes("no"))))
    table = [line.split(" | ") for line in made]
    assert table[0][4:7] == ["CodeVQA", "Direct (baseline)", "PnP-VQA (baseline)"]
    assert table[0][7:10] == ["CodeVQA − Direct", "CodeVQA − PnP-VQA", "Direct − PnP-VQA"]
    assert {line.count("|") for line in made} == {12}
    for title in ("mini-GQA", "mini-COVR", "mini-NLVR2"):
        one, other, whole = [cells for cells in table if cells[0] == f"| {title}"]
        assert (one[1], other[1], whole[1]) == ("3", "4", "all")
        counts = [[int(number) for number in cells[2].split(", ")] for cells in (one, other, whole)]
        assert [a + b for a, b in zip(*counts[:2], strict=True)] == counts[2]


@pytest.mark.slow
@pytest.mark.parametrize("structure", coverage.structures(), ids=lambda one: one.name)
def test_an_interval_holds_the_truth_and_a_true_null_stands(structure: Any) -> None:
    found = coverage.covered(structure)
    usual = structure.right[0] < 0.9
    assert (0.93 if usual else 0.9) <= found.difference <= 0.97
    assert found.rejected <= 0.07
    # A handful of clusters, or of errors, says so little of a share that more than is promised is held.
    assert 0.93 <= found.share <= (0.97 if usual and structure.clusters.max() >= 9 else 0.995)
