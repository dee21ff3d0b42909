"""Texts the mini language model learns from: prompts with programs, and captions with questions and answers.

A text is a list of pieces, each marked as given or as learnt; it is exactly what ``codevqa.writing.writer`` and
``codevqa.primitives.pnpvqa`` show a model, since it is made by the same functions.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal, TypeAlias

from codevqa.core.text import sentence_case
from codevqa.miniworld import truth
from codevqa.miniworld.questions import UNSEEN, Item, NoQuestionError, sample_question
from codevqa.miniworld.sets import sample_set
from codevqa.miniworld.world import COLORS, KINDS, Scene, Thing, sample_scene
from codevqa.primitives.reading import INSTRUCTION, render_context
from codevqa.primitives.visual import VISUAL
from codevqa.prompts import Example, load
from codevqa.writing.prompt_forms import header, opening_line

from .captions import captions, telling
from .language_words import general, misspell, rename, reword

EOS = "<eos>"
SPATIAL = ("relation", "exist_relation", "which_side", "which_thing", "half", "half_choice", "extreme", "at_corner")
"""Kinds that ask where things are."""


@dataclass(frozen=True)
class Piece:
    """A stretch of text."""

    text: str
    learnt: bool


@cache
def preamble() -> str:
    """The preamble of the mini prompt set as models see it."""
    prompts = load("mini")
    return prompts.preamble.replace("{api}", VISUAL.subset(prompts.primitives).reference())


@cache
def bank(form: str) -> tuple[Example, ...]:
    """The examples of the mini prompt set of one form."""
    return tuple(example for example in load("mini").examples if example.form == form)


# Questions


Split: TypeAlias = Literal["train", "test"]


def draw_scenes(rng: random.Random, form: str, split: Split = "train") -> list[Scene]:
    """One scene, or a set."""
    if form == "image":
        return [sample_scene(rng, min_things=1 if rng.random() < 0.2 else 3, split=split)]
    return sample_set(rng, split=split)


UNTOLD = {"image": ("untold",), "set": ("untold", "untold_picture", "nth_untold", "find_untold")}
"""Kinds of question that drawings do not answer, by form; they are drawn only by name."""
PARAPHRASES: dict[str, dict[str, list[str]]] = json.loads(
    Path(__file__).with_name("paraphrases.json").read_text(encoding="utf-8")
)
"""Other wordings of the kinds, by form and kind (training/README.md)."""


def draw_item(
    rng: random.Random, form: str, *, split: Split = "train", unseen: bool = False, kinds: Sequence[str] = ()
) -> tuple[list[Scene], Item]:
    """A question with its scenes, in a wording that training may see, or in one it may not; of some kind if any."""
    while True:
        scenes = draw_scenes(rng, form, split)
        some = kinds or (UNTOLD[form] if rng.random() < 0.03 else ())
        with suppress(NoQuestionError):
            item = sample_question(
                rng,
                scenes[0] if form == "image" else scenes,
                rng.choice(some) if some else None,
                lambda item: item.wording.endswith(UNSEEN) == unseen,
            )
            return scenes, item if unseen else paraphrased(rng, item)


def paraphrased(rng: random.Random, item: Item) -> Item:
    """The question in one of the other wordings of its kind, now and then; within a picture of a set there are none."""
    others = PARAPHRASES[item.form].get(item.type, [])
    if rng.random() > len(others) / (len(others) + 8):
        return item
    text = rng.choice(others).format(**vars(item.slots))
    return replace(item, question=text[:1].upper() + text[1:])


# Programs


def _long_form(program: str) -> str:
    return re.sub(
        r'^( *)answer = ("[^"]*") if (.*) else ("[^"]*")$',
        r"\1if \3:\n\1    answer = \2\n\1else:\n\1    answer = \4",
        program,
        flags=re.MULTILINE,
    )


_NAMES = (
    {"first": "a", "second": "b", "count": "number", "total": "number", "found": "exists", "color": "shade"},
    {"first": "one", "second": "other", "count": "hits", "total": "sum_all", "found": "seen", "counts": "numbers"},
    {"x1": "first_x", "y1": "first_y", "x2": "second_x", "y2": "second_y", "count": "matches", "counts": "values"},
)


def _renamed(names: dict[str, str]) -> Callable[[str], str]:
    pattern = re.compile(r'("[^"]*")|\b(' + "|".join(names) + r")\b(?!\()")
    return lambda program: pattern.sub(lambda m: m[1] or names[m[2]], program)


STYLES: tuple[Callable[[str], str], ...] = (_long_form, *map(_renamed, _NAMES))
"""Other ways to write the same programs: the model is to follow the examples it is shown."""


def program_text(preamble_text: str, shots: Sequence[Example], target: Item, learn_shots: bool = True) -> list[Piece]:
    """The prompt of ``codevqa.writing.writer.render_completion`` with the program that continues it."""
    pieces = [Piece(preamble_text.rstrip("\n"), False)]
    examples = [*shots, Example("", target.question, target.program, target.form)]
    for number, example in enumerate(examples, 1):
        last = number == len(examples)
        pieces.append(Piece(f"\n{header(example.question, example.form, number)}", False))
        code = f"\n{opening_line(example.form, number)}\n{example.program}" + (EOS if last else "")
        pieces.append(Piece(code, last or learn_shots))
    return pieces


class Pool:
    """Questions drawn beforehand, by form, style and family, from which prompts take their examples."""

    def __init__(self, rng: random.Random, size: int) -> None:
        self.items: dict[str, dict[str, dict[str, list[Item]]]] = {"image": {}, "set": {}}
        for _ in range(size):
            form = rng.choice(("image", "set"))
            scenes, item = draw_item(rng, form)
            self.items[form].setdefault(scenes[0].style, {}).setdefault(item.type, []).append(item)

    def any(self, rng: random.Random, form: str) -> Item:
        """An item of a random family of a random style, larger families more often."""
        families = rng.choice(list(self.items[form].values()))
        weights = [len(items) ** 0.6 for items in families.values()]
        return rng.choice(families[rng.choices(list(families), weights)[0]])

    def like(self, rng: random.Random, item: Item) -> Item:
        """An item of the same family."""
        shelves = [families[item.type] for families in self.items[item.form].values() if item.type in families]
        return rng.choice(rng.choice(shelves)) if shelves else item


def _example(item: Item) -> Example:
    return Example(item.wording, item.question, item.program, item.form)


def sample_program(rng: random.Random, pool: Pool) -> list[Piece]:
    """One prompt with its program, examples chosen about as a retriever chooses them."""
    form = "image" if rng.random() < 0.5 else "set"
    target = general(rng, form) if rng.random() < 0.06 else pool.any(rng, form)
    strange = rng.random()
    if strange < 0.5:
        target = rename(rng, target)
    if target.type != "general" and rng.random() < 0.35:
        target = reword(rng, target)
    if target.type != "general" and rng.random() < 0.1:
        target = misspell(rng, target)
    count = rng.choice((3, 5, 6, 6, 6, 6, 6, 7, 8))
    own = rng.random() < 0.4
    if own:  # the bank itself, as at inference
        near = [example for example in bank(form) if _shape(example.program) == _shape(target.program)]
        rest = [example for example in bank(form) if example not in near]
        rng.shuffle(rest)
        shots = ((near if rng.random() < 0.9 else []) + rest)[:count]
    else:
        close = rng.choice((0, 1, 1, 2, 2, 3))
        items = [pool.like(rng, target) for _ in range(close)] if target.type != "general" else []
        items += [pool.any(rng, form) for _ in range(count - len(items))]
        if strange < 0.3:
            items = [rename(rng, item) for item in items]
        if rng.random() < 0.1:
            items[-1] = general(rng, form)
        if rng.random() < 0.2:
            items = [item if item.type == "general" else reword(rng, item) for item in items]
        shots = [_example(item) for item in items]
    if rng.random() < 0.3:
        rng.shuffle(shots)
    if not own and rng.random() < 0.35:
        style = rng.choice(STYLES)
        shots = [replace(shot, program=style(shot.program)) for shot in shots]
        target = Item(target.question, "", style(target.program), target.type, target.form, target.wording)
    return program_text(preamble(), shots, target, learn_shots=not own)


@cache
def _shape(program: str) -> str:
    return re.sub(r'"[^"]*"|\d+', "_", program)


# Reading


def corrupt(rng: random.Random, scene: Scene) -> Scene:
    """The scene as a captioner may take it: one thing of another color or kind, gone, or seen twice."""
    things = list(scene.things)
    place = rng.randrange(len(things))
    thing = things[place]
    chance = rng.random()
    if chance < 0.3:
        things[place] = replace(thing, color=rng.choice([one.color for one in things] + [rng.choice(COLORS)]))
    elif chance < 0.6 and not scene.tower:
        things[place] = replace(thing, kind=rng.choice([one.kind for one in things] + [rng.choice(KINDS)]))
    elif chance < 0.8 and len(things) > 1:
        del things[place]
    elif len(things) < 8:
        things.append(replace(thing, x=thing.x + 3, y=thing.y + 3))
    return replace(scene, things=tuple(things))


def _relevant(question: str, thing: Thing) -> float:
    words = question.lower()
    kind = thing.kind in words or (thing.kind == "square" and "block" in words)
    color = thing.color in words
    return 4.0 if kind and color else 2.5 if kind else 1.5 if color else 0.3


def told(rng: random.Random, scene: Scene, question: str, *, noise: float, wanted: int = 7) -> list[str]:
    """Captions as PnP-VQA gathers them: mostly of what the question speaks of; repeated ones dropped.

    Args:
        rng: Where the chance comes from.
        scene: What is described.
        question: What draws the captioner's attention.
        noise: Chance that a caption is of a corrupted scene.
        wanted: Captions kept at most.
    """
    weights = [_relevant(question, thing) for thing in scene.things]

    def caption() -> str:
        source = corrupt(rng, scene) if rng.random() < noise else scene
        focus = set(range(len(source.things)))
        if len(source.things) == len(weights):
            size = rng.choice((1, 1, 2, 2, 3, len(weights)))
            focus = set(rng.choices(range(len(weights)), weights, k=min(size, len(weights))))
        return captions(source, rng, 1, focus)[0]

    return distinct((caption() for _ in range(wanted + 4)), wanted)


Reading = tuple[list[list[str]], str, str]
"""Captions of each picture, question, answer."""


def _rare(rng: random.Random, answer: str) -> bool:
    """Leaves out some of the answers that would be most: "no", "0" and "none"."""
    return (answer == "no" and rng.random() < 0.3) or (answer in ("0", "none") and rng.random() < 0.6)


def queries(item: Item, scenes: Sequence[Scene]) -> list[tuple[Scene, str, str]]:
    """What a question's program asks, in order: each time the picture, the text and the true answer."""
    found: list[tuple[Scene, str, str]] = []

    def note(scene: Scene, question: str) -> str:
        found.append((scene, question, truth.query(scene, question)))
        return found[-1][2]

    truth.run_program(item.program, scenes, item.form, query_with=note)
    return found


