"""Runs that end in every way a run can end, and go on: no row is lost or asked twice, and other data are refused."""

import dataclasses
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_kit import CommandLine
from eval_kit import PROGRAM, Numbered, asked, environment, fake_engine, timeless
from PIL import Image

from codevqa.core.errors import InputError, ServerError
from codevqa.eval import Store, evaluate
from codevqa.eval.report.reading import summary_of
from codevqa.eval.report.report import write_report
from codevqa.eval.report.table import summary_lines
from codevqa.eval.run.merge import merge_runs
from codevqa.eval.run.session import Status
from codevqa.eval.task import DatasetPicture, Example, Row
from codevqa.models.protocols import GenerationRequest


def test_a_server_that_goes_down_ends_the_run_and_resume_goes_on(tmp_path: Path) -> None:
    calls: list[str] = []

    def write(request: GenerationRequest) -> str:
        calls.append(str(request.prompt))
        if down and len(calls) > 10:
            raise ServerError("The server at 127.0.0.1 is down.", hint="Start it.")
        return PROGRAM

    down = True
    message = r"is down\. Start it\. Stopped with \d+ rows kept; --r"
    with fake_engine(write) as vqa, pytest.raises(ServerError, match=message):
        evaluate(vqa, Numbered(tmp_path, 40), tmp_path / "run")
    with Store.open(tmp_path / "run") as store:
        before = asked(store)
        assert 10 <= len(before) <= 20 and not any(row.error for row in store.rows("codevqa"))
    down, done = False, len(calls)
    with fake_engine(write) as vqa, evaluate(vqa, Numbered(tmp_path, 40), tmp_path / "run", resume=True) as store:
        after = asked(store)
        assert len(after) == len(set(after)) == 80 and set(before) < set(after)
    assert len(calls) - done == 40 - sum(method == "codevqa" for _, method, _ in before)


@pytest.mark.parametrize("packed", [False, True])
def test_a_run_does_not_go_on_with_other_pictures(packed: bool, tmp_path: Path) -> None:
    class Pictures(Numbered):
        def __iter__(self) -> Iterator[Example]:
            for number, example in enumerate(super().__iter__()):
                place = (tmp_path / "all.zip", f"{number}.png") if packed else (tmp_path / f"{number}.png",)
                yield dataclasses.replace(example, images=(DatasetPicture(*place),))

    def drawn(*colors: str) -> Pictures:
        with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
            for number, color in enumerate(colors):
                Image.new("RGB", (8, 8), color).save(tmp_path / f"{number}.png")
                archive.write(tmp_path / f"{number}.png", f"{number}.png")
        return Pictures(tmp_path, len(colors))

    with fake_engine() as vqa:
        evaluate(vqa, drawn("red", "green", "blue"), tmp_path / "run", limit=2).close()
        evaluate(vqa, drawn("red", "green", "black"), tmp_path / "run", resume=True).close()  # not asked about yet
        with pytest.raises(InputError, match=r"1\.png has changed since it was asked about"):
            evaluate(vqa, drawn("red", "yellow", "black"), tmp_path / "run", resume=True)


def test_a_limit_may_grow_and_other_methods_and_seeds_may_follow(tmp_path: Path) -> None:
    data, out = Numbered(tmp_path, 12), tmp_path / "run"
    with fake_engine() as vqa:
        evaluate(vqa, data, out, methods=["codevqa"], limit=4, offset=2).close()
        with evaluate(vqa, data, out, methods=["codevqa"], limit=6, offset=2, resume=True) as store:
            assert [row.id for row in store.rows("codevqa")] == [f"{n:06}" for n in range(2, 8)]
            assert (store.info.limit, store.info.questions, store.info.ends) == (6, 6, False)
        with evaluate(vqa, data, out, limit=3, offset=2, seeds=2, resume=True) as store:
            assert store.counts() == {("codevqa", 0): 6, ("codevqa", 1): 3, ("pnpvqa", 0): 3, ("pnpvqa", 1): 3}
            assert (store.info.limit, store.info.seeds, store.info.methods) == (6, (0, 1), ("codevqa", "pnpvqa"))


