"""Evaluation in the actors of a real Ray: the rows of the local engine, none lost whatever ends, one clear error."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from eval_kit import Broken, Numbered, asked, environment, fake_engine, timeless
from PIL import Image as PILImage

from codevqa import CodeVQA
from codevqa.collections.collection import Collection
from codevqa.core.errors import InputError, ServerError, SetupError
from codevqa.eval import Store, evaluate
from codevqa.eval.ray import ActorPool, find_room
from codevqa.eval.run.session import Status
from codevqa.eval.task import METHODS
from codevqa.models.fakes import FakeEyes
from codevqa.models.protocols import GenerationRequest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason='needs the extra "ray"'),
    pytest.mark.usefixtures("no_actor_left"),
]


def ray_evaluate(factory: Callable[[], CodeVQA], *run: Any, **options: Any) -> Store:
    return evaluate(functools.partial(ActorPool, factory, actors=2), *run, **options)


def make(factory: Callable[..., CodeVQA], **options: Any) -> Callable[[], CodeVQA]:
    return functools.partial(factory, **options)


def slowly(request: GenerationRequest) -> str:
    time.sleep(0.02)
    return "yes"


# -- the same rows ---------------------------------------------------------------------------------------------------


def test_rows_are_those_of_the_local_engine_which_may_go_on(ray: Any, tmp_path: Path) -> None:
    data, factory = Broken(tmp_path, 30), make(fake_engine, workers=6, eyes=FakeEyes())
    options: Any = {"seeds": 2, "missing_pictures": "skip"}
    with evaluate(factory, data, tmp_path / "local", **options) as store:
        local, examples, info = timeless(store), list(store.examples()), store.info
    ray_evaluate(factory, data, tmp_path / "run", limit=20, **options).close()
    with evaluate(factory, data, tmp_path / "run", resume=True, **options) as store:
        assert timeless(store) == local and len(local) == 180 and store.info.methods == METHODS
        assert list(store.examples()) == examples
        loaded = {"started": info.started, "machine": info.machine, "packages": info.packages}  # by this process
        assert dataclasses.replace(store.info, **loaded) == info  # type: ignore[arg-type]
        assert store.info.machine == f"{info.machine}; Ray, 2 actors"
    assert len({row.error for row in local}) == 4  # the broken ones too


# -- actors and models that fail -------------------------------------------------------------------------------------


def test_actors_that_are_killed_lose_nothing(ray: Any, tmp_path: Path) -> None:
    data, folder = Numbered(tmp_path, 80), tmp_path / "made"
    folder.mkdir()

    def progress(status: Status) -> None:
        if status.examples == 20:
            os.kill(int(next(folder.iterdir()).name), signal.SIGKILL)

    options: Any = {"methods": ["pnpvqa"], "progress": progress}
    with ray_evaluate(make(marked, folder=folder), data, tmp_path / "run", **options) as store:
        rows = asked(store)
        assert [row.prediction for row in store.rows("pnpvqa")] == ["yes"] * 80
    assert len(list(folder.iterdir())) == 3 and len(set(rows)) == 80


def marked(folder: Path) -> CodeVQA:
    """An engine whose process is known."""
    (folder / str(os.getpid())).touch()
    return fake_engine(read=slowly)


def die(request: GenerationRequest) -> str:
    os.kill(os.getpid(), signal.SIGKILL)
    return ""


def down(request: GenerationRequest) -> str:
    raise ServerError("The server at 127.0.0.1 is down.", hint="Start it.")


@pytest.mark.parametrize(
    ("read", "error", "message"),
    [
        (die, SetupError, r"engine of Ray's is gone.* Stopped with 0 rows kept; --resume goes on"),
        (down, ServerError, r"is down\. Start it\. Stopped with 0 rows kept"),
    ],
)
def test_what_fails_for_every_question_ends_the_run(
    ray: Any, tmp_path: Path, read: Callable[[GenerationRequest], str], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        ray_evaluate(make(fake_engine, read=read), Numbered(tmp_path, 60), tmp_path / "run")


# -- what cannot begin or go on --------------------------------------------------------------------------------------


def test_what_is_refused_is_refused_before_ray_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, out = Numbered(tmp_path, 3), tmp_path / "run"
    evaluate(fake_engine, data, out).close()
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match="is there already"):
        ray_evaluate(fake_engine, data, out)
    with pytest.raises(SetupError, match=r'^Ray is not installed\. Install it: pip install "codevqa\[ray\]"\.$'):
        ray_evaluate(fake_engine, data, tmp_path / "other")


# -- programs of their own -------------------------------------------------------------------------------------------

RUN = """
import json, sys
from pathlib import Path
from eval_kit import Numbered, fake_engine
from test_ray import listening, make, ray_evaluate, slowly
folder = Path(sys.argv[1])
def say(status):
    if status.examples == 20:
        print(json.dumps(listening()), flush=True)
    print(status.examples, flush=True)