def elementary(rng: random.Random) -> tuple[Scene, str, str]:
    """A question that a program asks, with its picture and true answer."""
    while True:
        scenes, item = draw_item(rng, rng.choice(("image", "set")))
        asked = queries(item, scenes)
        if asked:
            one = rng.choice(asked)
            if not _rare(rng, one[2]):
                return one


def listing(rng: random.Random) -> tuple[Scene, str, str]:
    """As ``elementary``, of a kind that programs ask once for every color: one wrong answer spoils theirs."""
    scene = sample_scene(rng, style="plain", min_things=3)
    text = f"What are the {rng.choice((rng.choice(scene.things).color, rng.choice(COLORS)))} objects?"
    return scene, text, truth.query(scene, text)


@dataclass(frozen=True)
class Question:
    """A question of the reader with the scenes it is about."""

    scenes: tuple[Scene, ...]
    form: str
    text: str
    answer: str
    told: tuple[tuple[str, ...], ...] = ()
    """Captions of each scene by the trained captioner, more than are read; empty for made ones."""
    enough: tuple[tuple[str, ...], ...] = ()
    """Made captions of each scene that together tell the answer; may be empty."""


def draw_question(rng: random.Random) -> Question:
    """A question that a program asks, or a whole one as the baseline reads it."""
    chance = rng.random()
    if chance < 0.42:
        scene, text, answer = elementary(rng) if chance < 0.32 else listing(rng)
        return _with_enough(rng, Question((scene,), "image", text, answer), text)
    # Whole questions are what the baseline reads; it is to be as good at them as at the single ones.
    form = "image" if chance < 0.7 else "set"
    scenes, item = draw_item(rng, form, kinds=SPATIAL if chance < 0.56 else ())
    return _with_enough(rng, Question(tuple(scenes), form, item.question, item.answer), item.program)


