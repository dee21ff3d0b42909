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
all be right. The files of CodeVQA's authors are lists of ``{"question_id", "question", "scenes", "answer"}``, those of
LAVIS of ``{"sentence", "label", "images"}``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import ClassVar
from zlib import crc32

from ..task import Example
from .json_stream import JsonRecord
from .loader import Loader, Picture, truth

OFFICIAL = re.compile(r"((.+-\d+)-\d+)-img[01]\.\w+")
"""Name of a picture: its pair, and of that its set."""


class NLVR2(Loader):
    """A split of NLVR2."""

    name = "nlvr2"
    title = "NLVR2"
    splits = (
        *("test1", "dev", "test2", "train"),
        *(f"{half}_{split}" for half in ("balanced", "unbalanced") for split in ("dev", "test1")),
    )
    folders = ("nlvr2",)
    files = (
        *(f"{base}{{split}}.json" for base in ("data/", "data/balanced/", "data/unbalanced/", "", "annotations/")),
        "annotations/nlvr_{split}.json",
    )
    holds = "statements"
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
        record = {}
        sentence = str(row["sentence"] if "sentence" in row else row["question"])
        if "identifier" in row:
            key = str(row["identifier"])
            record["group"] = group(key)
            pair = key.rpartition("-")[0]
            inside = f"{row['directory']}/" if row.get("directory") else ""
            options = [(name, inside + name) for name in (f"{pair}-img0.png", f"{pair}-img1.png")]
        else:
            files = [str(name) for name in (row["images"] if "images" in row else row["scenes"])]
            files = [name if name.endswith((".png", ".jpg")) else f"{name}.png" for name in files]
            options = [(name, name.rpartition("/")[2]) for name in files]
            number = f"{crc32(sentence.encode()):08x}"  # a set has no sentence twice
            official = OFFICIAL.fullmatch(options[0][1])
            pair = official[1] if official else "+".join(files)
            if official:
                record["group"] = f"{official[2]}--{number}"
            key = str(row["question_id"]) if "question_id" in row else f"{pair}-{number}"
        if len(options) != 2:
            raise ValueError(f"it has {len(options)} pictures")
        yield Example(
            id=key,
            question=sentence,
            images=tuple(picture(*names) for names in options),
            form="set",
            gold=truth(row["label"] if "label" in row else row.get("answer")),
            # The set: its sentences are about the same photographs. Names of one's own say nothing of sets.
            cluster=pair if "+" in pair else pair.rpartition("-")[0],
            record=record,
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
