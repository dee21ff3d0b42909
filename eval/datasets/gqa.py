"""GQA (Hudson and Manning, CVPR 2019): questions about one photograph, each with a program over its scene graph.

https://cs.stanford.edu/people/dorarad/gqa. Licence: CC BY 4.0 for the questions as the site says, MIT as the copy on
the Hugging Face hub says; the photographs are Visual Genome's, COCO's and Flickr's. ::

    questions1.2/ or questions/  testdev_balanced_questions.json, …
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

Figures are broken down by a question's own record. Steps and the division into open and binary questions follow the
official ``eval.py`` (dorarad/gqa). CodeVQA's paper reports the groups spatial, and, or without a rule; the rules here
are ours: the last operation for "and" and "or", and for spatial a relation to the left, to the right, above or below
anywhere in the program, or a position asked for. ``spatial_final`` holds only where the last relation or position is
such a one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from ..task import Example
from .files import Folder, JsonRecord, stream_records
from .loader import Loader, Picture, gold_text

KEPT = ("isBalanced", "groups", "entailed", "types")
"""What metrics need of a record."""
SIDES = frozenset(("to the left of", "to the right of", "above", "below"))
RELATIONAL = frozenset(("relate", "verify rel", "choose rel"))
POSITIONS = ("hposition", "vposition")
NO_STEP = ("exist", "query: name", "choose name")
"""What the official count of steps leaves out."""

_OBJECTS = re.compile(r"\s*\([^()]*\)\s*$")


class GQA(Loader):
    """A split of GQA."""

    name = "gqa"
    title = "GQA"
    splits = (
        *("testdev_balanced", "testdev_all", "val_balanced", "val_all", "train_balanced"),
        *("test_balanced", "test_all", "challenge_balanced", "challenge_all", "submission_all"),
    )
    folders = ("gqa",)
    files = tuple(
        f"{base}{{split}}{end}.json"
        for end in ("_questions", "")
        for base in ("questions1.2/", "questions/", "annotations/", "")
    )
    keyed = True
    places = ("images", "allImages/images", "")
    questions = "Get https://downloads.cs.stanford.edu/nlp/data/gqa/questions1.2.zip into that folder, unpacked or not."
    pictures = "Get https://downloads.cs.stanford.edu/nlp/data/gqa/images.zip into that folder, unpacked or not."
    hub: ClassVar[Mapping[str, str]] = {}

    def from_table(self, row: JsonRecord) -> tuple[str, JsonRecord]:
        """Returns key and record; lists of ids are text there."""
        for name in ("entailed", "equivalent"):
            if isinstance(row.get(name), str):
                row[name] = re.findall(r"\d+", row[name])
        return str(row["id"]), row

    def examples(self, key: str, row: JsonRecord, picture: Picture) -> Iterator[Example]:
        """Turns a record into an example; without a key, its id is the record's own."""
        answer = row.get("answer")
        name = str(row["image"]) if "image" in row else f"{row['imageId']}.jpg"
        yield Example(
            id=key or str(row["question_id"] if "question_id" in row else row["questionId"]),
            question=str(row["question"]),
            images=(picture(name),),
            form="image",
            gold=() if answer is None else (gold_text(answer),),
            groups=groups(row),
            cluster=str(row["imageId"] if "imageId" in row else name.removesuffix(".jpg")),
            record={name: row[name] for name in KEPT if name in row},
        )


def read_choices(root: Path, split: str) -> Iterator[tuple[str, JsonRecord]]:
    """Yields ids of questions with the answers that are valid and plausible: ``{"valid": […], "plausible": […]}``.

    Args:
        root: GQA's folder, or one that holds it.
        split: Such as ``val_balanced``.

    Raises:
        InputError: a file is damaged.
        SetupError: it is not there, as for testdev, which has none.
    """
    folder = Folder(root, *GQA.folders, title=GQA.title)
    tier = split.removesuffix("_balanced").removesuffix("_all")
    single = [f"{base}{tier}_choices.json" for base in ("eval/", "")]
    file = folder.find(*single)
    if file is None:
        hint = "Get https://nlp.stanford.edu/data/gqa/eval.zip into that folder; it has choices for val only."
        raise folder.lacks("choices", single, hint)
    yield from stream_records(file, keyed=True)


def groups(row: Mapping[str, Any]) -> dict[str, str]:
    """Returns the groups of a question; empty where its record is without types and program, as in the test splits.

    Keys: ``structural``, ``semantic``, ``detailed``, ``open`` ("open" or "binary"), ``words``, ``steps``, and
    ``spatial``, ``spatial_final``, ``and``, ``or`` with "yes" or "no". A type that is not given is "other".
    """
    attributes: dict[str, str] = {}
    types = row.get("types")
    if types:
        for name in ("structural", "semantic", "detailed"):
            attributes[name] = str(types.get(name) or "other")
        attributes["open"] = "open" if attributes["structural"] == "query" else "binary"
        attributes["words"] = str(len(str(row["question"]).split()))
    program = row.get("semantic")
    if program:
        last = str(program[-1]["operation"])
        attributes["steps"] = str(steps(program))
        relational = [relation for relation in map(_spatial, program) if relation is not None]
        attributes["spatial"] = _yes_no_answer(any(relational))
        attributes["spatial_final"] = _yes_no_answer(relational[-1:] == [True])
        attributes["and"] = _yes_no_answer(last == "and")
        attributes["or"] = _yes_no_answer(last == "or")
    return attributes


def steps(program: Sequence[Mapping[str, Any]]) -> int:
    """Number of reasoning steps as the official script counts them."""
    texts = [f"{step['operation']}: {step['argument']}" for step in program]
    return sum(not any(part in text for part in NO_STEP) for text in texts)


def _spatial(step: Mapping[str, Any]) -> bool | None:
    """Whether a step is about left, right, above or below, or a position; None where it is about no relation at all."""
    operation, argument = str(step["operation"]), str(step["argument"])
    if operation.endswith(POSITIONS) or (operation == "query" and argument in POSITIONS):
        return True
    if operation not in RELATIONAL:
        return None
    parts = _OBJECTS.sub("", argument).rsplit(",", 2)  # chair,to the left of|to the right of,s (12)
    return len(parts) == 3 and not SIDES.isdisjoint(parts[1].split("|"))


def _yes_no_answer(holds: bool) -> str:
    return "yes" if holds else "no"
