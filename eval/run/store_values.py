"""Between examples and rows as data, and as values of the store's tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from ...core.errors import ImageError
from ...core.images import ImageSource
from ...core.trace import Form
from ..task import EvalImage, Example, PictureFile, Row

__all__ = ["Gone", "changed_picture", "example_values", "row_values", "to_example", "to_row"]


@dataclass(frozen=True)
class _Fields:
    """Fields of an example but its pictures, which are of several kinds."""

    id: str
    question: str
    form: Form
    gold: tuple[str, ...]
    groups: Mapping[str, str]
    cluster: str
    record: Mapping[str, Any]


_FIELDS, _ROW = TypeAdapter(_Fields), TypeAdapter(Row)
_PLACE = TypeAdapter(tuple[str, tuple[int, int, int, int] | None])


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
    for shown in json.loads(images):
        image, before = _image(shown), shown.get("digest")
        if isinstance(image, PictureFile) and before and image.digest and image.digest != before:
            return str(image.path / image.member)
    return ""


def _image(shown: Mapping[str, Any]) -> EvalImage:
    if "path" not in shown:
        return Gone(shown["name"])
    member, crop = _PLACE.validate_python((shown.get("member", ""), shown.get("crop")))
    return PictureFile(Path(shown["path"]), member, crop)


def to_example(values: tuple[Any, ...]) -> Example:
    """Returns an example as it was; pictures that were in memory alone come back as :class:`Gone`.

    Raises:
        ValueError: that is no example, somebody else wrote it; or another error of ``DAMAGE``.
    """
    id, question, form, images, gold, groups, cluster, record = values
    shown = json.loads(images)
    if not isinstance(shown, list):
        raise TypeError("pictures are no list")
    told = {"id": id, "question": question, "form": form, "cluster": cluster}
    read = {"gold": json.loads(gold), "groups": json.loads(groups), "record": json.loads(record)}
    return Example(images=tuple(map(_image, shown)), **vars(_FIELDS.validate_python({**told, **read})))


def row_values(row: Row) -> tuple[Any, ...]:
    """Returns a row as a row of its table."""
    program = None if row.program is None else _clean(row.program)
    head = (row.id, row.method, row.repeat, _clean(row.prediction), int(row.fallback), row.error, _clean(row.message))
    return (*head, program, _json(dict(row.trace)), row.seconds, row.tokens)


def to_row(values: tuple[Any, ...]) -> Row:
    """Returns a row as it was.

    Raises:
        ValueError: that is no row, somebody else wrote it; or another error of ``DAMAGE``.
    """
    id, method, repeat, prediction, fallback, error, message, program, trace, seconds, tokens = values
    read = (id, method, repeat, prediction, bool(fallback), error, message, program, json.loads(trace), seconds, tokens)
    row = _ROW.validate_python(dict(zip((one.name for one in fields(Row)), read, strict=True)))
    calls = row.trace.get("calls", [])
    if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        raise TypeError("calls are no list")
    row.cost  # noqa: B018 - fails here where it is none
    return row
