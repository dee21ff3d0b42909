"""Evaluation with engines in the actors of a real Ray on this machine, against the engine of this process."""

from __future__ import annotations

import asyncio
import dataclasses
import importlib.util
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_kit import CommandLine, spawn
from eval_kit import Broken, Counted, Numbered, environment, fake_engine, timeless
from PIL import Image
from ray_kit import make, ray_evaluate, slowly

from codevqa.eval import Store, evaluate
from codevqa.eval.datasets import open_dataset
from codevqa.eval.ray import ActorPool
from codevqa.eval.run.choices import engine_for
from codevqa.eval.run.record import replay_engine
from codevqa.eval.run.session import Status
from codevqa.eval.task import Example, Held
from codevqa.models.base import GenerationRequest
from codevqa.presets.configuration import Layer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason='needs the extra "ray"'),
    pytest.mark.usefixtures("no_actor_left"),
]
FOUR = [Layer("four workers", {"workers": 4})]


# -- the same rows ---------------------------------------------------------------------------------------------------


def test_rows_are_those_of_the_local_engine(ray: Any, tmp_path: Path) -> None:
    data, factory = Broken(tmp_path, 40), make(fake_engine, workers=6)
    seen: list[Status] = []
    options: Any = {"seeds": 2, "preset": "fake", "missing_pictures": "skip"}
    with evaluate(factory, data, tmp_path / "local", **options) as store:
        local, examples, info = timeless_or_failed(store), list(store.examples()), store.info
    with ray_evaluate(
        factory, data, tmp_path / "ray", **options, progress=lambda s: seen.append(dataclasses.replace(s))
    ) as store:
        assert timeless_or_failed(store) == local and len(local) == 160
        assert list(store.examples()) == examples
        loaded = {"started": info.started, "machine": info.machine, "packages": info.packages}  # by this process
        assert dataclasses.replace(store.info, **loaded) == info  # type: ignore[arg-type]
        assert store.info.machine == f"{info.machine}; Ray, 2 actors"
    assert (seen[-1].examples, seen[-1].rows, seen[-1].total) == (40, 160, 40)
    assert len({row.error for row in local}) == 4  # the broken ones too


def timeless_or_failed(store: Store) -> list[Any]:
    """As ``timeless``, with rows that have no trace."""
    rows = [row for key in sorted(store.counts()) for row in store.rows(*key)]
    return [
        dataclasses.replace(
            row,
            seconds=0,
            trace={
                **row.trace,
                "calls": [{**call, "seconds": 0} for call in row.trace.get("calls", [])],
                "cost": {**row.trace.get("cost", {}), "model_seconds": 0, "program_seconds": 0},
            },
        )
        for row in rows
    ]


def test_questions_about_one_picture_go_to_one_actor(ray: Any, tmp_path: Path) -> None:
    found: dict[str, set[str]] = {}
    with ray_evaluate(
        make(fake_engine, read=own_process, workers=40), Numbered(tmp_path, 60), tmp_path / "run"
    ) as store:
        for example, row in store.pairs("pnpvqa"):
            found.setdefault(example.cluster, set()).add(row.prediction)  # two questions about each
    assert all(len(one) == 1 for one in found.values()) and len(found) == 30
    assert len(set.union(*found.values())) == 2  # both have something to do


def test_no_actor_runs_dry_for_the_sake_of_one_picture(ray: Any, tmp_path: Path) -> None:
    factory = make(fake_engine, read=own_process, workers=2)
    with ray_evaluate(factory, OnePicture(tmp_path, 60), tmp_path / "run") as store:
        assert len({row.prediction for row in store.rows("pnpvqa")}) == 2


class OnePicture(Numbered):
    def __iter__(self) -> Iterator[Example]:
        return (dataclasses.replace(one, cluster="the picture") for one in super().__iter__())


def own_process(request: GenerationRequest) -> str:
    return f" {os.getpid()}\n"


def test_embedded_models_say_the_same_in_actors(ray: Any, drawn: Path, tmp_path: Path) -> None:
    data = open_dataset("gqa", drawn, "val_balanced")
    factory = engine_for(data, "mini", FOUR)
    with evaluate(factory, data, tmp_path / "local", limit=24) as store:
        local = [dataclasses.asdict(row) for row in timeless(store)]
    with ray_evaluate(factory, data, tmp_path / "ray", limit=24) as store:
        assert alike([dataclasses.asdict(row) for row in timeless(store)], local)
    assert len(local) == 48 and len({row["prediction"] for row in local}) > 3


