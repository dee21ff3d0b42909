"""The files VQAv2 and OK-VQA share: questions in one, ten answers each in another, and COCO's photographs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ..task import EvalImage, Example
from .files import Folder, Located, Pictures
from .json_stream import JsonRecord, stream_records
from .split import Info, Split, answer_text, foreign, locate, read

__all__ = ["COCO", "FOLDERS", "VQAFiles", "answers", "example", "open_files"]

FOLDERS = ("", "annotations/", "questions/", "coco/annotations/", "vqa/")
PLACES = ("", "images", "coco/images", "coco", "Images", "Images/mscoco")
COCO = "Get {} from http://images.cocodataset.org/zips/ into that folder, unpacked or not."
COCO_NAME = re.compile(r"COCO_\w+_0*(\d+)\.\w+")
SUBSETS = ("val2014", "train2014", "test2015")


@dataclass(frozen=True)
class VQAFiles:
    """How the files of one of the two data sets are named and read."""

    info: Info
    prefixes: tuple[str, ...]
    """What file names may begin with."""
    aliases: dict[str, str]
    """Short names of splits."""
    shorter: tuple[str, ...]
    """Beginnings of names of files in list format, such as ``vqa_``."""
    check: Callable[[Located, bool], None]
    """Raises InputError for a file that is another data set's; told whether ids are VQAv2's, image_id * 1000 + k."""
    make: Callable[[JsonRecord, JsonRecord | None, EvalImage], Example]
    """Turns a question, its annotation where there is one, and the picture into an example."""


def open_files(files: VQAFiles, folder: Folder, split: str, *, pictures: bool) -> Split:
    """Opens a split by its official or short name, or by the name of a list such as ``vqa_val4000``."""
    info = files.info
    split = files.aliases.get(split, split)
    official = [f"{p}OpenEnded_mscoco_{split}_questions.json" for p in files.prefixes]
    named = [*official, *(f"{p}{split}_questions.json" for p in ("", *files.shorter))]
    lists = [f"{p}{split}{end}.json" for end in ("", "_eval") for p in ("", *files.shorter)]
    source = folder.find(*(base + name for names in (named, lists) for name in names for base in FOLDERS))
    if source is None:
        source = locate(info, folder, split, "questions", [*official, lists[0]])
    for _, row in islice(stream_records(source, within="questions"), 1):
        try:
            files.check(source, "image_id" in row and int(row["question_id"]) // 1000 == int(row["image_id"]))
        except (KeyError, TypeError, ValueError) as error:
            raise foreign(info, source, 1, error) from None
    known = [f"{p}mscoco_{split}_annotations.json" for p in files.prefixes]
    known += [f"{p}{split}_annotations.json" for p in ("", *files.shorter)]
    gold = folder.find(*(base + name for name in known for base in FOLDERS))
    finder = Pictures(folder, *PLACES)

    def start() -> Iterator[Example]:
        answered = _Annotations(info, gold)

        def make(_: str, row: JsonRecord) -> Iterator[Example]:
            yield files.make(row, answered.of(str(row["question_id"])), finder.find(*names(row, split)))

        yield from read(info, (source,), make, within="questions")()

    opened = Split(info.name, split, info.prompts, (source, gold) if gold else (source,), start)
    first = next(iter(opened), None)
    if first is not None and not first.gold and not split.startswith("test"):
        opened.notes = (f"No answers: looked for {known[0]}. Questions are answered but cannot be scored.",)
    return opened.check(folder, info, finder if pictures else None)


class _Annotations:
    """Answers by question. Both files have the same order, so reading along keeps little in memory."""

    def __init__(self, info: Info, source: Located | None) -> None:
        self.info, self.source = info, source
        self.rows = stream_records(source, within="annotations") if source else iter(())
        self.waiting: dict[str, JsonRecord] = {}
        self.count = 0

    def of(self, key: str) -> JsonRecord | None:
        """Returns the annotation of a question; None where there is none."""
        found = self.waiting.pop(key, None)
        if found is not None:
            return found
        for _, row in self.rows:
            self.count += 1
            other = row.get("question_id")
            if other is None:
                assert self.source is not None
                raise foreign(self.info, self.source, self.count, KeyError("question_id"))
            if str(other) == key:
                return row
            self.waiting[str(other)] = row
        return None


def names(row: JsonRecord, split: str) -> tuple[str, ...]:
    """Where the picture of a question may be."""
    if "image" in row:
        return (str(row["image"]), str(row["image"]).rpartition("/")[2])
    number = int(row["image_id"])
    likely = "test2015" if split.startswith("test") else split
    subsets = dict.fromkeys((likely, *SUBSETS) if likely in SUBSETS else SUBSETS)
    return tuple(f"{subset}/COCO_{subset}_{number:012d}.jpg" for subset in subsets)


def answers(row: JsonRecord, annotation: JsonRecord | None) -> list[dict[str, Any]]:
    """The answers of an annotation, or of a record in list format, as records; empty where there are none.

    Raises:
        TypeError: they are something else.
    """
    given = (annotation or {}).get("answers")
    if given is None:
        given = row.get("answers", row.get("answer"))
    if given is None:
        return []
    listed = given if isinstance(given, list) else [given]
    return [one if isinstance(one, dict) else {"answer": answer_text(one)} for one in listed]


def example(
    row: JsonRecord, annotation: JsonRecord | None, picture: EvalImage, gold: tuple[str, ...], **more: object
) -> Example:
    """Builds the example that both data sets have in common."""
    known = row | (annotation or {})
    record: dict[str, Any] = {name: value for name, value in more.items() if value}
    official = COCO_NAME.fullmatch(picture.name)
    image = official[1] if official else str(row.get("image", picture.name))
    if "image_id" in row:
        image = record["image_id"] = str(row["image_id"])
    kinds = ("question_type", "answer_type")
    return Example(
        id=str(row["question_id"]),
        question=str(row["question"]),
        images=(picture,),
        form="image",
        gold=gold,
        groups={kind: str(known.get(kind) or "unknown") for kind in kinds} if gold else {},
        cluster=image,
        record=record,
    )
