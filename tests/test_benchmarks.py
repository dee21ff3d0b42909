"""Benchmarks: processes start together and end together, seeds are pooled, intervals hold what they promise."""

from __future__ import annotations

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
