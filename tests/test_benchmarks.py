"""Benchmarks in several processes: they start together, and one that fails ends all with a word about it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from eval_kit import fake_engine

from codevqa import CodeVQA
from codevqa.eval.task import DataSet

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))
import processes
import seeds

WORK = """
import json, os, pathlib, sys, time
folder, number = pathlib.Path(sys.argv[1]), sys.argv[2]
(folder / f"{number}.pid").write_text(str(os.getpid()))
if number == os.environ.get("FAILS_FIRST"):
    sys.exit(3)
(folder / f"{number}.ready").touch()
print("ready", flush=True)
sys.stdin.readline()
if number == os.environ.get("FAILS_LATER"):
    os.kill(os.getpid(), 9)
others = sorted(one.name for one in folder.glob("*.ready"))
print(json.dumps({"ended": time.time(), "others": others}), flush=True)
"""


def commands(folder: Path, count: int) -> list[list[str]]:
    return [[sys.executable, "-c", WORK, str(folder), str(number)] for number in range(count)]


def gone(folder: Path) -> bool:
    found = [one.read_text() for one in folder.glob("*.pid")]
    return not any(Path("/proc", pid).exists() for pid in found if pid)


def test_all_start_when_all_are_ready(tmp_path: Path) -> None:
    began = time.time()
    seconds, found = processes.together(commands(tmp_path, 3))
    assert [one["others"] for one in found] == [["0.ready", "1.ready", "2.ready"]] * 3
    assert 0 < seconds < time.time() - began
    assert gone(tmp_path)


@pytest.mark.parametrize(
    ("variable", "says"),
    [
        ("FAILS_FIRST", "process 1 of 3 did not get ready (status 3)"),
        ("FAILS_LATER", "process 1 of 3 did not finish its work (SIGKILL)"),
    ],
)
def test_one_that_fails_ends_all(tmp_path: Path, variable: str, says: str) -> None:
    with pytest.raises(SystemExit, match=r"its messages are above") as caught:
        processes.together(commands(tmp_path, 3), [{variable: "1"}] * 3)
    assert says in str(caught.value)
    assert gone(tmp_path)


@pytest.mark.slow
def test_the_speed_of_two_processes(tmp_path: Path) -> None:
    words = ["mix", "--size", "tiny", "--device", "cpu", "--pictures", "3", "--questions", "2", "--processes", "2"]
    words += ["--reference", "1", "--json", str(tmp_path / "found.json")]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    script = Path(processes.__file__).with_name("speed.py")
    subprocess.run([sys.executable, str(script), *words], check=True, env=environment, timeout=500)
    found = json.loads((tmp_path / "found.json").read_text())
    assert (found["items"], found["processes"], found["failed"]) == (6, 2, 0)  # an odd picture is not lost
    assert found["done for each"]["matcher's vision forwards"] == pytest.approx(0.5)  # a picture has one process
    assert found["ratio"] > 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The number of unique classes")
def test_seeds_are_measured_once_and_pooled_as_data_of_their_own(tmp_path: Path) -> None:
    plan = seeds.Plan(tmp_path, (3, 4), images=4, guess=True, quiet=True)

    def engine(data: DataSet) -> Callable[[], CodeVQA]:
        return lambda: fake_engine('answer = "yes"')

    table = [line.split(" | ") for line in seeds.lines(plan, engine)]

    def stays(data: DataSet) -> CodeVQA:
        raise AssertionError("asked again")

    assert [line.split(" | ") for line in seeds.lines(plan, stays)] == table
    for title in ("mini-GQA", "mini-COVR", "mini-NLVR2"):
        one, other, whole = [cells for cells in table if cells[0] == f"| {title}"]
        assert (one[1], other[1], whole[1]) == ("3", "4", "all")
        counts = [[int(number) for number in cells[2].split(", ")] for cells in (one, other, whole)]
        assert [a + b for a, b in zip(*counts[:2], strict=True)] == counts[2]
        shares = [float(cells[4].split()[0]) for cells in (one, other, whole)]
        expected = sum(share * n for share, (n, _) in zip(shares[:2], counts[:2], strict=True)) / counts[2][0]
        assert shares[2] == pytest.approx(expected, abs=0.11) and " %" in whole[3]
    assert any(cells[0] == "| of these, spatial questions" for cells in table)
    assert "/" in table[-1][7]
    with pytest.raises(SystemExit, match="Give another folder"):
        next(seeds.lines(replace(plan, images=5), stays))
