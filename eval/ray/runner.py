"""Evaluates on many GPUs or machines: engines in Ray actors answer, this process alone writes the store.

    with evaluate(engine_for(dataset, preset="base"), dataset, "runs/gqa", actors=4) as store: ...

A bounded number of examples is under way, so memory does not grow with the data set. The rows are those of
:func:`codevqa.eval.run.runner.evaluate`, and a run begun here may go on there, and the other way round.

Ray is an optional extra, imported when it is needed. Without an address it runs on this machine alone and listens on
the loopback interface only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from ..run.provenance import run_info
from ..run.request import EvalOptions, EvalRequest
from ..run.runner import stream
from ..run.store import Store
from ..task import DataSet
from .actor_pool import ActorPool

if TYPE_CHECKING:
    from ...engine.codevqa import CodeVQA

__all__ = ["evaluate"]


def evaluate(
    factory: Callable[[], CodeVQA],
    dataset: DataSet,
    out: Path | str,
    *,
    actors: int | None = None,
    address: str | None = None,
    one_machine: bool = False,
    **options: Unpack[EvalOptions],
) -> Store:
    """Evaluates with engines in Ray actors; else as :func:`codevqa.eval.run.runner.evaluate`.

    Args:
        factory: makes an engine; it is called in each actor, on its machine, and must be something Ray can send.
        dataset: the data set; its pictures lie under the same path on every machine.
        out: folder of the run, which this process alone writes.
        actors: see :class:`~codevqa.eval.ray.actor_pool.ActorPool`, and so are the others up to ``options``.
        address: as there.
        one_machine: as there.
        options: see :class:`~codevqa.eval.run.request.EvalOptions`.

    Raises:
        InputError: as :func:`codevqa.eval.run.runner.evaluate`, and so are the others.
        ServerError: as there.
        ModelError: as there.
        SetupError: as there; or Ray is not installed, not reachable or without room.
    """
    request = EvalRequest(**options)
    selection = request.check(dataset, out)
    with ActorPool(factory, actors=actors, address=address, one_machine=one_machine) as pool:
        info = run_info(pool.info, dataset, request, selection)
        info = replace(info, machine=f"{info.machine}; Ray, {len(pool)} actor{'s' * (len(pool) > 1)}")
        pool.seeds, pool.evidence = info.seeds, request.evidence
        workers = len(pool) * int(info.settings["workers"])
        retry = request.retry_errors
        return stream(out, dataset, pool, info, workers=workers, progress=request.progress, retry=retry)
