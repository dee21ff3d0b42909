"""Ray reached, on several machines and in a program of its own: nothing stays behind, and no cluster is one line."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from eval_kit import Numbered, asked, environment, fake_engine, timeless
from ray_kit import make, slowly

from codevqa.core.errors import SetupError
from codevqa.eval import Store, evaluate
from codevqa.eval import ray as on_ray

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason='needs the extra "ray"'),
]


# -- reaching it -----------------------------------------------------------------------------------------------------


def test_without_ray_one_line_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SetupError, match=r'^Ray is not installed\. Install it: pip install "codevqa\[ray\]"\.$'):
        on_ray.evaluate(fake_engine, Numbered(tmp_path, 3), tmp_path / "run")


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "127.0.0.1", ""])
def test_an_address_where_no_cluster_is(address: str, tmp_path: Path) -> None:
    code = "import sys; from codevqa.eval.ray import ActorPool; from eval_kit import *\n" + (
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
    said = "SetupError There is no Ray cluster at 127" if address == "127.0.0.1:1" else "InputError A Ray cluster's"
    assert done.stdout.startswith(said) and done.stdout.count("\n") == 1, done.stderr


@pytest.mark.parametrize("times", [1, on_ray.TRIES])
def test_a_node_that_is_slow_to_start_is_given_another_try(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    done: list[str] = []

    def init(**_: object) -> None:
        done.append("init")
        if done.count("init") <= times:
            raise Exception("The current node timed out\nduring startup.")

    slow = SimpleNamespace(is_initialized=lambda: False, init=init, shutdown=lambda: done.append("end"))
    monkeypatch.setitem(sys.modules, "ray", slow)
    if times == 1:
        assert on_ray.connect(None) == (slow, True)
    else:
        with pytest.raises(SetupError, match=r"^Ray does not start here: The current node timed out during startup\."):
            on_ray.connect(None)
    assert done == ["init", "end"] * times + ["init"] * (times == 1)


# -- a program of its own --------------------------------------------------------------------------------------------
RUN = """
import functools, json, sys
from pathlib import Path
from eval_kit import Numbered, fake_engine
from codevqa.eval.ray import evaluate
from ray_kit import listening, slowly
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
from codevqa.eval.ray import evaluate
from eval_kit import Numbered, fake_engine
from ray_kit import gathered
folder, data = Path(sys.argv[1]), Numbered(Path(sys.argv[1]), 200)
head = {"num_cpus": 2, "num_gpus": 1, "include_dashboard": False}
nodes = Cluster(initialize_head=True, head_node_args=head)
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
    ]))
finally:
    nodes.shutdown()
"""


def test_nodes_of_a_cluster_with_a_gpu_for_each_actor_or_shared(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", NODES, str(tmp_path)], capture_output=True, text=True, env=environment(), timeout=500
    )
    assert done.stdout, done.stderr
    (every, machine), (one, alone), (shared, _), more = json.loads(done.stdout)
    places = [tuple(where.split()[:2]) for where in every]
    assert len(set(places)) == len(every) == 3 and len({node for node, _ in places}) == 2
    assert len(one) == 1 and tuple(one[0].split()[:2]) in places
    assert machine.endswith("Ray, 3 actors") and alone.endswith("Ray, 1 actor")
    assert len(shared) == 4 and {tuple(where.split()[:2]) for where in shared} <= set(places)
    assert more == "There are 3 GPUs for 13 actors. 4 may share one: give fewer."
