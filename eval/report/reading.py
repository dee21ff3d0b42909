"""A run read for its figures: its metric, and its examples with their rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

from ...core.errors import SetupError
from ..datasets import gqa
from ..metrics import Metric, metric_for
from ..run.run_info import RunInfo
from ..run.store import Store
from ..task import Example, Method, Row
from .figures import Summary
from .summary import joined, summarize

__all__ = ["metric_of", "pairs_of", "summary_of"]


def summary_of(store: Store) -> Summary:
    """Summarises a run with its metric.

    Raises:
        UnknownNameError: there is no metric for the data set.
    """
    return summarize(pairs_of(store), metric_of(store.info))


def pairs_of(store: Store) -> Iterator[tuple[Example, Mapping[Method, Row]]]:
    """Yields what :func:`.summary.summarize` takes: each example with its rows, then later repetitions."""
    counts = store.counts()
    yield from joined(store.examples(), {method: store.rows(method) for method, repeat in counts if repeat == 0})
    for method, repeat in counts:
        if repeat:
            for example, row in store.pairs(method, repeat):
                yield example, {method: row}


def metric_of(info: RunInfo, data: Path | None = None) -> Metric:
    """Returns the metric of a run; GQA's with the choices that lie beside its questions.

    Args:
        info: the run.
        data: where the data set is now; None looks where it was read from.

    Raises:
        UnknownNameError: there is no metric for the data set, or no such variant.
        InputError: the file of choices is damaged.
    """
    find = None
    if info.dataset == "gqa" and info.split.startswith(("train", "val")):  # others have none, and might search long
        for folder in (data,) if data is not None else _folders(info):
            with suppress(SetupError):
                next(gqa.choices(folder, info.split), None)
                find = partial(gqa.choices, folder, info.split)
                break
    return metric_for(info.dataset, info.variant, choices=find)


def _folders(info: RunInfo) -> list[Path]:
    """Folders above a run's questions; train_all's lie one deeper."""
    first = next(iter(info.sources), Path())
    return list(first.parents)[: 3 if first.parent.name == "train_all_questions" else 2]
