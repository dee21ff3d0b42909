"""A run read for its figures: its metric, and its examples with their rows, in the clusters a reader wants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from ...core.errors import InputError, SetupError
from ..datasets import gqa
from ..metrics import Metric, metric_for
from ..run.run_info import RunInfo
from ..run.store import Store
from ..task import EvalImage, Example, Method, PictureFile, Row
from .figures import Summary
from .summary import joined, summarize

__all__ = ["WAYS", "clustered", "metric_of", "pairs_of", "summary_of"]

WAYS = ("question", "pictures", "text")
"""Each question by itself; those about the same pictures; those with the same words."""


def summary_of(store: Store) -> Summary:
    """Summarises a run with its metric.

    Raises:
        UnknownNameError: there is no metric for the data set.
    """
    return summarize(pairs_of(store), metric_of(store.info))


def pairs_of(store: Store, cluster: str = "") -> Iterator[tuple[Example, Mapping[Method, Row]]]:
    """Yields what :func:`.summary.summarize` takes: each example with its rows, then later repetitions.

    Args:
        store: the run.
        cluster: what goes together, as for :func:`clustered`.
    """
    counts = store.counts()
    firsts = {method: store.rows(method) for method, repeat in counts if repeat == 0}
    for example, rows in joined(store.examples(), firsts):
        yield clustered(example, cluster), rows
    for method, repeat in counts:
        if repeat:
            for example, row in store.pairs(method, repeat):
                yield clustered(example, cluster), {method: row}


def clustered(example: Example, by: str) -> Example:
    """Returns an example in another cluster.

    Args:
        example: as it was kept.
        by: one of ``WAYS``, or a group of figures (``images``) or field of the record (``writer``) that every example
            has; empty keeps the data set's own.

    Raises:
        InputError: the example has no such thing.
    """
    if not by:
        return example
    found = {
        **{name: str(value) for name, value in example.record.items() if isinstance(value, str | int)},
        **example.groups,
        "question": example.id,
        "pictures": " ".join(sorted(set(map(_file, example.images)))),
        "text": example.question,
    }
    if by not in found:
        known = ", ".join([*WAYS, *sorted(set(found) - set(WAYS))])
        raise InputError(f"Question {example.id} has no {by!r} to cluster by.", hint=f"It has: {known}.")
    return replace(example, cluster=found[by])


def _file(image: EvalImage) -> str:
    """A picture, whatever part of it is asked about."""
    return str(image.path / image.member) if isinstance(image, PictureFile) else image.name


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
