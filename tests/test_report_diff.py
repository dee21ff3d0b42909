"""Differences between two runs: what changed is counted and tested, and runs that share nothing are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_kit import CommandLine, assert_one_clear_line
from report_kit import BETTER, RIGHT, WRONG, make

from codevqa.eval import Store
from codevqa.eval.report.diff import compare_runs


def test_difference(tmp_path: Path, codevqa: CommandLine) -> None:
    first = make(tmp_path / "a", [BETTER] * 6 + [WRONG] * 4, info={"settings": {"seed": 0}})
    second = make(
        tmp_path / "b",
        [BETTER] * 4 + [("maybe", "no")] * 2 + [BETTER] * 3 + [("never", "no"), BETTER],
        info={"settings": {"seed": 1}},
        program='answer = query(img, "y")',
    )
    with Store.open(first) as one, Store.open(second) as two:
        found = compare_runs(one, two)
        baseline = compare_runs(one, two, method="pnpvqa")
    assert (found.questions, found.only_first, found.only_second) == (10, 0, 1)
    assert (found.changed_answers, found.changed_programs) == (6, 10)
    assert found.first is not None and found.first.value == 0.6
    assert found.second is not None and found.second.value == 0.7
    assert found.paired is not None and (found.paired.better, found.paired.worse) == (3, 2)
    assert found.paired.difference.value == pytest.approx(0.1)
    assert found.settings == ["settings.seed was 0, now 1"]
    assert baseline.changed_answers == 0 and baseline.paired is not None and baseline.paired.p_value == 1.0
    done = codevqa("diff", first, second)
    assert (done.returncode, done.stderr) == (0, "")
    assert "+10.0" in done.stdout and "only in the second: 1" in done.stdout
    told = json.loads(codevqa("diff", first, second, "--json", "--method", "codevqa").stdout)
    assert told["changed_answers"] == 6 and told["paired"]["better"] == 3


def test_a_difference_between_runs_is_tested_by_cluster(tmp_path: Path) -> None:
    """Twelve questions that all gain, in six pictures: McNemar's test would count twelve."""
    first, second = (make(tmp_path / name, [one] * 12) for name, one in (("a", WRONG), ("b", RIGHT)))
    with Store.open(first) as one, Store.open(second) as two:
        grouped = compare_runs(one, two).paired
    assert grouped is not None and (grouped.test, grouped.p_value) == ("t", 2 / 2**6)


@pytest.mark.parametrize(
    ("info", "words"),
    [
        ({"dataset": "nlvr2"}, "different data: gqa val and nlvr2 val"),
        ({"split": "test"}, "gqa val and gqa test"),
        ({"data_hash": "2"}, "annotations differ"),
    ],
)
def test_other_data_is_refused(tmp_path: Path, info: dict[str, Any], words: str, codevqa: CommandLine) -> None:
    make(tmp_path / "a", [RIGHT])
    make(tmp_path / "b", [RIGHT], info=info)
    assert_one_clear_line(codevqa("diff", str(tmp_path / "a"), str(tmp_path / "b")), words)