def alike(one: Any, other: Any) -> bool:
    """Whether two are equal up to the last digits of scores, which depend on how calls were batched."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(alike(value, other[key]) for key, value in one.items())
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(alike, one, other))
    return math.isclose(one, other, rel_tol=1e-4) if isinstance(one, float) else bool(one == other)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from codevqa.miniworld.export import write

    folder = tmp_path_factory.mktemp("data") / "mini"
    write(folder, images=6, splits=["val"])
    return folder


def test_runs_go_on_from_one_engine_to_the_other(ray: Any, tmp_path: Path) -> None:
    data, out = Numbered(tmp_path, 30), tmp_path / "run"
    evaluate(fake_engine, data, out, limit=10).close()
    ray_evaluate(fake_engine, data, out, limit=20, resume=True).close()
    with evaluate(fake_engine, data, out, limit=30, resume=True) as store:
        assert store.counts() == {("codevqa", 0): 30, ("pnpvqa", 0): 30}
        assert len(store.sessions()) == 3 and "Ray, 2 actors" in store.sessions()[1]["machine"]


def test_the_window_bounds_what_is_under_way(ray: Any, tmp_path: Path) -> None:
    ahead: list[int] = []

    class Streamed(Counted):
        def __iter__(self) -> Iterator[Example]:
            self.drawn = 0
            return super().__iter__()

    data = Streamed(tmp_path, 300)
    factory = make(fake_engine, read=slowly, workers=3)
    options: Any = {"methods": ["pnpvqa"], "progress": lambda status: ahead.append(data.drawn - status.examples)}
    with ray_evaluate(factory, data, tmp_path / "run", **options) as store:
        assert store.counts() == {("pnpvqa", 0): 300}
    assert max(ahead) <= 12


def test_pictures_in_memory_travel(ray: Any, tmp_path: Path) -> None:

    class InMemory(Numbered):
        def __iter__(self) -> Iterator[Example]:
            for example in super().__iter__():
                yield dataclasses.replace(example, images=(Held("a row", Image.new("RGB", (9, 9))),))

    with ray_evaluate(fake_engine, InMemory(tmp_path, 3), tmp_path / "run") as store:
        assert [row.prediction for row in store.rows("codevqa")] == ["yes"] * 3


def test_answers_and_records_stay_here(ray: Any, tmp_path: Path) -> None:
    (example,) = Numbered(tmp_path, 1)
    example = dataclasses.replace(example, record={"cannot travel": threading.Lock()})
    with ActorPool(fake_engine, actors=1) as pool:
        pool.seeds = (0,)
        (row,) = asyncio.run(pool(example, [("pnpvqa", 0)]))
    assert row.prediction == "yes"


def test_relative_paths_mean_the_same(ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data = Numbered(Path("pictures"), 3)
    with ray_evaluate(fake_engine, data, "run") as store:
        assert [row.prediction for row in store.rows("codevqa")] == ["yes"] * 3


def test_recorded_in_actors_and_replayed_here(ray: Any, drawn: Path, tmp_path: Path) -> None:
    data = open_dataset("nlvr2", drawn, "dev")
    out = tmp_path / "run"
    factory = engine_for(data, "mini", FOUR, record=out)
    with ray_evaluate(factory, data, out, limit=8, one_machine=True) as store:
        recorded = timeless(store)
    with replay_engine(out) as vqa, evaluate(vqa, data, tmp_path / "again", limit=8) as store:
        assert timeless(store) == recorded and len(recorded) >= 8


# -- the command -----------------------------------------------------------------------------------------------------


def test_the_command_interrupted_and_gone_on_with(drawn: Path, tmp_path: Path) -> None:
    words = ["gqa", "--data", drawn, "--split", "val_balanced", "--out", tmp_path / "run", "--method", "pnpvqa"]
    words += ["--engine", "ray", "--ray-actors", 2, "--record", "--workers", 1]
    command = [sys.executable, "-m", "codevqa", "eval", *map(str, words)]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        until = time.monotonic() + 400
        while time.monotonic() < until and process.poll() is None and not rows_of(tmp_path / "run"):
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGINT)
        output, errors = process.communicate(timeout=500)
    assert (process.returncode, output) == (130, ""), errors
    assert "Traceback" not in errors and errors.splitlines()[-1].endswith("--workers 1 --resume")
    before = rows_of(tmp_path / "run")
    with Store.open(tmp_path / "run") as store:
        total = len(list(open_dataset("gqa", drawn, "val_balanced")))
        assert 0 < before < total and store.info.preset == "mini"
    done = spawn("eval", *words, "--resume")
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    assert done.stdout.startswith(f"mini-GQA (drawn) val_balanced: {total} questions; exact match\n")
    assert rows_of(tmp_path / "run") == total


def rows_of(out: Path) -> int:
    if not Store.exists(out):
        return 0
    with Store.open(out) as store:
        return sum(store.counts().values())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--engine", "odd"], "No engine 'odd'. There are: local, ray."),
        (["--ray-actors", "2"], "--ray-actors needs --engine ray."),
        (["--ray-address", "auto"], "--ray-actors needs --engine ray."),
        (["--engine", "ray", "--ray-actors", "0"], "0 actors cannot work. Give at least one."),
        (["--engine", "ray", "--ray-actors", "2000"], "CPUs for 2000 actors. Each takes one: give fewer."),
    ],
)
def test_options_that_cannot_be_are_one_line(
    drawn: Path, tmp_path: Path, words: list[str], said: str, codevqa: CommandLine
) -> None:
    done = codevqa(
        "eval", "gqa", "--data", drawn, "--split", "val_balanced", "--out", tmp_path / "run", "--quiet", *words
    )
    assert done.returncode == 2 and done.stderr.rstrip().endswith(said) and done.stderr.count("\n") == 1
    assert not (tmp_path / "run").exists()
