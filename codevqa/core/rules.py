"""Rules about pictures, and what follows from a table of answers: each picture passes, fails, or is to be looked at."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from math import floor
from pathlib import Path
from typing import Any, Literal, TypeAlias

from .errors import InputError, nearest
from .input_files import parse_toml, read_text
from .table import Cell, Column, Table, Value

Side: TypeAlias = Literal["pass", "fail", "look", "skip"]
"""``look``: a person should; ``skip``: the rule is not about this picture."""
MOST_RULES = 100
SURE = 0.9
"""Chance from which an answer is taken for sure, unless a rule says otherwise."""
_ALLOW = re.compile(r"(\d+(?:\.\d+)?) ?%")
_BOUND = re.compile(r"(>=|<=|>|<|=)? ?(-?\d+(?:\.\d+)?)|(at least|at most|exactly) (\d+)", re.I)
_RANGE = re.compile(r"(\d+) ?(?:-|to|\.\.) ?(\d+)")
_OPERATORS: Mapping[str, Callable[[Any, Any], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "=": operator.eq,
    "at least": operator.ge,
    "at most": operator.le,
    "exactly": operator.eq,
}


@dataclass(frozen=True)
class Rule:
    """What must hold of each picture, or of all of them together."""

    name: str
    ask: str
    """The question; it may end in its choices, as a column's."""
    want: tuple[str, ...] = ()
    """Answers that pass; or one bound of a number, such as ``>= 2`` or ``1-3``."""
    where: str = ""
    """A yes/no question: the rule is only about pictures of which it is yes. Empty is all."""
    allow: float = 0.0
    """Failures that are allowed: a share of the pictures below 1 with :attr:`share`, else a number."""
    share: bool = False
    sure: float = SURE
    """Chance below which a picture is to be looked at."""
    about: Literal["picture", "folder"] = "picture"
    """``folder`` asks about all pictures as one set."""
    each: str = ""
    """A bound of how many pictures there must be of each answer, such as ``3``: it is about all of them together."""

    @property
    def column(self) -> Column:
        """Its question as a column."""
        return Column.parse(self.name, self.ask)

    @property
    def condition(self) -> Column | None:
        """The question of :attr:`where` as a column."""
        return Column.parse(f"{self.name}, where", self.where) if self.where else None

    def passes(self, value: Value) -> bool:
        """Whether an answer is what is wanted."""
        bound = read_bound(self.want[0]) if len(self.want) == 1 else None
        if bound is not None and isinstance(value, int | float):
            return bound(value)
        return str(value).casefold() in {want.casefold() for want in self.want}


@dataclass(frozen=True)
class PictureVerdict:
    """What a rule says of one picture."""

    picture: str
    side: Side
    cell: Cell
    why: str = ""
    """One line, where it is to be looked at."""
    where: bool = False
    """Whether the cell answers :attr:`Rule.where`."""


@dataclass(frozen=True)
class Verdict:
    """What came of a rule."""

    rule: Rule
    side: Literal["pass", "fail", "look"]
    pictures: tuple[PictureVerdict, ...]
    program: str = ""
    summary: str = ""
    """What was counted, in words."""

    def of(self, side: Side) -> list[PictureVerdict]:
        """Returns the pictures that fell on a side."""
        return [picture for picture in self.pictures if picture.side == side]


def read_rules(file: Path) -> tuple[Rule, ...]:
    """Returns the rules of a TOML file, each a ``[[rule]]``.

    Raises:
        InputError: it cannot be read; a rule has an unknown key, a value that it cannot have, or another's name.
    """
    tables = parse_toml(read_text(file), str(file))
    if stray := next((name for name in tables if name != "rule"), None):
        raise InputError(f"{file}: there is no key {stray!r}.", hint="Write each rule below [[rule]].")
    entries = tables.get("rule")
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, dict) for entry in entries):
        raise InputError(f"{file} has no rules.", hint="Write each below [[rule]], with name, ask and want.")
    if len(entries) > MOST_RULES:
        raise InputError(f"{file} has {len(entries)} rules.", hint=f"The limit is {MOST_RULES}: split it.")
    rules = tuple(_read_rule(f"{file}, rule {number}", entry) for number, entry in enumerate(entries, 1))
    names = [column.name.casefold() for rule in rules for column in (rule.column, rule.condition) if column]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise InputError(f"{file}: two rules are called {twice!r}.", hint="Give each a name of its own.")
    return rules


