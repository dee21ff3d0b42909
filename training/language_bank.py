"""Writes the prompt set of the mini preset: preamble and fifty annotated programs.

    python -m training.language_bank

Questions and programs come from ``codevqa.miniworld.sampling``; wordings kept for testing are never used.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

from codevqa.miniworld.questions import UNSEEN, Item
from codevqa.miniworld.questions_set import sample_set
from codevqa.miniworld.sampling import sample_question
from codevqa.miniworld.world import Scene, sample_scene

FOLDER = Path(__file__).resolve().parents[1] / "prompts" / "mini"

IMAGE = {
    "exist": 1, "color": 1, "kind": 1, "size": 1, "count": 1, "verify": 1, "choose_color": 1, "choose_kind": 1,
    "relation": 1, "two_relations": 1, "exist_relation": 1, "which_side": 2, "which_thing": 1, "half": 1,
    "half_choice": 1, "and": 1, "or": 1, "but_not": 1, "same_color": 1, "different_color": 1, "compare": 1,
    "threshold": 1, "total": 1,
}  # fmt: skip
SET = {
    "how_many": 1, "all": 1, "any": 1, "none": 1, "at_least": 1, "exactly": 1, "find_color": 1, "find_count": 1,
    "find_exist": 1, "total_count": 1, "total_threshold": 1, "two_counts": 1, "in_picture": 1, "two_colors": 1,
    "most": 1, "same_number": 1, "box": 2, "tower": 2, "box_total": 1, "box_touching": 1,
    "joined": 1, "only": 1,
}  # fmt: skip
FALLBACKS = (
    ("What does the picture show?", 'answer = query(img, "What does the picture show?")', "image"),
    ("What do the images show?", 'answer = query(images[0], "What does the picture show?")', "set"),
)

PREAMBLE = '''"""Write a short program that answers the question about each image and leaves the result in `answer`."""
LEFT, BOTTOM, RIGHT, TOP = 0, 0, 24, 24
"""
{api}
"""
'''
HEAD = {
    "name": "mini",
    "form": "image",
    "shots": 6,
    "captions": 7,
    "caption_draws": 12,
    "reading_shots": 0,
    "primitives": ["open_image", "open_images", "query", "get_pos", "find_matching_image"],
    "image_labels": None,
    "licence": "Apache-2.0",
    "about": "Questions about drawn scenes, one or several, for the mini models. Questions and programs were made by "
    "training/language_bank.py, reading examples were written by hand.",
}


def wanted_item(rng: random.Random, form: str, family: str, used: set[str]) -> tuple[list[Scene], Item]:
    """Draws scenes until they give a question of a family in a wording not used yet."""
    for attempt in range(20000):
        scenes = [sample_scene(rng, min_things=3)] if form == "image" else sample_set(rng)
        try:
            item = sample_question(rng, scenes[0] if form == "image" else scenes)
        except LookupError:
            continue
        if item.type != family or item.wording.endswith(UNSEEN):
            continue
        if "images[2]" in item.program or item.question.startswith(("Count", "Tell", "Name")):
            continue  # the bank shows questions and statements, programs for any number of pictures
        if family == "choose_color" and item.question.startswith("Does"):
            continue  # reads like a question of yes or no
        if item.wording in used and attempt < 8000:
            continue
        used.add(item.wording)
        return scenes, item
    raise LookupError(f"no question of family {family!r} came up")


def examples(rng: random.Random) -> list[dict[str, object]]:
    """The bank of programs: single pictures and sets alternate, so that the first ones are a varied choice."""
    rows: dict[str, list[tuple[str, str]]] = {"image": [], "set": []}
    for form, wishes in (("image", IMAGE), ("set", SET)):
        used: set[str] = set()
        for family, count in wishes.items():
            for _ in range(count):
                item = wanted_item(rng, form, family, used)[1]
                rows[form].append((item.question, item.program))
        rng.shuffle(rows[form])
        rows[form] += [(question, program) for question, program, fits in FALLBACKS if fits == form]
    mixed = [("image", *row) for row in rows["image"]] + [("set", *row) for row in rows["set"]]
    return [
        {"id": f"mini-{number:03}", "question": question, "program": program, "form": form}
        for number, (form, question, program) in enumerate(mixed, 1)
    ]


def main() -> None:
    """Writes the folder, all but ``reading.jsonl``, which is written by hand."""
    rng = random.Random(2)
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "preamble.txt").write_text(PREAMBLE, encoding="utf-8")
    (FOLDER / "prompt.json").write_text(json.dumps(HEAD, indent=2) + "\n", encoding="utf-8")
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in examples(rng))
    (FOLDER / "examples.jsonl").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
