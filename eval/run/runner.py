"""Evaluates: streams a data set through an engine into a store, and goes on where it stopped.

At most a window of examples is under way at a time, so memory does not grow with the data set. Both methods, and every
repetition, are asked about the same pictures, loaded once. How a session goes is in :mod:`.session`, how an example is
answered in :mod:`.local`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from ...core.errors import InputError, SetupError
from ...engine.codevqa import CodeVQA
from ..task import DataSet, Method
from .local import Evidence, Local
from .provenance import run_info
from .run_info import RunInfo
from .session import AskExample, Progress, run
from .store import Store

__all__ = ["METHODS", "check", "evaluate", "open_run", "seeds_of", "stream"]

METHODS: tuple[Method, ...] = ("codevqa", "pnpvqa")


def evaluate(
    engine: CodeVQA | Callable[[], CodeVQA],
    dataset: DataSet,
    out: Path | str,
    *,
    methods: Sequence[Method] = METHODS,
    limit: int | None = None,
    offset: int = 0,
    seeds: int | Sequence[int] = 1,
    resume: bool = False,
    preset: str = "",
    variant: str = "",
    evidence: Evidence = "calls",
    progress: Progress | None = None,
) -> Store:
    """Evaluates an engine on a data set.

    Args:
        engine: the engine, or what makes it; one that is made here is closed here.
        dataset: the data set.
        out: folder of the run.
        methods: what is asked of each example; ``codevqa`` and the baseline ``pnpvqa``.
        limit: examples at most; None asks all of them.
        offset: examples left out at the start.
        seeds: how often to ask, with the engine's seed and those after it; or the seed of each repetition.
        resume: go on with the run in ``out``, or begin it where there is none.
        preset: name of the engine's preset, for the record.
        variant: variant of the metric, for the record.
        evidence: what is kept of each call; see :class:`.local.Local`.
        progress: told how far the run is, after each example.

    Returns:
        The store, open; close it. An interrupt (Ctrl-C) ends the run with every finished row kept.

    Raises:
        InputError: the run is there and ``resume`` is not set, or was made with other settings or data.
        ServerError: a model server went down.
        ModelError: a model fails for every question.
        SetupError: the disk is full, or the engine cannot serve this data set.
    """
    check(out, dataset, methods=methods, limit=limit, offset=offset, seeds=seeds, resume=resume)
    made = engine() if callable(engine) else None
    vqa = made or engine
    assert isinstance(vqa, CodeVQA)
    try:
        used = seeds_of(seeds, vqa.settings.seed)
        info = run_info(
            vqa, dataset, methods=tuple(methods), seeds=used, limit=limit, offset=offset, preset=preset, variant=variant
        )
        ask = Local(vqa, used, evidence)
        return stream(out, dataset, ask, info, workers=vqa.settings.workers, progress=progress)
    finally:
        if made is not None:
            made.close()


def check(
    out: Path | str,
    dataset: DataSet,
    *,
    methods: Sequence[Method],
    limit: int | None,
    offset: int,
    seeds: int | Sequence[int],
    resume: bool,
) -> None:
    """Refuses what can be refused before any model is loaded; see :func:`evaluate`.

    Raises:
        InputError: it makes no sense, or the run is there and ``resume`` is not set.
    """
    if Store.exists(out) and not resume:
        Store.create(out, RunInfo(dataset.name, dataset.split, tuple(methods)))  # raises
    if not methods or not set(methods) <= set(METHODS) or not seeds:
        raise InputError("There is nothing to ask: give at least one method and one seed.")
    if offset < 0 or (limit is not None and limit < 0):
        raise InputError("An offset or a limit is not negative.")


def seeds_of(seeds: int | Sequence[int], first: int) -> tuple[int, ...]:
    """Returns the seed of each repetition: those given, or as many as asked from the engine's on."""
    return tuple(range(first, first + seeds)) if isinstance(seeds, int) else tuple(seeds)


def stream(
    out: Path | str,
    dataset: DataSet,
    ask: AskExample,
    info: RunInfo,
    *,
    workers: int,
    progress: Progress | None = None,
) -> Store:
    """Begins a run or goes on with it, and returns its store, open; see :func:`evaluate`.

    Args:
        out: folder of the run.
        dataset: where examples come from.
        ask: what answers them.
        info: what is run.
        workers: questions that are answered at once; twice as many are under way, so that none waits.
        progress: told how far the run is, after each example.
    """
    store = open_run(out, info)
    try:
        window = max(1, 2 * workers // (len(info.methods) * len(info.seeds)))
        run(store, dataset, ask, info, window=window, progress=progress)
    except BaseException:
        with suppress(SetupError):
            store.close()
        raise
    return store


def open_run(out: Path | str, info: RunInfo) -> Store:
    """Opens a run to go on with, or begins it, and notes the session.

    Raises:
        InputError: the run that is there differs in something that decides what it finds.
    """
    if not Store.exists(out):
        store = Store.create(out, info)
    else:
        store = Store.open(out, writable=True)
        found = store.info.differences(info)
        if found:
            store.close()
            raise InputError(
                f"The run {out} cannot go on like this: {'; '.join(found)}.",
                hint="Ask as before, or choose another --out.",
            )
        store.update(store.info.grown(info))
    store.begin_session(info.started, info.version, info.machine)
    return store
