"""From answers to the rows of a table: an answer about one picture, and one about many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from .answer import Answer
from .answer_words import DONT_KNOW, whole_number
from .selection import AGREED, AGREED_NUMBER, COUNTED, HELD, MATCH, READ, Selection, logistic, match_probability
from .table import Cell, Column, Row, Value
from .trace import Call, ImageRef


def answer_cell(answer: Answer) -> tuple[str, float | None, str]:
    """Returns the text of an answer about one picture, its chance, and what is wrong with it."""
    wrong = [warning.message for warning in answer.warnings if warning.kind != "spelling"]
    if answer.error is not None:
        wrong.append(answer.error.message)
    if answer.in_parts:
        wrong.append(answer.in_parts)
    known = answer.text not in ("", DONT_KNOW)
    return answer.text, _chance(answer) if known else None, " ".join(wrong)


def confirmed(first: Cell, looks: Sequence[Cell]) -> Cell:
    """Returns a cell after further looks, of which all must say the same; its own chance cannot tell that."""
    if any(look.value != first.value for look in looks):
        return replace(first, chance=min(first.chance or 0.0, READ))
    read_alone = isinstance(first.value, int | float) and first.chance is not None and first.chance <= READ
    return replace(first, chance=max(first.chance or 0.0, AGREED_NUMBER if read_alone else AGREED))


def rows_of(answer: Answer, column: Column, paths: Sequence[str], of: str = "") -> list[Row]:
    """Returns what an answer about many pictures says of each.

    That is what its first selection says, or the value that it has for each picture, as a loop leaves them.

    Args:
        answer: the answer.
        column: what was asked.
        paths: of its pictures, in order.
        of: the set that they belong to.
    """
    if answer.selections:
        cells = _selection_cells(answer.selections[0])
    elif isinstance(answer.value, list) and len(answer.value) == len(paths):
        chances = _call_chances(answer)
        cells = {
            ImageRef(number): Cell(*_read(column, text, chances.get(number)))
            for number, text in enumerate(map(str, answer.value), 1)
        }
    else:
        cells = _single_cell(answer) if len(paths) == 1 else {}
    declined = {ref: warning.message for warning in answer.warnings for ref in warning.images}
    rows = []
    for number, path in enumerate(paths, 1):
        ref = ImageRef(number)
        cell = cells.get(ref)
        if ref in declined:
            cell = Cell(None, wrong=declined[ref])
        elif cell is None and answer.declined:
            cell = Cell(None, wrong=" ".join(warning.message for warning in answer.warnings))
        rows.append(Row(path, {} if cell is None else {column.name: cell}, of))
    return rows


def set_cell(answer: Answer, column: Column, holds: Callable[[Value], bool]) -> Cell:
    """Returns what an answer about all pictures says, as one cell.

    Of a number that was counted, its range tells how sure it is on which side of a bound it lies.

    Args:
        answer: the answer.
        column: what was asked.
        holds: whether a value is on one side or the other.
    """
    text, chance, wrong = answer_cell(answer)
    value, misread = column.read(text)
    counted = next((entry for entry in answer.selections if entry.count == value), None)
    if counted is not None:
        same = holds(counted.low) == holds(counted.high) == holds(value)
        chance = HELD if same else 0.5
        if counted.left or counted.unread:
            wrong = f"{wrong} Some pictures were not looked at.".strip()
    return Cell(value, chance if value is not None else None, wrong or misread)


def _read(column: Column, text: str, chance: float | None) -> tuple[str | int | float | None, float | None, str]:
    value, wrong = column.read(text)
    return value, chance if value is not None else None, wrong or ("" if text else "The models said nothing.")


def _selection_cells(selection: Selection) -> dict[ImageRef, Cell]:
    cells = {pick.image: Cell("yes", pick.chance) for pick in selection.picked}
    cells |= {pick.image: Cell("no", 1 - pick.chance) for pick in selection.others}
    return cells | {image: Cell(None, None, "It could not be read.") for image in selection.unread}


def _single_cell(answer: Answer) -> dict[ImageRef, Cell]:
    """Returns what was asked last of the only picture of a set, where that is answered by yes or no."""
    asked = [call for call in answer.trace.calls if call.name == "query" and call.value in ("yes", "no")]
    return {ImageRef(1): Cell(asked[-1].value, _call_chance(asked[-1]))} if asked and asked[-1].evidence else {}


def _call_chances(answer: Answer) -> dict[int, float]:
    """Returns how probable it is that the calls about each picture returned what is right, by its number."""
    chances: dict[int, float] = {}
    for call in answer.trace.calls:
        picture = call.arguments.get("img")
        if isinstance(picture, ImageRef) and call.error is None and call.evidence:
            chances[picture.index] = min(chances.get(picture.index, 1.0), _call_chance(call))
    return chances


def _chance(answer: Answer) -> float:
    """Returns how probable it is that an answer is right, by its weakest call. Without labels this is an order."""
    chances = [_call_chance(call) for call in answer.trace.calls if call.error is None and call.evidence]
    weakest = min(chances, default=READ)
    return weakest if answer.confidence is None else min(weakest, answer.confidence)


def _call_chance(call: Call) -> float:
    """Returns how probable it is that a call returned what is right: of its evidence the last counts."""
    last = call.evidence[-1]
    if last.kind == "itm" and last.scores:
        right = max(match_probability(last.scores), 0.5)
        return min(right, COUNTED) if whole_number(str(call.value)) else right
    if last.kind == "gradcam" and last.scores:  # whether the thing is there at all
        return logistic(MATCH[0] + MATCH[1] * last.scores[0])
    if last.kind == "eyes" and call.value in last.choices:
        return last.scores[last.choices.index(call.value)]
    return last.scores[0] if last.kind == "corrected" else READ
