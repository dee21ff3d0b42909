"""Questions about one drawn picture in the files of GQA (Hudson and Manning, CVPR 2019): questions and scene graphs.

Every question gets GQA's own functional program over the scene graph. Counting is not among GQA's operations, nor is
"but no": those questions are left out. "Which is higher" becomes the comparative ``choose higher``.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .export_draw import Balance, fits, phrases, save_jpeg, split_of_world, tries
from .export_gqa_programs import HOLDS, NamedScene, Step, semantic, semantic_text
from .oracle import parse_phrase
from .questions import UNSEEN, Item, Phrase, article, yes_no
from .sampling import sample_question
from .world import CANVAS, COLORS, HELD_OUT, Scene, sample_scene

FILES = {
    "train": "train",
    "val": "val",
    "test": "testdev",
    "test_combinations": "testdev_combinations",
    "test_wording": "testdev_wording",
}
"""Split to the name it has in file names."""
PER_IMAGE = 5


def _types(item: Item, steps: list[Step]) -> dict[str, str]:
    no = "C" if item.answer == "no" else ""
    last = steps[-1]["operation"]
    attributes = any(step["operation"].startswith("filter") for step in steps)
    table = {
        "exist": ("verify", "obj", f"existAttr{no}" if attributes else f"exist{no}"),
        "color": ("query", "attr", "directWhich" if item.question.startswith(("Which", "In which")) else "directOf"),
        "kind": ("query", "cat", "categoryAttr"),
        "size": ("query", "attr", "how"),
        "verify": ("verify", "attr", f"verifyAttr{no}"),
        "verify_size": ("verify", "attr", f"verifyAttr{no}"),
        "choose_color": ("choose", "attr", "chooseAttr"),
        "choose_kind": ("choose", "cat", "categoryThisChoose"),
        "relation": ("verify", "rel", f"relVerify{no and 'Cr'}" if last == "verify rel" else f"existRelS{no and 'RC'}"),
        "exist_relation": ("verify", "rel", f"existRelS{no}"),
        "which_side": ("choose", "rel", "relChooser"),
        "which_thing": ("compare", "attr", "comparativeChoose"),
        "half": ("verify", "attr", f"positionVerify{no}"),
        "half_choice": ("choose", "attr", "positionChoose"),
        "and": ("logical", "obj", f"existAnd{no}"),
        "or": ("logical", "obj", f"existOr{no}"),
        "same_color": ("compare", "attr", f"twoSame{no}"),
        "different_color": ("compare", "attr", f"twoDifferent{no}"),
        "same_size": ("compare", "attr", f"twoSame{no}"),
    }
    return dict(zip(("structural", "semantic", "detailed"), table[item.type], strict=True))


def full_answer(item: Item) -> str:
    """The answer as a sentence."""
    parts = phrases(item.program)
    if item.answer in ("yes", "no"):
        said = "Yes" if item.answer == "yes" else "No"
        if item.type == "exist":
            return f"{said}, there is {parts[0].one if item.answer == 'yes' else 'no ' + parts[0].name}."
        return f"{said}, that is {'true' if item.answer == 'yes' else 'not true'}."
    name = parts[0].name
    if item.type in ("kind", "choose_kind"):
        subject = Phrase(None, parts[0].color, parts[0].size).name
        return f"The {subject} is {article(item.answer)} {item.answer}."
    if item.type == "which_side":
        how = f"to the {item.answer} of" if item.answer in ("left", "right") else item.answer
        return f"The {name} is {how} the {parts[1].name}."
    if item.type == "half_choice":
        return f"The {name} is in the {item.answer} half of the picture."
    if item.type == "which_thing":
        return f"It is the {item.answer}."
    return f"The {name} is {item.answer}."


def _marks(picture: NamedScene, text: str, parts: Iterable[Phrase]) -> dict[str, str]:
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
    parts = phrases(item.program)
    if item.type == "choose_kind":
        parts = [Phrase(None, parts[0].color)]
    asked = item.type in ("color", "kind", "size")
    whole = full_answer(item)
    answer: dict[str, str] = {}
    if item.type in ("kind", "choose_kind", "which_thing"):
        one = parse_phrase(item.answer) if item.type == "which_thing" else parts[0]
        words = len(item.answer.split())
        answer = {"0" if words == 1 else f"0:{words}": picture.of(one.find(picture.scene))}
    subject = parts[0].kind or "object"
    return {
        "semantic": steps,
        "entailed": [],
        "equivalent": [],
        "question": item.question,
        "imageId": picture.id,
        "isBalanced": balanced,
        "groups": {
            "global": {"color": "color", "kind": "shape", "size": "size"}[item.type] if asked else None,
            "local": f"{len(item.question.split()):02d}-{subject}_{item.type}",
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


def _graph(picture: NamedScene) -> dict[str, Any]:
    objects = {}
    for thing in picture.scene.things:
        left, top, right, bottom = (min(CANVAS, max(0, round(part))) for part in thing.box)
        objects[picture.ids[thing]] = {
            "name": thing.kind,
            "x": left,
            "y": top,
            "w": right - left,
            "h": bottom - top,
            "attributes": [thing.color, thing.size],
            "relations": [
                {"name": name, "object": picture.ids[other]}
                for other in picture.scene.things
                if other is not thing
                for name, holds in HOLDS.items()
                if holds(thing, other)
            ],
        }
    return {"width": CANVAS, "height": CANVAS, "objects": objects}


def _followers(item: Item, rng: random.Random, split: str) -> list[Item]:
    """Questions whose answers follow from a color that was told; in the "all" file they test consistency."""
    if item.type != "color":
        return []
    what, program = phrases(item.program)[0], item.program.replace("answer", "color", 1)
    others = [
        one
        for one in COLORS
        if one != item.answer and (split == "test_combinations" or (one, what.kind) not in HELD_OUT)
    ]
    wrong = rng.choice(others)
    made = []
    for shown in (item.answer, wrong):
        test = f'{program}\nanswer = "yes" if color == "{shown}" else "no"'
        truth = yes_no(shown == item.answer)
        wording = f"verify.7{UNSEEN if split == 'test_wording' else ''}"
        made.append(Item(f"Is the {what.name} {shown}?", truth, test, "verify", "image", wording))
    return made


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
        name = f"{'n' if self.split.startswith('test') else ''}{self.next + number}"
        return NamedScene(
            name, scene, {thing: str((self.next + number) * 10 + at) for at, thing in enumerate(scene.things)}
        )

    def ask(self, picture: NamedScene) -> None:
        """Asks several questions about a picture."""
        asked: dict[str, str] = {}
        follow: list[tuple[str, Item]] = []
        for _ in range(PER_IMAGE * 40):
            if len(asked) == PER_IMAGE:
                break
            item = sample_question(self.rng, picture.scene)
            if item.question in asked or not fits(item, [picture.scene], self.split):
                continue
            key = self.add(picture, item)
            if key is not None:
                asked[item.question] = key
                follow += [(key, one) for one in _followers(item, self.rng, self.split)]
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
        same = [other for other in keys if questions[other]["semanticStr"] == one["semanticStr"]]
        one["equivalent"] = same
        one["entailed"] = sorted({*one["entailed"], *same})


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
    number = 0
    for _ in tries(images * 60, f"gqa {split}"):
        if number == images:
            break
        scene = sample_scene(rng, style="plain", min_things=2, split=split_of_world(split))
        picture = writer.picture(scene, number)
        before = len(writer.questions)
        writer.ask(picture)
        if len(writer.questions) == before:
            continue
        number += 1
        save_jpeg(scene, root / "images" / f"{picture.id}.jpg")
        writer.graphs[picture.id] = _graph(picture)
    balanced = {key: one for key, one in writer.questions.items() if one["isBalanced"]}
    name = FILES[split]
    if split == "train":  # the official file of all training questions is in pieces; ours has nothing more to say
        balanced = writer.questions
    else:
        _dump(root / "questions1.2" / f"{name}_all_questions.json", writer.questions)
    _dump(root / "questions1.2" / f"{name}_balanced_questions.json", balanced)
    _dump(root / "sceneGraphs" / f"{name}_sceneGraphs.json", writer.graphs)
    return {f"gqa/questions1.2/{name}_balanced_questions.json": len(balanced)}


def _dump(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, separators=(",", ":")), encoding="utf-8")