def test_other_settings_are_refused_with_their_names(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with fake_engine() as vqa:
        evaluate(vqa, Numbered(tmp_path, 3), out).close()
        with pytest.raises(InputError, match="offset was 0, now 1"):
            evaluate(vqa, Numbered(tmp_path, 3), out, offset=1, resume=True)
        with pytest.raises(InputError, match="data_hash was"):
            evaluate(vqa, Numbered(tmp_path, 3, "Is it {}?"), out, resume=True)
    with fake_engine(captions=1, name="other", seed=3) as vqa, pytest.raises(InputError) as caught:
        evaluate(vqa, Numbered(tmp_path, 3), out, resume=True)
    for words in ("models was", "settings.query.captions was 2, now 1", "settings.seed was 0, now 3", "seeds were [0]"):
        assert words in str(caught.value)
    with fake_engine(workers=1) as vqa, evaluate(vqa, Numbered(tmp_path, 3), out, resume=True) as store:
        assert len(store) == 3


def test_data_that_changed_behind_the_first_examples_are_refused(tmp_path: Path) -> None:
    class Changed(Numbered):
        def __iter__(self) -> Iterator[Example]:
            for example in super().__iter__():
                yield dataclasses.replace(example, question="Else?") if example.id == "000150" else example

    out = tmp_path / "run"
    with fake_engine() as vqa:
        evaluate(vqa, Numbered(tmp_path, 160), out, methods=["pnpvqa"]).close()
        with pytest.raises(
            InputError, match=r"000150 reads 'Else\?' in the data set and 'Is thing 150 red\?' in the run"
        ):
            evaluate(vqa, Changed(tmp_path, 170), out, methods=["pnpvqa"], resume=True)


def test_an_id_that_comes_twice_is_asked_once(tmp_path: Path) -> None:
    class Twice(Numbered):
        def __iter__(self) -> Iterator[Example]:
            for example in super().__iter__():
                yield example
                yield example

    seen: list[Status] = []
    for resume in (False, True):
        options: Any = {"resume": resume, "progress": seen.append}
        with fake_engine() as vqa, evaluate(vqa, Twice(tmp_path, 5), tmp_path / "run", **options) as store:
            assert store.counts() == {("codevqa", 0): 5, ("pnpvqa", 0): 5}
            assert not [line for line in summary_lines(store.info, summary_of(store)) if "not complete" in line]
    assert (seen[-1].total, seen[-1].examples) == (5, 5)


RUN = """
import sys
from pathlib import Path
from eval_kit import Numbered, fake_engine
from codevqa.eval import evaluate
folder = Path(sys.argv[1])
with fake_engine() as vqa:
    say = lambda status: print(status.examples, flush=True)
    evaluate(vqa, Numbered(folder, 100), folder / "run", resume=True, progress=say).close()
"""


def test_kill_9_loses_no_finished_row(tmp_path: Path) -> None:
    command = [sys.executable, "-c", RUN, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(40)]
        process.send_signal(signal.SIGKILL)
        lines += process.stdout.readlines()
    finished = int([line for line in lines if line.endswith("\n")][-1])
    with Store.open(tmp_path / "run") as store:
        before = asked(store)
        assert len(before) == len(set(before)) and 2 * finished <= len(before) < 200
        assert list(store.read("PRAGMA integrity_check")) == [("ok",)]
    with fake_engine() as vqa:
        seen: list[int] = []
        options: Any = {"resume": True, "progress": lambda status: seen.append(status.rows)}
        with evaluate(vqa, Numbered(tmp_path, 100), tmp_path / "run", **options) as store:
            after = timeless(store)
        with evaluate(vqa, Numbered(tmp_path, 100), tmp_path / "whole") as whole:
            assert after == timeless(whole)
    assert seen[-1] == 200 - len(before)  # nothing is asked twice


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
    assert merge_runs([tmp_path / name for name in "bac"], tmp_path / "out") == 36
    with Store.open(tmp_path / "whole") as whole, Store.open(tmp_path / "out") as out:
        assert by_key(timeless(out)) == by_key(timeless(whole))
        assert list(out.examples()) == list(whole.examples())
        for name in ("offset", "limit", "questions", "ends", "seeds", "methods", "unofficial", "settings"):
            assert getattr(out.info, name) == getattr(whole.info, name)
        pace = out.pace()
        assert pace is not None and pace.questions == 18
        ours, theirs = (dataclasses.replace(summary_of(run).methods["codevqa"], cost=None) for run in (out, whole))
        assert ours == theirs
    write_report([tmp_path / "out"])
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
