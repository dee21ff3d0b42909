"""A run read for its figures: its metric, its examples with their rows, and rows as answers again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ...core.answer import Answer
from ...core.errors import InputError, SetupError
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
        own_heads = {method: head for method, head in heads.items() if head is not None and head.id == example.id}
        heads |= {method: next(rows[method], None) for method in own_heads}
        if own_heads:
            yield example, own_heads


def answer_of(example: Example, row: Row, *, maps: bool = False) -> Answer:
    """Returns a row as the answer that it was, as far as the row keeps it: without prompts, patches and warnings.

    Its seconds are those that it cost. Of a trace that is damaged, the program and the text are left.

    Args:
        example: what was asked.
        row: its row.
        maps: whether to read the heat maps, which takes most of the time.
    """
    trace = row.trace
    data: dict[str, Any] = {"question": example.question, "answer": row.prediction, "program": row.program}
    data |= {"error": row.error and {"type": row.error, "message": row.message}, "fallback": row.fallback}
    data |= {"seconds": row.cost.seconds if row.cost else row.seconds, "tokens": row.tokens, "method": row.method}
    data |= {"models": {}, "warnings": [], "cost": None, "value": None, "printed": "", "attempts": [], "calls": []}
    data |= {"baseline": [], **trace, "written": None}
    try:
        if row.program is not None:
            data["written"] = (trace.get("written") or {}) | {"source": row.program, "question": example.question}
        if not maps:
            data["baseline"] = _without_maps(data["baseline"])
            data["calls"] = [{**call, "evidence": _without_maps(call["evidence"])} for call in data["calls"]]
        return Answer.from_dict(data)
    except (InputError, KeyError, TypeError):
        return answer_of(example, replace(row, trace={}), maps=True)


def _without_maps(evidence: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**entry, "relevance": []} for entry in evidence]


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
        for folder in folders_of(info, data):
            with suppress(SetupError):
                next(gqa.read_choices(folder, info.split), None)
                find = partial(gqa.read_choices, folder, info.split)
                break
    return metric_for(info.dataset, info.variant, choices=find)


def folders_of(info: RunInfo, data: Path | None) -> list[Path]:
    """Returns where the data set is now; without ``data``, the folders above its files, nearest first."""
    near = (folder for source in info.sources for folder in list(source.parents)[:2] if folder.is_dir())
    return [data] if data is not None else list(dict.fromkeys(near))
