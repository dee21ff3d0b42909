"""Questions about one drawn picture in the files of GQA (Hudson and Manning, CVPR 2019): questions and scene graphs.

Every question gets GQA's own functional program over the scene graph; questions that GQA's operations cannot say are
left out.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from .export_draw import Balance, ask, split_of_world, tries
from .export_gqa_programs import NamedScene, Step, semantic, semantic_text
from .phrases import Phrase, parse_phrase, with_article
from .questions import Item
from .slots import Slots
from .world import COLORS, HELD_OUT, Scene, sample_scene, save

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


def file_name(split: str) -> str:
    """What GQA's files call a split."""
    return split.replace("test", "testdev")


def _types(item: Item, steps: list[Step]) -> dict[str, str]:
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


_WHOLE = {
    **dict.fromkeys(("kind", "choose_kind"), "The {a.name} is {one}."),
    "which_side": "The {a.name} is {how} the {b.name}.",
    "half_choice": "The {a.name} is in the {answer} half of the picture.",
    "which_thing": "It is the {answer}.",
}
"""Answers as sentences, where they are not yes or no."""


def full_answer(item: Item) -> str:
    """The answer as a sentence."""
    what, answer = item.slots.a, item.answer
    if answer in ("yes", "no"):
        if item.type == "exist":
            return f"Yes, there is {what.one}." if answer == "yes" else f"No, there is no {what.name}."
        return "Yes, that is true." if answer == "yes" else "No, that is not true."
    how = f"to the {answer} of" if answer in ("left", "right") else answer
    whole = _WHOLE.get(item.type, "The {a.name} is {answer}.")
    return whole.format(**vars(item.slots), answer=answer, one=with_article(answer), how=how)


def _marks(picture: NamedScene, text: str, parts: list[Phrase]) -> dict[str, str]:
    """Where a text names a thing: the word's place, or a slice of places, to the id of the thing."""
    words = [word.strip(".,?!").removesuffix("'s").lower() for word in text.split()]
    found: dict[str, str] = {}
    taken: set[int] = set()
    for what in sorted(set(parts), key=lambda one: (-len(one.name), one.name)):
        things, name = what.find(picture.scene), what.name.split()
        for start in range(len(words) if len(things) == 1 else 0):
            places = range(start, start + len(name))
            if words[start : start + len(name)] == name and not taken & set(places):
                taken |= set(places)
                found[str(start) if len(name) == 1 else f"{start}:{start + len(name)}"] = picture.ids[things[0]]
    return found


def _record(picture: NamedScene, item: Item, steps: list[Step], *, balanced: bool) -> dict[str, Any]:
    what = item.slots.a
    parts = [what] if item.type == "choose_kind" else item.phrases
    whole = full_answer(item)
    answer: dict[str, str] = {}
    if item.type in ("kind", "choose_kind", "which_thing"):
        one = parse_phrase(item.answer) if item.type == "which_thing" else what
        words = len(item.answer.split())
        answer = {"0" if words == 1 else f"0:{words}": picture.of(one.find(picture.scene))}
    return {
        "semantic": steps,
        "entailed": [],
        "equivalent": [],
        "question": item.question,
        "imageId": picture.id,
        "isBalanced": balanced,
        "groups": {
            "global": {"color": "color", "kind": "shape", "size": "size"}.get(item.type),
            "local": f"{len(item.question.split()):02d}-{what.kind or 'object'}_{item.type}",
        },
        "answer": item.answer,
        "semanticStr": semantic_text(steps),
        "annotations": {
            "answer": answer,
            "question": _marks(picture, item.question, parts),
            "fullAnswer": _marks(picture, whole, parts),
        },
        "types": _types(item, steps),
        "fullAnswer": whole,
    }


def _followers(item: Item, rng: random.Random, split: str) -> list[Item]:
    """Questions whose answers follow from a color that was told; in the "all" file they test consistency."""
    if item.type != "color":
        return []
    what = item.slots.a
    allowed = [one for one in COLORS if split == "test_combinations" or (one, what.kind) not in HELD_OUT]
    wrong = rng.choice([one for one in allowed if one != item.answer])
    return [
        Item(f"Is the {what.name} {color}?", answer, "", "verify", "image", "verify.0", Slots(a=what, c=color))
        for color, answer in ((item.answer, "yes"), (wrong, "no"))
    ]


