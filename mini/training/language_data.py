"""Questions, and the prompts with programs that the mini language model learns to write from.

A text is a list of pieces, each marked as given or as learnt; it is exactly what ``codevqa.writing.writer``
shows a model, since it is made by the same functions.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal, TypeAlias

from codevqa.mini.questions import UNSEEN, NoQuestionError, SceneQuestion, sample_question
from codevqa.mini.sampling import sample_scene
from codevqa.mini.sets import sample_set
from codevqa.mini.world import Scene
from codevqa.primitives.visual import VISUAL
from codevqa.prompts import ProgramExample, load_prompt_set
from codevqa.writing.prompt_forms import header, opening_line

from .language_words import general, misspell, rename, reword

EOS = "<eos>"


@dataclass(frozen=True)
class Piece:
    """A stretch of text."""

    text: str
    learnt: bool


@cache
def preamble() -> str:
    """The preamble of the mini prompt set as models see it."""
    prompts = load_prompt_set("mini")
    return prompts.preamble.replace("{api}", VISUAL.subset(prompts.primitives).reference())


@cache
def bank(form: str) -> tuple[ProgramExample, ...]:
    """The examples of the mini prompt set of one form."""
    return tuple(example for example in load_prompt_set("mini").examples if example.form == form)


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
"""Other wordings of the kinds, by form and kind (mini/training/README.md)."""


def draw_item(
    rng: random.Random, form: str, *, split: Split = "train", unseen: bool = False, kinds: Sequence[str] = ()
) -> tuple[list[Scene], SceneQuestion]:
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
            return scenes, item if unseen else swap_wording(rng, item)


def swap_wording(rng: random.Random, item: SceneQuestion) -> SceneQuestion:
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


def _rename_variables(names: dict[str, str]) -> Callable[[str], str]:
    pattern = re.compile(r'("[^"]*")|\b(' + "|".join(names) + r")\b(?!\()")
    return lambda program: pattern.sub(lambda m: m[1] or names[m[2]], program)


STYLES: tuple[Callable[[str], str], ...] = (_long_form, *map(_rename_variables, _NAMES))
"""Other ways to write the same programs: the model is to follow the examples it is shown."""


def program_text(
    preamble_text: str, shots: Sequence[ProgramExample], target: SceneQuestion, learn_shots: bool = True
) -> list[Piece]:
    """The prompt of ``codevqa.writing.writer.render_completion`` with the program that continues it."""
    pieces = [Piece(preamble_text.rstrip("\n"), False)]
    examples = [*shots, ProgramExample("", target.question, target.program, target.form)]
    for number, example in enumerate(examples, 1):
        last = number == len(examples)
        pieces.append(Piece(f"\n{header(example.question, example.form, number)}", False))
        code = f"\n{opening_line(example.form, number)}\n{example.program}" + (EOS if last else "")
        pieces.append(Piece(code, last or learn_shots))
    return pieces


class ExamplePool:
    """Questions drawn beforehand, by form, style and family, from which prompts take their examples."""

    def __init__(self, rng: random.Random, size: int) -> None:
        self.items: dict[str, dict[str, dict[str, list[SceneQuestion]]]] = {"image": {}, "set": {}}
        for _ in range(size):
            form = rng.choice(("image", "set"))
            scenes, item = draw_item(rng, form)
            self.items[form].setdefault(scenes[0].style, {}).setdefault(item.type, []).append(item)

    def any(self, rng: random.Random, form: str) -> SceneQuestion:
        """An item of a random family of a random style, larger families more often."""
        families = rng.choice(list(self.items[form].values()))
        weights = [len(items) ** 0.6 for items in families.values()]
        return rng.choice(families[rng.choices(list(families), weights)[0]])

    def like(self, rng: random.Random, item: SceneQuestion) -> SceneQuestion:
        """An item of the same family."""
        shelves = [families[item.type] for families in self.items[item.form].values() if item.type in families]
        return rng.choice(rng.choice(shelves)) if shelves else item


def _example(item: SceneQuestion) -> ProgramExample:
    return ProgramExample(item.wording, item.question, item.program, item.form)


def sample_program(rng: random.Random, pool: ExamplePool) -> list[Piece]:
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
        near = [
            example for example in bank(form) if _blank_literals(example.program) == _blank_literals(target.program)
        ]
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
        target = SceneQuestion(target.question, "", style(target.program), target.type, target.form, target.wording)
    return program_text(preamble(), shots, target, learn_shots=not own)


@cache
def _blank_literals(program: str) -> str:
    return re.sub(r'"[^"]*"|\d+', "_", program)
