"""Evaluates on many GPUs or machines: engines in Ray actors answer, this process alone writes the store.

    with evaluate(engine_for(dataset, preset="base"), dataset, "runs/gqa", actors=4) as store: ...

Each actor holds one engine and, where there are GPUs, one GPU or a share of it. An actor that dies is replaced, and
what it was asked goes to another. The rows are those of :func:`codevqa.eval.run.runner.evaluate`, and a run begun here
may go on there, and the other way round.

Ray is an optional extra, imported when it is needed. Without an address it runs on this machine alone and listens on
the loopback interface only.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack
from zlib import crc32

from ..core.errors import CodeVQAError, InputError, ModelError, SetupError
from ..core.loop_thread import LoopThread
from .run.local import LocalAnswerer, SharedPictures, failed
from .run.provenance import engine_info, run_info
from .run.request import EvalOptions, EvalRequest, KeptEvidence
from .run.run_info import RunInfo
from .run.runner import stream
from .run.store import Store
from .task import DataSet, Example, Job, Row

if TYPE_CHECKING:
    from ..engine.codevqa import CodeVQA

__all__ = ["ActorPool", "evaluate"]

RETRIES = 2
"""How often an example is asked again by itself after an actor died that was asked it."""
DEATHS = 6
"""Actors that may die with no answer between them."""
PLACING = 300.0
"""Seconds Ray may take to find room for an actor."""
CLOSING = 5.0
"""Seconds actors may take to end by themselves."""
TRIES = 3
"""How often a Ray of our own is started: on a busy machine its node takes longer than it waits for it."""
LEAST_CPUS = 8
"""CPUs a Ray of our own counts at least: with two it starves its own helpers."""
OBJECTS = 256 << 20
"""Bytes of shared memory for a Ray of our own. Examples and rows are small; pictures are read in the actors."""
SHARING = 4
"""Engines that may share a GPU: one is bound by Python as much as by the GPU, and three answered twice as much."""
SAME_PACKAGES = "Install the same packages on every machine."


def evaluate(
    factory: Callable[[], CodeVQA],
    dataset: DataSet,
    out: Path | str,
    *,
    actors: int | None = None,
    address: str | None = None,
    **options: Unpack[EvalOptions],
) -> Store:
    """Evaluates with engines in Ray actors; else, and in what it raises, as :func:`codevqa.eval.run.runner.evaluate`.

    Args:
        factory: makes an engine; it is called in each actor, on its machine, and must be something Ray can send.
        dataset: the data set; its pictures lie under the same path on every machine.
        out: folder of the run, which this process alone writes.
        actors: how many; None takes one for each GPU, or for each four CPUs where there is none.
        address: ``HOST:PORT`` of a running cluster, or ``auto`` for the one of this machine; None starts Ray here,
            and ends it again.
        options: see :class:`~codevqa.eval.run.request.EvalOptions`.
    """
    request = EvalRequest(**options)
    selection = request.check(dataset, out)
    with ActorPool(factory, actors=actors, address=address) as pool:
        info = run_info(pool.info, dataset, request, selection)
        info = replace(info, machine=f"{info.machine}; Ray, {len(pool)} actor{'s' * (len(pool) > 1)}")
        pool.seeds, pool.evidence = info.seeds, request.evidence
        workers, retry = len(pool) * int(info.settings["workers"]), request.retry_errors
        return stream(out, dataset, pool, info, workers=workers, progress=request.progress, retry=retry)


class Worker:
    """One engine, as Ray runs it. What we know as an error is returned, for Ray would wrap it."""

    engine: CodeVQA | None = None

    async def place(self) -> None:
        """Returns as soon as there is room for it."""

    async def start(self, factory: Callable[[], CodeVQA], folder: str) -> RunInfo | CodeVQAError:
        """Makes the engine in a folder, and returns what identifies a run."""
        with suppress(OSError):  # another machine may not have it; then pictures with relative paths are missed
            os.chdir(folder)
        # Threads that launch GPU work wait for those that compute for up to this long, five milliseconds else.
        sys.setswitchinterval(0.0005)
        self.pictures = SharedPictures()
        try:
            self.engine = await asyncio.to_thread(factory)
            return engine_info(self.engine)
        except CodeVQAError as error:
            return error

    async def ask(
        self, example: Example, jobs: Sequence[Job], seeds: Sequence[int], evidence: KeptEvidence
    ) -> list[Row] | CodeVQAError:
        """Answers an example as :class:`~codevqa.eval.run.local.LocalAnswerer` does."""
        assert self.engine is not None
        try:
            return await LocalAnswerer(self.engine, seeds, evidence, self.pictures)(example, jobs)
        except CodeVQAError as error:
            return error

    async def close(self) -> None:
        """Ends the engine."""
        if self.engine is not None:
            await asyncio.to_thread(self.engine.close)


class _DiedError(Exception):
    """The actor that was asked is gone."""


class _Slot:
    """Place of one actor, which may change."""

    actor: Any = None
    load = 0
    starting: asyncio.Task[RunInfo]

    @property
    def ready(self) -> bool:
        """Whether its actor can be asked; an engine that cannot be made raises."""
        return self.starting.done() and bool(self.starting.result())


class ActorPool:
    """Actors that answer examples: an :class:`~codevqa.eval.run.session.AskExample`. Use it in a ``with`` block.

    Raises:
        SetupError: Ray is not installed, not reachable, or has no room; or an engine cannot be made.
        InputError: more actors than GPUs or CPUs.
    """

    def __init__(
        self, factory: Callable[[], CodeVQA], *, actors: int | None = None, address: str | None = None
    ) -> None:
        if actors is not None and actors < 1:
            raise InputError(f"{actors} actors cannot work.", hint="Give at least one.")
        self.seeds: tuple[int, ...] = ()
        self.evidence: KeptEvidence = "calls"
        self._factory, self._suspects = factory, asyncio.Lock()
        self._deaths, self._why = 0, ""
        self._slots: list[_Slot] = []
        self._ray, self._owned = connect(address)
        self._loop = LoopThread("codevqa-ray")
        try:
            self._options, count = find_room(self._ray, actors)
            self._slots = [_Slot() for _ in range(count)]
            self.info, *others = self._loop.run(self._begin())
            if found := [one for other in others for one in self.info.differences(other)]:
                raise SetupError(f"Machines of the cluster differ: {'; '.join(found)}.", hint=SAME_PACKAGES)
        except BaseException:
            self.close()
            raise

    def __len__(self) -> int:
        return len(self._slots)

    def __enter__(self) -> ActorPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the actors, and Ray where it was started here. Safe to call twice."""
        if self._loop.closed:
            return
        actors = [slot.actor for slot in self._slots if slot.actor is not None]
        try:
            self._loop.close()
            if actors:
                self._ray.wait([one.close.remote() for one in actors], num_returns=len(actors), timeout=CLOSING)
        finally:
            for actor in actors:
                self._kill(actor)
            if self._owned:
                self._ray.shutdown()

    async def __call__(self, example: Example, jobs: Sequence[Job]) -> list[Row]:
        """Returns one row a job, from whichever actor has the least to do."""
        return await self._loop.wait(self._answer(example, jobs))

    async def _answer(self, example: Example, jobs: Sequence[Job]) -> list[Row]:
        asked = replace(example, gold=(), groups={}, record={})  # an engine needs no more
        message = ""
        for again in range(RETRIES + 1):
            # One at a time: should its actor die once more, no other suspect is lost with it.
            async with self._suspects if again else nullcontext():
                try:
                    return await self._ask(asked, jobs)
                except _DiedError as error:
                    message = str(error)
        fatal = ModelError(f"{RETRIES + 1} processes died that were asked this.", hint=message)
        return [failed(example, job, fatal) for job in jobs]

    async def _ask(self, example: Example, jobs: Sequence[Job]) -> list[Row]:
        if self._deaths > DEATHS:
            died = f"{self._deaths} of Ray's processes died one after another, and none answered."
            raise SetupError(died, hint=self._why)
        slot = await self._free(example.cluster or example.id)
        actor = slot.actor
        slot.load += 1
        try:
            rows: list[Row] = await self._result(actor.ask.remote(example, jobs, self.seeds, self.evidence))
        except _DiedError as error:
            if slot.actor is actor and slot.starting.done():  # the first to notice
                self._deaths += 1
                self._why = str(error)
                slot.starting = asyncio.ensure_future(self._start(slot))
            raise
        finally:
            slot.load -= 1
        self._deaths = 0
        return rows

    async def _free(self, cluster: str) -> _Slot:
        """Returns the actor that a cluster belongs to, or the one with the least to do; waits where none has started.

        What is asked about the same pictures goes to the same actor, which keeps their features, unless another would
        run dry.
        """
        while True:
            if ready := [slot for slot in self._slots if slot.ready]:
                least = min(ready, key=lambda slot: slot.load)
                home = self._slots[crc32(cluster.encode()) % len(self._slots)]
                near = home in ready and home.load <= least.load + int(self.info.settings["workers"])
                return home if near else least
            await asyncio.wait([slot.starting for slot in self._slots], return_when="FIRST_COMPLETED")

    async def _begin(self) -> list[RunInfo]:
        for slot in self._slots:
            slot.starting = asyncio.ensure_future(self._start(slot))
        return [await slot.starting for slot in self._slots]

    async def _start(self, slot: _Slot) -> RunInfo:
        if slot.actor is not None:
            self._kill(slot.actor)  # it may only be out of reach
        slot.actor = self._ray.remote(Worker).options(**self._options).remote()
        try:
            await asyncio.wait_for(self._result(slot.actor.place.remote()), PLACING)
            info: RunInfo = await self._result(slot.actor.start.remote(self._factory, str(Path.cwd())))
        except TimeoutError:
            hint = "Is the cluster in use? Give fewer actors."
            raise SetupError("Ray found no room for an engine.", hint=hint) from None
        except _DiedError as error:
            raise SetupError("A process of Ray's died while it made an engine.", hint=str(error)) from None
        return info

    def _kill(self, actor: Any) -> None:
        with suppress(self._ray.exceptions.RayError):
            self._ray.kill(actor)

    async def _result(self, ref: Any) -> Any:
        """Awaits what an actor returns; raises an error that it returns, or that its code raised, as it is.

        Raises:
            _DiedError: it is gone.
            SetupError: Ray itself fails.
        """
        errors = self._ray.exceptions
        try:
            found = await asyncio.wrap_future(ref.future())
        except (errors.RayActorError, errors.ObjectLostError, errors.WorkerCrashedError) as error:
            raise _DiedError(_one_line(error)) from None
        except errors.RayTaskError:
            raise
        except errors.RayError as error:  # for one, what was sent is of a module that is not there
            raise SetupError(f"Ray cannot pass this on: {_one_line(error)}.", hint=SAME_PACKAGES) from None
        if isinstance(found, CodeVQAError):
            raise found
        return found


