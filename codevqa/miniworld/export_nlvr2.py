"""Statements about pairs of drawn pictures in the files of NLVR2 (Suhr et al., ACL 2019).

Every sentence comes with four pairs, two for which it is true and two for which it is not, so that the sentence alone
says nothing and consistency can be measured.
"""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

from .export_draw import fits, phrases, split_of_world, tries
from .oracle import run_program
from .questions import Item
from .questions_set import sample_set
from .sampling import sample_question
from .world import HELD_OUT, Scene, Thing, draw

FILES = {
    "train": "train",
    "val": "dev",
    "test": "test1",
    "test_combinations": "test1_combinations",
    "test_wording": "test1_wording",
}
"""Split to the name of its file, which is also the first part of its identifiers."""
PAIRS = 4
LABELS = {"yes": "True", "no": "False"}


def truth(item: Item, pair: list[Scene]) -> str | None:
    """ "yes" or "no"; None where the statement supposes what the pair does not show."""
    if "find_matching_image" in item.program:
        mark = phrases(item.program)[0]
        if sum(mark.count(scene) > 0 for scene in pair) != 1:
            return None
    try:
        return run_program(item.program, pair, "set")
    except ValueError:  # it asks for one thing where there is not exactly one
        return None


def _looks_again(rng: random.Random, pair: list[Scene], fresh: list[Scene], split: str) -> list[Scene]:
    """Gives things of new scenes the looks of an old pair, so that a sentence about it has something to speak of."""
    old = [(thing.color, thing.kind) for scene in pair for thing in scene.things]
    chance = rng.choice((0.3, 0.6, 0.9))

    def again(thing: Thing) -> Thing:
        if rng.random() > chance:
            return thing
        color, kind = rng.choice(old)
        if rng.random() < 0.25:
            color = thing.color
        if split != "test_combinations" and (color, kind) in HELD_OUT:
            return thing
        return Thing(kind, color, thing.size, thing.x, thing.y, thing.radius)

    return [replace(scene, things=tuple(map(again, scene.things))) for scene in fresh]


def _pairs(rng: random.Random, item: Item, pair: list[Scene], split: str) -> list[tuple[list[Scene], str]] | None:
    """Four pairs for a sentence, two of each truth, in no order; None when they are not found."""
    found: dict[str, list[list[Scene]]] = {"yes": [], "no": []}
    found[item.answer].append(pair)
    world = split_of_world(split)
    for _ in range(400):
        fresh = sample_set(rng, style="plain", size=2, split=world)
        new = _looks_again(rng, pair, fresh, split)
        label = truth(item, new)
        if label is not None and len(found[label]) < PAIRS // 2:
            found[label].append(new)
            if all(len(one) == PAIRS // 2 for one in found.values()):
                made = [(scenes, name) for name, all_of in found.items() for scenes in all_of]
                rng.shuffle(made)
                return made
    return None


def write_split(root: Path, split: str, pairs: int, seed: int, place: int) -> dict[str, int]:
    """Writes the sentences and pictures of one split; arguments and result as for the GQA files, pairs for images."""
    rng = random.Random(f"nlvr2 {split} {seed}")
    name, rows, seen = FILES[split], list[dict[str, Any]](), set[str]()
    sentences = max(1, pairs // PAIRS)
    for _ in tries(sentences * 400, f"nlvr2 {split}"):
        if len(seen) == sentences:
            break
        pair = sample_set(rng, style="plain", size=2, split=split_of_world(split))
        item = sample_question(rng, pair)
        if not item.question.endswith(".") or item.answer not in LABELS or item.question in seen:
            continue
        made = _pairs(rng, item, pair, split) if fits(item, pair, split) else None
        if made is None:
            continue
        for number, (scenes, answer) in enumerate(made):
            stem = f"{name}-{len(seen)}-{number}"
            for side, scene in enumerate(scenes):
                draw(scene).save(root / "images" / f"{stem}-img{side}.png")
            rows.append(_row(item.question, LABELS[answer], f"{stem}-0", split, len(seen)))
        seen.add(item.question)
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (root / "data" / f"{name}.json").write_text(text, encoding="utf-8")
    return {f"nlvr2/data/{name}.json": len(rows)}


def _row(sentence: str, label: str, identifier: str, split: str, number: int) -> dict[str, Any]:
    row: dict[str, Any] = {
        "validation": {"0": label},
        "sentence": sentence,
        "left_url": "",
        "writer": "0",
        "label": label,
        "right_url": "",
        "synset": "drawing",
        "query": "",
        "identifier": identifier,
    }
    if split == "train":
        row["directory"] = str(number % 100)
    else:
        row["extra_validations"] = {}
    return row
