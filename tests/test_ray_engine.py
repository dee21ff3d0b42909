"""Evaluation with engines in the actors of a real Ray on this machine, against the engine of this process."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import importlib.util
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cli_kit import CommandLine, spawn
from eval_kit import Broken, Counted, Numbered, asked, fake_engine, timeless
from PIL import Image

from codevqa import CodeVQA
from codevqa.core.errors import ImageError, InputError, ModelError, ServerError, SetupError
from codevqa.eval import Store, evaluate
from codevqa.eval.datasets import open_dataset
from codevqa.eval.ray import actor_pool, runner
from codevqa.eval.ray import cluster as ray_cluster
from codevqa.eval.ray.actor_pool import ActorPool
from codevqa.eval.run.choices import engine_for
from codevqa.eval.run.provenance import run_info
from codevqa.eval.run.record import replay_engine
from codevqa.eval.run.request import EvalRequest
from codevqa.eval.run.run_info import RunInfo
from codevqa.eval.run.runner import stream
from codevqa.eval.run.session import Status
from codevqa.eval.task import Example, Held
from codevqa.models.base import GenerationRequest
from codevqa.presets.configuration import Layer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason='needs the extra "ray"'),
]
HERE = Path(__file__).parent
FOUR = [Layer("four workers", {"workers": 4})]
ray_evaluate = functools.partial(runner.evaluate, actors=2)


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    """Ray as the engine starts it, shared by the tests of this file."""
    module, owned = ray_cluster.connect(None)
    assert owned
    yield module
    module.shutdown()


@pytest.fixture(autouse=True)
def _nothing_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """No test leaves an actor behind, however its run ended."""
    yield
    if "ray" in request.fixturenames:
        module = request.getfixturevalue("ray")
        deadline = time.monotonic() + 90
        while module.available_resources().get("CPU") != module.cluster_resources()["CPU"]:
            assert time.monotonic() < deadline, "an actor holds its CPU still"
            time.sleep(0.1)


def make(factory: Callable[..., CodeVQA], **options: Any) -> Callable[[], CodeVQA]:
    return functools.partial(factory, **options)


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
    data = Numbered(tmp_path, 60)  # two about each
    factory = make(fake_engine, read=own_process, workers=40)
    with ActorPool(factory, actors=2) as pool:
        pool.seeds = (0,)
        pool.fill()
        info = run_info(pool.info, data, EvalRequest(("pnpvqa",)))
        with stream(tmp_path / "run", data, pool, info, workers=20) as store:
            found: dict[str, set[str]] = {}
            for example, row in store.pairs("pnpvqa"):
                found.setdefault(example.cluster, set()).add(row.prediction)
    assert all(len(one) == 1 for one in found.values()) and len(found) == 30
    assert len(set.union(*found.values())) == 2  # both have something to do


def test_no_actor_runs_dry_for_the_sake_of_one_picture(ray: Any, tmp_path: Path) -> None:
    data = OnePicture(tmp_path, 60)
    with ActorPool(make(fake_engine, read=own_process, workers=2), actors=2) as pool:
        pool.seeds = (0,)
        pool.fill()
        info = run_info(pool.info, data, EvalRequest(("pnpvqa",)))
        with stream(tmp_path / "run", data, pool, info, workers=20) as store:
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


def test_actors_share_the_work_and_the_window_bounds_it(ray: Any, tmp_path: Path) -> None:
    data, ahead = Counted(tmp_path, 300), []
    factory = make(gathered, folder=tmp_path / "made", count=2, workers=3)

    def progress(status: Status) -> None:
        ahead.append(data.drawn - start - status.examples)

    with ActorPool(factory, actors=2) as pool:
        info = run_of(pool, data)
        start = data.drawn
        with stream(tmp_path / "run", data, pool, info, workers=6, progress=progress) as store:
            answers = [row.prediction for row in store.rows("pnpvqa")]
    assert len(set(answers)) == 2 and min(answers.count(one) for one in set(answers)) > 50
    assert max(ahead) <= 12


def gathered(folder: Path, count: int, workers: int = 4) -> CodeVQA:
    """An engine that says where it is, and answers nothing before that many have been made."""
    folder.mkdir(exist_ok=True)
    (folder / str(os.getpid())).touch()

    def place(request: GenerationRequest) -> str:
        until = time.monotonic() + 300
        while len(list(folder.iterdir())) < count and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(0.02)
        import ray

        return f"{ray.get_runtime_context().get_node_id()[:6]} {os.environ.get('CUDA_VISIBLE_DEVICES')} {os.getpid()}"

    return fake_engine(read=place, workers=workers)


def run_of(pool: ActorPool, data: Numbered) -> RunInfo:
    pool.seeds = (0,)
    return run_info(pool.info, data, EvalRequest(("pnpvqa",)))


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


# -- what goes wrong -------------------------------------------------------------------------------------------------


def test_an_actor_that_is_killed_loses_nothing(ray: Any, tmp_path: Path) -> None:
    data, factory = Numbered(tmp_path, 120), make(fake_engine, read=slowly)
    with evaluate(factory, data, tmp_path / "local", methods=["pnpvqa"]) as store:
        local = timeless(store)
    hit: list[Any] = []
    killed: list[Any] = []
    with ActorPool(factory, actors=2) as pool:

        def progress(status: Status) -> None:
            for slot, at in zip(pool._slots, (20, 60), strict=True):
                if status.examples >= at and slot not in hit and slot.ready and slot.load:
                    hit.append(slot)
                    killed.append(slot.actor)
                    ray.kill(slot.actor)

        with stream(tmp_path / "run", data, pool, run_of(pool, data), workers=8, progress=progress) as store:
            assert timeless(store) == local
            rows = asked(store)
        assert killed and not set(killed) & {slot.actor for slot in pool._slots}
    assert len(rows) == len(set(rows)) == 120


def slowly(request: GenerationRequest) -> str:
    time.sleep(0.02)
    return "yes"


def test_an_actor_that_hangs_is_replaced_and_loses_nothing(
    ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actor_pool, "HANGING", 4.0)
    factory = make(stopping, folder=tmp_path)
    began = time.monotonic()
    with ray_evaluate(factory, Numbered(tmp_path, 40), tmp_path / "run", methods=["pnpvqa"], actors=1) as store:
        rows = list(store.rows("pnpvqa"))
    assert time.monotonic() - began < 120
    assert [row.prediction for row in rows] == ["yes"] * 40 and (tmp_path / "stopped").exists()


def stopping(folder: Path) -> CodeVQA:
    def read(request: GenerationRequest) -> str:
        if "Is thing 17 red?" in str(request.prompt) and not (folder / "stopped").exists():
            (folder / "stopped").touch()
            os.kill(os.getpid(), signal.SIGSTOP)
        return "yes"

    return fake_engine(read=read)


def test_a_question_that_kills_its_actor_is_a_row(ray: Any, tmp_path: Path) -> None:
    with ray_evaluate(make(fake_engine, read=deadly), Numbered(tmp_path, 60), tmp_path / "run") as store:
        for method in ("codevqa", "pnpvqa"):
            wrong = {row.id: row for row in store.rows(method) if row.error}
            assert list(wrong) == ["000017"] and len(list(store.rows(method))) == 60
        row = wrong["000017"]
    assert (row.error, row.prediction) == ("ModelError", "")
    assert row.message.startswith("4 processes died that were asked this.") and "\n" not in row.message


def deadly(request: GenerationRequest) -> str:
    if "Is thing 17 red?" in str(request.prompt):
        os.kill(os.getpid(), signal.SIGKILL)
    return "yes"


def test_actors_that_die_one_after_another_end_the_run(ray: Any, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"died one after another.* Stopped with 0 rows kept; --resume goes on"):
        ray_evaluate(make(fake_engine, read=die), Numbered(tmp_path, 60), tmp_path / "run")


def die(request: GenerationRequest) -> str:
    os.kill(os.getpid(), signal.SIGKILL)
    return ""


def test_a_server_that_goes_down_ends_the_run_and_resume_goes_on(ray: Any, tmp_path: Path) -> None:
    data, out = Numbered(tmp_path, 60), tmp_path / "run"
    with pytest.raises(ServerError, match=r"is down\. Start it\. Stopped with \d+ rows kept; --r"):
        ray_evaluate(make(fake_engine, read=down), data, out)
    with Store.open(out) as store:
        before = asked(store)
        assert before and not any(row.error for row in store.rows("pnpvqa"))
    with ray_evaluate(fake_engine, data, out, resume=True) as store:
        after = asked(store)
    assert len(after) == len(set(after)) == 120 and set(before) < set(after)


def down(request: GenerationRequest) -> str:
    if "Is thing 31 red?" in str(request.prompt):
        raise ServerError("The server at 127.0.0.1 is down.", hint="Start it.")
    return "yes"


def test_an_engine_that_hangs_does_not_outlive_the_run(
    ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actor_pool, "CLOSING", 1.0)
    data = Numbered(tmp_path, 1)
    with ActorPool(make(fake_engine, read=hang), actors=1) as pool, pytest.raises(TimeoutError):
        pool.seeds = (0,)
        asyncio.run(asyncio.wait_for(pool(next(iter(data)), [("pnpvqa", 0)]), 1))
    # that its CPU is free again is seen after each test


def hang(request: GenerationRequest) -> str:
    time.sleep(45)
    return "yes"


def test_a_model_that_fails_for_every_question_ends_the_run(ray: Any, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"Out of memory\. Stopped with 0 rows kept"):
        ray_evaluate(make(fake_engine, read=full), Numbered(tmp_path, 500), tmp_path / "run")


def full(request: GenerationRequest) -> str:
    raise ModelError("Out of memory.")


def test_an_error_of_the_code_comes_through(ray: Any, tmp_path: Path) -> None:
    def broken() -> CodeVQA:
        raise KeyError("a bug")

    with pytest.raises(KeyError, match="a bug"):
        ray_evaluate(broken, Numbered(tmp_path, 5), tmp_path / "run")


def test_an_error_of_the_code_of_another_actor_comes_through(ray: Any, tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="a bug"):
        ray_evaluate(make(once, marker=tmp_path / "made", bug=True), Numbered(tmp_path, 2000), tmp_path / "run")


def test_an_engine_that_cannot_be_made_is_one_line(ray: Any, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"^No weights here\. Fetch them\.$"):
        ray_evaluate(without_weights, Numbered(tmp_path, 5), tmp_path / "run")
    with pytest.raises(SetupError, match=r"^3 of Ray's processes died while they made an engine\. "):
        ray_evaluate(make(die, request=None), Numbered(tmp_path, 5), tmp_path / "run")  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()


def test_another_version_is_refused(ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actor_pool, "__version__", "0.0.1")
    with pytest.raises(
        SetupError, match=r" has codevqa .*, and 0\.0\.1 asks\. Install the same packages on every machine"
    ):
        ray_evaluate(fake_engine, Numbered(tmp_path, 5), tmp_path / "run")


def without_weights() -> CodeVQA:
    raise SetupError("No weights here.", hint="Fetch them.")


def test_another_actor_s_engine_that_cannot_be_made_ends_the_run(ray: Any, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"^No weights here\. Fetch them\. Stopped with "):
        ray_evaluate(make(once, marker=tmp_path / "made"), Numbered(tmp_path, 2000), tmp_path / "run")


def once(marker: Path, bug: bool = False) -> CodeVQA:
    if marker.exists():
        if bug:
            raise KeyError("a bug")
        return without_weights()
    marker.touch()
    return fake_engine()


def test_what_is_refused_is_refused_before_ray_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, out = Numbered(tmp_path, 3), tmp_path / "run"
    evaluate(fake_engine, data, out).close()
    monkeypatch.setattr(runner, "ActorPool", None)
    with pytest.raises(InputError, match="is there already"):
        runner.evaluate(fake_engine, data, out)
    with pytest.raises(InputError, match="nothing to ask"):
        runner.evaluate(fake_engine, data, out, methods=[], resume=True)


def test_other_settings_are_refused(ray: Any, tmp_path: Path) -> None:
    data, out = Numbered(tmp_path, 3), tmp_path / "run"
    evaluate(fake_engine, data, out).close()
    with pytest.raises(InputError, match="captions was 2, now 1"):
        ray_evaluate(make(fake_engine, captions=1), data, out, resume=True)


@dataclasses.dataclass(frozen=True)
class OnlyHere:
    """A picture that other processes cannot read, as if they ran on another machine."""

    path: Path
    process: int
    name: str = "here.png"

    def load(self) -> Path:
        if os.getpid() != self.process:
            raise ImageError(f"{self.path} is not there.")
        return self.path


def test_a_picture_that_only_this_machine_can_read_ends_the_run(ray: Any, tmp_path: Path) -> None:
    class Local(Numbered):
        def __iter__(self) -> Iterator[Example]:
            for example in super().__iter__():
                yield dataclasses.replace(example, images=(OnlyHere(self.picture, os.getpid()),))

    with pytest.raises(SetupError, match=r"cannot read what this one can: .*picture\.png is not there"):
        ray_evaluate(fake_engine, Local(tmp_path, 5), tmp_path / "run")


def test_without_ray_one_line_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SetupError, match=r'^Ray is not installed\. Install it: pip install "codevqa\[ray\]"\.$'):
        runner.evaluate(fake_engine, Numbered(tmp_path, 3), tmp_path / "run")


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "127.0.0.1", ""])
def test_an_address_where_no_cluster_is(address: str, tmp_path: Path) -> None:
    code = "import sys; from codevqa.eval.ray.actor_pool import *; from eval_kit import *\n" + (
        "try: ActorPool(fake_engine, address=sys.argv[1])\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, address],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=500,
    )
    said = "SetupError There is no Ray cluster at 127" if address == "127.0.0.1:1" else f"InputError {address!r} is no"
    assert done.stdout.startswith(said) and done.stdout.count("\n") == 1, done.stderr


@pytest.mark.parametrize("times", [1, ray_cluster.TRIES])
def test_a_node_that_is_slow_to_start_is_given_another_try(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    done: list[str] = []

    def init(**_: object) -> None:
        done.append("init")
        if done.count("init") <= times:
            raise Exception("The current node timed out\nduring startup.")

    slow = SimpleNamespace(is_initialized=lambda: False, init=init, shutdown=lambda: done.append("end"))
    monkeypatch.setitem(sys.modules, "ray", slow)
    if times == 1:
        assert ray_cluster.connect(None) == (slow, True)
    else:
        with pytest.raises(SetupError, match=r"^Ray does not start here: The current node timed out during startup\."):
            ray_cluster.connect(None)
    assert done == ["init", "end"] * times + ["init"] * (times == 1)


# -- a program of its own --------------------------------------------------------------------------------------------

RUN = """
import functools, json, sys
from pathlib import Path
from eval_kit import Numbered, fake_engine
from codevqa.eval.ray.runner import evaluate
from test_ray_engine import listening, slowly
folder = Path(sys.argv[1])
def say(status):
    if status.examples == 20:
        print(json.dumps(listening()), flush=True)
    print(status.examples, flush=True)
