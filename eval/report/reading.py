"""A run read for its figures: its metric, and its examples with their rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

from ...core.errors import SetupError
from ...core.trace import Method
from ..datasets import gqa
from ..metrics import Metric, metric_for
from ..run.run_info import RunInfo
from ..run.store import Store
from ..task import Example, Row
from .figures import Summary
from .summary import summarize


def summary_of(store: Store) -> Summary:
    """Summarises a run with its metric.

    Raises:
        UnknownNameError: there is no metric for the data set.
    """
    return summarize(pairs_of(store), metric_of(store.info))


def pairs_of(store: Store) -> Iterator[tuple[Example, Mapping[Method, Row]]]:
    """Yields what :func:`.summary.summarize` takes: each example with its rows, then later repetitions."""
    yield from first_pairs(store)
    for method, repeat in store.counts():
        if repeat:
            for example, row in store.pairs(method, repeat):
                yield example, {method: row}


def first_pairs(store: Store) -> Iterator[tuple[Example, dict[Method, Row]]]:
    """Yields each example with its row of each method, of the first repetition; a broken-off run lacks some."""
    rows = {method: store.rows(method) for method, repeat in store.counts() if repeat == 0}
    heads = {method: next(source, None) for method, source in rows.items()}
    for example in store.examples():  # in the order of the rows
        found = {method: head for method, head in heads.items() if head is not None and head.id == example.id}
        heads |= {method: next(rows[method], None) for method in found}
        if found:
            yield example, found


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
    """Returns the folders above a run's questions, nearest first."""
    first = next(iter(info.sources), Path())
    return list(first.parents)[:2]
