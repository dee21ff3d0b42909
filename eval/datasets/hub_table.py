"""Any table of questions about pictures on the Hugging Face hub: ``codevqa eval hf://OWNER/NAME --image COLUMN ...``.

========  ====================================================================  ================================
column    its cells                                                             without an option
========  ====================================================================  ================================
image     a picture, or a list of them, as the hub's ``Image`` feature          ``image``, or ``images``
question  a text                                                                ``question``
answer    a text, number, truth or class, or a list of them: each is accepted   ``answer``, or ``answers``
========  ====================================================================  ================================

Questions are called by ``id`` or ``question_id``, or else by the number of their row.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...core.errors import InputError, SetupError, UnknownNameError, nearest
from ..task import DatasetPicture, Example, Located
from .files import JsonRecord
from .hub import column_classes, fetch_index, list_tables, picture_bytes, table_rows, write_cache
from .loader import Split, gold_text

SPLITS = ("test", "validation", "val", "dev", "train")
"""Which split is read where none is asked for: the first of these that is there, or the only one."""
_IDS = ("id", "question_id")


@dataclass(frozen=True)
class HubColumns:
    """The columns of a table on the hub; None reads the usual ones."""

    image: str | None = None
    question: str | None = None
    answer: str | None = None


@dataclass(frozen=True)
class _Table:
    """A table on the hub, whose questions can be read again and again."""

    name: str
    """Of repository and split, for messages."""
    known: dict[str, Any]
    """What the index says."""
    files: list[str]
    pictures: Path
    """The folder that its pictures are written to."""
    columns: dict[str, str]
    """By what they hold: ``image``, ``question``, ``answer``, and ``id``, which may be empty."""
    classes: Sequence[str]
    """Names of the answers, where these are numbers of classes."""

    def read(self) -> Iterator[Example]:
        """Yields the questions.

        Raises:
            InputError: a row lacks something.
            SetupError: a file cannot be fetched or read, or a picture cannot be written.
        """
        uses: Counter[str] = Counter()
        rows = table_rows(self.known, self.files, list({column for column in self.columns.values() if column}))
        for number, row in enumerate(rows, 1):
            name = row.get(self.columns["id"])
            id = str(name) if isinstance(name, str | int) and str(name).strip() else str(number)
            uses[id] += 1
            images = self._pictures(row)
            question, gold = row.get(self.columns["question"]), self._gold(row)
            has_question = isinstance(question, str) and question.strip()
            for role, value in {"image": images, "question": has_question, "answer": gold}.items():
                if not value:
                    what = "picture that can be read" if role == "image" else role
                    message = f"Row {number} of {self.name} has no {what} in its column {self.columns[role]!r}."
                    raise InputError(message, hint=f"Give another --{role} or --split.")
            yield Example(
                id=id if uses[id] == 1 else f"{id}#{uses[id]}",
                question=str(question),
                images=images,
                form="image" if len(images) == 1 else "set",
                gold=gold,
                cluster=" ".join(sorted(image.name for image in images)),
            )

    def _pictures(self, row: JsonRecord) -> tuple[DatasetPicture, ...]:
        """Writes the pictures of a row, each called by its content. Returns none where a cell holds no file."""
        cell = row.get(self.columns["image"])
        images = []
        for part in cell if isinstance(cell, list) else [cell]:
            if not (data := picture_bytes(part)):
                return ()
            path = self.pictures / f"{hashlib.sha256(data).hexdigest()[:32]}.jpg"
            if not path.is_file():
                write_cache(path, data)
            images.append(DatasetPicture(path))
        return tuple(images)

    def _gold(self, row: JsonRecord) -> tuple[str, ...]:
        """Returns the accepted answers of a row; none where the cell holds something else."""
        cell = row.get(self.columns["answer"])
        parts = cell if isinstance(cell, list) else [cell]
        answers: list[Any] = [part.get("answer") if isinstance(part, dict) else part for part in parts]
        try:
            if self.classes:
                answers = [self.classes[answer] if answer >= 0 else None for answer in answers]  # -1 where it is hidden
            gold = tuple(map(gold_text, answers))
        except (TypeError, IndexError):
            return ()
        return gold if all(map(str.strip, gold)) else ()


def open_hub_table(address: str, split: str | None = None, columns: HubColumns | None = None) -> Split:
    """Opens a table of questions on the hub, and reads its first row.

    Args:
        address: ``hf://owner/name``, with ``@revision`` where it is not the newest.
        split: ``split`` or ``configuration/split``; None is the first of :data:`SPLITS`, or the only one.
        columns: Where pictures, questions and answers are.

    Raises:
        InputError: it is no address, or a row lacks something.
        SetupError: there is no such table, or no way to it.
        UnknownNameError: there is no such split or column.
    """
    index = fetch_index(address)
    known = json.loads(index.read_text(encoding="utf-8"))
    name, commit = known["repository"], known["commit"]
    tables = list_tables(known)
    if not tables:
        hint = f"Give hf://{name}@refs/convert/parquet, where the hub keeps copies of most data sets."
        raise SetupError(f"{name} has no tables in the format Parquet.", hint=hint)
    place = _choose_split(name, tables, split)
    classes = column_classes(known, tables[place][0])
    chosen = _choose_columns(f"{name}, {place}", list(classes), columns or HubColumns())
    table = _Table(
        f"{name}, {place},", known, tables[place], index.parent / commit / "pictures", chosen, classes[chosen["answer"]]
    )
    if next(table.read(), None) is None:
        raise InputError(f"{name} has no rows in {place}.", hint="Give another --split.")
    note = f"{name} at {commit[:12]}, split {place}: files are fetched on demand"
    return Split(name, place, "", (Located(index),), table.read, (note,))


def _choose_split(name: str, tables: dict[str, list[str]], split: str | None) -> str:
    for wanted in SPLITS if split is None else (split,):
        matches = [wanted] if wanted in tables else [table for table in tables if table.endswith(f"/{wanted}")]
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise InputError(f"{name} has several tables {wanted!r}.", hint=f"Give --split: {', '.join(matches)}.")
    if split is None and len(tables) == 1:
        return next(iter(tables))
    raise UnknownNameError.of(f"split of {name}", split or SPLITS[0], tables)


def _choose_columns(name: str, there: list[str], asked: HubColumns) -> dict[str, str]:
    usual = {"image": ("image", "images"), "question": ("question",), "answer": ("answer", "answers")}
    chosen = {"id": next((column for column in _IDS if column in there), "")}
    for role, names in usual.items():
        column = getattr(asked, role) or next((name for name in names if name in there), names[0])
        if column not in there:
            hint = f"{nearest(column, there)} Give --{role}: {', '.join(there)}."
            raise UnknownNameError(f"{name}, has no column {column!r}.", hint=hint.strip())
        chosen[role] = column
    return chosen
