"""What people say is true of some pictures of a table, and what follows for all of them.

Chances are fitted on drawn pictures: of others they are an order. A few labels of pictures that were picked at random
give counts and shares an interval that holds whatever the models are worth (:mod:`.prediction_powered`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from .errors import InputError
from .prediction_powered import Estimate, estimate_mean, refit_chances
from .table import Cell, Column, Row, Table, Value

UNSURE = 0.25
"""Unsure pictures that are picked beside the random ones, as a share of these."""
DOUBT = 0.9
"""Chance below which an answer is unsure."""
MOST_VALUES = 8
"""Answers of a column whose shares are estimated, the most frequent first."""


@dataclass(frozen=True)
class Truth:
    """What a person says of one picture."""

    picked: str
    """``random`` where it was picked at random; else ``unsure``, or ``chosen`` by a person."""
    values: Mapping[str, Value]
    """By the names of columns; some may be missing."""


@dataclass(frozen=True)
class Share:
    """How many pictures have one answer, or the mean of a number, by the labels."""

    column: str
    value: Value
    """None for the mean of a number."""
    estimate: Estimate
    predicted: float
    """What the models alone say: a share, or a mean."""


def pick_for_labels(table: Table, count: int, seed: int = 0) -> Table:
    """Returns a table whose pictures to label stand first: some at random, and some of which the models are unsure.

    Args:
        table: its pictures that were reached with every question can be picked.
        count: how many at random. A quarter of that are picked among the unsure besides.
        seed: of the choice.
    """

    def sureness(row: Row) -> float:
        return min(row.cells[column.name].sureness for column in table.columns)

    whole = [row for row in table.pictures if len(row.cells) == len(table.columns)]
    unsure = sorted((row for row in whole if sureness(row) < DOUBT), key=sureness)[: int(count * UNSURE)]
    names = {row.picture for row in unsure}
    others = [row for row in whole if row.picture not in names]
    drawn = random.Random(seed).sample(others, min(count, len(others)))
    picked = {**{row.picture: "random" for row in drawn}, **dict.fromkeys(names, "unsure")}
    rows = [replace(row, picked=picked.get(row.picture, "")) for row in table.pictures]
    return replace(table, pictures=tuple(sorted(rows, key=lambda row: not row.picked)))


def with_truths(table: Table, truths: Mapping[str, Truth]) -> Table:
    """Returns a table whose labelled pictures say what is true, and whose chances are fitted to the labels.

    Raises:
        InputError: a label is of a picture that the table has not.
    """
    strangers = truths.keys() - {row.picture for row in table.pictures}
    if strangers:
        more = f" and {len(strangers) - 1:,} more" if len(strangers) > 1 else ""
        raise InputError(
            f"The labels name {min(strangers)}{more}, which is not among the pictures.",
            hint="Give the labels of these pictures.",
        )
    rows = []
    for row in table.pictures:
        truth = truths.get(row.picture, Truth("", {}))
        cells = {name: replace(cell, truth=truth.values.get(name)) for name, cell in row.cells.items()}
        rows.append(replace(row, cells=cells, picked=truth.picked))
    labelled = replace(table, pictures=tuple(rows))
    for column in table.columns:
        labelled = _refitted(labelled, column)
    return labelled


def estimate_shares(table: Table, column: Column) -> Iterator[Share]:
    """Yields how many pictures have each answer of a column, and the mean of a number, with intervals.

    Raises:
        InputError: no picture that was picked at random has a label.
    """
    reached = [(row, row.cells[column.name]) for row in table.pictures if column.name in row.cells]
    cells = [cell for _, cell in reached]
    labels = [(row.picked, cell) for row, cell in reached if cell.truth is not None]
    if not any(picked == "random" for picked, _ in labels):
        raise InputError(f"No random picture has a label of {column.name}.", hint="Fill in its column of truths.")
    if column.kind == "number":
        numbers = [cell for cell in cells if cell.truth is None]
        yield _share(column, None, labels, numbers, _number)
    values = ["yes"] if column.kind == "yes_no" else list(dict.fromkeys(_frequent(cells)))[:MOST_VALUES]
    for value in values:
        rest = [cell for cell in cells if cell.truth is None]
        yield _share(column, value, labels, rest, partial(_equals, value))


def right_of(table: Table, column: Column) -> tuple[int, int]:
    """Returns how many labels of random pictures the models agree with, and of how many."""
    cells = [row.cells[column.name] for row in table.pictures if row.picked == "random" and column.name in row.cells]
    known = [cell for cell in cells if cell.truth is not None]
    return sum(cell.value == cell.truth for cell in known), len(known)


def _share(
    column: Column,
    value: Value,
    labels: Sequence[tuple[str, Cell]],
    rest: Sequence[Cell],
    measure: Callable[[Value], float],
) -> Share:
    drawn = [cell for picked, cell in labels if picked == "random"]
    estimate = estimate_mean(
        [measure(cell.truth) for cell in drawn],
        [measure(cell.value) for cell in drawn],
        [measure(cell.value) for cell in rest],
        known=[measure(cell.truth) for picked, cell in labels if picked != "random"],
    )
    everything = [cell for _, cell in labels] + list(rest)
    return Share(column.name, value, estimate, sum(measure(cell.value) for cell in everything) / len(everything))


def _equals(wanted: Value, value: Value) -> float:
    return float(value == wanted)


def _number(value: Value) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _frequent(cells: Sequence[Cell]) -> list[Value]:
    """Returns the answers of cells, by truth where it is known, the most frequent first."""
    values = [cell.value if cell.truth is None else cell.truth for cell in cells]
    return sorted(
        (value for value in set(values) if value is not None), key=lambda value: (-values.count(value), str(value))
    )


def _refitted(table: Table, column: Column) -> Table:
    """Returns a table with the chances of a column fitted to its labels."""
    known = [
        cell
        for cell in table.column(column.name)
        if cell.truth is not None and cell.value is not None and cell.chance is not None
    ]
    wanted = [cell.chance for cell in table.column(column.name) if cell.chance is not None]
    if not known:
        return table
    old = [cell.chance for cell in known if cell.chance is not None]
    chances = iter(refit_chances(old, [cell.value == cell.truth for cell in known], wanted))
    rows = []
    for row in table.pictures:
        cell = row.cells.get(column.name)
        if cell is not None and cell.chance is not None:
            row = replace(row, cells={**row.cells, column.name: replace(cell, chance=next(chances))})
        rows.append(row)
    return replace(table, pictures=tuple(rows))
