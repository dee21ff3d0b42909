"""Statements about pairs of drawn pictures in the files of NLVR2 (Suhr et al., ACL 2019).

Every sentence comes with four pairs, two for which it is true and two for which it is not, so that the sentence alone
says nothing and consistency can be measured.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from .export_draw import ask_in_split, split_of_world, tries, write_lines
from .questions import SceneQuestion
from .sets import like, sample_set
from .truth import run_program
from .world import Scene, save_scene

PAIRS = 4
LABELS = {"yes": "True", "no": "False"}


def nlvr2_split_name(split: str) -> str:
    """What NLVR2 calls the file of a split; the first part of its identifiers."""
    return split.replace("val", "dev").replace("test", "test1")


def _find_pairs(
    rng: random.Random, item: SceneQuestion, pair: list[Scene], split: str
) -> list[tuple[list[Scene], str]] | None:
    """Four pairs for a sentence, two of each truth, in no order; None when they are not found."""
    by_label: dict[str, list[list[Scene]]] = {"yes": [], "no": []}
    by_label[item.answer].append(pair)
    world = split_of_world(split)
    looks = [(thing.color, thing.kind) for scene in pair for thing in scene.things]
    for _ in range(400):
        # New scenes with looks of the old ones, so that the sentence has something to speak of.
        chance = rng.choice((0.3, 0.6, 0.9))
        new = [like(rng, scene, looks, chance, world) for scene in sample_set(rng, style="plain", size=2, split=world)]
        try:
            label = run_program(item.program, new, "set")
        except ValueError:  # the sentence supposes what the pair does not show
            continue
        if len(by_label[label]) < PAIRS // 2:
            by_label[label].append(new)
            if all(len(group) == PAIRS // 2 for group in by_label.values()):
                pairs = [(scenes, name) for name, all_of in by_label.items() for scenes in all_of]
                rng.shuffle(pairs)
                return pairs
    return None


def write_nlvr2_split(root: Path, split: str, pairs: int, seed: int, place: int) -> dict[str, int]:
    """Writes the sentences and pictures of one split; arguments and result as for the GQA files, pairs for images."""
    rng = random.Random(f"nlvr2 {split} {seed}")
    name, rows, seen = nlvr2_split_name(split), list[dict[str, Any]](), set[str]()
    sentences = max(1, pairs // PAIRS)
    for _ in tries(sentences * 100, f"nlvr2 {split}"):
        if len(seen) == sentences:
            break
        pair = sample_set(rng, style="plain", size=2, split=split_of_world(split))
        item = ask_in_split(rng, pair, split, lambda draft: draft.question.endswith(".") and draft.question not in seen)
        labelled = _find_pairs(rng, item, pair, split) if item is not None and item.answer in LABELS else None
        if item is None or labelled is None:
            continue
        for number, (scenes, answer) in enumerate(labelled):
            stem = f"{name}-{len(seen)}-{number}"
            for side, scene in enumerate(scenes):
                save_scene(scene, root / "images" / f"{stem}-img{side}.png")
            rows.append(_row(item.question, LABELS[answer], f"{stem}-0", split, len(seen)))
        seen.add(item.question)
    write_lines(root / "data" / f"{name}.json", rows)
    return {f"nlvr2/data/{name}.json": len(rows)}


def _row(sentence: str, label: str, identifier: str, split: str, number: int) -> dict[str, Any]:
    row: dict[str, Any] = {"validation": {"0": label}, "sentence": sentence, "label": label, "identifier": identifier}
    row |= {"left_url": "", "right_url": "", "query": "", "writer": "0", "synset": "drawing"}
    if split == "train":
        return row | {"directory": str(number % 100)}
    return row | {"extra_validations": {}}
