"""VQAv2 (Goyal and others, CVPR 2017): questions about COCO's photographs, with ten answers by people each.

https://visualqa.org/download.html. Licence: CC BY 4.0 for questions and answers; the photographs are under Flickr's
terms. ::

    v2_OpenEnded_mscoco_{train2014,val2014,test2015,test-dev2015}_questions.json
    v2_mscoco_{train2014,val2014}_annotations.json
    val2014/COCO_val2014_000000262148.jpg …

Questions and annotations are lists inside of one object each, with the same order; ids are image_id * 1000 + k::

    {"info": {…}, "questions": [{"image_id": 458752, "question": "What is this?", "question_id": 458752000}, …]}
    {"info": {…}, "annotations": [{"question_id": 458752000, "image_id": 458752, "question_type": "what is this",
     "answer_type": "other", "multiple_choice_answer": "net", "answers": [{"answer": "net",
      "answer_confidence": "maybe", "answer_id": 1}, …]}, …]}

The files of LAVIS and CodeVQA's authors, such as ``vqa_val4000.json``, are lists of ``{"question_id": 203166006,
"question": …, "image": "train2014/COCO_train2014_000000203166.jpg", "dataset": "vqa"}``, in train with ``answer``.
"""

from __future__ import annotations

from ...core.errors import InputError
from ..task import EvalImage, Example
from .files import Located
from .json_stream import JsonRecord
from .split import Info, answer_text
from .vqa_files import COCO, VQAFiles, answers, example

__all__ = ["FILES", "INFO", "make"]

INFO = Info(
    name="vqav2",
    title="VQAv2",
    prompts="vqav2",
    splits=("val2014", "train2014", "test2015", "test-dev2015"),
    folders=("vqav2", "vqa", "vqa2", "vqa_v2"),
    questions="Get v2_Questions_Val_mscoco.zip and v2_Annotations_Val_mscoco.zip, or those of Train or Test, from "
    "https://s3.amazonaws.com/cvmlp/vqa/mscoco/vqa/ into that folder, unpacked or not.",
    pictures=COCO.format("val2014.zip, train2014.zip or test2015.zip"),
)


def make(row: JsonRecord, annotation: JsonRecord | None, picture: EvalImage) -> Example:
    """Turns a question, its annotation where there is one, and its picture into an example."""
    given = answers(row, annotation)
    if given and "raw_answer" in given[0]:
        raise ValueError("its answers are stemmed, as OK-VQA's are")
    gold = tuple(answer_text(one["answer"]) for one in given)
    common = (annotation or {}).get("multiple_choice_answer")
    return example(row, annotation, picture, gold, multiple_choice_answer=common)


def _check(source: Located, thousands: bool) -> None:
    """Files without the prefix v2_ are named alike in the first VQA and in OK-VQA, whose ids end in one digit."""
    name = (source.member or source.path.name).rpartition("/")[2]
    if name.startswith("OpenEnded") and not thousands:
        raise InputError(
            f"{source} is not VQAv2's: the id of a question there is the image's with three more digits.",
            hint="VQA v1 and OK-VQA have files of the same name; VQAv2's begin with v2_.",
        )


FILES = VQAFiles(
    info=INFO,
    prefixes=("v2_", ""),
    aliases={"val": "val2014", "train": "train2014", "test": "test2015", "test-dev": "test-dev2015"},
    shorter=("vqa_",),
    check=_check,
    make=make,
)