def connect(address: str | None) -> tuple[Any, bool]:
    """Returns Ray, connected, and whether it was started here. One that this process has already is taken as it is."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it reports to its makers else
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # as Ray will do; it warns else
    if address is None:
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # Ray's word for: the loopback interface only
        os.environ.setdefault("RAY_prestart_worker_first_driver", "0")  # processes that no actor takes
    try:
        import ray
    except ImportError:
        raise SetupError("Ray is not installed.", hint='Install it: pip install "codevqa[ray]".') from None
    if ray.is_initialized():
        return ray, False
    options: dict[str, Any] = {"address": address or "local", "log_to_driver": False, "logging_level": "ERROR"}
    what = f"There is no Ray cluster at {address}"
    if address is None:
        what, cpus = "Ray does not start here", max(LEAST_CPUS, os.cpu_count() or 1)
        options |= {"num_cpus": cpus, "include_dashboard": False, "object_store_memory": OBJECTS}
    for tries_left in reversed(range(TRIES if address is None else 1)):
        try:
            if address not in (None, "auto"):  # Ray itself waits long, and may end the process
                host, _, port = address.rpartition(":")
                socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
            ray.init(**options)
            break
        except Exception as error:  # noqa: BLE001 - for a node that is slow to start Ray raises just that
            ray.shutdown()
            if not tries_left:
                hint = "Its own words are in /tmp/ray." if address is None else "Give HOST:PORT of its head, or auto."
                raise SetupError(f"{what}: {_one_line(error)}.", hint=hint) from None
    return ray, True


def _one_line(error: Exception) -> str:
    """Returns the end of an error's text as one line: where it is a traceback, that says most."""
    return " ".join(str(error).split())[-300:].rstrip(".")


