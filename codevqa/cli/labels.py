"""Labels of tables on the terminal: the file that people fill in, and what follows from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ..collections.picture_lists import csv_rows, is_table, read_picture_list
from ..core.errors import InputError
from ..core.input_files import read_text
from ..core.labels import Share, Truth, estimate_shares, pick_for_labels, right_of, with_truths
from ..core.table import Column, Table, Value
from ..eval.statistics import wilson
from .terminal import warn


def read_labels(file: Path, columns: Sequence[Column]) -> dict[str, Truth]:
    """Returns the truths that a CSV holds in its columns ``NAME_truth``, by picture.

    Raises:
        InputError: it holds none, or one that its question cannot have.
    """
    rows = csv_rows(read_text(file), str(file))
    _, names = next(rows, (0, []))
    wanted = [column for column in columns if f"{column.name}_truth" in names]
    if "filepath" not in names or not wanted:
        hint = f"Make it with --label N --out {file.name}, and fill in {columns[0].name}_truth."
        raise InputError(f"{file} has no column of truths.", hint=hint)
    truths: dict[str, Truth] = {}
    for line, cells in rows:
        row = dict(zip(names, cells, strict=False))
        texts = {column.name: row.get(f"{column.name}_truth", "").strip() for column in wanted}
        if any(texts.values()) and row["filepath"]:
            values = {
                column.name: _read_truth(column, texts[column.name], f"{file}, line {line}")
                for column in wanted
                if texts[column.name]
            }
            # A file of the user's own does not say how its pictures were picked. Else a person chose the others.
            picked = (row.get("picked") or "chosen") if "picked" in names else "random"
            truths[row["filepath"]] = Truth(picked, values)
    if not truths:
        raise InputError(f"{file} has no truths yet.", hint=f"Fill in {wanted[0].name}_truth, a line a picture.")
    if "picked" not in names:
        warn(f"{file} does not say how its pictures were picked: they are taken for a random sample.")
    return truths


def list_truths(listed: str | None, columns: Sequence[Column]) -> dict[str, Truth]:
    """Returns what a list of pictures says is true of them, for columns of the same names.

    Raises:
        InputError: it says what a question cannot have.
    """
    if listed is None or not is_table(listed):
        return {}
    by_name = {column.name: column for column in columns}
    truths = {}
    for path, labels in read_picture_list(Path(listed)).labels.items():
        values = {
            name: _read_truth(by_name[name], text, f"{listed}, {path}")
            for name, text in labels.items()
            if name in by_name
        }
        if values:
            truths[path] = Truth("random", values)
    return truths


def _read_truth(column: Column, text: str, where: str) -> Value:
    kinds = {"yes_no": text.lower() in ("yes", "no", "true", "false", "y", "n", "1", "0")}
    if not kinds.get(column.kind, True):
        raise InputError(f"{where}: {column.name} is yes or no, not {text!r:.40}.")
    if column.kind == "yes_no":
        return "yes" if text.lower() in ("yes", "true", "y", "1") else "no"
    value, _ = column.read(text)
    if value is None or (column.kind == "number" and isinstance(value, str)):
        wanted = "a number" if column.kind == "number" else f"one of {', '.join(column.choices) or 'its answers'}"
        raise InputError(f"{where}: {column.name} is {wanted}, not {text!r:.40}.")
    return value


def report_labels(table: Table, truths: Mapping[str, Truth]) -> tuple[Table, list[str]]:
    """Returns a table with its labels, and what they say of all pictures, a line for each answer.

    Raises:
        InputError: a label is of no picture of the table, or none is of a random picture.
    """
    labelled = with_truths(table, truths)
    lines = []
    for column in table.columns:
        if not any(column.name in truth.values for truth in truths.values()):
            continue
        lines += [_describe(share) for share in estimate_shares(labelled, column)]
        right, count = right_of(labelled, column)
        interval = wilson(right, count)
        lines.append(
            f"  right on {right} of {count} random pictures, {100 * interval.low:.0f} to {100 * interval.high:.0f} %"
        )
    return labelled, lines


def pick_labels(table: Table, count: int) -> Table:
    """Returns a table whose pictures to label stand first, and says how many these are."""
    picked = pick_for_labels(table, count)
    kinds = [row.picked for row in picked.pictures]
    drawn, unsure = kinds.count("random"), kinds.count("unsure")
    columns = ", ".join(f"{column.name}_truth" for column in table.columns)
    warn(f"Say the truth of {drawn} random and {unsure} unsure pictures in {columns}; then give the file to --labels.")
    return picked


def _describe(share: Share) -> str:
    estimate = share.estimate
    if share.value is None:
        return (
            f"{share.column}: {estimate.value:.2f} on average, {estimate.low:.2f} to {estimate.high:.2f};"
            f" the models alone say {share.predicted:.2f}"
        )
    low, high = round(estimate.total_low), round(estimate.total_high)
    return (
        f"{share.column} = {share.value}: {round(estimate.total):,} of {estimate.pictures:,} pictures,"
        f" {low:,} to {high:,}; the models alone say {round(share.predicted * estimate.pictures):,}"
    )
