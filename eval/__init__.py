"""Evaluation on visual question answering data sets.

    >>> from codevqa import CodeVQA
    >>> from codevqa.eval import evaluate, open_dataset
    >>> dataset = open_dataset("gqa", "data/gqa", "testdev_balanced")
    >>> with CodeVQA.from_preset("base") as vqa, evaluate(vqa, dataset, "runs/gqa", limit=100) as store:
    ...     print(store.counts())

Nothing heavy is imported before it is needed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .datasets import open_dataset
    from .metrics import metric_for
    from .run.run_info import RunInfo
    from .run.runner import evaluate
    from .run.store import Store
    from .task import DataSet, Example, Row

_HOMES = {
    "DataSet": "task",
    "Example": "task",
    "Row": "task",
    "RunInfo": "run.run_info",
    "Store": "run.store",
    "evaluate": "run.runner",
    "metric_for": "metrics",
    "open_dataset": "datasets",
}

__all__ = ["DataSet", "Example", "Row", "RunInfo", "Store", "evaluate", "metric_for", "open_dataset"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