def _read_rule(where: str, entry: Mapping[str, Any]) -> Rule:
    known = [field.name for field in fields(Rule) if field.name != "share"]
    if stray := next((name for name in entry if name not in known), None):
        raise InputError(f"{where}: there is no key {stray!r}.", hint=nearest(stray, known) or f"There are: {known}.")
    texts = {name: entry.get(name, "") for name in ("name", "ask", "where", "about", "each")}
    if isinstance(texts["each"], int | float) and not isinstance(texts["each"], bool):
        texts["each"] = str(texts["each"])
    if wrong := next((name for name, text in texts.items() if not isinstance(text, str)), None):
        raise InputError(f"{where}: {wrong} must be a text.")
    if not texts["name"].strip() or not texts["ask"].strip():
        raise InputError(f"{where} has no name, or asks nothing.", hint='Write name = "helmets" and ask = "...".')
    name = " ".join(texts["name"].split())
    where = f"{where} ({name})"
    sure = entry.get("sure", SURE)
    if isinstance(sure, bool) or not isinstance(sure, int | float) or not 0 <= sure <= 1:
        raise InputError(f"{where}: sure must lie from 0 to 1, not {sure!r}.")
    about = texts["about"] or "picture"
    if about not in ("picture", "folder"):
        raise InputError(f"{where}: about is picture or folder, not {about!r}.")
    allow, share = _read_allowance(where, entry.get("allow", 0))
    rule = Rule(
        name,
        " ".join(texts["ask"].split()),
        _read_wants(where, entry.get("want")),
        " ".join(texts["where"].split()),
        allow,
        share,
        float(sure),
        about,  # type: ignore[arg-type]
        texts["each"].strip(),
    )
    _check_rule(where, rule)
    return rule


def _check_rule(where: str, rule: Rule) -> None:
    """Refuses what a rule cannot mean."""
    try:
        column = rule.column
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    if rule.condition is not None and rule.condition.kind != "yes_no":
        raise InputError(f"{where}: where needs a yes/no question, not {rule.where!r}.")
    if rule.about == "folder" and (rule.where or rule.each or rule.allow):
        raise InputError(f"{where}: a rule about the folder has no where, each or allow.", hint="Take them out.")
    if rule.each:
        if rule.want or rule.allow:
            raise InputError(f"{where}: a rule with each has no want and no allow.", hint="Take them out.")
        if read_bound(rule.each) is None:
            raise InputError(f"{where}: each must be a number of pictures, not {rule.each!r}.", hint='Such as "3".')
        return
    if not rule.want:
        raise InputError(f"{where} wants nothing.", hint='Write want = "yes".')
    for want in rule.want:
        number = len(rule.want) == 1 and read_bound(want) is not None
        fits = {
            "yes_no": want.casefold() in ("yes", "no"),
            "number": number or want.lstrip("-").isdecimal(),
            "choice": not column.choices or want.casefold() in {choice.casefold() for choice in column.choices},
            "open": True,
        }[column.kind]
        if not fits:
            kind = {"yes_no": "yes or no", "number": "a number"}.get(column.kind, f"one of {', '.join(column.choices)}")
            raise InputError(f"{where}: the answer to {rule.ask!r:.80} is {kind}, so want cannot be {want!r}.")


def _read_wants(where: str, want: object) -> tuple[str, ...]:
    values = want if isinstance(want, list) else [] if want is None else [want]
    if not all(isinstance(value, str | int | float) for value in values):
        raise InputError(f"{where}: want must be an answer, or a list of answers.")
    return tuple(("no", "yes")[value] if isinstance(value, bool) else str(value).strip() for value in values)


def _read_allowance(where: str, allow: object) -> tuple[float, bool]:
    share = _ALLOW.fullmatch(allow.strip()) if isinstance(allow, str) else None
    if share is not None and float(share[1]) <= 100:
        return float(share[1]) / 100, True
    if isinstance(allow, str) and allow.strip().isdecimal():
        return float(allow), False
    if isinstance(allow, int) and not isinstance(allow, bool) and allow >= 0:
        return float(allow), False
    raise InputError(f'{where}: allow must be a number of pictures, or such as "2 %", not {allow!r}.')


def read_bound(text: str) -> Callable[[float], bool] | None:
    """Returns what a text such as ``>= 2``, ``at most 3``, ``1-3`` or ``2`` demands of a number; None of no such.

    >>> read_bound(">= 2")(2), read_bound("1-3")(4), read_bound("red")
    (True, False, None)
    """
    span = _RANGE.fullmatch(text.strip())
    if span is not None:
        low, high = float(span[1]), float(span[2])
        if low > high:
            return None
        return lambda value: low <= value <= high
    bound = _BOUND.fullmatch(text.strip())
    if bound is None:
        return None
    compare, limit = _OPERATORS[(bound[1] or bound[3] or "=").lower()], float(bound[2] or bound[4])
    return lambda value: compare(value, limit)


# -- judging -----------------------------------------------------------------------------------------------------------


