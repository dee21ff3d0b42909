"""NLVR and NLVR2: true and false statements. https://lil.nlp.cornell.edu/nlvr.

NLVR (Suhr, Lewis, Yeh and Artzi, ACL 2017) is about drawings of three boxes. Licence: CC BY 4.0 for all of it. ::

    dev/dev.json, dev/images/<directory>/dev-<n>-<m>-<k>.png, and the same for train, test and hidden

In both, one record a line, though the files are called .json::

    {"sentence": "Each grey box contains atleast one yellow object touching the edge", "label": "true",
     "identifier": "1572-0", "directory": "2", "evals": {"r1": "true"}, "structured_rep": [[{"y_loc": 80,
      "type": "triangle", "color": "#0099ff", "x_loc": 80, "size": 20}, …], […], […]]}

Six pictures of 400 x 100 pixels, k = 0 to 5, show the three boxes of a statement in every order. The boxes are put to
the engine as a set. An example's id is the name of its picture, which is what the official prediction file has. The
records of the hidden split name no directory.

NLVR2 (Suhr, Zhou and others, ACL 2019) is about pairs of photographs. Licence: CC BY 4.0 for sentences and labels; the
photographs belong to others and are given out for research on request. ::

    data/{train,dev,test1,test2}.json, data/balanced/balanced_dev.json, data/unbalanced/unbalanced_dev.json, …
    images/dev-850-0-img0.png …, or in a folder of their split, train also in 100 numbered folders

    {"identifier": "test1-0-1-0", "sentence": "There is an empty glass.", "label": "False", "left_url": "http://…",
     "right_url": "https://…", "writer": "103", "synset": "beer bottle", "query": "group of beer bottles41",
     "validation": {"28": "False"}, "extra_validations": {"56": "False", "83": "False"}}

An identifier is split-set-pair-sentence. The rows of one set and sentence are the group of which consistency asks that
all be right. Tables of the hub have ``{"question_id", "question", "answer"}`` in their place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

from ...core.errors import InputError
from ..task import Example
from .files import JsonRecord
from .loader import Loader, Picture, truth_gold

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

    def __init__(self, split: str, permutations: int = PERMUTATIONS) -> None:
        """Takes how many of the six pictures of a statement to ask about; the official script needs them all.

        Raises:
            InputError: the number is not from 1 to 6.
        """
        super().__init__(split)
        self.permutations = permutations
        if not 1 <= permutations <= PERMUTATIONS:
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
            image = picture(*(f"{folder}/{name}" for folder in folders), name)
            yield Example(
                id=name,
                question=str(row["sentence"]),
                images=tuple(replace(image, crop=box) for box in BOXES),
                form="set",
                gold=truth_gold(row.get("label")),
                cluster=first,
                record={"group": first},
            )


class NLVR2(Loader):
    """A split of NLVR2."""

    name = "nlvr2"
    title = "NLVR2"
    splits = (
        *("test1", "dev", "test2", "train"),
        *(f"{half}_{split}" for half in ("balanced", "unbalanced") for split in ("dev", "test1")),
    )
    folders = ("nlvr2",)
    files = tuple(f"{base}{{split}}.json" for base in ("data/", "data/balanced/", "data/unbalanced/", ""))
    places = (
        "images",
        "",
        *(f"{base}{split}" for split in ("train", "dev", "test1", "test2") for base in ("images/", "")),
    )
    questions = "Get nlvr2/data of https://github.com/lil-lab/nlvr into that folder."
    pictures = (
        "Ask for them with the form at https://github.com/lil-lab/nlvr/tree/master/nlvr2#direct-image-download "
        "and unpack them into images/ of that folder."
    )
    hub: ClassVar = {f"{half}_test1": f"{half}_test_public" for half in ("balanced", "unbalanced")}

    def from_table(self, row: JsonRecord) -> tuple[str, JsonRecord]:
        """Returns the record; ``question_id`` holds the official identifier there."""
        return "", row if "identifier" in row else row | {"identifier": row["question_id"]}

    def examples(self, key: str, row: JsonRecord, picture: Picture) -> Iterator[Example]:
        """Turns a record into an example, the left picture first."""
        key = str(row["identifier"])
        pair = key.rpartition("-")[0]
        inside = f"{row['directory']}/" if row.get("directory") else ""
        yield Example(
            id=key,
            question=str(row["sentence"] if "sentence" in row else row["question"]),
            images=tuple(picture(name, inside + name) for name in (f"{pair}-img0.png", f"{pair}-img1.png")),
            form="set",
            gold=truth_gold(row["label"] if "label" in row else row.get("answer")),
            cluster=pair.rpartition("-")[0],  # the set: its sentences are about the same photographs
            record={"group": group_key(key)},
        )


def group_key(identifier: str) -> str:
    """The identifier without its pair: what the rows of one set and sentence share.

    Raises:
        ValueError: it is not split-set-pair-sentence.
    """
    parts = identifier.rsplit("-", 3)
    if len(parts) != 4 or not all(part.isdigit() for part in parts[1:]):
        raise ValueError(f"{identifier!r} is not split-set-pair-sentence")
    return f"{parts[0]}-{parts[1]}--{parts[3]}"
