"""Questions and statements about one to five drawn pictures in the files of COVR (Bogin et al., EMNLP 2021).

Programs are COVR's operations where the question is of its kinds (find, count, compare, quantify); others are one
operation "python" with our own program as its argument.
"""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

from .export_draw import Balance, ask, split_of_world, tries, write_lines
from .phrases import Phrase
from .questions import Item, reworded, sample_set
from .world import save

_COMPARE = {">=": "geq", "==": "eq", ">": "gt", "<": "lt"}
_PATTERNS = {
    "how_many": "count_images",
    **dict.fromkeys(("all", "any", "none"), "quantifier"),
    **dict.fromkeys(("at_least", "exactly"), "verify_count_images"),
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


def program_of(item: Item) -> list[Step]:
    """The program as a list of operations."""
    steps: list[Step] = []
    q = item.slots
    limits = {"any": (">=", 1), "none": ("==", 0), "at_least": (">=", 0), "exactly": ("==", 0)}
    if item.type in ("total_count", "total_threshold"):
        count = _step(steps, "count", [], _find(steps, q.a))
        if item.type == "total_threshold":
            _step(steps, _COMPARE[q.k.sign], [q.k.value], count)
    elif item.type in (*limits, "how_many", "all") and q.c.name == "contains":
        count = _step(steps, "count", [], _step(steps, "unique_images", [], _find(steps, q.c.slots.a)))
        if item.type == "all":
            _step(steps, "eq", [], count, _step(steps, "count", [], _step(steps, "scene", [])))
        elif item.type in limits:
            sign, limit = limits[item.type]
            _step(steps, _COMPARE[sign], [q.k.value if hasattr(q, "k") else limit], count)
    else:
        _step(steps, "python", [item.program])
    return steps


def _properties(item: Item) -> list[str]:
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


def write_split(root: Path, split: str, sets: int, seed: int, place: int) -> dict[str, int]:
    """Writes the questions and pictures of one split; arguments and result as for the GQA files, sets for images."""
    rng = random.Random(f"covr {split} {seed}")
    balance, seen, rows = Balance(), set[str](), list[dict[str, Any]]()
    picture = 2_000_000 + 1_000_000 * place
    for _ in tries(sets * 50, f"covr {split}"):
        if len(rows) == sets:
            break
        scenes = sample_set(rng, style="plain", split=split_of_world(split))
        item = ask(rng, scenes, split, lambda one: not _ORDERED.search(one.question) and one.question not in seen)
        if item is None or not balance.admits(item):
            continue
        seen.add(item.question)
        ids = [str(picture + number) for number in range(1, len(scenes) + 1)]
        picture += len(scenes)
        for name, scene in zip(ids, scenes, strict=True):
            save(scene, root / "images" / "VG_100K" / f"{name}.jpg")
        row = {
            "qid": f"{'train' if split == 'train' else 'val_test'}_{place}{len(rows):06d}",
            "utterance": item.question,
            "scenes": ids,
            "properties": _properties(item),
            "pattern_name": _PATTERNS.get(item.type, item.type),
            "program": program_of(item),
            "answer": answer_of(item),
        }
        rows.append(row if split == "train" else {**row, "paraphrased": reworded(item) or item.question})
    write_lines(root / f"{split}.jsonl", rows)
    return {f"covr/{split}.jsonl": len(rows)}
