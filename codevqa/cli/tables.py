"""``codevqa table``: many questions about many pictures, a row for each picture."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Exit, Option

from ..core.errors import InputError
from ..core.table import SUFFIXES, Column, write_csv
from .options import Chosen, From, Json, Pictures, Quiet, Recursive, Yes
from .printing import print_json, print_text
from .terminal import open_engine, warn

if TYPE_CHECKING:
    from ..collections.collection import Collection
    from ..core.question_kind import Kind
    from ..core.table import Row, Table
    from ..engine.tables import Budget, Progress, Spent, TableRun
    from .collections import Pace

FORECAST = 20
"""Pictures from which it is estimated what all of them take."""
SHOWN = 6
"""Answers of a column that are counted on the terminal."""

Asked = Annotated[
    list[str] | None,
    Option("--ask", metavar="NAME:QUESTION", help='A column, such as "dogs: How many dogs are there?"; repeatable.'),
]
Programs = Annotated[
    list[str] | None,
    Option("--program", metavar="NAME=FILE.py", help="A column that your program answers; repeatable."),
]
Out = Annotated[
    Path | None, Option("--out", "--csv", metavar="FILE", help="Write the rows to a .csv, .json or .jsonl file.")
]
Unsure = Annotated[Literal["first"] | None, Option("--unsure", help="Rows first of which least is sure.")]
Seconds = Annotated[float | None, Option(help="Begin no further picture after so many seconds.")]
Calls = Annotated[int | None, Option(min=1, help="Begin no further picture after so many calls of models.")]
Price = Annotated[
    str | None, Option(metavar="IN,OUT", help="Price of a million tokens read, and written; it is forecast.")
]
Money = Annotated[float | None, Option(help="Begin no further picture after such a cost, by --price.")]


def table(
    pictures: Pictures = None,
    *,
    choice: Chosen,
    ask: Asked = None,
    program: Programs = None,
    recursive: Recursive = False,
    listed: From = None,
    out: Out = None,
    unsure: Unsure = None,
    seconds: Seconds = None,
    calls: Calls = None,
    price: Price = None,
    money: Money = None,
    label: Annotated[
        int | None, Option(min=10, help="Pick so many pictures at random, and the unsure, for you to say the truth of.")
    ] = None,
    labels: Annotated[
        Path | None, Option(metavar="FILE.csv", help="Truths in its columns NAME_truth: intervals that hold.")
    ] = None,
    label_studio: Annotated[
        Path | None, Option(metavar="FILE.json", help="Write tasks for Label Studio, and FILE.xml, which shows them.")
    ] = None,
    yes: Yes = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Ask each picture several questions: a row for each picture.

    A program is written once for each question. Each answer has a chance, and says what was wrong. What is finished is
    kept: run the same again to go on, or to see it at once.
    """
    from ..collections.collection import picture_file
    from ..engine.tables import parse_questions
    from .collections import expand_paths, open_collection
    from .labels import list_truths, pick_labels, read_labels, report_labels

    columns = parse_questions(read_questions(ask, program))
    budget = read_budget(seconds, calls, price, money)
    check_out(out)
    if label_studio is not None:
        check_out(label_studio, (".json",))
    for column in columns:
        choice.check_question(column.question)
    if label is not None and (out is None or out.suffix.lower() != ".csv"):
        raise InputError("--label needs a table to write them in.", hint="Give --out FILE.csv.")
    truths = list_truths(listed, columns) if labels is None else read_labels(labels, columns)
    collection = open_collection(expand_paths(pictures or (), listed), recursive, quiet)
    run = fill_table(choice, collection, columns, budget, yes=yes, quiet=quiet)
    rows = whole = run.table(picture_file)
    if truths:
        whole, lines = report_labels(whole, truths)
        rows = whole
        print_text(*lines, error=json or out is None)  # standard output is for the rows, where no file is
    if label is not None:
        rows = pick_labels(whole, label)
    elif unsure is not None:
        rows = whole.unsure_first()
    if out is not None:
        rows.save(out)
    if label_studio is not None:
        write_label_studio(rows, label_studio, run.model)
    print_table(rows, out, json=json, quiet=quiet or bool(truths))
    if whole.left:
        warn(f"{whole.left:,} of {len(whole.pictures):,} pictures were not reached: run the same again to go on.")
    raise Exit(int(bool(whole.left)))


def read_questions(asked: Sequence[str] | None, programs: Sequence[str] | None) -> list[Column]:
    """Returns the columns that options name.

    Raises:
        InputError: there are none, one has no name, or a program cannot be read.
    """
    from ..core.input_files import read_text

    columns = []
    for word in asked or ():
        name, colon, question = word.partition(":")
        if not colon or not name.strip():
            raise InputError(f"--ask {word!r:.80} has no name.", hint='Such as "dogs: How many dogs are there?".')
        columns.append(Column.parse(name, question))
    for word in programs or ():
        name, equals, file = word.partition("=")
        if not equals or not name.strip():
            raise InputError(f"--program {word!r:.80} must be NAME=FILE.py.")
        columns.append(Column.parse(name, name, read_text(Path(file))))
    if not columns:
        raise InputError("A table needs questions.", hint='Give --ask "dogs: How many dogs are there?".')
    return columns


