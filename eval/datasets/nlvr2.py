"""NLVR2 (Suhr, Zhou and others, ACL 2019): true and false statements about pairs of photographs.

https://lil.nlp.cornell.edu/nlvr. Licence: CC BY 4.0 for sentences and labels; the photographs belong to others and are
given out for research on request. ::

    data/{train,dev,test1,test2}.json, data/balanced/balanced_dev.json, data/unbalanced/unbalanced_dev.json, …
    images/dev-850-0-img0.png …, or in a folder of their split, train also in 100 numbered folders

One record a line, though the files are called .json::

    {"identifier": "test1-0-1-0", "sentence": "There is an empty glass.", "label": "False", "left_url": "http://…",
     "right_url": "https://…", "writer": "103", "synset": "beer bottle", "query": "group of beer bottles41",
     "validation": {"28": "False"}, "extra_validations": {"56": "False", "83": "False"}}

An identifier is split-set-pair-sentence. The rows of one set and sentence are the group of which consistency asks that
all be right. Tables of the hub have ``{"question_id", "question", "answer"}`` in their place.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from ..task import Example
from .json_stream import JsonRecord
from .loader import Loader, Picture, truth


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
            gold=truth(row["label"] if "label" in row else row.get("answer")),
            cluster=pair.rpartition("-")[0],  # the set: its sentences are about the same photographs
            record={"group": group(key)},
        )


def group(identifier: str) -> str:
    """The identifier without its pair: what the rows of one set and sentence share.

    Raises:
        ValueError: it is not split-set-pair-sentence.
    """
    parts = identifier.rsplit("-", 3)
    if len(parts) != 4 or not all(part.isdigit() for part in parts[1:]):
        raise ValueError(f"{identifier!r} is not split-set-pair-sentence")
    return f"{parts[0]}-{parts[1]}--{parts[3]}"