class _Writer:
    """Numbers and collects the questions of one split."""

    def __init__(self, rng: random.Random, split: str, first: int, images: int) -> None:
        self.rng, self.split, self.next = rng, split, first
        self.balance = Balance()
        self.questions: dict[str, dict[str, Any]] = {}
        self.graphs: dict[str, dict[str, Any]] = {}
        self.numbers = iter(rng.sample(range(first * 10, first * 10 + 9_000_000), images * PER_IMAGE * 3))

    def add(self, picture: NamedScene, item: Item, *, balanced: bool = True) -> str | None:
        """Writes a question down; None when GQA cannot say it."""
        steps = semantic(picture, item)
        if steps is None or (balanced and not self.balance.admits(item)):
            return None
        key = f"{next(self.numbers):08d}"
        self.questions[key] = _record(picture, item, steps, balanced=balanced)
        return key

    def picture(self, scene: Scene, number: int) -> NamedScene:
        """Names a scene and its things; pictures of the tests are named as GQA names those beyond Visual Genome."""
        name, first = f"{'n' if self.split.startswith('test') else ''}{self.next + number}", (self.next + number) * 10
        return NamedScene(name, scene, {thing: str(first + at) for at, thing in enumerate(scene.things)})

    def ask(self, picture: NamedScene) -> None:
        """Asks several questions about a picture."""
        asked: dict[str, str] = {}
        follow: list[tuple[str, Item]] = []

        def wanted(item: Item) -> bool:
            return item.type in TYPES and item.question not in asked

        for _ in range(PER_IMAGE * 4):
            item = ask(self.rng, picture.scene, self.split, wanted)
            key = None if item is None else self.add(picture, item)
            if item is not None and key is not None:
                asked[item.question] = key
                follow += [(key, one) for one in _followers(item, self.rng, self.split)]
            if item is None or len(asked) == PER_IMAGE:
                break
        for source, item in follow if self.split != "train" else []:
            if item.question not in asked:
                key = self.add(picture, item, balanced=False)
                if key is not None:
                    asked[item.question] = key
            self.questions[source]["entailed"].append(asked[item.question])
        _link(self.questions, list(asked.values()))


def _link(questions: dict[str, dict[str, Any]], keys: list[str]) -> None:
    """Notes which questions about a picture say the same; each entails itself and those."""
    for key in keys:
        one = questions[key]
        one["equivalent"] = [other for other in keys if questions[other]["semanticStr"] == one["semanticStr"]]
        one["entailed"] = sorted({*one["entailed"], *one["equivalent"]})


def write_split(root: Path, split: str, images: int, seed: int, place: int) -> dict[str, int]:
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
    writer = _Writer(rng, split, 100_000 + 1_000_000 * place, images)
    for _ in tries(images * 60, f"gqa {split}"):
        if len(writer.graphs) == images:
            break
        scene = sample_scene(rng, style="plain", min_things=2, split=split_of_world(split))
        picture = writer.picture(scene, len(writer.graphs))
        before = len(writer.questions)
        writer.ask(picture)
        if len(writer.questions) > before:
            save(scene, root / "images" / f"{picture.id}.jpg")
            writer.graphs[picture.id] = picture.graph()
    balanced = {key: one for key, one in writer.questions.items() if one["isBalanced"]}
    name = file_name(split)
    if split == "train":  # the official file of all training questions is in pieces; ours has nothing more to say
        balanced = writer.questions
    else:
        _dump(root / "questions1.2" / f"{name}_all_questions.json", writer.questions)
    _dump(root / "questions1.2" / f"{name}_balanced_questions.json", balanced)
    _dump(root / "sceneGraphs" / f"{name}_sceneGraphs.json", writer.graphs)
    return {f"gqa/questions1.2/{name}_balanced_questions.json": len(balanced)}


def _dump(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, separators=(",", ":")), encoding="utf-8")
