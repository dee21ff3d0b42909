"""Examples from rows of the Hugging Face hub's copies, as the ``datasets`` library gives them.

``Rows("vqav2", load_dataset("lmms-lab/VQAv2", split="validation"), "validation")`` is a data set like those read from
files; any iterable of such dicts will do. Copies read:

==============================================  =======================================================================
``lmms-lab/GQA`` (``lmms-lab-encoder/GQA``)     configurations ``…_instructions``, with ``…_images`` as ``pictures``
``lmms-lab/VQAv2``, ``lmms-lab/OK-VQA``         OK-VQA's answers are plain strings there
``lmms-lab/NLVR2``                              ``question``, ``answer`` "True" or "False"; subsets, not whole splits
``HuggingFaceM4/NLVR2``                         ``sentence``, ``label`` 0 or 1, and **0 is True**
==============================================  =======================================================================

Samples: ``{"id": "201307251", "imageId": "n161313", "question": "Is it overcast?", "answer": "no", "types": {…}}``,
``{"identifier": "dev-850-0-0", "sentence": …, "left_image": <picture>, "right_image": <picture>, "label": 0}``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from PIL import Image

from ...core.errors import InputError, UnknownNameError
from ..task import EvalImage, Example, Held
from . import gqa, nlvr2, okvqa, vqav2
from .split import Info, truth

__all__ = ["Rows", "image_index"]

_Maker = Callable[[dict[str, Any], Mapping[str, Image.Image]], Example]


class Rows:
    """A split of a data set from rows in memory or streamed; iterates as often as its rows do."""

    def __init__(
        self,
        name: str,
        rows: Iterable[Mapping[str, Any]],
        split: str,
        *,
        pictures: Mapping[str, Image.Image] | None = None,
    ) -> None:
        """Takes rows.

        Args:
            name: ``gqa``, ``vqav2``, ``okvqa`` or ``nlvr2``.
            rows: Dicts with the columns of the hub.
            split: Its name, for reports.
            pictures: Pictures by id, where they are a table of their own (GQA); see :func:`image_index`.

        Raises:
            UnknownNameError: no copy of that data set is known.
        """
        if name not in _MAKERS:
            raise UnknownNameError(f"No data set {name!r} on the hub.", hint=f"There are: {', '.join(_MAKERS)}.")
        self._info, self._make = _MAKERS[name]
        self.name, self.split, self.prompts = self._info.name, split, self._info.prompts
        self._rows, self._pictures = rows, pictures if pictures is not None else {}

    def __iter__(self) -> Iterator[Example]:
        """Yields the examples in the order of the rows.

        Raises:
            InputError: a row lacks a column, or its picture is not among those given.
        """
        for place, row in enumerate(self._rows, 1):
            try:
                made = self._make(dict(row), self._pictures)
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                why = f"it has no {error}" if isinstance(error, KeyError) else str(error)
                raise InputError(
                    f"Row {place} is not one of {self._info.title} as on the hub: {why}.", hint="Check the columns."
                ) from None
            yield made


def image_index(rows: Iterable[Mapping[str, Any]]) -> dict[str, Image.Image]:
    """Pictures by id from a table of ``id`` and ``image``, such as ``testdev_balanced_images`` of GQA."""
    return {str(row["id"]): row["image"] for row in rows}


def _gqa(row: dict[str, Any], pictures: Mapping[str, Image.Image]) -> Example:
    picture = row.pop("image", None)
    if picture is None:
        number = str(row["imageId"])
        if number not in pictures:
            raise ValueError(f"picture {number} is not among those given")
        picture = pictures[number]
    return gqa.example(str(row["id"]), row, _held(row["imageId"], picture))


def _vqav2(row: dict[str, Any], pictures: Mapping[str, Image.Image]) -> Example:
    del pictures
    picture = _held(row["image_id"], row.pop("image"))
    return vqav2.make(row, row, picture)


def _okvqa(row: dict[str, Any], pictures: Mapping[str, Image.Image]) -> Example:
    del pictures
    # The table does not say which picture it is: each question is taken to have its own.
    picture = _held(row.get("image_id", row["question_id"]), row.pop("image"))
    return okvqa.make(row, row, picture)


def _nlvr2(row: dict[str, Any], pictures: Mapping[str, Image.Image]) -> Example:
    del pictures
    pair: tuple[EvalImage, ...]
    given = row.get("label", row.get("answer"))
    if isinstance(given, int) and not isinstance(given, bool):
        if given not in (0, 1, -1):
            raise ValueError(f"the label {given} is not 0 or 1")
        given = (True, False, None)[given]  # ClassLabel(names=["True", "False"]); -1 where it is hidden
    key = row.get("identifier", row.get("question_id", row.get("id")))
    if key is None:
        raise KeyError("identifier")
    key = str(key)
    record: dict[str, Any] = {"identifier": key}
    name = key
    if key.count("-") == 3:
        record["group"] = nlvr2.group(key)
        name = key.rpartition("-")[0]
    pair = tuple(
        Held(f"{name}-img{side}.png", row[column]) for side, column in enumerate(("left_image", "right_image"))
    )
    question = row["sentence"] if "sentence" in row else row["question"]
    return Example(key, str(question), pair, "set", truth(given), cluster=name, record=record)


def _held(name: Any, picture: Image.Image) -> Held:
    return Held(f"{name}.jpg", picture)


_MAKERS: dict[str, tuple[Info, _Maker]] = {
    "gqa": (gqa.INFO, _gqa),
    "vqav2": (vqav2.INFO, _vqav2),
    "okvqa": (okvqa.INFO, _okvqa),
    "nlvr2": (nlvr2.INFO, _nlvr2),
}