def judge_picture(rule: Rule, picture: str, cell: Cell | None, condition: Cell | None) -> PictureVerdict:
    """Returns what a rule says of one picture.

    Args:
        rule: the rule.
        picture: its path.
        cell: the answer; None where it was not asked.
        condition: the answer to :attr:`Rule.where`; None where there is none.
    """
    if condition is not None:
        if condition.value == "no" and _sure(condition, rule):
            return PictureVerdict(picture, "skip", condition, where=True)
        if condition.value != "yes" or not _sure(condition, rule):
            return PictureVerdict(picture, "look", condition, _doubt(condition, rule, rule.where), where=True)
    if cell is None or cell.value is None or not _sure(cell, rule):
        doubtful = Cell(None, wrong="It was not reached.") if cell is None else cell
        return PictureVerdict(picture, "look", doubtful, _doubt(doubtful, rule, rule.column.question))
    if rule.each:
        return PictureVerdict(picture, "pass", cell)
    return PictureVerdict(picture, "pass" if rule.passes(cell.value) else "fail", cell)


def judge(rule: Rule, pictures: Sequence[PictureVerdict], program: str) -> Verdict:
    """Returns what came of a rule about pictures."""
    if rule.each:
        return _judge_groups(rule, pictures, program)
    asked = [picture for picture in pictures if picture.side != "skip"]
    failing, doubtful = (sum(picture.side == side for picture in asked) for side in ("fail", "look"))
    allowed = floor(rule.allow * len(asked) + 1e-9) if rule.share else int(rule.allow)
    side: Literal["pass", "fail", "look"] = (
        "fail" if failing > allowed else "look" if failing + doubtful > allowed else "pass"
    )
    of = f"{failing:,} of {len(asked):,} fail"
    bound = f" ({allowed:,} allowed)" if rule.allow else ""
    look = f", {doubtful:,} to look at" if doubtful else ""
    none = f": no picture is a yes to {rule.where!r}" if rule.where and not asked else ""
    return Verdict(rule, side, tuple(pictures), program, f"{of}{bound}{look}{none}")


def _judge_groups(rule: Rule, pictures: Sequence[PictureVerdict], program: str) -> Verdict:
    """Judges how many pictures there are of each answer: those of a wrong number fail."""
    bound = read_bound(rule.each)
    assert bound is not None
    counts: dict[Value, int] = dict.fromkeys(rule.column.choices, 0)
    for picture in pictures:
        if picture.side == "pass":
            counts[picture.cell.value] = counts.get(picture.cell.value, 0) + 1
    wrong = {value for value, count in counts.items() if not bound(count)}
    doubtful = sum(picture.side == "look" for picture in pictures)
    judged = [
        PictureVerdict(picture.picture, "fail", picture.cell)
        if picture.side == "pass" and picture.cell.value in wrong
        else picture
        for picture in pictures
    ]
    lost = any(not any(bound(count + more) for more in range(doubtful + 1)) for count in counts.values())
    side: Literal["pass", "fail", "look"] = "fail" if lost else "look" if doubtful else "pass"
    words = ", ".join(f"{value} {count:,}" for value, count in sorted(counts.items(), key=lambda pair: str(pair[0])))
    look = f"; {doubtful:,} to look at" if doubtful else ""
    return Verdict(rule, side, tuple(judged), program, f"{words or 'no answers'}; {rule.each} of each wanted{look}")


def _sure(cell: Cell, rule: Rule) -> bool:
    return cell.chance is not None and cell.chance >= rule.sure and not cell.wrong


def _doubt(cell: Cell, rule: Rule, question: str) -> str:
    if cell.wrong:
        return cell.wrong
    if cell.value is None:
        return f"No answer to: {question}"
    chance = "not known" if cell.chance is None else f"{cell.chance:.0%}, below {rule.sure:.0%}"
    return f"{question} {cell.value}: the chance is {chance}"


def exit_status(verdicts: Sequence[Verdict]) -> int:
    """Returns 0 where all rules pass, 1 where one fails, 2 where none does and one is to be looked at."""
    sides = {verdict.side for verdict in verdicts}
    return 1 if "fail" in sides else 2 if "look" in sides else 0


def changed_sides(before: Table, after: Table, rule: Rule) -> tuple[list[str], int, int]:
    """Returns the pictures that change sides where a rule's program changes, and how many begin and cease to pass."""
    sides = []
    for table in (before, after):
        cells = {row.picture: row.cells.get(rule.name) for row in table.pictures}
        sides.append({name: cell is not None and rule.passes(cell.value) for name, cell in cells.items()})
    old, new = sides
    changed = [name for name in new if name in old and old[name] != new[name]]
    return changed, sum(new[name] for name in changed), sum(old[name] for name in changed)