def _with_enough(rng: random.Random, question: Question, program: str) -> Question:
    """Adds captions that tell the answer, now and then."""
    if rng.random() < 0.4:
        return question
    found = [telling(scene, rng, program) for scene in question.scenes]
    enough = tuple(tuple(one) for one in found if one is not None)
    return replace(question, enough=enough) if len(enough) == len(found) else question


def read_question(rng: random.Random, question: Question) -> Reading:
    """Captions for a question, drawn anew."""
    noise = rng.choice((0.0, 0.0, 0.05, 0.12, 0.2))
    wanted = rng.choice((3, 5, 7, 7, 7, 7, 10))
    if question.told:
        contexts = [distinct(rng.sample(draws, len(draws)), wanted) for draws in question.told]
    elif question.enough and rng.random() < 0.6:
        contexts = [rng.sample(one, len(one)) for one in question.enough]
    else:
        contexts = [told(rng, scene, question.text, noise=noise, wanted=wanted) for scene in question.scenes]
    if rng.random() < 0.02 and not question.told:
        shown = "What does the picture show?" if question.form == "image" else "What do the images show?"
        return contexts, shown, contexts[0][0]
    text = question.text
    if text.endswith(".") and rng.random() < 0.2:
        text = f"Is it true that {text[:1].lower()}{text[1:-1]}?"
    return contexts, text, question.answer


