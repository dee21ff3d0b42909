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
from .files import Folder, Pictures
from .json_stream import JsonRecord
from .split import Info, Split, locate, read, truth

__all__ = ["BOXES", "INFO", "PERMUTATIONS", "open_split"]

INFO = Info(
    name="nlvr",
    title="NLVR",
    prompts="nlvr",
    splits=("dev", "test", "hidden", "train"),
    folders=("nlvr",),
    questions="Get the folder nlvr of https://github.com/lil-lab/nlvr.",
    pictures="Get the folder nlvr of https://github.com/lil-lab/nlvr.",
)

BOXES = ((0, 0, 100, 100), (150, 0, 250, 100), (300, 0, 400, 100))
"""Left, top, right, bottom of the boxes in pixels."""
PERMUTATIONS = 6


def open_split(folder: Folder, split: str, *, pictures: bool = True, permutations: int = PERMUTATIONS) -> Split:
    """Opens a split.

    Args:
        folder: Where its files are: the split's own folder, the one above it, or one above that called nlvr.
        split: ``dev``, ``test``, ``hidden`` or ``train``.
        pictures: Whether to check that the pictures are there.
        permutations: How many of the six pictures of a statement to ask about; the official script needs them all.

    Raises:
        InputError: the number of permutations is not from 1 to 6.
    """
    if not 1 <= permutations <= PERMUTATIONS:
        raise InputError(f"{permutations} permutations.", hint=f"A statement has from 1 to {PERMUTATIONS}.")
    names = [f"{split}/{split}.json", f"{split}.json", f"nlvr/{split}/{split}.json"]
    source = locate(INFO, folder, split, "statements", names)
    finder = Pictures(folder, f"{split}/images", "images", f"nlvr/{split}/images", "")
    anywhere = finder.subfolders() if split == "hidden" else []

    def make(_: str, row: JsonRecord) -> Iterator[Example]:
        places = [str(row["directory"])] if row.get("directory") is not None else anywhere
        for number in range(permutations):
            yield _example(row, split, number, places, finder)

    opened = Split(INFO.name, split, INFO.prompts, (source,), read(INFO, (source,), make))
    if permutations < PERMUTATIONS:
        opened.part = (f"{permutations} of {PERMUTATIONS} pictures a statement",)
    return opened.check(folder, INFO, finder if pictures else None)


def _example(row: JsonRecord, split: str, number: int, places: list[str], finder: Pictures) -> Example:
    identifier = str(row["identifier"])
    first, dash, second = identifier.partition("-")
    if not (dash and first.isdigit() and second.isdigit()):
        raise ValueError(f"{identifier!r} is not two numbers with a dash")
    name = f"{split}-{identifier}-{number}.png"
    picture = finder.find(*(f"{place}/{name}" for place in places), name)
    return Example(
        id=name,
        question=str(row["sentence"]),
        images=tuple(replace(picture, crop=box) for box in BOXES),
        form="set",
        gold=truth(row.get("label")),
        cluster=first,
        record={"identifier": identifier, "group": first, "permutation": number},
    )
