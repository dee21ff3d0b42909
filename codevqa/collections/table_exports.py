"""Tables of answers about pictures as Label Studio imports them: tasks with predictions, and their configuration."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, Literal, TypeAlias
from urllib.parse import quote
from xml.etree import ElementTree

ColumnType: TypeAlias = Literal["yes_no", "number", "choice", "open"]
YES_NO = ("yes", "no")
_PICTURE = "image"
_CONTROLS: Mapping[str, tuple[str, str, str]] = {
    "yes_no": ("Choices", "choices", "choices"),
    "choice": ("Choices", "choices", "choices"),
    "number": ("Number", "number", "number"),
    "open": ("TextArea", "textarea", "text"),
}
"""By type of column: the tag of Label Studio, the type of its results, and the field of their values."""


def label_studio_tasks(
    rows: Sequence[Mapping[str, Any]],
    columns: Mapping[str, ColumnType],
    model: str,
    *,
    choices: Mapping[str, Sequence[str]] | None = None,
) -> list[dict[str, Any]]:
    """Returns a table as Label Studio's tasks. Values that a column's control cannot show are left out.

    Label Studio shows the pictures if it serves local files with the document root ``/`` and has a storage for their
    folder. A prediction's score is its lowest chance.

    Args:
        rows: ``{"picture": "/a.jpg", "cells": {"dogs": ("2", 0.8)}}``: by column the value, and its chance or None.
        columns: The type of each column.
        model: What answered.
        choices: The values of columns of the type ``choice``, as for :func:`label_studio_config`; None allows any.
    """
    names = _control_names(columns)
    tasks = []
    for number, row in enumerate(rows, 1):
        results: list[dict[str, Any]] = []
        chances: list[float] = []
        for column, kind in columns.items():
            value, chance = row["cells"].get(column, ("", None))
            allowed = YES_NO if kind == "yes_no" else (choices or {}).get(column) if kind == "choice" else None
            shown = _result_value(kind, value.strip(), allowed)
            if shown is None:
                continue
            names_of_result = {"id": f"{number}-{names[column]}", "from_name": names[column], "to_name": _PICTURE}
            value_of_result = {"type": _CONTROLS[kind][1], "value": {_CONTROLS[kind][2]: shown}}
            score = {} if chance is None else {"score": chance}
            results.append({**names_of_result, **value_of_result, **score})
            chances += score.values()
        prediction = {"model_version": model, "result": results, **({"score": min(chances)} if chances else {})}
        address = f"/data/local-files/?d={quote(row['picture'].lstrip('/'))}"
        tasks.append({"data": {_PICTURE: address}, "predictions": [prediction]})
    return tasks


def label_studio_config(columns: Mapping[str, ColumnType], choices: Mapping[str, Sequence[str]]) -> str:
    """Returns the labelling configuration for :func:`label_studio_tasks`: a control for each column."""
    view = ElementTree.Element("View")
    ElementTree.SubElement(view, "Image", name=_PICTURE, value=f"${_PICTURE}")
    for column, name in _control_names(columns).items():
        kind = columns[column]
        ElementTree.SubElement(view, "Header", value=column)
        control = ElementTree.SubElement(view, _CONTROLS[kind][0], name=name, toName=_PICTURE)
        for value in YES_NO if kind == "yes_no" else choices.get(column, ()) if kind == "choice" else ():
            ElementTree.SubElement(control, "Choice", value=value)
    ElementTree.indent(view)
    return ElementTree.tostring(view, encoding="unicode")


def _control_names(columns: Mapping[str, ColumnType]) -> dict[str, str]:
    """Returns a name without spaces and marks for each column, all of them different."""
    names: dict[str, str] = {}
    for column in columns:
        name = re.sub(r"\W+", "_", column)
        while name in (_PICTURE, "", *names.values()):
            name += "_"
        names[column] = name
    return names


def _result_value(kind: ColumnType, value: str, allowed: Sequence[str] | None) -> Any:
    """Returns a cell's value as its control holds it; None where it cannot."""
    if not value or (allowed is not None and value not in allowed):
        return None
    if kind != "number":
        return [value]
    try:
        number = float(value)
    except ValueError:
        return None
    return None if not isfinite(number) else int(number) if number.is_integer() else number
