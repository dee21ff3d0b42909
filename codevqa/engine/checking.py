"""Rules on a collection: each question's program is written once, locked, and run on every picture."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..collections.collection import Collection, picture_file
from ..core.answer import Answer
from ..core.answer_rows import confirmed, set_cell
from ..core.errors import InputError
from ..core.images import Picture
from ..core.input_files import parse_json, read_text
from ..core.rules import PictureVerdict, Rule, Verdict, judge, judge_picture
from ..core.table import Cell, Column, Table, written_whole
from ..core.trace import Form, Program
from .request import Request
from .tables import NO_BUDGET, Budget, Progress, TableRun, is_doubted

if TYPE_CHECKING:
    from .codevqa import CodeVQA

_FORMAT = 1


@dataclass(frozen=True)
class Lock:
    """What rules mean: the program of each question, and the models that it was written by and runs on."""

    models: Mapping[str, str]
    """Model ids by role."""
    prompts: str
    """What the writer was shown: the names of the prompt sets."""
    questions: Mapping[str, str] = field(default_factory=dict)
    """By the name of a column."""
    programs: Mapping[str, str] = field(default_factory=dict)
    """By the name of a column; empty where none could be written, and each picture is asked for itself."""

    @classmethod
    def read(cls, file: Path) -> Lock | None:
        """Returns the lock in a file, or None where there is none.

        Raises:
            InputError: it is damaged, or of a later version.
        """
        if not file.exists():
            return None
        hint = "Write it again with --update."
        try:
            try:
                data = parse_json(read_text(file), str(file))
            except InputError as error:
                raise InputError(error.message, hint=hint) from None
            if data["codevqa"] != _FORMAT:
                raise InputError(f"{file} was written by another version of codevqa.", hint=hint)
            columns = {
                str(name): (str(entry["question"]), str(entry["program"])) for name, entry in data["rules"].items()
            }
            models = {str(role): str(name) for role, name in data["models"].items()}
            return cls(
                models,
                str(data["prompts"]),
                {name: question for name, (question, _) in columns.items()},
                {name: program for name, (_, program) in columns.items()},
            )
        except (AttributeError, KeyError, TypeError) as error:
            raise InputError(f"{file} is damaged: {type(error).__name__} {error}.", hint=hint) from None

    def save(self, file: Path) -> None:
        """Writes it.

        Raises:
            SetupError: the file cannot be written.
        """
        rules = {
            name: {"question": self.questions[name], "program": program} for name, program in self.programs.items()
        }
        data = {"codevqa": _FORMAT, "models": dict(self.models), "prompts": self.prompts, "rules": rules}
        with written_whole(file) as opened:
            json.dump(data, opened, ensure_ascii=False, indent=1)
            opened.write("\n")

    def check(self, other: Lock, file: Path) -> None:
        """Refuses a lock that was written with other models that look at pictures or read about them.

        Raises:
            InputError: it was.
        """
        mine, theirs = (
            {role: name for role, name in lock.models.items() if role != "writer"} for lock in (self, other)
        )
        if role := next((role for role in {**mine, **theirs} if mine.get(role) != theirs.get(role)), None):
            raise InputError(
                f"{file} is of another model: its {role} is {mine.get(role, 'none')}, not {theirs.get(role, 'none')}.",
                hint="Choose the models it was written with, or write it again with --update.",
            )


@dataclass(frozen=True)
class Checked:
    """What came of rules on a collection."""

    verdicts: tuple[Verdict, ...]
    lock: Lock
    """With the programs that were run."""
    tables: Mapping[str, Table]
    """The answers that a rule rests on, by its name; none of a rule about the folder."""
    left: int
    """Pictures that were not reached."""


class RuleCheck:
    """Rules that are checked on a collection.

    Args:
        rules: the rules.
        collection: the pictures.
        lock: what the rules mean as far as that is known; its models are those that answer now.
        identity: names what decides the answers; empty keeps nothing on disk.
        open_engine: returns what answers; called when something is to be asked.
        fresh: whether all is asked anew.
        rewrite: whether programs are written anew that the lock does not hold.
        reads: whether the models read captions, of which others can be read.
    """

    def __init__(
        self,
        rules: Sequence[Rule],
        collection: Collection,
        lock: Lock,
        identity: str,
        open_engine: Callable[[], CodeVQA],
        *,
        fresh: bool = False,
        rewrite: bool = False,
        reads: bool = True,
    ) -> None:
        self._reads = reads
        self._rules, self._collection, self._lock = rules, collection, lock
        self._identity, self._open, self._fresh, self._rewrite = identity, open_engine, fresh, rewrite
        self._programs: dict[str, str] = dict(lock.programs)
        self._questions: dict[str, str] = {}
        self._left = 0
        self._whole_budget, self._ends = NO_BUDGET, math.inf

    def run(self, budget: Budget = NO_BUDGET, progress: Progress | None = None) -> Checked:
        """Asks what is not known, and judges.

        Raises:
            ServerError: a server is down. What was finished is kept.
        """
        self._whole_budget = budget
        self._ends = math.inf if budget.seconds is None else time.monotonic() + budget.seconds
        for rule in self._rules:
            for column in filter(None, (rule.column, rule.condition)):
                if self._lock.questions.get(column.name, column.question) != column.question:
                    self._programs.pop(column.name, None)  # it answers another question: it is written anew
                self._questions[column.name] = column.question
        pictures = self._collection.open()
        conditions = [rule.condition for rule in self._rules if rule.condition is not None]
        where = self._fill(pictures, conditions, progress) if conditions else None
        plain = [rule for rule in self._rules if rule.about == "picture" and not rule.where]
        whole = self._fill(pictures, [rule.column for rule in plain], progress) if plain else None
        verdicts, tables = [], {}
        for rule in self._rules:
            if rule.about == "folder":
                verdicts.append(self._judge_folder(rule))
                continue
            table = whole
            if rule.condition is not None and where is not None:
                shown = zip(pictures, where.pictures, strict=True)
                subset = [picture for picture, row in shown if _is_yes(row.cells.get(rule.condition.name))]
                table = self._fill(subset, [rule.column], progress) if subset else None
            verdicts.append(self._judge(rule, table, where))
            tables[rule.name] = table or Table((), ())
        lock = Lock(
            self._lock.models,
            self._lock.prompts,
            self._questions,
            {name: program for name, program in self._programs.items() if name in self._questions},
        )
        return Checked(tuple(verdicts), lock, tables, self._left)

    def _budget(self) -> Budget:
        """Returns what is left of the budget: several tables share it."""
        left = None if self._ends == math.inf else self._ends - time.monotonic()
        return replace(self._whole_budget, seconds=left)

    def _fill(self, pictures: Sequence[Picture], columns: Sequence[Column], progress: Progress | None) -> Table:
        how = {"fresh": self._fresh, "rewrite": self._rewrite}
        run = TableRun(pictures, columns, self._identity, programs=self._programs, **how)
        if run.missing:
            run.run(self._open(), self._budget(), progress)
        self._programs |= run.programs
        self._left = max(self._left, run.spent.total - run.spent.rows)
        table = run.table(picture_file)
        for column in columns:
            table = self._look_again(pictures, table, column, progress)
        return table

    def _look_again(
        self, pictures: Sequence[Picture], table: Table, column: Column, progress: Progress | None
    ) -> Table:
        """Asks again where a person would have to look, and where a picture fails: a false alarm costs most."""
        rules = [rule for rule in self._rules if column in (rule.column, rule.condition)]
        sure = min(rule.sure for rule in rules)
        fails = [rule.passes for rule in rules if column == rule.column and not rule.each]
        subset = [
            picture
            for picture, row in zip(pictures, table.pictures, strict=True)
            if (cell := row.cells.get(column.name)) is not None
            and cell.value is not None
            and not cell.wrong
            and cell.chance is not None
            and cell.chance > 0.5
            and (cell.chance < sure or not all(passes(cell.value) for passes in fails))
        ]
        if not subset or not self._reads:
            return table
        looks: dict[str, list[Cell]] = {}
        for again in (1, 2) if column.kind == "number" else (1,):
            run = TableRun(subset, [column], self._identity, programs=self._programs, fresh=self._fresh, again=again)
            if run.missing:
                run.run(self._open(), self._budget(), progress)
            for row in run.table(picture_file).pictures:
                looks.setdefault(row.picture, []).append(row.cells.get(column.name, Cell(None)))
        rows = [
            replace(row, cells={**row.cells, column.name: confirmed(row.cells[column.name], looks[row.picture])})
            if row.picture in looks
            else row
            for row in table.pictures
        ]
        return replace(table, pictures=tuple(rows))

    def _judge(self, rule: Rule, table: Table | None, where: Table | None) -> Verdict:
        cells = {row.picture: row.cells.get(rule.name) for row in table.pictures} if table is not None else {}
        conditions = {}
        if rule.condition is not None and where is not None:
            conditions = {row.picture: row.cells.get(rule.condition.name, Cell(None)) for row in where.pictures}
        names = [picture_file(picture) for picture in self._collection.open()]
        judged = [judge_picture(rule, name, cells.get(name), conditions.get(name)) for name in names]
        return judge(rule, judged, self._programs.get(rule.name, ""))

    def _judge_folder(self, rule: Rule) -> Verdict:
        """Judges a rule about all pictures as one set."""
        vqa, source = self._open(), self._programs.get(rule.name)
        question = rule.column.question
        answer: Answer
        if source:
            answer = vqa.run(self._collection, Program(source, question, "set"), question=question, form="set")
        else:
            answer = vqa.ask(self._collection, question, form="set")
            written = answer.program is not None and not answer.fallback and not is_doubted(answer)
            source = answer.program.source if written and answer.program is not None else ""
        self._programs[rule.name] = source
        cell = set_cell(answer, rule.column, rule.passes)
        judged = judge_picture(rule, "the folder", cell, None)
        side = "look" if judged.side == "skip" else judged.side
        shown = "no answer" if cell.value is None else str(cell.value)
        why = f"; {judged.why}" if judged.why else ""
        return Verdict(rule, side, (judged,), source, f"{shown}, wanted {' or '.join(rule.want)}{why}")


def evidence_of(vqa: CodeVQA, collection: Collection, checked: Checked, most: int) -> dict[tuple[str, str], Answer]:
    """Returns the answers behind the pictures that fail or are to be looked at, by rule and picture.

    They are asked again with the same programs: what the models computed is remembered.

    Args:
        vqa: answers.
        collection: the pictures.
        checked: what came of the rules.
        most: answers at most, shared among the rules.
    """
    by_name = {picture_file(picture): picture for picture in collection.open()}
    doubtful = [verdict for verdict in checked.verdicts if verdict.of("fail") or verdict.of("look")]
    asked: list[tuple[tuple[str, str], Request]] = []
    for verdict in doubtful:
        rule = verdict.rule
        form: Form = "set" if rule.about == "folder" else "image"
        for shown in picture_verdicts(verdict, max(1, most // len(doubtful))):
            pictures = collection.open() if form == "set" else (by_name[shown.picture],)
            column = rule.condition if shown.where and rule.condition is not None else rule.column
            source = checked.lock.programs.get(column.name, "")
            program = Program(source, column.question, form, completion=source) if source else None
            request = Request(pictures, column.question, form, program=program, own=False, many=form == "image")
            asked.append(((rule.name, shown.picture), request))
    requests: list[Any] = [request for _, request in asked]
    return {asked[place][0]: answer for place, answer in vqa.ask_stream(requests)}


def _is_yes(cell: Cell | None) -> bool:
    return cell is not None and cell.value == "yes"


def picture_verdicts(verdict: Verdict, most: int) -> list[PictureVerdict]:
    """Returns the pictures that fail, and then those to be looked at, at most so many."""
    return [*verdict.of("fail"), *verdict.of("look")][:most]
