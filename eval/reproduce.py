"""From a data set to the paper's table: our figures beside the paper's."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from ..core.errors import InputError
from .report.figures import RunFigures
from .report.paper import NOTE
from .report.reading import metric_of, summary_of
from .report.table import align_rows
from .report.tables import breakdown, result_table
from .run.store import Store
from .task import DataSet

SPLITS: Mapping[str, str] = {"gqa": "testdev_balanced", "covr": "test_paraphrased", "nlvr2": "test1"}
"""The splits that the paper reports, by data set."""
COVR_ANSWERS = (
    "COVR's own test.jsonl has no answers: put test_paraphrased.json of the paper's authors beside it "
    "(https://github.com/sanjayss34/codevqa says where their data are), or ask --split val."
)


def require_answers(dataset: DataSet, limit: int | None = None) -> None:
    """Refuses a run whose table would be empty.

    Raises:
        InputError: no question has an answer to be scored by.
    """
    if not any(example.gold for example in islice(dataset, limit)):
        raise InputError(
            f"No question of {dataset.name} {dataset.split} has an answer: the table would be empty.",
            hint=COVR_ANSWERS if dataset.name == "covr" else "Give another --split.",
        )


def table_lines(store: Store) -> list[str]:
    """Returns the run's figures beside the paper's, whole and by group."""
    figures = RunFigures("", store, store.info, store.pace(), metric_of(store.info), summary_of(store))
    groups = breakdown(figures.info, figures.summary)
    beside = (table for table in groups if any(name.startswith("Paper's") for name in table.head))
    lines: list[str] = []
    for table in (result_table([figures]), *beside):
        lines += [*(["", table.title] if table.title else []), *align_rows([table.head, *table.rows])]
    return [*lines, "", f"Lines named paper are {NOTE}."]
