"""Evaluates: streams a data set through an engine into a store, and goes on where it stopped.

At most a window of examples is under way at a time, so memory does not grow with the data set. Both methods, and every
repetition, are asked about the same pictures, loaded once. How a session goes is in :mod:`.session`, how an example is
answered in :mod:`.local`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Unpack

from ...core.errors import InputError
from ...engine.codevqa import CodeVQA
from ..task import DataSet
from .local import LocalAnswerer
from .provenance import engine_info, run_info
from .request import EvalOptions, EvalRequest
from .run_info import RunInfo
from .session import AskExample, Progress, run
from .store import Store

__all__ = ["evaluate", "open_run", "stream"]


def evaluate(
    engine: CodeVQA | Callable[[], CodeVQA], dataset: DataSet, out: Path | str, **options: Unpack[EvalOptions]
) -> Store:
    """Evaluates an engine on a data set.

    Args:
        engine: the engine, or what makes it; one that is made here is closed here.
        dataset: the data set.
        out: folder of the run.
        options: ``methods``, ``limit``, ``offset``, ``seeds``, ``resume``, ``preset``, ``variant``, ``evidence``,
            ``progress``, ``retry_errors``, ``missing_pictures``; see :class:`~codevqa.eval.run.request.EvalOptions`.

    Returns:
        The store, open; close it. An interrupt (Ctrl-C) ends the run with every finished row kept.

    Raises:
        InputError: the run is there and ``resume`` is not set, or was made with other settings or data.
        ServerError: a model server went down.
        ModelError: a model fails for every question.
        SetupError: the disk is full, or the engine cannot serve this data set.
    """
    request = EvalRequest(**options)
    selection = request.check(dataset, out)
    made = engine() if callable(engine) else None
    vqa = made or engine
    assert isinstance(vqa, CodeVQA)
    try:
        info = run_info(engine_info(vqa), dataset, request, selection)
        ask = LocalAnswerer(vqa, info.seeds, request.evidence)
        workers, retry = vqa.settings.workers, request.retry_errors
        return stream(out, dataset, ask, info, workers=workers, progress=request.progress, retry=retry)
    finally:
        if made is not None:
            made.close()


def stream(
    out: Path | str,
    dataset: DataSet,
    ask: AskExample,
    info: RunInfo,
    *,
    workers: int,
    progress: Progress | None = None,
    retry: bool = False,
) -> Store:
    """Begins a run or goes on with it, and returns its store, open; see :func:`evaluate`.

    Args:
        out: folder of the run.
        dataset: where examples come from.
        ask: what answers them.
        info: what is run.
        workers: questions that are answered at once; twice as many are under way, so that none waits.
        progress: told how far the run is, after each example.
        retry: whether to ask again what could not be asked before.
    """
    store = open_run(out, info)
    try:
        window = max(1, 2 * workers // (len(info.methods) * len(info.seeds)))
        run(store, dataset, ask, info, window=window, progress=progress, retry=retry)
    except BaseException:
        store.close()
        raise
    return store


def open_run(out: Path | str, info: RunInfo) -> Store:
    """Opens a run to go on with, or begins it.

    Raises:
        InputError: the run that is there differs in something that decides what it finds.
    """
    if not Store.exists(out):
        store = Store.create(out, info)
    else:
        store = Store.open(out, writable=True)
        try:
            found = store.info.differences(info)
            if not found and (picture := store.changed_picture()):
                found = [f"{picture} has changed since it was asked about"]
            if found:
                raise InputError(
                    f"The run {out} cannot go on like this: {'; '.join(found)}.",
                    hint="Ask as before, or choose another --out.",
                )
        except InputError:
            store.close()
            raise
        store.update(store.info.grown(info))
    return store
