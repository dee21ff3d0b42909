"""Engines on many GPUs or machines: Ray actors answer questions, or each look at a share of a collection's pictures.

    engines = partial(ActorPool, engine_for(dataset, preset="base"), actors=4)
    with evaluate(engines, dataset, "runs/gqa") as store: ...
    with closing(ActorPool(partial(CodeVQA.from_preset, "base"))) as pool:
        answer = pool.select(Collection("/data/photos"), "Is there a dog?")

Each actor holds one engine and, where there are GPUs, one GPU or a share of it. Ray replaces an actor that dies, and
asks it again what was under way. The rows are those of one engine here, and a run begun here may go on there. This
process alone writes the store.

Ray is an optional extra, imported when it is needed. Without an address it runs on this machine alone and listens on
the loopback interface only.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

from ..collections.collection import Collection
from ..core.answer import Answer
from ..core.errors import InputError, SetupError
from ..core.trace import Call, Evidence, ImageRef, Trace
from .run.local import LocalAnswerer
from .run.run_info import RunInfo
from .task import Example, Job, Row

if TYPE_CHECKING:
    from ..engine.codevqa import CodeVQA

RESTARTS = 3
"""How often Ray replaces an actor that died, and asks again what was under way in it."""
PLACING = 300.0
"""Seconds Ray may take to find room for the actors."""
TRIES = 3
"""How often a Ray of our own is started: on a busy machine its node takes longer than it waits for it."""
LEAST_CPUS = 8
"""CPUs a Ray of our own counts at least: with two it starves its own helpers."""
OBJECTS = 256 << 20
"""Bytes of shared memory for a Ray of our own. Examples and rows are small; pictures are read in the actors."""
SHARING = 4
"""Engines that may share a GPU: one is bound by Python as much as by the GPU, and three answered twice as much."""
SAME_PACKAGES = "Install the same packages on every machine."


class EngineActor:
    """One engine, as Ray runs it."""

    def __init__(self, factory: Callable[[], CodeVQA], folder: str) -> None:
        with suppress(OSError):  # another machine may not have it; then pictures with relative paths are missed
            os.chdir(folder)
        # Threads that launch GPU work wait for those that compute for up to this long, five milliseconds else.
        sys.setswitchinterval(0.0005)
        self._factory, self._lock = factory, asyncio.Lock()
        self._answerer: LocalAnswerer | None = None

    async def info(self) -> RunInfo:
        """Returns what identifies a run with this engine."""
        return (await self._answerer_ready()).info

    async def ask(self, example: Example, jobs: Sequence[Job]) -> list[Row]:
        """Answers an example as :class:`~codevqa.eval.run.local.LocalAnswerer` does."""
        return await (await self._answerer_ready())(example, jobs)

    async def share(
        self, do: Callable[[CodeVQA, Collection], Any], arguments: Mapping[str, Any], place: int, step: int
    ) -> tuple[int, Any]:
        """Returns how many pictures a collection has, and what becomes of every ``step``-th, from ``place`` on."""
        engine = (await self._answerer_ready()).engine
        collection = await asyncio.to_thread(Collection, **arguments)
        share = await asyncio.to_thread(collection.share, place, step)
        return len(collection), await asyncio.to_thread(do, engine, share) if len(share) else None

    async def _answerer_ready(self) -> LocalAnswerer:
        """Returns the engine; one that Ray has just put in the place of another makes it first."""
        async with self._lock:
            if self._answerer is None:
                self._answerer = LocalAnswerer(await asyncio.to_thread(self._factory))
            return self._answerer


class ActorPool:
    """Actors that answer examples: an :class:`~codevqa.eval.run.local.Answerer`.

    Args:
        factory: makes an engine; it is called in each actor, on its machine, and must be something Ray can send.
        actors: how many; None takes one for each GPU, or for each four CPUs where there is none.
        address: ``HOST:PORT`` of a running cluster, or ``auto`` for the one of this machine; None starts Ray here, and
            ends it again. The pictures lie under the same path on every machine.

    Raises:
        SetupError: Ray is not installed, not reachable, or has no room; or an engine cannot be made.
        InputError: more actors than GPUs or CPUs.
    """

    def __init__(
        self, factory: Callable[[], CodeVQA], *, actors: int | None = None, address: str | None = None
    ) -> None:
        if actors is not None and actors < 1:
            raise InputError(f"{actors} actors cannot work.", hint="Give at least one.")
        self._actors: list[Any] = []
        self._ray, self._owned = connect_ray(address)
        try:
            options, count = find_room(self._ray, actors)
            actor_class = self._ray.remote(EngineActor).options(**options)
            self._actors = [actor_class.remote(factory, str(Path.cwd())) for _ in range(count)]
            self._load = [0] * count
            self.info, *others = self._wait_for_engines()
        except BaseException:
            self.close()
            raise
        self.workers = count * int(self.info.settings["workers"])
        self._each = self.workers // count
        if differences := [difference for other in others for difference in self.info.differences(other)]:
            self.close()
            raise SetupError(f"Machines of the cluster differ: {'; '.join(differences)}.", hint=SAME_PACKAGES)
        self.info = replace(self.info, machine=f"{self.info.machine}; Ray, {count} actor{'s' * (count > 1)}")

    def _wait_for_engines(self) -> list[RunInfo]:
        """Waits until every actor has its engine, and returns what these are."""
        with self._errors("Ray has no engine", SAME_PACKAGES):
            try:
                self._ray.get([actor.__ray_ready__.remote() for actor in self._actors], timeout=PLACING)
            except self._ray.exceptions.GetTimeoutError:
                hint = "Is the cluster in use? Give fewer actors."
                raise SetupError("Ray found no room for an engine.", hint=hint) from None
            infos: list[RunInfo] = self._ray.get([actor.info.remote() for actor in self._actors])
            return infos

    @contextmanager
    def _errors(self, what: str = "An engine of Ray's is gone", hint: str = "See /tmp/ray.") -> Iterator[None]:
        """Raises what our own code, or the factory's, raised in an actor; says in one line what Ray raises."""
        try:
            yield
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from error
        except self._ray.exceptions.RayError as error:
            raise SetupError(f"{what}: {error_end(error)}.", hint=hint) from None

    def close(self) -> None:
        """Ends the actors, and Ray where it was started here. Safe to call twice."""
        for actor in self._actors:
            with suppress(self._ray.exceptions.RayError):
                self._ray.kill(actor)
        self._actors = []
        if self._owned:
            self._ray.shutdown()

    async def __call__(self, example: Example, jobs: Sequence[Job]) -> list[Row]:
        """Returns one row a job.

        Raises:
            SetupError: processes die again and again, or Ray itself fails.
        """
        place = self._place(example.cluster or example.id)
        asked = replace(example, gold=(), groups={}, record={})  # an engine needs no more
        self._load[place] += 1
        try:
            with self._errors():
                rows: list[Row] = await asyncio.wrap_future(self._actors[place].ask.remote(asked, jobs).future())
                return rows
        finally:
            self._load[place] -= 1

    def select(self, collection: Collection, question: str) -> Answer:
        """Returns the pictures for which a question is answered yes; each engine looks at its share of them.

        Args:
            collection: the pictures. Their files lie under the same paths on every machine.
            question: what each picture is asked.

        Raises:
            InputError: there is no picture.
            SetupError: Ray fails, or the machines see different pictures.
            CodeVQAError: an engine failed.
        """
        evidence_by_kind: dict[str, Evidence] = {}
        for place, share in enumerate(self._shares(partial(_select_share, question), collection)):
            for entry in share or ():
                refs = [ImageRef(place + (ref.index - 1) * len(self._actors) + 1) for ref in entry.images]
                before = evidence_by_kind.get(entry.kind, replace(entry, images=(), scores=()))
                evidence_by_kind[entry.kind] = replace(
                    entry, images=(*before.images, *refs), scores=before.scores + entry.scores
                )
        trace = Trace(
            (Call(1, "select", {"question": question}, None, 0.0, evidence=tuple(evidence_by_kind.values())),)
        )
        answer = Answer(question, "", None, trace)
        return replace(answer, text=", ".join(str(pick.image) for pick in answer.selections[0].picked) or "none")

    def index(self, collection: Collection) -> None:
        """Computes ahead what the matcher keeps of a collection's pictures; arguments and errors as :meth:`select`."""
        self._shares(_index_share, collection)

    def _shares(self, do: Callable[[CodeVQA, Collection], Any], collection: Collection) -> list[Any]:
        """Returns what each engine makes of its share of a collection; None where there is nothing left for it."""
        count = len(collection)  # it is opened here first, so that the actors need not read its files
        arguments = {"sources": collection.sources, "recursive": collection.recursive, "index": collection.index}
        asked = [
            actor.share.remote(do, arguments, place, len(self._actors)) for place, actor in enumerate(self._actors)
        ]
        with self._errors():
            results: list[tuple[int, Any]] = self._ray.get(asked)
        if {total for total, _ in results} != {count}:
            raise SetupError(f"Not every machine has the {count:,} pictures.", hint="Put them under the same path.")
        return [result for _, result in results]

    def _place(self, cluster: str) -> int:
        """Returns which actor to ask: the one a cluster belongs to, unless another would run dry.

        What is asked about the same pictures goes to the same actor, which keeps their features.
        """
        least = min(range(len(self._actors)), key=self._load.__getitem__)
        home = crc32(cluster.encode()) % len(self._actors)
        return home if self._load[home] <= self._load[least] + self._each else least


