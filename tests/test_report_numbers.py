"""The numbers of a report are the summary's: shares and intervals, seeds, clusters, several runs, and the paper's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cli_kit import CommandLine, assert_one_clear_line
from report_kit import BETTER, FAILED, RIGHT, WORSE, WRONG, assert_safe, example, make

from codevqa.core.errors import InputError
from codevqa.eval import Store
from codevqa.eval.metrics import metric_for
from codevqa.eval.report.cases import KINDS, choose
from codevqa.eval.report.paper import DRAWN
from codevqa.eval.report.report import summary_of, write
from codevqa.eval.run.run_info import RunInfo
from codevqa.eval.task import Method, Row


def test_groups_that_say_next_to_nothing_stand_apart(tmp_path: Path) -> None:
    with Store.create(tmp_path / "run", RunInfo("covr", "val", ("codevqa", "pnpvqa"))) as store:
        for number in range(24):
            one = example(number, groups={"images": "1" if number < 10 else "2" if number < 15 else "3"})
            store.add(one, [Row(one.id, "codevqa", 0, "yes"), Row(one.id, "pnpvqa", 0, "no")])
    page, document = write([tmp_path / "run"])
    text = document.read_text(encoding="utf-8")
    large, small = text.split("## Groups of less than 10 questions")
    assert "| 1 | 10 |" in large and "| 3 | 9 |" not in large and "| 2 | 5 |" not in large
    assert "9" in small and "5" in small
    assert re.search(r"<details>.*?By images.*?</details>", page.read_text(encoding="utf-8"), re.DOTALL)


def test_numbers_and_kinds_of_cases(tmp_path: Path) -> None:
    run = make(tmp_path / "run", [RIGHT] * 5 + [BETTER] * 3 + [WORSE] * 1 + [WRONG] * 2 + [FAILED] * 1)
    page = assert_safe(write([run], cluster="question")[0].read_text(encoding="utf-8"))
    assert "66.7 % (39.1 to 86.2)" in page.text  # 8 of 12
    assert "3 questions changed for the better, 1 for the worse; the interval includes zero" in page.text
    assert "8.3 % (1.5 to 35.4)" in page.text  # one fallback
    assert "ProgramTypeError CodeVQA 1 (8.3 %) 1 0.0 %" in page.text
    with Store.open(run) as store:
        found = choose(store, metric_for("gqa"), None, each=2)
    assert {kind: (count, len(chosen)) for kind, (count, chosen) in found.items()} == {
        "better": (3, 2),
        "worse": (1, 1),
        "fallback": (1, 1),
        "both_wrong": (2, 2),
    }
    for kind, (_, chosen) in found.items():
        assert KINDS[kind] in page.text
        assert [one.id for one, _, _ in chosen] == sorted(one.id for one, _, _ in chosen)


def test_the_paper_is_beside_groups_it_reports(tmp_path: Path) -> None:
    with Store.create(tmp_path / "run", RunInfo("covr", "val", ("codevqa", "pnpvqa"))) as store:
        for number in range(53):
            one = example(number, groups={"images": str(number % 5 + 1) if number < 50 else "6"})
            store.add(one, [Row(one.id, "codevqa", 0, "yes"), Row(one.id, "pnpvqa", 0, "no")])
    text = assert_safe(write([tmp_path / "run"])[0].read_text(encoding="utf-8")).text
    assert "54.11 %" in text and re.search(r"By images, beside the paper.*?5 10 0\.0 % .*? 46\.9 % 53\.4 %", text)
    assert DRAWN not in text


def test_hidden_answers_still_make_a_page(tmp_path: Path) -> None:
    with Store.create(tmp_path / "run", RunInfo("covr", "test", ("codevqa",))) as store:
        for number in range(3):
            store.add(example(number, gold=()), [Row(f"{number:04}", "codevqa", 0, "yes")])
    text = assert_safe(write([tmp_path / "run"])[0].read_text(encoding="utf-8")).text
    assert "3 of them without an answer to compare with" in text and "–" in text


@pytest.mark.parametrize("method", ["codevqa", "pnpvqa"])
def test_one_method_alone(tmp_path: Path, method: Method) -> None:
    with Store.create(tmp_path / "run", RunInfo("gqa", "val", (method,))) as store:
        for number in range(4):
            store.add(example(number), [Row(f"{number:04}", method, 0, "yes" if number else "no")])
    text = assert_safe(write([tmp_path / "run"], cluster="question")[0].read_text(encoding="utf-8")).text
    assert "75.0 % (30.1 to 95.4)" in text and "Program against baseline" not in text
    assert ("No method is right" in text) == (method == "codevqa")


def test_repetitions_over_seeds(tmp_path: Path) -> None:
    with Store.create(tmp_path / "run", RunInfo("gqa", "val", ("codevqa",), seeds=(0, 1))) as store:
        for number in range(4):
            rows = [Row(f"{number:04}", "codevqa", n, "yes" if number >= n else "no") for n in (0, 1)]
            store.add(example(number), rows)
    text = assert_safe(write([tmp_path / "run"])[0].read_text(encoding="utf-8")).text
    assert "over 2 sampling seeds: 87.50 % on average, standard deviation 17.68 points" in text
    assert "the answer changes on 25.0 %" in text


def test_runs_that_differ_in_seed_only_are_listed_as_if_they_were_others(tmp_path: Path) -> None:
    runs = [
        make(tmp_path / name, [RIGHT] * n + [WRONG] * (20 - n), info={"settings": {"seed": n}, "seeds": (n,)})
        for name, n in (("a", 12), ("b", 14), ("c", 10))
    ]
    text = assert_safe(write(runs, tmp_path / "all")[0].read_text(encoding="utf-8")).text
    assert "CodeVQA, over 3 sampling seeds: 60.00 % on average, standard deviation 10.00 points" in text
    assert "the answer changes on 20.0 %" in text and "Between the runs" not in text and "b:" not in text


@pytest.mark.parametrize(
    "other", [{"seeds": (1,)}, {"methods": ("codevqa",)}, {"variant": "official"}, {"limit": 9}, {"questions": 20}]
)
def test_runs_that_differ_in_more_than_seeds_are_not_averaged(tmp_path: Path, other: dict[str, object]) -> None:
    runs = [
        make(tmp_path / name, [RIGHT] * 5, info={"seeds": (seed,), **(other if seed == 2 else {})})
        for seed, name in enumerate("abc")
    ]
    text = write(runs, tmp_path / "all")[1].read_text(encoding="utf-8")
    assert "over 2 sampling seeds" in text and "over 3" not in text and "c − a and 1 with other seeds" in text


def test_notes_say_which_of_several_runs_they_are_about(tmp_path: Path) -> None:
    first = make(tmp_path / "a", [RIGHT, WRONG] * 50)
    second = make(tmp_path / "b", [RIGHT, WRONG] * 3, info={"split": "dev"})
    text = write([first, second], tmp_path / "all")[1].read_text(encoding="utf-8")
    assert "b: There are only 3 clusters" in text and "a: There are only" not in text


def test_few_clusters_are_not_said_or_groups_tested_as_if_each_were_alone(tmp_path: Path) -> None:
    answers = [BETTER, RIGHT, RIGHT, WRONG, BETTER, WORSE, BETTER, RIGHT] * 6
    document = write([make(tmp_path / "run", answers)])[1].read_text(encoding="utf-8")
    assert "There are only 24 clusters, fewer than 40" in document
    paired = re.search(r"\| gqa val \| 48 \| 24 \| (.*) \|", document)
    assert paired is not None and "18 / 6" in paired[1] and "(t)" in paired[1]
    table = document.partition("By structural: program against baseline")[2]
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith(("| query", "| verify"))][:2]
    alone, together = ([float(row[at].split()[0]) for row in rows] for at in (4, 5))
    assert max(together) <= 1 and min(together) == pytest.approx(2 * min(alone), rel=0.05), rows
    assert "p after Holm" in table and "Detectable: the smallest true difference" in table
    assert "Of fewer than 40 clusters: spatial" in document  # of structural, each is of another picture
    alone_text = write([tmp_path / "run"], cluster="question")[1].read_text(encoding="utf-8")
    assert "(McNemar)" in alone_text and "fewer than 40" not in alone_text


def test_clusters_that_are_not_there_are_refused(tmp_path: Path, codevqa: CommandLine) -> None:
    run = make(tmp_path / "run", [RIGHT, WRONG])
    done = codevqa("report", str(run), "--cluster", "writer")
    assert_one_clear_line(done, "has no 'writer' to cluster by. It has: question, pictures, text, spatial")
    for way in ("pictures", "text", "structural"):
        write([run], cluster=way)


def test_several_runs_on_one_page(tmp_path: Path) -> None:
    first = make(tmp_path / "a" / "run", [RIGHT] * 6 + [WRONG] * 4)
    second = make(tmp_path / "b" / "run", [RIGHT] * 9 + [WRONG] * 1, info={"prompt_hash": "cd"})
    other = make(tmp_path / "c", [RIGHT], info={"dataset": "nlvr2", "split": "dev"})
    changed = make(tmp_path / "d", [RIGHT], info={"data_hash": "2"})
    with pytest.raises(InputError, match="--out"):
        write([first, second])
    text = assert_safe(write([first, second, other, changed], tmp_path / "all")[0].read_text(encoding="utf-8")).text
    assert "a/run" in text and "b/run" in text and "nlvr2" in text
    assert "b/run − a/run codevqa 10 +30.0" in text and "3 / 0" in text
    assert "c − " not in text and "d − " not in text  # other data
    assert "CodeVQA on gqa val, nlvr2 dev" in text and "annotations SHA-256 1 SHA-256 1 SHA-256 1 SHA-256 2" in text


def test_how_many_questions_a_gain_needs(tmp_path: Path, codevqa: CommandLine) -> None:
    run = make(tmp_path / "run", [BETTER, RIGHT, RIGHT, WRONG, BETTER, WORSE, BETTER, RIGHT] * 6)
    with Store.open(run) as store:
        paired = summary_of(store, metric_for("gqa")).paired
    assert paired is not None
    questions, clusters = paired.needed(0.02) or (0, 0)
    # By normal quantiles; by t, with as many clusters as it comes to, it is a little more.
    roughly = ((1.96 + 0.8416) * paired.error / 0.02) ** 2 * 24
    assert roughly < clusters < roughly + 4
    done = codevqa("power", "--baseline", str(run), "--gain", "2")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"a gain of 2 points needs {questions:,} questions in {clusters:,} clusters like these" in done.stdout
    assert questions == 2 * clusters and "only 24 clusters" in done.stdout
    same = make(tmp_path / "same", [RIGHT] * 4)
    assert_one_clear_line(codevqa("power", "--baseline", str(same), "--gain", "2"), "no difference that varies")
