"""Between examples and rows as data, and as values of the store's tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from ...core.errors import ImageError
from ...core.images import ImageSource
from ...core.trace import Method
from ..task import EvalImage, Example, PictureFile, Row

__all__ = ["Gone", "example_values", "row_values", "to_example", "to_row"]


_EXAMPLE = (str, str, str, list, list, dict, str, dict)
_ROW = (str, str, int, str, int, str | None, str, str | None, dict, int | float, int)
"""Kinds of the columns of both tables."""


@dataclass(frozen=True)
class Gone:
    """A picture that was in memory when the run was made: its name is all that the store keeps."""

    name: str

    def load(self) -> ImageSource:
        """Fails always.

        Raises:
            ImageError: the picture is not in the store.
        """
        raise ImageError(f"The picture {self.name} was not kept with the run.", hint="Open the data set itself.")


def _clean(text: str) -> str:
    """Returns text that UTF-8 can hold: half a surrogate pair, which JSON can smuggle in, becomes a question mark."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _json(value: Any) -> str:
    return _clean(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def _checked(value: Any, kind: Any) -> Any:
    """Returns a value of a column, read from JSON where it is a list or an object.

    Raises:
        ValueError: it is of another kind.
    """
    if kind in (list, dict):
        value = json.loads(_checked(value, str))
    if not isinstance(value, kind) or value != value:
        raise ValueError(f"{value!r:.40} is not of its kind")
    return value


def example_values(example: Example, place: int | None) -> tuple[Any, ...]:
    """Returns an example as a row of its table."""
    images = _json([_picture(image) for image in example.images])
    gold, groups, record = _json(list(example.gold)), _json(dict(example.groups)), _json(dict(example.record))
    return (place, example.id, _clean(example.question), example.form, images, gold, groups, example.cluster, record)


def _picture(image: EvalImage) -> dict[str, Any]:
    if not isinstance(image, PictureFile):
        return {"name": image.name}
    shown: dict[str, Any] = {"path": str(image.path.absolute())}
    if image.member:
        shown["member"] = image.member
    if image.crop is not None:
        shown["crop"] = list(image.crop)
    if image.digest:
        shown["digest"] = image.digest
    return shown


def changed_picture(images: str) -> str:
    """Returns the first picture of an example's that is not what it was when it was asked about; empty if none is.

    One that cannot be read now is not judged: it may lie elsewhere.
    """
    for shown in _checked(images, list):
        image, before = _image(shown), shown.get("digest")
        if isinstance(image, PictureFile) and before and image.digest and image.digest != before:
            return str(image.path / image.member)
    return ""


def _image(shown: Mapping[str, Any]) -> EvalImage:
    if "path" not in shown:
        return Gone(shown["name"])
    crop = shown.get("crop")
    box = None if crop is None else (int(crop[0]), int(crop[1]), int(crop[2]), int(crop[3]))
    return PictureFile(Path(shown["path"]), shown.get("member", ""), box)


def to_example(values: tuple[Any, ...]) -> Example:
    """Returns an example as it was; pictures that were in memory alone come back as :class:`Gone`.

    Raises:
        ValueError: that is no example, somebody else wrote it.
    """
    id, question, form, images, gold, groups, cluster, record = (
        _checked(*pair) for pair in zip(values, _EXAMPLE, strict=True)
    )
    return Example(
        id=id,
        question=question,
        images=tuple(map(_image, images)),
        form=form,
        gold=tuple(_checked(one, str) for one in gold),
        groups={name: _checked(one, str) for name, one in groups.items()},
        cluster=cluster,
        record=record,
    )


def row_values(row: Row) -> tuple[Any, ...]:
    """Returns a row as a row of its table."""
    program = None if row.program is None else _clean(row.program)
    head = (row.id, row.method, row.repeat, _clean(row.prediction), int(row.fallback), row.error, _clean(row.message))
    return (*head, program, _json(dict(row.trace)), row.seconds, row.tokens)


def to_row(values: tuple[Any, ...]) -> Row:
    """Returns a row as it was.

    Raises:
        ValueError: that is no row, somebody else wrote it.
    """
    id, method, repeat, prediction, fallback, error, message, program, trace, seconds, tokens = (
        _checked(*pair) for pair in zip(values, _ROW, strict=True)
    )
    if method not in get_args(Method):
        raise ValueError(f"no method {method!r:.40}")
    row = Row(
        id=id,
        method=method,
        repeat=repeat,
        prediction=prediction,
        fallback=bool(fallback),
        error=error,
        message=message,
        program=program,
        trace=trace,
        seconds=seconds,
        tokens=tokens,
    )
    row.cost  # noqa: B018 - fails here where it is none
    return row