def _select_share(question: str, engine: CodeVQA, share: Collection) -> tuple[Evidence, ...]:
    return engine.select(share, question).trace.calls[0].evidence


def _index_share(engine: CodeVQA, share: Collection) -> None:
    engine.index(share)


def connect_ray(address: str | None) -> tuple[Any, bool]:
    """Returns Ray, connected, and whether it was started here. One that this process has already is taken as it is.

    Raises:
        SetupError: Ray is not installed, does not start, or no cluster is at the address.
    """
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
                raise SetupError(f"{what}: {error_end(error)}.", hint=hint) from None
    return ray, True


def error_end(error: Exception) -> str:
    """Returns the end of an error's text as one line: where it is a traceback, that says most."""
    return " ".join(str(error).split())[-300:].rstrip(".")


def find_room(ray: Any, actors: int | None) -> tuple[dict[str, Any], int]:
    """Returns the options of each actor, and how many there are to be.

    Raises:
        InputError: there are fewer GPUs or CPUs.
    """
    nodes = [node for node in ray.nodes() if node["Alive"]]
    gpus, cpus = (int(sum(node["Resources"].get(name, 0) for node in nodes)) for name in ("GPU", "CPU"))
    kind, most, takes = ("GPUs", gpus, f"{SHARING} may share one") if gpus else ("CPUs", cpus, "Each takes one")
    if actors is not None and actors > most * (SHARING if gpus else 1):
        raise InputError(f"There are {most} {kind} for {actors} actors.", hint=f"{takes}: give fewer.")
    count = actors or gpus or max(1, cpus // 4)
    # PyTorch takes every processor in every actor else.
    threads = max(1, (os.cpu_count() or 1) * len(nodes) // count)
    variables = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS") or str(threads)}
    if [node["NodeID"] for node in nodes] == [ray.get_runtime_context().get_node_id()]:
        variables["PYTHONPATH"] = os.pathsep.join(str(Path(path).absolute()) for path in sys.path)  # what runs here
    options = {
        "num_cpus": 1,
        "num_gpus": 1 / -(-count // gpus) if gpus else 0,
        "max_restarts": RESTARTS,
        "max_task_retries": RESTARTS,
        "enable_task_events": False,  # Ray would keep something of each example
        "runtime_env": {"env_vars": variables},
    }
    return options, count