def find_room(ray: Any, actors: int | None) -> tuple[dict[str, Any], int]:
    """Returns the options of each actor, and how many there are to be.

    Raises:
        InputError: there are fewer GPUs or CPUs.
    """
    nodes = [one for one in ray.nodes() if one["Alive"]]
    gpus, cpus = (int(sum(one["Resources"].get(name, 0) for one in nodes)) for name in ("GPU", "CPU"))
    kind, most, takes = ("GPUs", gpus, f"{SHARING} may share one") if gpus else ("CPUs", cpus, "Each takes one")
    if actors is not None and actors > most * (SHARING if gpus else 1):
        raise InputError(f"There are {most} {kind} for {actors} actors.", hint=f"{takes}: give fewer.")
    count = actors or gpus or max(1, cpus // 4)
    # PyTorch takes every processor in every actor else.
    threads = max(1, (os.cpu_count() or 1) * len(nodes) // count)
    variables = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS") or str(threads)}
    if [one["NodeID"] for one in nodes] == [ray.get_runtime_context().get_node_id()]:
        variables["PYTHONPATH"] = os.pathsep.join(str(Path(one).absolute()) for one in sys.path)  # what runs here
    options = {
        "num_cpus": 1,
        "num_gpus": 1 / -(-count // gpus) if gpus else 0,
        "enable_task_events": False,  # Ray would keep something of each example
        "runtime_env": {"env_vars": variables},
    }
    return options, count
