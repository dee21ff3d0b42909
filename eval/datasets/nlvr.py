"""NLVR (Suhr, Lewis, Yeh and Artzi, ACL 2017): true and false statements about drawings of three boxes.

https://lil.nlp.cornell.edu/nlvr. Licence: CC BY 4.0 for sentences, labels, pictures and structures. ::

    dev/dev.json, dev/images/<directory>/dev-<n>-<m>-<k>.png, and the same for train, test and hidden

One record a line, though the files are called .json::

    {"sentence": "Each grey box contains atleast one yellow object touching the edge", "label": "true",
     "identifier": "1572-0", "directory": "2", "evals": {"r1": "true"}, "structured_rep": [[{"y_loc": 80,
      "type": "triangle", "color": "#0099ff", "x_loc": 80, "size": 20}, …], […], […]]}

Six pictures of 400 x 100 pixels, k = 0 to 5, show the three boxes of a statement in every order. The boxes are put to
the engine as a set. An example's id is the name of its picture, which is what the official prediction file has. The
records of the hidden split name no directory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...core.errors import InputError
from ..task import Example
from .json_stream import JsonRecord
from .loader import Loader, Picture, truth

BOXES = ((0, 0, 100, 100), (150, 0, 250, 100), (300, 0, 400, 100))
"""Left, top, right, bottom of the boxes in pixels."""
PERMUTATIONS = 6
HIDDEN = range(7)
"""The directories of the hidden split."""


class NLVR(Loader):
    """A split of NLVR; the folder is the split's own, the one above it, or one above that called nlvr."""

    name = "nlvr"
    title = "NLVR"
    splits = ("dev", "test", "hidden", "train")
    folders = ("nlvr",)
    files = ("{split}/{split}.json", "{split}.json", "nlvr/{split}/{split}.json")
    places = ("{split}/images", "images", "nlvr/{split}/images", "")
    questions = pictures = "Get the folder nlvr of https://github.com/lil-lab/nlvr."

    def __init__(self, split: str, permutations: int | None = None) -> None:
        """Takes how many of the six pictures of a statement to ask about; the official script needs them all.

        Raises:
            InputError: the number is not from 1 to 6.
        """
        super().__init__(split)
        self.permutations = PERMUTATIONS if permutations is None else permutations
        if not 1 <= self.permutations <= PERMUTATIONS:
            raise InputError(f"{permutations} permutations.", hint=f"A statement has from 1 to {PERMUTATIONS}.")

    def part(self) -> tuple[str, ...]:
        """Returns also that not every picture of a statement is asked about."""
        some = f"{self.permutations} of {PERMUTATIONS} pictures a statement"
        return super().part() + ((some,) if self.permutations < PERMUTATIONS else ())

    def examples(self, key: str, row: JsonRecord, picture: Picture) -> Iterator[Example]:
        """Turns a record into an example for each picture of it."""
        identifier = str(row["identifier"])
        first, dash, second = identifier.partition("-")
        if not (dash and first.isdigit() and second.isdigit()):
            raise ValueError(f"{identifier!r} is not two numbers with a dash")
        folders = HIDDEN if row.get("directory") is None else (row["directory"],)
        for number in range(self.permutations):
            name = f"{self.split}-{identifier}-{number}.png"
            found = picture(*(f"{folder}/{name}" for folder in folders), name)
            yield Example(
                id=name,
                question=str(row["sentence"]),
                images=tuple(replace(found, crop=box) for box in BOXES),
                form="set",
                gold=truth(row.get("label")),
                cluster=first,
                record={"identifier": identifier, "group": first, "permutation": number},
            )