data = Numbered(folder, 120)
ray_evaluate(make(fake_engine, read=slowly), data, folder / "run", resume=True, progress=say).close()
"""


def listening() -> tuple[list[int], list[str]]:
    """Returns this process and those below it, and the addresses they listen on."""
    import psutil

    below = [psutil.Process(), *psutil.Process().children(recursive=True)]
    addresses = {
        connection.laddr.ip
        for process in below
        for connection in process.net_connections()
        if connection.status == "LISTEN"
    }
    # Ray's own agents stay a while where everything is killed.
    return [process.pid for process in below if "Agent" not in "".join(process.cmdline())], sorted(addresses)


def runs(pid: int) -> bool:
    """Whether a process is there and no zombie. It may end while it is asked."""
    import psutil

    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def gone(processes: list[int]) -> bool:
    """Whether all these end, soon."""
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        if not any(runs(pid) for pid in processes):
            return True
        time.sleep(0.1)
    return False


def test_killed_in_the_middle_nothing_stays_behind_and_the_run_goes_on(tmp_path: Path) -> None:
    command = [sys.executable, "-c", RUN, str(tmp_path)]
    processes: list[int] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("[["):
                processes, addresses = json.loads(line)
                assert addresses and all("127.0.0.1" in address for address in addresses)
            elif int(line) >= 60:
                break
        process.send_signal(signal.SIGKILL)
        process.stdout.read()
    assert len(processes) > 5 and gone(processes)
    with Store.open(tmp_path / "run") as store:
        before = asked(store)
    assert len(before) == len(set(before)) >= 100
    with evaluate(fake_engine, Numbered(tmp_path, 120), tmp_path / "run", resume=True) as store:
        after = asked(store)
    assert len(after) == len(set(after)) == 240 and set(before) < set(after)


def test_a_collection_is_selected_as_one_engine_selects_it(ray: Any, tmp_path: Path) -> None:
    folder = tmp_path / "pictures"
    folder.mkdir()
    for number in range(31):
        PILImage.new("RGB", (20, 20), (number, 0, 0)).save(folder / f"{number:02}.png")
    collection = Collection(folder, index=tmp_path / "index")
    with fake_engine() as vqa:
        here = vqa.run(collection, "answer = select(images, 'Is there a dog?')").selections
    with closing(ActorPool(fake_engine, actors=2)) as pool:
        assert pool.select(collection, "Is there a dog?").selections == here


def test_a_collection_is_indexed_by_all_actors(ray: Any, tmp_path: Path) -> None:
    folder = tmp_path / "pictures"
    folder.mkdir()
    for number in range(5):
        PILImage.new("RGB", (20, 20), (number, 0, 0)).save(folder / f"{number}.png")
    with closing(ActorPool(make(CodeVQA.from_preset, name="mini"), actors=2)) as pool:
        pool.index(Collection(folder, index=tmp_path / "index"))
    kept = [len(list(path.iterdir())) for path in (tmp_path / "index" / "codevqa-features").iterdir()]
    assert set(kept) == {2}, "a file of each actor"
    with CodeVQA.from_preset("mini") as vqa:
        vqa.index(Collection(folder, index=tmp_path / "index"))
        assert vqa.models.matcher.stats.vision_forwards == 0  # type: ignore[union-attr]


class Nodes:
    """What Ray says of a cluster of two machines with three GPUs."""

    def nodes(self) -> list[dict[str, Any]]:
        there = [{"CPU": 2.0, "GPU": 1.0}, {"CPU": 2.0, "GPU": 2.0}]
        return [{"Alive": True, "NodeID": str(place), "Resources": resources} for place, resources in enumerate(there)]

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(get_node_id=lambda: "0")


def test_actors_share_the_gpus_of_a_cluster_s_nodes() -> None:
    shares = {actors: find_room(Nodes(), actors) for actors in (None, 4, 12)}
    assert {actors: (count, options["num_gpus"]) for actors, (options, count) in shares.items()} == {
        None: (3, 1),
        4: (4, 1 / 2),
        12: (12, 1 / 4),
    }
    with pytest.raises(InputError, match=r"There are 3 GPUs for 13 actors\. 4 may share one: give fewer\."):
        find_room(Nodes(), 13)
    with pytest.raises(InputError, match="0 actors cannot work"):
        ActorPool(fake_engine, actors=0)
