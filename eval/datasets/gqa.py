"""GQA (Hudson and Manning, CVPR 2019): questions about one photograph, each with a program over its scene graph.

https://cs.stanford.edu/people/dorarad/gqa. Licence: CC BY 4.0 for the questions as the site says, MIT as the copy on
the Hugging Face hub says; the photographs are Visual Genome's, COCO's and Flickr's. ::

    questions1.2/ or questions/  testdev_balanced_questions.json, …, train_all_questions/train_all_questions_0.json …
    images/                      2383860.jpg …
    eval/val_choices.json, sceneGraphs/val_sceneGraphs.json

A file is one object; its keys are the ids of the questions, strings with leading zeros. A record, shortened::

    "14199179": {"imageId": "2383860", "question": "Which type of clothing is not white?", "answer": "suit",
     "fullAnswer": "The clothing is a suit.", "isBalanced": true, "entailed": ["14199180", "14199179"],
     "equivalent": ["14199179"], "groups": {"global": "clothing", "local": "12q-clothing_n#white"},
     "types": {"structural": "query", "semantic": "cat", "detailed": "categoryThat"},
     "semantic": [{"operation": "select", "dependencies": [], "argument": "clothing (693480)"},
      {"operation": "filter color", "dependencies": [0], "argument": "not(white)"},
      {"operation": "query", "dependencies": [1], "argument": "name"}],
     "semanticStr": "select: clothing (693480)->filter color: not(white) [0]->query: name [1]"}

The files of LAVIS and of CodeVQA's authors are lists of such records with ``image`` and an integer ``question_id``, to
which leading zeros are lost. The splits test, challenge and submission have no answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

from ...core.errors import InputError
from ..task import EvalImage, Example
from .files import Folder, Located, Pictures
from .gqa_groups import groups
from .json_stream import JsonRecord, stream_records
from .split import Info, Split, answer_text, locate, read

__all__ = ["INFO", "choices", "example", "open_split"]

INFO = Info(
    name="gqa",
    title="GQA",
    prompts="gqa",
    splits=(
        "testdev_balanced",
        "testdev_all",
        "val_balanced",
        "val_all",
        "train_balanced",
        "train_all",
        "test_balanced",
        "test_all",
        "challenge_balanced",
        "challenge_all",
        "submission_all",
    ),
    folders=("gqa",),
    questions="Get https://downloads.cs.stanford.edu/nlp/data/gqa/questions1.2.zip into that folder, unpacked or not.",
    pictures="Get https://downloads.cs.stanford.edu/nlp/data/gqa/images.zip into that folder, unpacked or not.",
)

FOLDERS = ("questions1.2/", "questions/", "annotations/", "")
KEPT = (
    "imageId",
    "fullAnswer",
    "isBalanced",
    "groups",
    "entailed",
    "equivalent",
    "types",
    "semantic",
    "semanticStr",
)
"""What metrics need of a record."""
CHUNKS = 10
"""Into how many files the official train_all is cut."""


def open_split(folder: Folder, split: str, *, pictures: bool = True) -> Split:
    """Opens a split such as ``testdev_balanced``, or any file of questions beside the official ones."""
    sources = _sources(folder, split)
    finder = Pictures(folder, "images", "allImages/images", "")

    def make(key: str, row: JsonRecord) -> Iterator[Example]:
        yield example(key, row, finder.find(_picture(row)))

    notes: tuple[str, ...] = ()
    if split == "train_all" and 1 < len(sources) < CHUNKS:
        notes = (f"train_all has {len(sources)} of its {CHUNKS} files here.",)
    opened = Split(INFO.name, split, INFO.prompts, sources, read(INFO, sources, make, keyed=True), notes)
    return opened.check(folder, INFO, finder if pictures else None)


def example(key: str, row: JsonRecord, picture: EvalImage) -> Example:
    """Turns a record into an example.

    Args:
        key: Its key; where that is empty, the record's own id is taken.
        row: The record.
        picture: The picture it is about.

    Raises:
        KeyError, TypeError, ValueError: it is no record of GQA.
    """
    answer = row.get("answer")
    return Example(
        id=key or str(row["question_id"] if "question_id" in row else row["questionId"]),
        question=str(row["question"]),
        images=(picture,),
        form="image",
        gold=() if answer is None else (answer_text(answer),),
        groups=groups(row),
        cluster=str(row["imageId"] if "imageId" in row else _picture(row).removesuffix(".jpg")),
        record={name: row[name] for name in KEPT if name in row},
    )


def choices(root: Path, split: str) -> Iterator[tuple[str, JsonRecord]]:
    """Yields ids of questions with the answers that are valid and plausible: ``{"valid": […], "plausible": […]}``.

    Args:
        root: GQA's folder, or one that holds it.
        split: Such as ``val_balanced``.

    Raises:
        SetupError: the file is not there, as for testdev, which has none.
    """
    folder = Folder(root, *INFO.folders, title=INFO.title)
    name = f"{_tier(split)}_choices"
    hint = "Get https://nlp.stanford.edu/data/gqa/eval.zip into that folder; it has choices for train and val only."
    single = [f"{base}{name}.json" for base in ("eval/", "")]
    found = folder.find(*single)
    sources = (found,) if found else _chunks(folder, [f"eval/{name}/{_tier(split)}_all_questions"])
    for source in sources or (folder.need("choices", single, hint),):
        yield from stream_records(source, keyed=True)


def _tier(split: str) -> str:
    return split.removesuffix("_balanced").removesuffix("_all")


def _picture(row: JsonRecord) -> str:
    return str(row["image"]) if "image" in row else f"{row['imageId']}.jpg"


def _sources(folder: Folder, split: str) -> tuple[Located, ...]:
    """The files of a split: one, or the chunks of one."""
    single = [f"{base}{split}{end}.json" for end in ("_questions", "") for base in FOLDERS]
    found = folder.find(*single)
    if found is not None:
        return (found,)
    chunked = [f"{base}{split}_questions/{split}_questions" for base in FOLDERS]
    chunks = _chunks(folder, chunked)
    if chunks:
        return chunks
    return (locate(INFO, folder, split, "questions", [*single[: len(FOLDERS)], f"{chunked[0]}_0.json"]),)


def _chunks(folder: Folder, stems: list[str]) -> tuple[Located, ...]:
    """The chunks of the first stem that has any, in order.

    Raises:
        InputError: one before the last is missing.
    """
    found: list[Located] = []
    for number in count():
        one = folder.find(*(f"{stem}_{number}.json" for stem in stems))
        if one is not None:
            if len(found) < number:
                raise InputError(
                    f"{stems[0]}_{len(found)}.json is missing in {folder.root}, though {one} is there.",
                    hint=INFO.questions,
                )
            found.append(one)
        elif number >= CHUNKS:
            break
    return tuple(found)
