"""Questions and statements about one to five drawn pictures in the files of COVR (Bogin et al., EMNLP 2021).

Programs are COVR's operations where the question is of its kinds (find, count, compare, quantify); others are one
operation "python" with our own program as its argument.
"""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

from .export_draw import AdmittedQuestion, Balance, fits, phrases, reworded, save_jpeg, split_of_world, tries
from .questions import Item, Phrase
from .questions_set import sample_set
from .sampling import sample_question
from .world import Scene

FILES = {
    "train": "train",
    "val": "val",
    "test": "test",
    "test_combinations": "test_combinations",
    "test_wording": "test_wording",
}
"""Split to the name of its file."""

_COMPARE = {">=": "geq", "==": "eq", ">": "gt", "<": "lt"}
_PATTERNS = {
    "how_many": "count_images",
    "all_pictures": "quantifier",
    "all": "quantifier",
    "any": "quantifier",
    "none": "quantifier",
    "at_least": "verify_count_images",
    "exactly": "verify_count_images",
    "total_count": "count",
    "total_threshold": "verify_count",
    "two_counts": "compare_count",
    "two_colors": "compare_attr",
    "same_number": "compare_count_all",
    "most": "count_superlative",
    "find_color": "query_attr_in_image",
    "find_count": "count_in_image",
    "find_exist": "verify_in_image",
}
_SIMPLE = re.compile(r'    if query\(img, "Is there [\w ]+\?"\) == "yes":\n        count \+= 1\n')

_ORDERED = re.compile(r"\b(first|second|third|left|right)\b")
"""The scenes of a COVR question have no order."""

Step = dict[str, Any]


def _step(steps: list[Step], operation: str, arguments: list[Any], *dependencies: int) -> int:
    steps.append({"operation": operation, "arguments": arguments, "dependencies": list(dependencies)})
    return len(steps) - 1


def _find(steps: list[Step], what: Phrase) -> int:
    place = _step(steps, "find", [what.kind or "object"])
    for value in (what.size, what.color):
        if value:
            place = _step(steps, "filter", [value], place)
    return place


def _compared(steps: list[Step], count: int, program: str, name: str) -> bool:
    match = re.search(rf"{name} (>=|==|>|<) (\d+)", program)
    if match:
        _step(steps, _COMPARE[match[1]], [int(match[2])], count)
    return match is not None


def program_of(item: Item) -> list[Step]:
    """The program as a list of operations."""
    steps: list[Step] = []
    source = item.program
    if item.type in ("total_count", "total_threshold"):
        count = _step(steps, "count", [], _find(steps, phrases(source)[0]))
        if item.type == "total_count" or _compared(steps, count, source, "total"):
            return steps
    if _SIMPLE.search(source):
        count = _step(steps, "count", [], _step(steps, "unique_images", [], _find(steps, phrases(source)[0])))
        if item.type == "how_many" or _compared(steps, count, source, "count"):
            return steps
        if "count == len(images)" in source:
            _step(steps, "eq", [], count, _step(steps, "count", [], _step(steps, "scene", [])))
            return steps
    return [{"operation": "python", "arguments": [source], "dependencies": []}]


def _properties(item: Item, scenes: list[Scene]) -> list[str]:
    tags = {
        "has_count": bool(re.search(r"\bcount|total", item.program)) or item.answer.isdigit(),
        "has_quantifier": item.type in ("any", "all", "none"),
        "has_quantifier_all": item.type == "all",
        "has_quantifier_none": item.type == "none",
        "has_compare": item.type in ("two_counts", "two_colors", "same_number", "most"),
        "has_number": item.type in ("at_least", "exactly", "total_threshold"),
        "has_same_attr": item.type == "two_colors",
        "is_statement": item.question.endswith(".") and item.answer in ("yes", "no"),
    }
    return [tag for tag, holds in tags.items() if holds]


def answer_of(item: Item) -> bool | int | str:
    """The answer with the type that COVR gives it."""
    if item.answer in ("yes", "no"):
        return item.answer == "yes"
    return int(item.answer) if item.answer.isdigit() else item.answer


def ask(rng: random.Random, split: str, balance: Balance, seen: set[str]) -> AdmittedQuestion | None:
    """Draws one set with its question, or None when it was not admitted."""
    scenes = sample_set(rng, style="plain", split=split_of_world(split))
    state = rng.getstate()
    item = sample_question(rng, scenes)
    if _ORDERED.search(item.question):
        return None
    if item.question in seen or not fits(item, scenes, split) or not balance.admits(item):
        return None
    seen.add(item.question)
    other = None
    if split != "train":
        other = reworded(state, lambda again: sample_question(again, scenes), item, seen=True)
    return AdmittedQuestion(item, scenes, other)


def write_split(root: Path, split: str, sets: int, seed: int, place: int) -> dict[str, int]:
    """Writes the questions and pictures of one split; arguments and result as for the GQA files, sets for images."""
    rng = random.Random(f"covr {split} {seed}")
    balance, seen, rows = Balance(), set[str](), list[dict[str, Any]]()
    picture = 2_000_000 + 1_000_000 * place
    for _ in tries(sets * 200, f"covr {split}"):
        if len(rows) == sets:
            break
        asked = ask(rng, split, balance, seen)
        if asked is None:
            continue
        ids = []
        for scene in asked.scenes:
            picture += 1
            ids.append(str(picture))
            save_jpeg(scene, root / "images" / "VG_100K" / f"{picture}.jpg")
        item = asked.item
        row = {
            "qid": f"{'train' if split == 'train' else 'val_test'}_{place}{len(rows):06d}",
            "utterance": item.question,
            "scenes": ids,
            "properties": _properties(item, asked.scenes),
            "pattern_name": _PATTERNS.get(item.type, item.type),
            "program": program_of(item),
            "answer": answer_of(item),
        }
        if split != "train":
            row["paraphrased"] = asked.paraphrased or item.question
        rows.append(row)
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (root / f"{FILES[split]}.jsonl").write_text(text, encoding="utf-8")
    return {f"covr/{FILES[split]}.jsonl": len(rows)}
