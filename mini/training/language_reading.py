"""Questions with captions and answers, from which the mini language model learns to read.

A text is exactly what ``codevqa.primitives.pnpvqa`` shows a model, since it is made by the same functions.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from codevqa.core.text import sentence_case
from codevqa.mini import truth
from codevqa.mini.questions import SceneQuestion
from codevqa.mini.sampling import sample_scene
from codevqa.mini.world import COLORS, KINDS, Scene, Thing
from codevqa.primitives.reading import INSTRUCTION, render_context

from .captions import draw_captions, telling
from .language_data import EOS, Piece, draw_item

SPATIAL = ("relation", "exist_relation", "which_side", "which_thing", "half", "half_choice", "extreme", "at_corner")
"""Kinds that ask where things are."""


def corrupt(rng: random.Random, scene: Scene) -> Scene:
    """The scene as a captioner may take it: one thing of another color or kind, gone, or seen twice."""
    things = list(scene.things)
    place = rng.randrange(len(things))
    thing = things[place]
    chance = rng.random()
    if chance < 0.3:
        things[place] = replace(thing, color=rng.choice([other.color for other in things] + [rng.choice(COLORS)]))
    elif chance < 0.6 and not scene.tower:
        things[place] = replace(thing, kind=rng.choice([other.kind for other in things] + [rng.choice(KINDS)]))
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


def gather_captions(rng: random.Random, scene: Scene, question: str, *, noise: float, wanted: int = 7) -> list[str]:
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
        return draw_captions(source, rng, 1, focus)[0]

    return keep_distinct((caption() for _ in range(wanted + 4)), wanted)


CaptionReading = tuple[list[list[str]], str, str]
"""Captions of each picture, question, answer."""


def _rare(rng: random.Random, answer: str) -> bool:
    """Leaves out some of the answers that would be most: "no", "0" and "none"."""
    return (answer == "no" and rng.random() < 0.3) or (answer in ("0", "none") and rng.random() < 0.6)


def queries(item: SceneQuestion, scenes: Sequence[Scene]) -> list[tuple[Scene, str, str]]:
    """What a question's program asks, in order: each time the picture, the text and the true answer."""
    calls: list[tuple[Scene, str, str]] = []

    def note(scene: Scene, question: str) -> str:
        calls.append((scene, question, truth.query_truth(scene, question)))
        return calls[-1][2]

    truth.run_program(item.program, scenes, item.form, query_with=note)
    return calls


def draw_elementary(rng: random.Random) -> tuple[Scene, str, str]:
    """A question that a program asks, with its picture and true answer."""
    while True:
        scenes, item = draw_item(rng, rng.choice(("image", "set")))
        asked = queries(item, scenes)
        if asked:
            query = rng.choice(asked)
            if not _rare(rng, query[2]):
                return query


def draw_listing(rng: random.Random) -> tuple[Scene, str, str]:
    """As ``draw_elementary``, of a kind that programs ask once for every color: one wrong answer spoils theirs."""
    scene = sample_scene(rng, style="plain", min_things=3)
    text = f"What are the {rng.choice((rng.choice(scene.things).color, rng.choice(COLORS)))} objects?"
    return scene, text, truth.query_truth(scene, text)


@dataclass(frozen=True)
class ReadingQuestion:
    """A question of the reader with the scenes it is about."""

    scenes: tuple[Scene, ...]
    form: str
    text: str
    answer: str
    model_captions: tuple[tuple[str, ...], ...] = ()
    """Captions of each scene by the trained captioner, more than are read; empty for made ones."""
    enough: tuple[tuple[str, ...], ...] = ()
    """Made captions of each scene that together tell the answer; may be empty."""


def draw_question(rng: random.Random) -> ReadingQuestion:
    """A question that a program asks, or a whole one as the baseline reads it."""
    chance = rng.random()
    if chance < 0.42:
        scene, text, answer = draw_elementary(rng) if chance < 0.32 else draw_listing(rng)
        return _with_enough(rng, ReadingQuestion((scene,), "image", text, answer), text)
    # Whole questions are what the baseline reads; it is to be as good at them as at the single ones.
    form = "image" if chance < 0.7 else "set"
    scenes, item = draw_item(rng, form, kinds=SPATIAL if chance < 0.56 else ())
    return _with_enough(rng, ReadingQuestion(tuple(scenes), form, item.question, item.answer), item.program)


def _with_enough(rng: random.Random, question: ReadingQuestion, program: str) -> ReadingQuestion:
    """Adds captions that tell the answer, now and then."""
    if rng.random() < 0.4:
        return question
    descriptions = [telling(scene, rng, program) for scene in question.scenes]
    enough = tuple(tuple(description) for description in descriptions if description is not None)
    return replace(question, enough=enough) if len(enough) == len(descriptions) else question


def read_question(rng: random.Random, question: ReadingQuestion) -> CaptionReading:
    """Captions for a question, drawn anew."""
    noise = rng.choice((0.0, 0.0, 0.05, 0.12, 0.2))
    wanted = rng.choice((3, 5, 7, 7, 7, 7, 10))
    if question.model_captions:
        contexts = [keep_distinct(rng.sample(draws, len(draws)), wanted) for draws in question.model_captions]
    elif question.enough and rng.random() < 0.6:
        contexts = [rng.sample(group, len(group)) for group in question.enough]
    else:
        contexts = [gather_captions(rng, scene, question.text, noise=noise, wanted=wanted) for scene in question.scenes]
    if rng.random() < 0.02 and not question.model_captions:
        shown = "What does the picture show?" if question.form == "image" else "What do the images show?"
        return contexts, shown, contexts[0][0]
    text = question.text
    if text.endswith(".") and rng.random() < 0.2:
        text = f"Is it true that {text[:1].lower()}{text[1:-1]}?"
    return contexts, text, question.answer


def keep_distinct(draws: Iterable[str], wanted: int) -> list[str]:
    """Keeps captions as PnP-VQA does: none that an earlier one contains."""
    kept: list[str] = []
    for caption in draws:
        if caption and not any(caption in other for other in kept):
            kept.append(caption)
        if len(kept) == wanted:
            break
    return kept


def load_questions(path: Path) -> list[ReadingQuestion]:
    """Reads what ``codevqa.mini.training.language_captions`` wrote."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [
        ReadingQuestion((), row["form"], row["text"], row["answer"], tuple(tuple(draws) for draws in row["told"]))
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

    def __init__(self, rng: random.Random, size: int, real: Sequence[ReadingQuestion] = ()) -> None:
        self.questions: dict[str, list[ReadingQuestion]] = {"image": [], "set": []}
        self.real = {form: [question for question in real if question.form == form] for form in ("image", "set")}
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


def reading_text(form: str, blocks: Sequence[CaptionReading]) -> list[Piece]:
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
