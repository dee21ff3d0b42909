"""Ray itself: imported when it is needed, started on this machine or reached elsewhere, and asked what room it has."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from ...core.errors import CodeVQAError, InputError, SetupError

__all__ = ["connect", "find_room", "last_line", "one_line", "start"]

LEAST_CPUS = 8
"""CPUs a Ray of our own counts at least: with two it starves its own helpers."""
SHARING = 4
"""Engines that may share a GPU: one is bound by Python as much as by the GPU, and three answered twice as much."""
TRIES = 3
"""How often a Ray of our own is started where the machine is too busy for its node."""
OBJECTS = 256 << 20
"""Bytes of shared memory for a Ray of our own. Examples and rows are small; pictures are read in the actors."""


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
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        if address is not None:
            _reachable(address)
            ray.init(address=address, **quiet)
        else:
            cpus = max(LEAST_CPUS, os.cpu_count() or 1)
            own: dict[str, Any] = {"num_cpus": cpus, "include_dashboard": False, "object_store_memory": OBJECTS}
            start(partial(ray.init, address="local", **own, **quiet), ray.shutdown)
    except CodeVQAError:
        raise
    except Exception as error:  # noqa: BLE001 - for a node that is slow to start Ray raises just that
        what = "Ray does not start here" if address is None else f"There is no Ray cluster at {address}"
        raise SetupError(f"{what}: {one_line(error)}.", hint="Its own words are in /tmp/ray.") from None
    return ray, True


def start(begin: Callable[[], Any], end: Callable[[], Any], tries: int = TRIES) -> Any:
    """Starts Ray, again where its node was not up within the half a minute that Ray gives it."""
    try:
        return begin()
    except Exception as error:
        end()
        if tries == 1 or type(error) is not Exception:
            raise
    return start(begin, end, tries - 1)


def _reachable(address: str) -> None:
    """Tries an address, for Ray itself waits long and may end the process.

    Raises:
        InputError: it is none.
        OSError: nobody listens there.
    """
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "//" in host:
        raise InputError(f"{address!r} is no address of a Ray cluster.", hint="Give HOST:PORT of its head, or auto.")
    socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()


def one_line(error: Exception) -> str:
    """Returns the beginning of an error's text as one line."""
    return " ".join(str(error).split())[:300].rstrip(".")


def last_line(error: Exception) -> str:
    """Returns the last line of an error's text, which says most where it is a traceback."""
    lines = [line.strip() for line in str(error).splitlines()]
    return next((line for line in reversed(lines) if line), type(error).__name__).rstrip(".")


def find_room(ray: Any, actors: int | None, one_machine: bool) -> tuple[dict[str, Any], int, int]:
    """Returns the options of each actor, how many there are to be, and on how many machines they may run.

    Raises:
        InputError: there are fewer GPUs or CPUs.
    """
    here = ray.get_runtime_context().get_node_id()
    nodes = [one for one in ray.nodes() if one["Alive"] and (not one_machine or one["NodeID"] == here)]
    gpus, cpus = (int(sum(one["Resources"].get(name, 0) for one in nodes)) for name in ("GPU", "CPU"))
    kind, most, takes = ("GPUs", gpus, f"{SHARING} may share one") if gpus else ("CPUs", cpus, "Each takes one")
    if actors is not None and actors > most * (SHARING if gpus else 1):
        raise InputError(f"There are {most} {kind} for {actors} actors.", hint=f"{takes}: give fewer.")
    count = actors or gpus or max(1, cpus // 4)
    sharing = -(-count // gpus) if gpus else 1
    # PyTorch takes every processor in every actor else.
    threads = max(1, (os.cpu_count() or 1) * len(nodes) // count)
    variables = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS") or str(threads)}
    if len(nodes) == 1 and nodes[0]["NodeID"] == here:
        variables["PYTHONPATH"] = os.pathsep.join(str(Path(one).absolute()) for one in sys.path)  # what runs here
    options: dict[str, Any] = {
        "num_cpus": 1,
        "num_gpus": 1 / sharing if gpus else 0,
        "max_restarts": 0,
        "max_task_retries": 0,
        "enable_task_events": False,  # Ray would keep something of each example
        "runtime_env": {"env_vars": variables},
    }
    if one_machine:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(here, soft=False)
    return options, count, len(nodes)
