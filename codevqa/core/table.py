"""A table of answers: a row for each picture, and for each question a value, its chance, and what was wrong."""

from __future__ import annotations

import csv
import json
import os
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, TypeAlias

from .answer_words import DONT_KNOW, LITERAL, whole_number
from .errors import InputError, SetupError
from .question_kind import Kind, question_kind
from .selection import READ

Value: TypeAlias = "str | int | float | None"
"""``yes`` or ``no``, a number, a choice or words; None where there is no answer."""
MOST_COLUMNS = 50
"""Questions of one table."""
SUFFIXES = (".csv", ".json", ".jsonl")
"""How files end that a table is written to."""
RESERVED = ("filepath", "picked", "set", "id", "tags", "metadata")
"""Names of a file's columns that are no question's; the last three are FiftyOne's."""
PARTS = ("chance", "wrong", "truth")
"""What the columns of a file end in that are no question's."""


@dataclass(frozen=True)
class Column:
    """One question of a table."""

    name: str
    question: str
    """As models are asked it."""
    kind: Kind = "open"
    choices: tuple[str, ...] = ()
    """The answers it may have; none where these are not told."""
    program: str = ""
    """A program of the user's that answers it; empty where one is written."""

    @classmethod
    def parse(cls, name: str, text: str, program: str = "") -> Column:
        """Returns the column of a question, which may end in its choices: ``What is the weather? =sunny,rain``.

        Raises:
            InputError: the name or the question is empty, or there are choices that none can choose from.
        """
        question, equals, listed = text.partition(" =") if " =" in text else (text, "", "")
        question, choices = question.strip(), tuple(choice.strip() for choice in listed.split(","))
        name = " ".join(name.split())
        if not name or any(name.endswith(f"_{part}") for part in PARTS) or name in RESERVED:
            raise InputError(f"A column cannot be called {name!r}.", hint="Give it a short name of its own.")
        if not question:
            raise InputError(f"The column {name} has no question.", hint='Such as: "dogs: How many dogs are there?"')
        if equals and (len({choice.casefold() for choice in choices}) < 2 or not all(choices)):
            raise InputError(f"The choices of {name} are fewer than two, or empty.", hint="Such as =sunny,rain.")
        if not equals:
            return cls(name, question, question_kind(question).kind, (), program)
        if not any(choice.casefold() in question.casefold() for choice in choices):
            question = f"{question.rstrip('?. ')}: {', '.join(choices[:-1])} or {choices[-1]}?"
        return cls(name, question, "choice", choices, program)

    def read(self, text: str) -> tuple[Value, str]:
        """Returns what an answer says as a value of this column, and what is wrong with it."""
        if text == DONT_KNOW or not text:
            return None, text
        if self.kind == "number":
            number = whole_number(text)
            literal = LITERAL.fullmatch(text.strip())
            if number is None and literal is not None:
                return float(text.replace(",", "").replace("−", "-")), ""
            return number, "" if number is not None else f"{text!r} is not a number."
        if self.choices:
            fits = [choice for choice in self.choices if choice.casefold() == text.casefold().rstrip(".")]
            return (fits[0], "") if fits else (None, f"{text!r} is none of the choices.")
        return text, ""


@dataclass(frozen=True)
class Cell:
    """What was answered about one picture."""

    value: Value
    chance: float | None = None
    """How probable it is that the value is right; None where nothing tells."""
    wrong: str = ""
    """Why it is not to be relied on, or not there; one line."""
    truth: Value = None
    """What a person said it is; None where nobody did."""

    @property
    def sureness(self) -> float:
        """Its chance, as an order: nothing is less sure than no value."""
        return 0.0 if self.value is None else READ if self.chance is None else self.chance


@dataclass(frozen=True)
class Row:
    """One picture and what was answered about it."""

    picture: str
    """Its path, absolute where it is a file's; in a zip file, with its name in it."""
    cells: Mapping[str, Cell]
    """By the names of columns. Of a picture that was not reached, some are missing."""
    of: str = ""
    """The set that it belongs to, where several are compared."""
    picked: str = ""
    """Why its truth is wanted: ``random`` or ``unsure``; else empty."""