def distinct(draws: Iterable[str], wanted: int) -> list[str]:
    """Keeps captions as PnP-VQA does: none that an earlier one contains."""
    kept: list[str] = []
    for caption in draws:
        if caption and not any(caption in other for other in kept):
            kept.append(caption)
        if len(kept) == wanted:
            break
    return kept


def load_questions(path: Path) -> list[Question]:
    """Reads what ``training.language_captions`` wrote."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [
        Question((), row["form"], row["text"], row["answer"], tuple(tuple(draws) for draws in row["told"]))
        for row in rows
    ]


REAL = 0.4
"""Share of readings over captions of the trained captioner, where there are any."""


class ReadingPool:
    """Questions drawn beforehand, of which some are exchanged all the time; captions are always new.

    Args:
        rng: Where the chance comes from.
        size: Questions drawn at first.
        real: Questions with captions of the trained captioner; a share ``REAL`` of the readings.
    """

    def __init__(self, rng: random.Random, size: int, real: Sequence[Question] = ()) -> None:
        self.questions: dict[str, list[Question]] = {"image": [], "set": []}
        self.real = {form: [one for one in real if one.form == form] for form in ("image", "set")}
        for _ in range(size):
            self._add(rng)

    def _add(self, rng: random.Random, limit: int = 10**9) -> None:
        question = draw_question(rng)
        shelf = self.questions[question.form]
        if len(shelf) < limit:
            shelf.append(question)
        else:
            shelf[rng.randrange(len(shelf))] = question

    def sample(self, rng: random.Random) -> list[Piece]:
        """A reading prompt of one to five blocks of one form."""
        if rng.random() < 0.35:
            self._add(rng, 1500)
        form = "image" if rng.random() < 0.55 else "set"
        count = rng.choice((1, 1, 2, 2, 3, 4, 5)) if form == "image" else rng.choice((1, 2, 2, 3))
        shelf = self.real[form] if self.real[form] and rng.random() < REAL else self.questions[form]
        blocks = [read_question(rng, rng.choice(shelf)) for _ in range(count)]
        return reading_text(form, blocks)


def reading_text(form: str, blocks: Sequence[Reading]) -> list[Piece]:
    """The prompt of ``codevqa.primitives.pnpvqa.render_reading``, every answer learnt."""
    pieces = [Piece(f"{INSTRUCTION}\n===\n", False)]
    for number, (contexts, question, answer) in enumerate(blocks):
        context = render_context(contexts, "image" if form == "image" else "set")
        last = number == len(blocks) - 1
        pieces.append(Piece(f"{context}\n===\nQ: {sentence_case(question)}\nA:", False))
        pieces.append(Piece(f" {answer}" + (EOS if last else ""), True))
        if not last:
            pieces.append(Piece("\n\n===\n", False))
    return pieces