factory = functools.partial(fake_engine, read=slowly)
evaluate(factory, Numbered(folder, 200), folder / "run", resume=True, progress=say, actors=2).close()
import ray
print("end", ray.is_initialized(), "torch" in sys.modules, flush=True)
"""


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(HERE), "HF_HUB_OFFLINE": "1"}


def listening() -> tuple[list[int], list[str]]:
    """Returns this process and those below it, and the addresses they listen on."""
    import psutil

    below = [psutil.Process(), *psutil.Process().children(recursive=True)]
    addresses = {one.laddr.ip for process in below for one in process.net_connections() if one.status == "LISTEN"}
    # Ray's own agents stay a while where everything is killed.
    return [process.pid for process in below if "Agent" not in "".join(process.cmdline())], sorted(addresses)


def gone(processes: list[int]) -> bool:
    """Whether all these end, soon."""
    import psutil

    def alive(process: int) -> bool:
        try:
            return bool(psutil.Process(process).status() != psutil.STATUS_ZOMBIE)
        except psutil.NoSuchProcess:
            return False

    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        if not any(map(alive, processes)):
            return True
        time.sleep(0.1)
    return False


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_ended_in_the_middle_and_gone_on_with(how: signal.Signals, tmp_path: Path) -> None:
    command = [sys.executable, "-c", RUN, str(tmp_path)]
    processes: list[int] = []
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        for line in process.stdout:
            if line.startswith("[["):
                processes, addresses = json.loads(line)
                assert addresses and all("127.0.0.1" in one for one in addresses)
            elif int(line) >= 100:
                break
        if how == signal.SIGINT:
            os.killpg(process.pid, how)  # as a terminal does
        else:
            process.send_signal(how)
        process.stdout.read()
        errors = process.stderr.read()
    assert "KeyboardInterrupt" in errors if how == signal.SIGINT else errors == "", errors
    assert len(processes) > 5 and gone(processes)
    with Store.open(tmp_path / "run") as store:
        before = asked(store)
    assert len(before) == len(set(before)) >= 100
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=500)
    assert done.stdout.endswith("end False False\n"), done.stderr
    assert done.stderr == ""
    with Store.open(tmp_path / "run") as store:
        after = asked(store)
        assert len(after) == len(set(after)) == 400 and set(before) < set(after)
        killed = timeless(store)
    with evaluate(make(fake_engine, read=slowly), Numbered(tmp_path, 200), tmp_path / "whole") as whole:
        assert killed == timeless(whole)


NODES = """
import functools, json, os, sys
from pathlib import Path
os.environ.update(
    RAY_USAGE_STATS_ENABLED="0", RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0", RAY_prestart_worker_first_driver="0"
)
from ray.cluster_utils import Cluster
from codevqa.core.errors import CodeVQAError
from codevqa.eval.ray.cluster import start
from codevqa.eval.ray.runner import evaluate
from codevqa.eval.run.choices import engine_for
from eval_kit import Numbered, fake_engine
from test_ray_engine import gathered
folder, data = Path(sys.argv[1]), Numbered(Path(sys.argv[1]), 200)
head = {"num_cpus": 2, "num_gpus": 1, "include_dashboard": False}
nodes = start(functools.partial(Cluster, initialize_head=True, head_node_args=head), lambda: None)
nodes.add_node(num_cpus=2, num_gpus=2)
def attempt(*words, **options):
    try:
        with evaluate(*words, address=nodes.address, **options) as store:
            return sorted({row.prediction for row in store.rows("pnpvqa")}), store.info.machine
    except CodeVQAError as error:
        return str(error)
