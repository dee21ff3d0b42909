"""Differences between two runs: what changed is counted, tested and shown, and runs that share nothing are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_kit import CommandLine, assert_one_clear_line
from report_kit import RIGHT, WRONG, make

from codevqa.eval import Store
from codevqa.eval.report.diff import compare_runs, describe


def test_difference(tmp_path: Path) -> None:
    first = make(tmp_path / "a", [("yes", "no")] * 6 + [("no", "no")] * 4, info={"settings": {"seed": 0}})
    second = make(
        tmp_path / "b",
        [("yes", "no")] * 4 + [("maybe", "no")] * 2 + [("yes", "no")] * 3 + [("never", "no"), ("yes", "no")],
        info={"settings": {"seed": 1}},
        program='answer = query(img, "y")',
    )
    with Store.open(first) as one, Store.open(second) as two:
        found = compare_runs(one, two, keep=2)
        same = compare_runs(one, one)
        baseline = compare_runs(one, two, method="pnpvqa")
    assert (found.questions, found.only_first, found.only_second) == (10, 0, 1)
    assert (found.changed_answers, found.changed_programs) == (6, 10)
    assert found.first is not None and found.first.value == 0.6
    assert found.second is not None and found.second.value == 0.7
    assert found.paired is not None and (found.paired.better, found.paired.worse) == (3, 2)
    assert found.paired.difference.value == pytest.approx(0.1)
    assert [change.id for change in found.better] == ["0006", "0007"]
    assert [change.second for change in found.worse] == ["maybe", "maybe"]
    assert [(change.first, change.second) for change in found.other] == [("no", "never")]
    assert found.settings == ["settings.seed was 0, now 1"]
    assert (same.changed_answers, same.changed_programs, same.better, same.settings) == (0, 0, [], [])
    assert baseline.changed_answers == 0 and baseline.paired is not None and baseline.paired.p_value == 1.0
    lines = "\n".join(describe(found))
    assert "+10.0" in lines and "only in the second: 1" in lines and "| answer = query(img" in lines
    json.dumps(found.to_dict())


def test_a_difference_between_runs_is_tested_by_cluster(tmp_path: Path) -> None:
    """Twelve questions that all gain, in six pictures: McNemar's test would count twelve."""
    first, second = (make(tmp_path / name, [one] * 12) for name, one in (("a", WRONG), ("b", RIGHT)))
    with Store.open(first) as one, Store.open(second) as two:
        grouped, alone = (compare_runs(one, two, cluster=by).paired for by in ("", "question"))
    assert grouped is not None and (grouped.test, grouped.p_value) == ("t", 2 / 2**6)
    assert alone is not None and (alone.test, alone.p_value) == ("McNemar", 2 / 2**12)


def test_terminals_are_told_no_control_characters(tmp_path: Path) -> None:
    first = make(tmp_path / "a", [("\x1b[2Jyes", "no")])
    second = make(tmp_path / "b", [("\x1b]0;title\x07", "no")], program="\x1b[31m")
    with Store.open(first) as one, Store.open(second) as two:
        text = "\n".join(describe(compare_runs(one, two)))
    assert "\x1b" not in text and "\x07" not in text and "[2Jyes" in text


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
