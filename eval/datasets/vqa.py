"""VQAv2 (Goyal and others, CVPR 2017) and OK-VQA (Marino and others, CVPR 2019): questions about COCO's photographs.

Ten people answered each question; those of OK-VQA need knowledge from outside of the picture. https://visualqa.org,
https://okvqa.allenai.org. Licence: CC BY 4.0 for VQAv2's questions and answers, none found for OK-VQA's; the
photographs are under Flickr's terms. ::

    v2_OpenEnded_mscoco_{train2014,val2014,test2015,test-dev2015}_questions.json
    v2_mscoco_{train2014,val2014}_annotations.json
    val2014/COCO_val2014_000000262148.jpg …

OK-VQA's files are without ``v2_``, as the first VQA's are. Questions and annotations are lists inside of one object
each, with the same order; ids are image_id * 1000 + k, in OK-VQA image_id * 10 + k::

    {"info": {…}, "questions": [{"image_id": 458752, "question": "What is this?", "question_id": 458752000}, …]}
    {"info": {…}, "annotations": [{"question_id": 458752000, "image_id": 458752, "question_type": "what is this",
     "answer_type": "other", "multiple_choice_answer": "net", "answers": [{"answer": "net",
      "answer_confidence": "maybe", "answer_id": 1}, …]}, …]}

OK-VQA has its answers as given and stemmed, ``{"raw_answer": "labrador retriever", "answer": "labrador retriev", …}``.
Gold is the raw one, the stemmed ones are in ``record["answers"]``; copies without raw answers have those there are.

The files of LAVIS and CodeVQA's authors, such as ``vqa_val4000.json`` and ``okvqa_val_eval.json``, are lists of
``{"question_id": 203166006, "question": …, "image": "train2014/COCO_train2014_000000203166.jpg", "dataset": "vqa"}``,
in train with ``answer``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from ..task import Example, Located
from .files import Folder, JsonRecord, stream_records
from .loader import Loader, Picture, gold_text

FOLDERS = ("", "annotations/", "questions/", "coco/annotations/", "vqa/")
COCO_NAME = re.compile(r"COCO_\w+_0*(\d+)\.\w+")
SUBSETS = ("val2014", "train2014", "test2015")


class VQA(Loader):
    """What the two data sets have in common."""

    within = "questions"
    places = ("", "images", "coco/images", "coco", "Images", "Images/mscoco")
    aliases: ClassVar[dict[str, str]]
    """Short names of splits."""
    prefix: ClassVar[str] = ""
    """What names of official files begin with."""
    shorter: ClassVar[str]
    """What names of files in list format begin with."""

    def __init__(self, split: str) -> None:
        super().__init__(self.aliases.get(split, split))

    def sources(self, folder: Folder) -> tuple[Located, ...]:
        """Returns the questions, and the annotations where there are any."""
        official = f"{self.prefix}OpenEnded_mscoco_{self.split}_questions.json"
        source = folder.find(*self._names(official, "_questions", "", "_eval"))
        gold = folder.find(*self._names(self._annotations, "_annotations"))
        return tuple(filter(None, (source or self.need(folder, official, f"{self.split}.json"), gold)))

    def _names(self, official: str, *ends: str) -> list[str]:
        """Where a file may be; in list format its name begins shorter, or with the split."""
        names = [official, *(f"{start}{self.split}{end}.json" for end in ends for start in ("", self.shorter))]
        return [base + name for name in names for base in FOLDERS]

    @property
    def _annotations(self) -> str:
        return f"{self.prefix}mscoco_{self.split}_annotations.json"

    def notes(self, first: Example) -> tuple[str, ...]:
        """Returns that there are no answers, where there should be some."""
        if first.gold or self.split.startswith("test"):
            return ()
        return (f"No answers: looked for {self._annotations}. Questions are answered but cannot be scored.",)

    def read(self, sources: tuple[Located, ...], picture: Picture) -> Iterator[Example]:
        """Yields the questions with their annotations."""
        source, *others = sources
        annotations = {
            str(row.get("question_id")): row for file in others for _, row in stream_records(file, within="annotations")
        }
        asked = stream_records(source, within=self.within)
        rows = ((key, row | annotations.get(str(row.get("question_id")), {})) for key, row in asked)
        yield from self.make_examples(source, rows, picture)

    def example(
        self, row: JsonRecord, picture: Picture, gold: tuple[str, ...], record: Mapping[str, Any] = {}
    ) -> Example:
        """Returns the example of a question with its answers."""
        picture_file = picture(*self._places(row))
        official = COCO_NAME.fullmatch(picture_file.name)
        image = official[1] if official else row.get("image", picture_file.name)
        kinds = ("question_type", "answer_type")
        return Example(
            id=str(row["question_id"]),
            question=str(row["question"]),
            images=(picture_file,),
            form="image",
            gold=gold,
            groups={kind: str(row.get(kind) or "unknown") for kind in kinds} if gold else {},
            cluster=str(row.get("image_id", image)),
            record=record,
        )

    def _places(self, row: JsonRecord) -> list[str]:
        """Where the picture of a question may be."""
        if "image" in row:
            return [str(row["image"]), str(row["image"]).rpartition("/")[2]]
        likely = "test2015" if self.split.startswith("test") else self.split
        subsets = dict.fromkeys((likely, *SUBSETS) if likely in SUBSETS else SUBSETS)
        return [f"{subset}/COCO_{subset}_{int(row['image_id']):012d}.jpg" for subset in subsets]


class VQAv2(VQA):
    """A split of VQAv2, by its official or short name, or by the name of a list such as ``vqa_val4000``."""

    name = "vqav2"
    title = "VQAv2"
    splits = ("val2014", "train2014", "test2015", "test-dev2015")
    folders = ("vqav2", "vqa", "vqa2", "vqa_v2")
    prefix = "v2_"
    aliases: ClassVar = {"val": "val2014", "train": "train2014", "test": "test2015", "test-dev": "test-dev2015"}
    shorter = "vqa_"
    questions = (
        "Get v2_Questions_Val_mscoco.zip and v2_Annotations_Val_mscoco.zip, or those of Train or Test, from "
        "https://s3.amazonaws.com/cvmlp/vqa/mscoco/vqa/ into that folder, unpacked or not."
    )
    pictures = (
        "Get val2014.zip, train2014.zip or test2015.zip from http://images.cocodataset.org/zips/ into that folder, "
        "unpacked or not."
    )
    hub: ClassVar = {
        "val2014": "validation",
        "train2014": "train",
        "test2015": "test",
        "test-dev2015": "testdev",
    }

    def examples(self, key: str, row: JsonRecord, picture: Picture) -> Iterator[Example]:
        """Turns a question into an example."""
        answers = _answer_records(row)
        if answers and "raw_answer" in answers[0]:
            raise ValueError("its answers are stemmed, as OK-VQA's are")
        yield self.example(row, picture, tuple(gold_text(answer["answer"]) for answer in answers))


class OKVQA(VQA):
    """A split of OK-VQA, by its official or short name, or by that of a list; val2014 is reported as the test set."""

    name = "okvqa"
    title = "OK-VQA"
    splits = ("val2014", "train2014")
    folders = ("okvqa", "ok-vqa")
    aliases: ClassVar = {"val": "val2014", "test": "val2014", "train": "train2014"}
    shorter = "okvqa_"
    questions = (
        "Get OpenEnded_mscoco_val2014_questions.json.zip and mscoco_val2014_annotations.json.zip, or those of "
        "train2014, from https://okvqa.allenai.org/static/data/ into that folder, unpacked or not."
    )
    pictures = (
        "Get val2014.zip or train2014.zip from http://images.cocodataset.org/zips/ into that folder, unpacked or not."
    )
    hub: ClassVar = {}

    def from_table(self, row: JsonRecord) -> tuple[str, JsonRecord]:
        """Returns the record. The table does not say which picture it is: each question is taken to have its own."""
        return "", row if "image_id" in row else row | {"image": f"{row['question_id']}.jpg"}

    def examples(self, key: str, row: JsonRecord, picture: Picture) -> Iterator[Example]:
        """Turns a question into an example."""
        answers = _answer_records(row)
        gold = tuple(
            gold_text(answer["raw_answer"] if "raw_answer" in answer else answer["answer"]) for answer in answers
        )
        kept = [{name: answer[name] for name in ("raw_answer", "answer") if name in answer} for answer in answers]
        yield self.example(row, picture, gold, {"answers": kept} if kept else {})


def _answer_records(row: JsonRecord) -> list[dict[str, Any]]:
    """The answers of an annotation, or of a record in list format, as records; empty where there are none.

    Raises:
        TypeError: they are something else.
    """
    answers = row.get("answers")
    if answers is None:
        answers = row.get("answer")
    if answers is None:
        return []
    listed = answers if isinstance(answers, list) else [answers]
    return [answer if isinstance(answer, dict) else {"answer": gold_text(answer)} for answer in listed]