try:
    three = functools.partial(gathered, folder / "three", 3)
    only = functools.partial(gathered, folder / "only", 1)
    four = functools.partial(gathered, folder / "four", 4)
    print(json.dumps([
        attempt(three, data, folder / "all", methods=["pnpvqa"]),
        attempt(only, data, folder / "one", one_machine=True, methods=["pnpvqa"]),
        attempt(four, data, folder / "shared", methods=["pnpvqa"], actors=4),
        attempt(only, data, folder / "more", actors=13),
        attempt(engine_for(data, record=folder / "recorded"), data, folder / "recorded", limit=9),
    ]))
finally:
    nodes.shutdown()
"""


def test_nodes_of_a_cluster_with_a_gpu_for_each_actor_or_shared(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", NODES, str(tmp_path)], capture_output=True, text=True, env=environment(), timeout=500
    )
    assert done.stdout, done.stderr
    (every, machine), (one, alone), (shared, _), more, recorded = json.loads(done.stdout)
    places = [tuple(where.split()[:2]) for where in every]
    assert len(set(places)) == len(every) == 3 and len({node for node, _ in places}) == 2
    assert len(one) == 1 and tuple(one[0].split()[:2]) in places
    assert machine.endswith("Ray, 3 actors") and alone.endswith("Ray, 1 actor")
    assert len(shared) == 4 and {tuple(where.split()[:2]) for where in shared} <= set(places)
    assert more == "There are 3 GPUs for 13 actors. 4 may share one: give fewer."
    assert recorded == "Calls are recorded on one machine, and Ray has 2. Give one_machine, or leave out the record."


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
        (["--ray-actors", "2"], "The local engine has no actors. Give --engine ray."),
        (["--ray-address", "auto"], "The local engine has no actors. Give --engine ray."),
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
