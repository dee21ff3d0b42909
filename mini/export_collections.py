"""Drawn collections of many pictures, with questions that know which pictures count.

A file has one line of JSON for each question::

    {"id": "test_50_0_3", "collection": "test_50/0", "images": ["images/test_50/0/0001.jpg", ...], "kind": "attribute",
     "question": "How many pictures show a red cup?", "answer": 4, "pictures": ["images/test_50/0/0007.jpg", ...]}

Paths are below the file's folder. ``images`` are the pictures that the question is about, ``pictures`` those that
count; questions of one ``collection`` share pictures. An answer is a number, "yes" or "no", for a selection the list of
its pictures, and for a group the number of pictures by answer. Selections, groups and comparisons bring a ``program``,
which is run as it is.
"""

from __future__ import annotations

import operator
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .export_draw import belongs_in_split, split_of_world, tries, write_lines
from .questions import TABLE, Condition, SceneQuestion, draft
from .sets import sample_set
from .world import Scene, save_scene

QUESTIONS = 20
"""Most questions about one collection; a small one has one for each five of its pictures, and four at least."""
TRIES = 400
CONDITIONS: Mapping[str, tuple[str, str]] = {
    "attribute": ("how_many", "contains"),
    "negation": ("how_many", "lacks"),
    "number": ("how_many", "amount"),
    "both": ("how_many", "both"),
    "any": ("any", ""),
    "all": ("all", ""),
    "none": ("none", ""),
    "exactly": ("exactly", ""),
    "selection": ("how_many", "contains"),
    "comparison": ("how_many", "contains"),
}
"""Kinds of question about a condition: the kind of the table that says it, and the condition, if it must be one."""
KINDS: tuple[str, ...] = ("total", "group", *CONDITIONS)
_SIGNS = {">=": operator.ge, "==": operator.eq, ">": operator.gt, "<": operator.lt, "<=": operator.le}
_COMPARE = """half = len(images) // 2
first = len([img for img in images[:half] if query(img, "{0}") == "yes"])
second = len([img for img in images[half:] if query(img, "{0}") == "yes"])
answer = "yes" if first > second else "no\""""


def holds(condition: Condition, scene: Scene) -> bool:
    """Tells whether a condition of plain scenes is true of one. Its program says the same, a hundred times slower."""
    q = condition.slots
    count, other = q.a.count(scene), q.b.count(scene) if "b" in vars(q) else 0
    known: dict[str, bool] = {
        "contains": count > 0,
        "lacks": count == 0,
        "both": count > 0 and other > 0,
        "more": count > other,
    }
    return _SIGNS[q.k.sign](count, q.k.value) if condition.name == "amount" else known[condition.name]


def write_collections_split(root: Path, split: str, questions: int, seed: int, place: int, size: int) -> dict[str, int]:
    """Writes the questions and collections of one split and size; result as for the other files.

    Args:
        root: folder of the file.
        split, seed: as for the other files.
        questions: how many in all.
        place: not used; names hold split and size.
        size: pictures of each collection.
    """
    name, rows, most = f"{split}_{size}", list[dict[str, Any]](), min(max(4, size // 5), QUESTIONS)
    rng = random.Random(f"collections {name} {seed}")
    answers: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
    for number in tries(questions, f"collections {name}"):
        if len(rows) >= questions:
            break
        scenes = sample_set(rng, style="plain", size=size, split=split_of_world(split))
        paths = [f"images/{name}/{number}/{index:04d}.jpg" for index in range(1, size + 1)]
        for path, scene in zip(paths, scenes, strict=True):
            save_scene(scene, root / path)
        entries = _ask_collection(rng, scenes, paths, split, answers)
        for count, row in zip(range(min(most, questions - len(rows))), entries, strict=False):
            rows.append({"id": f"{name}_{number}_{count}", "collection": f"{name}/{number}", **row})
    write_lines(root / f"{name}.jsonl", rows)
    return {f"collections/{name}.jsonl": len(rows)}


def _ask_collection(
    rng: random.Random, scenes: Sequence[Scene], paths: Sequence[str], split: str, answers: Mapping[str, Counter[str]]
) -> Iterator[dict[str, Any]]:
    """Yields different questions about a collection, the kinds of which fewest were asked first."""
    asked: set[str] = set()
    for _ in range(3 * QUESTIONS):
        kind = min(rng.sample(KINDS, len(KINDS)), key=lambda candidate: answers[candidate].total())
        row = _question(rng, scenes, paths, split, kind, answers[kind])
        answers[kind][str(row["answer"]) if row else "impossible"] += 1
        if row is not None and row["question"] not in asked:
            asked.add(row["question"])
            yield row


def _question(
    rng: random.Random, scenes: Sequence[Scene], paths: Sequence[str], split: str, kind: str, answers: Counter[str]
) -> dict[str, Any] | None:
    """Asks about a collection what has the answer yes as often as no; None where nothing is found."""
    wanted = min(rng.sample(("yes", "no"), 2), key=lambda answer: answers[answer])
    form, of = CONDITIONS.get(kind, ("total_count", ""))
    for _ in range(TRIES):
        if kind == "group":
            item = draft(rng, scenes, TABLE["image"]["color"], "image")
        else:
            item = draft(rng, scenes, TABLE["set"][form], "set")
        if item is None or (of and item.slots.c.name != of) or not belongs_in_split(item, scenes, split):
            continue
        row = _answered_row(item, kind, scenes, paths)
        if row is None or (row["answer"] in ("yes", "no") and row["answer"] != wanted):
            continue
        if row["answer"] == 0 and rng.random() < 0.8:
            continue
        return row
    return None


def _answered_row(
    item: SceneQuestion, kind: str, scenes: Sequence[Scene], paths: Sequence[str]
) -> dict[str, Any] | None:
    """Returns a question with its answer; None where it has none."""
    q, row = item.slots, dict[str, Any](images=list(paths), kind=kind, question=item.question)
    if kind == "total":
        return row | {"answer": sum(q.a.count(scene) for scene in scenes)}
    if kind == "group":
        single = [(path, scene) for path, scene in zip(paths, scenes, strict=True) if q.a.count(scene) == 1]
        colors = Counter(q.a.the(scene).color for _, scene in single)
        program = f'answer = [query(img, "What color is the {q.a.name}?") for img in images]'
        row |= {"images": [path for path, _ in single], "answer": dict(sorted(colors.items())), "program": program}
        return row if len(single) > 1 else None
    true = [holds(q.c, scene) for scene in scenes]
    pictures = [path for path, counts in zip(paths, true, strict=True) if counts]
    count, half = len(pictures), len(scenes) // 2
    if kind == "comparison":
        first, second = sum(true[:half]), sum(true[half:])
        program = _COMPARE.format(f"Is there {q.c.slots.a.one}?")
        question = f"Are there more {q.n.many} with {q.c} in the first half than in the second?"
        answer = "yes" if first > second else "no"
        return None if first == second else row | {"question": question, "answer": answer, "program": program}
    row["pictures"] = pictures
    if kind == "selection":
        program = f'answer = select(images, "Is there {q.c.slots.a.one}?")'
        question = f"Which {q.n.many} {q.n.have} {q.c}?"
        return row | {"question": question, "answer": pictures, "program": program} if pictures else None
    yes = {"any": count > 0, "all": count == len(scenes), "none": not count}
    if kind == "exactly":
        yes["exactly"] = count == q.k.value
    return row | {"answer": ("yes" if yes[kind] else "no") if kind in yes else count}
