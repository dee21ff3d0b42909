"""Questions and statements about sets of drawn pictures in the files of COVR (Bogin et al., EMNLP 2021)."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

from .export_draw import Balance, ask_in_split, split_of_world, tries, write_lines
from .questions import SceneQuestion, other_wording
from .set_slots import ORDINALS
from .sets import sample_set
from .slots import NUMBERS
from .world import save_scene

_ORDERED = re.compile(
    rf"\b({'|'.join(ORDINALS)}|last|middle|left|right|(?:image|picture) (?:\d|{'|'.join(NUMBERS)}))\b"
)
_PICTURES = ("which", "which_most")
"""Kinds that ask for pictures. The scenes of a COVR question have no order, so that none can be named."""


def write_covr_split(
    root: Path, split: str, sets: int, seed: int, place: int, size: int | None = None
) -> dict[str, int]:
    """Writes the questions and pictures of one split; arguments and result as for the GQA files, sets for images.

    Args:
        root, split, sets, seed, place: as there.
        size: pictures of every set, in a file of their own; None draws one to five.
    """
    name = split if size is None else f"{split}_{size}"
    rng = random.Random(f"covr {name} {seed}")
    balance, seen, rows = Balance(), set[str](), list[dict[str, Any]]()

    def is_admitted(item: SceneQuestion) -> bool:
        return not _ORDERED.search(item.question) and item.type not in _PICTURES and item.question not in seen

    # Numbers that no other split or size has, however many pictures it draws.
    picture = 2_000_000 + 1_000_000 * place if size is None else 10**9 * size + 10**7 * place
    for _ in tries(sets * 50, f"covr {name}"):
        if len(rows) == sets:
            break
        scenes = sample_set(rng, style="plain", size=size, split=split_of_world(split))
        item = ask_in_split(rng, scenes, split, is_admitted)
        if item is None or not balance.admits(item):
            continue
        seen.add(item.question)
        ids = [str(picture + number) for number in range(1, len(scenes) + 1)]
        picture += len(scenes)
        for file, scene in zip(ids, scenes, strict=True):
            save_scene(scene, root / "images" / "VG_100K" / f"{file}.jpg")
        value = int(item.answer) if item.answer.isdigit() else item.answer
        row = {
            "qid": f"{'train' if split == 'train' else 'val_test'}_{place}{len(rows):06d}",
            "utterance": item.question,
            "scenes": ids,
            "pattern_name": item.type,
            "answer": {"yes": True, "no": False}.get(item.answer, value),
        }
        rows.append(row if split == "train" else {**row, "paraphrased": other_wording(item) or item.question})
    write_lines(root / f"{name}.jsonl", rows)
    return {f"covr/{name}.jsonl": len(rows)}