@dataclass(frozen=True)
class Table:
    """Answers about many pictures."""

    columns: tuple[Column, ...]
    pictures: tuple[Row, ...]
    programs: Mapping[str, str] = field(default_factory=dict)
    """The program of each column; empty where each picture was asked for itself."""

    def rows(self) -> list[dict[str, Any]]:
        """Returns a flat dict for each picture, as pandas takes it: ``dogs``, ``dogs_chance``, ``dogs_wrong``."""
        labelled = any(row.picked for row in self.pictures)
        return [self._flat(row, labelled) for row in self.pictures]

    def _flat(self, row: Row, labelled: bool) -> dict[str, Any]:
        flat: dict[str, Any] = {"filepath": row.picture, **({"set": row.of} if row.of else {})}
        if labelled:
            flat["picked"] = row.picked
        for column in self.columns:
            cell = row.cells.get(column.name, Cell(None, wrong="It was not reached."))
            chance = None if cell.chance is None else round(cell.chance, 4)
            flat |= {column.name: cell.value, f"{column.name}_chance": chance, f"{column.name}_wrong": cell.wrong}
            if labelled:
                flat[f"{column.name}_truth"] = cell.truth
        return flat

    def unsure_first(self) -> Table:
        """Returns the table with the pictures first of which least is sure."""

        def doubt(row: Row) -> float:
            return min(row.cells.get(column.name, Cell(None)).sureness for column in self.columns)

        return replace(self, pictures=tuple(sorted(self.pictures, key=doubt)))

    def column(self, name: str) -> list[Cell]:
        """Returns the cells of a column, of the pictures that were reached."""
        return [row.cells[name] for row in self.pictures if name in row.cells]

    def counts(self, name: str) -> list[tuple[Value, int]]:
        """Returns how many pictures have each value of a column, the most frequent first."""
        return Counter(cell.value for cell in self.column(name)).most_common()

    @property
    def left(self) -> int:
        """How many pictures were not reached with every question."""
        return sum(len(row.cells) < len(self.columns) for row in self.pictures)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the rows as CSV, JSON or JSON lines, by the name's ending. The file is whole, or as it was.

        Raises:
            InputError: the name ends otherwise.
            SetupError: the file cannot be written.
        """
        place = Path(path)
        if place.suffix.lower() not in SUFFIXES:
            raise InputError(
                f"A table is not written to {place.name!r}.", hint=f"End its name in {', '.join(SUFFIXES)}."
            )
        rows = self.rows()
        with written_whole(place) as file:
            if place.suffix.lower() == ".csv":
                write_csv(rows, file)
            elif place.suffix.lower() == ".jsonl":
                file.writelines(f"{_escaped(json.dumps(row, ensure_ascii=False))}\n" for row in rows)
            else:
                file.write(_escaped(json.dumps(rows, ensure_ascii=False, indent=1)))

    def __repr__(self) -> str:
        return f"<Table {len(self.pictures):,} pictures: {', '.join(column.name for column in self.columns)}>"


def write_csv(rows: Sequence[Mapping[str, Any]], file: IO[str]) -> None:
    """Writes rows of one table under their header."""
    writer = csv.DictWriter(file, list(rows[0]) if rows else ["filepath"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


def _escaped(text: str) -> str:
    """Returns JSON in which half surrogate pairs, of paths that are no text, are escapes."""
    return text.encode("utf-8", "backslashreplace").decode()


KEPT = "Is it open elsewhere? What was answered is kept: run the same again."
"""What is to be done where a table cannot be written."""


class written_whole:
    """Opens a text file that takes the place of another only when it is whole.

    Args:
        path: the file.
        hint: what to do where it cannot be written.

    Raises:
        SetupError: it cannot be written; what was there before is.
    """

    def __init__(self, path: Path, hint: str = KEPT) -> None:
        self._path, self._hint = path, hint

    def __enter__(self) -> IO[str]:
        try:
            self._part = self._path.with_name(f".{self._path.name}.{secrets.token_hex(8)}.part")
            self._file = self._part.open("w", encoding="utf-8", errors="surrogateescape", newline="")
        except (OSError, ValueError) as error:  # the latter for a path that no file can have
            raise self._failure(error) from None
        return self._file

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        try:
            self._file.close()
            if kind is None:
                self._part.replace(self._path)
        except OSError as failure:
            error = failure
        if error is not None:
            self._part.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise self._failure(error) from None

    def _failure(self, error: Exception) -> SetupError:
        return SetupError(f"Cannot write {self._path}: {getattr(error, 'strerror', None) or error}.", hint=self._hint)
