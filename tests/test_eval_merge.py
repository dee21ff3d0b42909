"""Runs of shards and of seeds, pooled: the same as if one run had asked it all."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from cli_kit import CommandLine
from eval_kit import Numbered, asked, fake_engine, timeless

from codevqa.eval import Store, evaluate
from codevqa.eval.report.reading import summary_of
from codevqa.eval.report.report import write
from codevqa.eval.run.merge import merge
from codevqa.eval.task import Row


def by_key(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row.id, row.method, row.repeat))


def test_shards_and_seeds_become_the_run_that_asked_it_all(tmp_path: Path) -> None:
    data = Numbered(tmp_path, 9)
    with fake_engine() as vqa:
        evaluate(vqa, data, tmp_path / "whole", seeds=2).close()
        evaluate(vqa, data, tmp_path / "b", offset=4).close()
        evaluate(vqa, data, tmp_path / "a", limit=4).close()
    with fake_engine(seed=1) as vqa:  # another seed of the engine's own, too
        evaluate(vqa, data, tmp_path / "c").close()
    assert merge([tmp_path / name for name in "bac"], tmp_path / "out") == 36
    with Store.open(tmp_path / "whole") as whole, Store.open(tmp_path / "out") as out:
        assert by_key(timeless(out)) == by_key(timeless(whole))
        assert list(out.examples()) == list(whole.examples())
        for name in ("offset", "limit", "questions", "ends", "seeds", "methods", "unofficial", "settings"):
            assert getattr(out.info, name) == getattr(whole.info, name)
        pace = out.pace()
        assert pace is not None and pace.questions == 18
        ours, theirs = (dataclasses.replace(summary_of(one).methods["codevqa"], cost=None) for one in (out, whole))
        assert ours == theirs
    write([tmp_path / "out"])
    with fake_engine() as vqa, evaluate(vqa, data, tmp_path / "out", seeds=2, resume=True) as out:
        assert len(asked(out)) == 36


def test_the_command_says_what_the_runs_come_to(tmp_path: Path, codevqa: CommandLine) -> None:
    data = Numbered(tmp_path, 4)
    with fake_engine() as vqa:
        evaluate(vqa, data, tmp_path / "a", limit=2).close()
        evaluate(vqa, data, tmp_path / "b", offset=2).close()
    done = codevqa("merge", tmp_path / "a", tmp_path / "b", "--out", tmp_path / "out")
    assert done.returncode == 0 and done.stdout.startswith("gqa val: 4 questions; exact match\n"), done.stderr
    again = codevqa("merge", tmp_path / "a", tmp_path / "a", "--out", tmp_path / "more")
    assert again.returncode == 2 and "Question 000000 was asked in" in again.stderr
    assert not (tmp_path / "more").exists()