def read_budget(seconds: float | None, calls: int | None, price: str | None, money: float | None) -> Budget:
    """Returns the budget that options name.

    Raises:
        InputError: the price is no pair of numbers, or is missing.
    """
    from ..engine.tables import Budget

    pair = (0.0, 0.0)
    if price is not None:
        try:
            first, second = map(float, price.split(","))
            pair = (first, second)
            if not all(0 <= part < inf for part in pair):
                raise ValueError
        except ValueError:
            raise InputError(f"--price {price!r} must be two numbers, IN,OUT.", hint="Such as 0.4,1.6.") from None
    if money is not None and price is None:
        raise InputError("--money needs --price.", hint="Such as --price 0.4,1.6.")
    return Budget(seconds, calls, money, pair)


def check_out(out: Path | None, endings: Sequence[str] = SUFFIXES) -> None:
    """Checks, before any model is loaded, that a table can be written there.

    Raises:
        InputError: its name ends otherwise, or there is no such folder.
    """
    if out is not None and out.suffix.lower() not in endings:
        raise InputError(f"A table is not written to {str(out)!r}.", hint=f"End its name in {', '.join(endings)}.")
    if out is not None and not out.parent.is_dir():
        raise InputError(f"There is no folder {str(out.parent)!r}.", hint="Make it, or give another.")


def save_rows(
    out: Path | None, name: str, question: str, kind: Kind, rows_of: Callable[[Column], Sequence[Row]]
) -> None:
    """Writes what one question says of each picture as a table, where a file is named."""
    from ..core.table import Table

    if out is not None:
        column = Column(name, question, kind)
        Table((column,), tuple(rows_of(column))).save(out)


def fill_table(
    choice: Chosen, collection: Collection, columns: Sequence[Column], budget: Budget, *, yes: bool, quiet: bool
) -> TableRun:
    """Answers a table; loads no model where all of it is known.

    Raises:
        InputError: it takes long, and nobody agreed.
        KeyboardInterrupt: it was interrupted; what is finished is kept.
    """
    from ..engine.tables import TableRun
    from ..presets.identity import identity_of
    from .collections import Pace

    configuration = choice.configure()
    identity, fresh = identity_of(configuration), configuration.settings.fresh
    run = TableRun(collection, columns, identity, fresh=fresh)
    if not run.missing:
        return run
    with open_engine(choice, quiet) as vqa:
        pace = Pace()
        with pace.show(quiet):
            try:
                run.run(vqa, budget, follow(pace, budget, agreed=yes or budget.seconds is not None))
            except KeyboardInterrupt:
                warn(f"{run.spent.rows:,} of {run.spent.total:,} pictures are finished: run the same again to go on.")
                raise
    return run


def follow(pace: Pace, budget: Budget, *, agreed: bool) -> Progress:
    """Returns what is told how far a table is: it shows that, and asks before a long one goes on."""
    from .collections import LONG, agree

    def tell(spent: Spent) -> None:
        nonlocal agreed
        pace.tell(spent.new, spent.new + spent.total - spent.rows)
        if not agreed and spent.new >= FORECAST:
            agreed = True
            times = (spent.new + spent.total - spent.rows) / spent.new
            cost = spent.money(budget.price) * times
            if spent.seconds * times >= LONG:
                money = f" and about {cost:.2f} by your price" if cost else ""
                agree(
                    f"{spent.seconds * times / 60:,.0f} minutes for {spent.total:,} pictures, "
                    f"{spent.calls * times:,.0f} calls{money}"
                )
            elif cost:
                warn(f"About {cost:.2f} by your price for {spent.total:,} pictures.")

    return tell


def write_label_studio(rows: Table, file: Path, model: str) -> None:
    """Writes the rows as tasks with predictions, and the configuration that shows them beside it."""
    from json import dumps

    from ..collections.table_exports import label_studio_config, label_studio_tasks
    from ..core.table import written_whole

    kinds = {column.name: column.kind for column in rows.columns}
    choices = {
        column.name: column.choices or sorted({str(cell.value) for cell in rows.column(column.name) if cell.value})
        for column in rows.columns
        if column.kind == "choice"
    }
    plain = [
        {
            "picture": row.picture,
            "cells": {
                name: ("" if cell.value is None else str(cell.value), cell.chance) for name, cell in row.cells.items()
            },
        }
        for row in rows.pictures
    ]
    with written_whole(file) as opened:
        opened.write(dumps(label_studio_tasks(plain, kinds, model, choices=choices), ensure_ascii=False))
    with written_whole(file.with_suffix(".xml")) as opened:
        opened.write(label_studio_config(kinds, choices))
    warn(f"{len(plain):,} tasks in {file}, their configuration in {file.with_suffix('.xml')}")


def print_table(rows: Table, out: Path | None, *, json: bool, quiet: bool) -> None:
    """Prints the rows, or what a file of them holds."""
    if json:
        print_json(*rows.rows())
    elif out is None:
        print_text(*csv_lines(rows))
    elif not quiet:
        print_text(*summary_lines(rows))
        warn(f"{len(rows.pictures):,} rows in {out}")


def csv_lines(rows: Table) -> Iterator[str]:
    """Yields the rows as lines of CSV."""
    text = io.StringIO()
    write_csv(rows.rows(), text)
    yield from text.getvalue().splitlines()


def summary_lines(rows: Table) -> Iterator[str]:
    """Yields what each column says: its answers and how many there are of each."""
    wide = max(len(column.name) for column in rows.columns)
    for column in rows.columns:
        counts = rows.counts(column.name)
        shown = ", ".join(f"{'-' if value is None else value} {count:,}" for value, count in counts[:SHOWN])
        more = f" and {len(counts) - SHOWN:,} more" if len(counts) > SHOWN else ""
        wrong = sum(bool(cell.wrong) for cell in rows.column(column.name))
        yield f"{column.name:{wide}}  {shown}{more}" + (f"  ({wrong:,} marked)" if wrong else "")
