"""A table: each question's program is written once, and run on each picture. What is finished is kept at once."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol, TypeAlias

from ..collections.collection import Pictures, StoredPicture, freeze_pictures
from ..collections.disk_memory import DiskMemory, StoredCell
from ..core.answer import Answer
from ..core.answer_rows import answer_cell
from ..core.errors import ImageError, InputError, ServerError
from ..core.images import Picture, load_pictures
from ..core.settings import Settings
from ..core.table import MOST_COLUMNS, Cell, Column, Row, Table
from ..core.trace import Form, Program
from .request import Request


class Answerer(Protocol):
    """What answers a table: a :class:`codevqa.CodeVQA`."""

    @property
    def settings(self) -> Settings:
        """Every number of the method."""
        ...

    @property
    def model_names(self) -> dict[str, str]:
        """Model ids by role."""
        ...

    def ask(self, images: Pictures, question: str, *, form: Form) -> Answer:
        """Answers a question about one picture."""
        ...

    def ask_stream(self, questions: Iterable[Any]) -> Generator[tuple[int, Answer]]:
        """Answers many questions, each when it is ready."""
        ...


Questions: TypeAlias = "Mapping[str, str | Program] | Sequence[Column]"
"""Questions by the names of their columns. A question may end in its choices; a program answers in its place."""
_TRIED = 5
"""Pictures with which a program is written at most: a model may decline the first."""
_ASKED_ANEW = frozenset(("InternalError", "EngineClosedError", "ServerError", "ModelError", "ImageError"))
"""Errors that another run may not meet: such a cell is not kept."""


@dataclass(frozen=True)
class Budget:
    """What a table may cost. No further picture is begun beyond it; what is finished is kept.

    Calls and tokens that were remembered count as if they were made anew.
    """

    seconds: float | None = None
    calls: int | None = None
    """Calls of models."""
    money: float | None = None
    """In the currency of ``price``."""
    price: tuple[float, float] = (0.0, 0.0)
    """Of a million tokens that are read, and that are written."""

    def over(self, spent: Spent) -> bool:
        """Whether it is used up."""
        pairs = ((self.seconds, spent.seconds), (self.calls, spent.calls), (self.money, spent.money(self.price)))
        return any(bound is not None and used >= bound for bound, used in pairs)


NO_BUDGET = Budget()
"""All pictures, whatever they cost."""


@dataclass
class Spent:
    """How far a table is, and what it took until now."""

    rows: int = 0
    """Pictures that are finished."""
    total: int = 0
    """Pictures in all."""
    new: int = 0
    """Pictures that were finished now, and not before."""
    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    started: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self.started

    def money(self, price: tuple[float, float]) -> float:
        """Returns what the tokens cost, at a price for a million that are read, and written."""
        return (self.prompt_tokens * price[0] + self.completion_tokens * price[1]) / 1e6


Progress: TypeAlias = Callable[[Spent], object]


def parse_questions(questions: Questions) -> tuple[Column, ...]:
    """Returns the columns of questions by name.

    Raises:
        InputError: there are none or too many, two have one name, or one is no question.
    """
    if isinstance(questions, Mapping):
        columns = [_column(name, asked) for name, asked in questions.items()]
    else:
        columns = list(questions) if isinstance(questions, Iterable) else []
    if not columns or not all(isinstance(column, Column) for column in columns):
        hint = 'Pictures come first, then questions by name: {"dogs": "How many dogs are there?"}.'
        raise InputError("A table needs questions.", hint=hint)
    if len(columns) > MOST_COLUMNS:
        raise InputError(f"A table of {len(columns)} questions is too wide.", hint=f"The limit is {MOST_COLUMNS}.")
    names = [column.name.casefold() for column in columns]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise InputError(f"Two columns are called {twice!r}.", hint="Give each a name of its own.")
    return tuple(columns)


def _column(name: object, asked: object) -> Column:
    if isinstance(name, str) and isinstance(asked, Program):
        return Column.parse(name, asked.question or name, asked.source)
    if isinstance(name, str) and isinstance(asked, str):
        return Column.parse(name, asked)
    raise InputError(f"The column {name!r:.40} has no question.", hint="Give a text, or a Program.")


class TableRun:
    """A table that is being answered: what is known of it, and what is still to be asked.

    Args:
        pictures: a collection, whose answers are kept on disk, or any pictures, whose answers are not.
        columns: the questions.
        identity: names what decides the answers (:func:`codevqa.presets.identity.identity_of`); empty where that is
            not known, and then nothing is kept on disk.
        programs: programs that are known already, by column; they were written by a model.
        fresh: whether all is asked anew.
        rewrite: whether programs are written anew.
        again: which further look this is, at other captions and without image-text matching; 0 is the first look.

    Raises:
        InputError: the collection cannot be opened.
    """

    def __init__(
        self,
        pictures: Pictures,
        columns: Sequence[Column],
        identity: str,
        *,
        programs: Mapping[str, str] = {},
        fresh: bool = False,
        rewrite: bool = False,
        again: int = 0,
    ) -> None:
        self.columns = tuple(columns)
        sources = freeze_pictures(pictures)
        self.pictures = load_pictures(sources)
        self._paths = {
            place: os.path.abspath(os.fsdecode(source))  # noqa: PTH100 - any name may come
            for place, source in enumerate(sources)
            if isinstance(source, str | os.PathLike)
        }
        """Where pictures lie that are no collection's, by their places."""
        self._copies = Counter(picture.key for picture in self.pictures)
        first = self.pictures[0]
        self._memory: DiskMemory | None = first.memory if isinstance(first, StoredPicture) and identity else None
        self._identity, self._fresh, self._rewrite, self._again = identity, fresh, rewrite, again
        self.programs: dict[str, str] = {}
        """By column; empty where each picture is asked for itself."""
        self._cells: dict[str, dict[str, StoredCell]] = {column.name: {} for column in self.columns}
        """By column and the picture's key."""
        for column in self.columns:
            program = column.program or programs.get(column.name)
            if program is None:
                program = self._known_program(column)
            if program is not None:
                self._set_program(column, program)
        self.spent = Spent(total=len(self.pictures))
        self._count_rows()

    # -- what is known -------------------------------------------------------------------------------------------------

    def _asked(self, *about: object) -> bytes:
        return hashlib.sha256(json.dumps([self._identity, *about]).encode()).digest()

    def _known_program(self, column: Column) -> str | None:
        if self._memory is None or self._fresh or self._rewrite:
            return None
        return self._memory.program(self._asked("program", column.question))

    def _set_program(self, column: Column, program: str) -> None:
        self.programs[column.name] = program
        if self._memory is not None and not self._fresh:
            self._cells[column.name] = self._memory.cells(self._cell_of(column))

    def _cell_of(self, column: Column) -> bytes:
        look = f"cell, look {self._again}" if self._again else "cell"
        return self._asked(look, column.question, self.programs[column.name])

    def _count_rows(self) -> None:
        self._rows_left = {
            picture.key: sum(picture.key not in self._cells[column.name] for column in self.columns)
            for picture in self.pictures
        }
        self.spent.rows = sum(count for key, count in self._copies.items() if not self._rows_left[key])

    @property
    def missing(self) -> bool:
        """Whether anything is still to be asked."""
        return self.spent.rows < self.spent.total

    # -- asking --------------------------------------------------------------------------------------------------------

    def run(self, vqa: Answerer, budget: Budget = NO_BUDGET, progress: Progress | None = None) -> None:
        """Asks what is missing, picture by picture.

        Args:
            vqa: answers it.
            budget: no further picture is begun beyond it.
            progress: told of each finished cell, in this thread; what it raises ends the run.

        Raises:
            ServerError: a server is down. What was finished is kept, as with any error and any interrupt.
        """
        self.spent.started = time.monotonic()
        for column in self.columns:
            if column.name not in self.programs:
                self._write_program(vqa, column)
        self._count_rows()
        places: list[tuple[Column, Picture]] = []
        seed = vqa.settings.seed + self._again if self._again else None
        answers = vqa.ask_stream(self._requests(budget, places, seed))
        with closing(answers):
            for place, answer in answers:
                column, picture = places[place]
                self._take(column, picture, answer)
                if progress is not None:
                    progress(self.spent)

    def _write_program(self, vqa: Answerer, column: Column) -> None:
        """Has the program of a column written, with the first picture about which one is."""
        source = ""
        for picture in self.pictures[:_TRIED]:
            try:
                answer = vqa.ask(picture, column.question, form="image")
            except ImageError:  # its cell will say so
                continue
            self._spend(answer)
            if answer.program is not None and not answer.fallback and not answer.declined:
                # One that is doubted is no program for others: each picture is asked for itself, and says why.
                source = "" if is_doubted(answer) else answer.program.source
                break
        self._set_program(column, source)
        if self._memory is not None:
            now, model = datetime.now(UTC).isoformat(timespec="seconds"), ", ".join(_names(vqa))
            asked = self._asked("program", column.question)
            self._memory.add_program(asked, self._cell_of(column), column.question, model, now, source)

    def _requests(self, budget: Budget, places: list[tuple[Column, Picture]], seed: int | None) -> Iterator[Any]:
        """Yields what is missing, and notes what it is about."""
        begun: set[str] = set()
        for picture in self.pictures:
            if picture.key in begun:
                continue
            if budget.over(self.spent):
                return
            begun.add(picture.key)
            for column in self.columns:
                if picture.key in self._cells[column.name]:
                    continue
                source = self.programs[column.name]
                program = Program(source, column.question) if source else None
                places.append((column, picture))
                own, many = bool(column.program), not self._again
                yield Request((picture,), column.question, "image", seed=seed, program=program, own=own, many=many)

    def _take(self, column: Column, picture: Picture, answer: Answer) -> None:
        self._spend(answer)
        if answer.error is not None and answer.error.type == ServerError.__name__ and not answer.fallback:
            raise ServerError(answer.error.message, hint="What was answered is kept: run the same again.")
        cell = StoredCell(*answer_cell(answer))
        self._cells[column.name][picture.key] = cell
        self._rows_left[picture.key] -= 1
        if not self._rows_left[picture.key]:
            self.spent.rows += self._copies[picture.key]
            self.spent.new += self._copies[picture.key]
        kept = answer.error is None or answer.error.type not in _ASKED_ANEW
        if self._memory is not None and kept:
            self._memory.add_cells([(self._cell_of(column), picture.key, cell)])

    def _spend(self, answer: Answer) -> None:
        if answer.cost is not None:
            self.spent.calls += sum(answer.cost.calls.values())
            self.spent.prompt_tokens += answer.cost.prompt_tokens
            self.spent.completion_tokens += answer.cost.completion_tokens

    @property
    def model(self) -> str:
        """A name for what answers: it changes with models, settings and prompts."""
        return f"codevqa-{self._identity or 'own'}"

    # -- the result ----------------------------------------------------------------------------------------------------

    def table(self, path_of: Callable[[Picture], str] = lambda picture: picture.name) -> Table:
        """Returns what is answered until now."""
        rows = []
        for place, picture in enumerate(self.pictures):
            stored = {column: self._cells[column.name].get(picture.key) for column in self.columns}
            cells = {column.name: _read_cell(column, cell) for column, cell in stored.items() if cell is not None}
            rows.append(Row(self._paths.get(place) or path_of(picture), cells))
        return Table(self.columns, tuple(rows), dict(self.programs))


def is_doubted(answer: Answer) -> bool:
    """Whether the program of an answer does not depend on all that was asked, as far as random worlds tell."""
    return any(warning.kind == "unsure" for warning in answer.warnings)


def _read_cell(column: Column, stored: StoredCell) -> Cell:
    value, wrong = column.read(stored.value)
    return Cell(value, None if value is None else stored.chance, " ".join(filter(None, (stored.wrong or wrong,))))


def _names(vqa: Answerer) -> Iterable[str]:
    return dict.fromkeys(vqa.model_names.values())
