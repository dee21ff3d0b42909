"""Questions about one drawn picture in the files of GQA (Hudson and Manning, CVPR 2019): questions and scene graphs.

Every question gets GQA's own functional program over the scene graph; questions that GQA's operations cannot say are
left out.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from .export_draw import Balance, ask_in_split, split_of_world, tries
from .export_gqa_programs import NamedScene, Step, semantic
from .questions import SceneQuestion
from .sampling import sample_scene
from .world import save_scene

PER_IMAGE = 5
TYPES = {
    "exist": ("verify", "obj", "exist"),
    "color": ("query", "attr", "directOf"),
    "kind": ("query", "cat", "categoryAttr"),
    "size": ("query", "attr", "how"),
    "verify": ("verify", "attr", "verifyAttr"),
    "choose_color": ("choose", "attr", "chooseAttr"),
    "choose_kind": ("choose", "cat", "categoryThisChoose"),
    "relation": ("verify", "rel", "existRelS"),
    "exist_relation": ("verify", "rel", "existRelS"),
    "which_side": ("choose", "rel", "relChooser"),
    "which_thing": ("compare", "attr", "comparativeChoose"),
    "half": ("verify", "attr", "positionVerify"),
    "half_choice": ("choose", "attr", "positionChoose"),
    "and": ("logical", "obj", "existAnd"),
    "or": ("logical", "obj", "existOr"),
    "same_color": ("compare", "attr", "twoSame"),
    "same_size": ("compare", "attr", "twoSame"),
    "different_color": ("compare", "attr", "twoDifferent"),
}
"""Structural, semantic and detailed type of a kind; the detailed one ends in "C" where the answer is no."""


def gqa_split_name(split: str) -> str:
    """What GQA's files call a split."""
    return split.replace("test", "testdev")


def _types(item: SceneQuestion, steps: list[Step]) -> dict[str, str]:
    structural, about, detailed = TYPES[item.type]
    if item.type == "exist" and len(steps) > 2:
        detailed = "existAttr"
    elif item.type == "color" and item.question.startswith(("Which", "In which")):
        detailed = "directWhich"
    elif steps[-1]["operation"] == "verify rel":
        detailed = "relVerify"
    if item.answer == "no":
        detailed += {"relation": "Cr" if detailed == "relVerify" else "RC"}.get(item.type, "C")
    return {"structural": structural, "semantic": about, "detailed": detailed}


def _question_record(picture: NamedScene, item: SceneQuestion, steps: list[Step]) -> dict[str, Any]:
    words = (f"{step['operation']}: {step['argument']} {step['dependencies'] or ''}".rstrip(" ") for step in steps)
    return {
        "semantic": steps,
        "entailed": [],
        "equivalent": [],
        "question": item.question,
        "imageId": picture.id,
        "isBalanced": True,
        "groups": {
            "global": {"color": "color", "kind": "shape", "size": "size"}.get(item.type),
            "local": f"{len(item.question.split()):02d}-{item.slots.a.kind or 'object'}_{item.type}",
        },
        "answer": item.answer,
        "semanticStr": "->".join(words),
        "types": _types(item, steps),
    }


def _ask_picture(rng: random.Random, picture: NamedScene, split: str, balance: Balance) -> list[dict[str, Any]]:
    """Asks several questions about a picture; those that GQA cannot say are left out."""
    records: dict[str, dict[str, Any]] = {}
    for _ in range(PER_IMAGE * 4):
        item = ask_in_split(
            rng, picture.scene, split, lambda draft: draft.type in TYPES and draft.question not in records
        )
        steps = None if item is None else semantic(picture, item)
        if item is not None and steps is not None and balance.admits(item):
            records[item.question] = _question_record(picture, item, steps)
        if item is None or len(records) == PER_IMAGE:
            break
    return list(records.values())


def write_gqa_split(root: Path, split: str, images: int, seed: int, place: int) -> dict[str, int]:
    """Writes the questions, scene graphs and pictures of one split.

    Args:
        root: Folder of the data set.
        split: One of ``SPLITS``.
        images: How many pictures.
        seed: The same seed gives the same bytes.
        place: Number of the split; ids of different splits differ.

    Returns:
        How many questions each file has.
    """
    rng = random.Random(f"gqa {split} {seed}")
    balance, questions, graphs = Balance(), dict[str, Any](), dict[str, Any]()
    first, test = 100_000 + 1_000_000 * place, split.startswith("test")
    numbers = iter(rng.sample(range(first * 10, first * 10 + 9_000_000), images * PER_IMAGE))
    for _ in tries(images * 60, f"gqa {split}"):
        if len(graphs) == images:
            break
        scene = sample_scene(rng, style="plain", min_things=2, split=split_of_world(split))
        number = first + len(graphs)
        ids = {thing: str(10 * number + at) for at, thing in enumerate(scene.things)}
        # Pictures of the tests are named as GQA names those beyond Visual Genome.
        picture = NamedScene(f"{'n' if test else ''}{number}", scene, ids)
        if asked := _ask_picture(rng, picture, split, balance):
            questions |= {f"{next(numbers):08d}": record for record in asked}
            save_scene(scene, root / "images" / f"{picture.id}.jpg")
            graphs[picture.id] = picture.graph()
    name = gqa_split_name(split)
    _dump(root / "questions1.2" / f"{name}_balanced_questions.json", questions)
    _dump(root / "sceneGraphs" / f"{name}_sceneGraphs.json", graphs)
    return {f"gqa/questions1.2/{name}_balanced_questions.json": len(questions)}


def _dump(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, separators=(",", ":")), encoding="utf-8")
