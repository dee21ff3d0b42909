"""OK-VQA (Marino and others, CVPR 2019): questions about COCO's photographs that need knowledge from outside.

https://okvqa.allenai.org/download.html. Licence: none found; the photographs are under Flickr's terms. ::

    OpenEnded_mscoco_{train2014,val2014}_questions.json, mscoco_{train2014,val2014}_annotations.json
    val2014/COCO_val2014_000000297147.jpg …

The files are made like VQAv2's, without its prefix ``v2_`` (the first VQA has files of the same names). Each answer
comes as given and stemmed; val2014 is what is reported as the test set::

    {"info": {…}, "questions": [{"image_id": 297147, "question": "What sport can you use this for?",
     "question_id": 2971475}, …]}
    {"info": {…}, "annotations": [{"question_id": 2971475, "image_id": 297147, "question_type": "four",
     "answer_type": "other", "confidence": 3, "answers": [{"answer_id": 8, "raw_answer": "labrador retriever",
      "answer_confidence": "yes", "answer": "labrador retriev"}, …]}, …]}

Gold is the raw answer, the stemmed ones are in ``record["answers"]``. LAVIS's lists (``okvqa_val_eval.json``) are read
too; copies without raw answers have those there are.
"""

from __future__ import annotations

from itertools import islice

from ...core.errors import InputError
from ..task import EvalImage, Example
from .files import Located
from .json_stream import JsonRecord, stream_records
from .split import Info, answer_text
from .vqa_files import COCO, VQAFiles, answers, example

__all__ = ["FILES", "INFO", "make"]

INFO = Info(
    name="okvqa",
    title="OK-VQA",
    prompts="okvqa",
    splits=("val2014", "train2014"),
    folders=("okvqa", "ok-vqa"),
    questions="Get OpenEnded_mscoco_val2014_questions.json.zip and mscoco_val2014_annotations.json.zip, or those of "
    "train2014, from https://okvqa.allenai.org/static/data/ into that folder, unpacked or not.",
    pictures=COCO.format("val2014.zip or train2014.zip"),
)

MOST = 9_009
"""Questions of its largest split."""
KEPT = ("answer_id", "raw_answer", "answer", "answer_confidence")


def make(row: JsonRecord, annotation: JsonRecord | None, picture: EvalImage) -> Example:
    """Turns a question, its annotation where there is one, and its picture into an example."""
    given = answers(row, annotation)
    gold = tuple(answer_text(one["raw_answer"] if "raw_answer" in one else one["answer"]) for one in given)
    kept = [{name: one[name] for name in KEPT if name in one} for one in given]
    return example(row, annotation, picture, gold, answers=kept)


def _check(source: Located, thousands: bool) -> None:
    if thousands:
        raise InputError(
            f"{source} is not OK-VQA's: the id of a question there is the image's with one more digit, not three.",
            hint="VQAv2 has such; get OK-VQA's from https://okvqa.allenai.org/download.html.",
        )
    if sum(1 for _ in islice(stream_records(source, within="questions"), MOST + 1)) > MOST:
        raise InputError(
            f"{source} is not OK-VQA's: it has more than {MOST:,} questions.",
            hint="VQA v1 has files of the same name; get OK-VQA's from https://okvqa.allenai.org/download.html.",
        )


FILES = VQAFiles(
    info=INFO,
    prefixes=("",),
    aliases={"val": "val2014", "test": "val2014", "train": "train2014"},
    shorter=("okvqa_",),
    check=_check,
    make=make,
)
