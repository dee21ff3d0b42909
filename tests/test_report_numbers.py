"""The numbers of a report are the summary's: shares and intervals, seeds, clusters, several runs, and the paper's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from report_kit import BETTER, FAILED, RIGHT, WORSE, WRONG, assert_safe, example, make, read

from codevqa.eval import Store
from codevqa.eval.report.paper import DRAWN
from codevqa.eval.report.report import write
from codevqa.eval.run.run_info import RunInfo
from codevqa.eval.task import Row


def test_accuracy_difference_fallbacks_and_errors(tmp_path: Path) -> None:
    run = make(tmp_path / "run", [RIGHT] * 5 + [BETTER] * 3 + [WORSE] * 1 + [WRONG] * 2 + [FAILED] * 1, alone=True)
    text = read(run).text
    assert "gqa val 12 66.7 % (39.1 to 86.2) 50.0 % (25.4 to 74.6)" in text  # 8 of 12, and 6
    assert "3 of 12 questions in 12 clusters changed for the better, 1 for the worse; the interval includes" in text
    assert "CodeVQA 8.3 % (1.5 to 35.4) 72.7 %" in text  # one fallback, and 8 of 11 without it
    assert "ProgramTypeError CodeVQA 1 (8.3 %) 1 0.0 % 0011: line 1: no" in text


def test_groups_that_say_next_to_nothing_are_apart_untested_and_never_beside_the_paper(tmp_path: Path) -> None:
    with Store.create(tmp_path / "run", RunInfo("covr", "val", ("codevqa", "pnpvqa"))) as store:
        for number in range(24):
            one = example(number, groups={"images": "1" if number < 10 else "2" if number < 15 else "3"})
            store.add(one, [Row(one.id, "codevqa", 0, "yes"), Row(one.id, "pnpvqa", 0, "no")])
    html = write([tmp_path / "run"]).page.read_text(encoding="utf-8")
    rows = re.findall(r'<tr( class="muted")?>\s*<th scope="row">([^<]*)</th><td>(\d+)</td>(.*?)</tr>', html)
    found = {name: (bool(muted), n, rest.count("<td>–</td>")) for muted, name, n, rest in rows if name in "123"}
    assert found == {"1": (False, "10", 0), "2": (True, "5", 6), "3": (True, "9", 6)}
    text = assert_safe(html).text
    assert "paper: covr test_paraphrased 7,024 54.11 % 49.06 % +5.05" in text and DRAWN not in text
    assert re.search(r"By images .*? 1 10 100\.0 % .*? 75\.0 % 91\.7 % ", text)


def test_hidden_answers_still_make_a_page(tmp_path: Path) -> None:
    with Store.create(tmp_path / "run", RunInfo("covr", "test", ("codevqa",))) as store:
        for number in range(3):
            store.add(example(number, gold=()), [Row(f"{number:04}", "codevqa", 0, "yes")])
    text = read(tmp_path / "run").text
    assert "3 of them without an answer to compare with" in text and "covr test 3 – – – – –" in text


def test_repetitions_over_seeds(tmp_path: Path) -> None:
    with Store.create(tmp_path / "run", RunInfo("gqa", "val", ("codevqa",), seeds=(0, 1))) as store:
        for number in range(4):
            rows = [Row(f"{number:04}", "codevqa", n, "yes" if number >= n else "no") for n in (0, 1)]
            store.add(example(number), rows)
    text = read(tmp_path / "run").text
    assert "over 2 sampling seeds: 87.50 % on average, standard deviation 17.68 points" in text
    assert "the answer changes on 25.0 %" in text


def test_few_clusters_are_not_said_or_groups_tested_as_if_each_were_alone(tmp_path: Path) -> None:
    answers = [BETTER, RIGHT, RIGHT, WRONG, BETTER, WORSE, BETTER, RIGHT] * 6
    run = make(tmp_path / "run", answers)
    text = read(run).text
    assert "There are only 24 clusters, fewer than 40" in text and "Of fewer than 40 clusters: spatial" in text
    found = re.findall(r"(?:query|verify) 24 .*? 24 [+−].*? ([\d.e-]+) \(McNemar\) ([\d.e-]+) ", text)
    alone, together = ([float(one[at]) for one in found] for at in (0, 1))
    assert len(found) == 2 and max(together) <= 1 and min(together) == pytest.approx(2 * min(alone), rel=0.05)


def test_several_runs_are_one_table_the_best_first(tmp_path: Path) -> None:
    first = make(tmp_path / "a" / "run", [RIGHT] * 6 + [WRONG] * 4)
    second = make(tmp_path / "b" / "run", [RIGHT] * 9 + [WRONG] * 1, info={"prompt_hash": "cd"})
    other = make(tmp_path / "c", [RIGHT], info={"dataset": "nlvr2", "split": "dev"})
    changed = make(tmp_path / "d", [RIGHT] * 4 + [WRONG], info={"data_hash": "2"})
    text = read(first, second, other, changed, out=tmp_path / "all").text
    result = text.partition(" Result ")[2].partition(" Between the runs ")[0]
    assert re.findall(r"(\S+): (\S+ \S+) (\d+) (\d+)\.\d %", result) == [
        ("b/run", "gqa val", "10", "90"),
        ("d", "gqa val", "5", "80"),
        ("a/run", "gqa val", "10", "60"),
        ("c", "nlvr2 dev", "1", "100"),
    ]
    assert "b/run − a/run CodeVQA 10 +30.0" in text and "3 / 0" in text
    assert "c − " not in text and "d − " not in text  # other data
    assert "annotations SHA-256 1 SHA-256 1 SHA-256 1 SHA-256 2" in text
