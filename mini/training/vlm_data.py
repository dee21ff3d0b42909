"""Drawn scenes with what a small vision-language model is asked about them, and a pool of them in shared memory.

A group is one picture or a set of up to five with several texts: questions of the table, the elementary ones that
programs ask, and captions. All texts of a group are kept in one row of tokens, so that its pictures are read once.
"""

from __future__ import annotations

import mmap
import multiprocessing
import os
import random
import sys
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache
from types import ModuleType
from typing import Any, Literal

import numpy as np

try:
    import pydantic_monty  # noqa: F401
except ImportError:  # a machine that only trains
    sys.modules["pydantic_monty"] = ModuleType("pydantic_monty")

from codevqa.mini import truth
from codevqa.mini.export_draw import ask_in_split, split_of_world
from codevqa.mini.phrases import Phrase
from codevqa.mini.sampling import sample_scene
from codevqa.mini.sets import sample_set
from codevqa.mini.world import CANVAS, COLORS, KINDS, SIZES, Scene, draw_scene

from .captions import draw_captions
from .language_reading import queries
from .vision_texts import describe_thing, keeps_out, wrong
from .vision_twins import crowd_scene
from .vision_words import SPECIAL, all_tokens

SUFFIX = "\nAnswer the question using a single word or phrase."
DESCRIBE = "Describe the picture."
PAD, UNK, IMAGE, FAKE, GLOBAL, ANSWER, END = (
    "<pad>",
    "<unk>",
    "<image>",
    "<fake_token_around_image>",
    "<global-img>",
    "<answer>",
    "<end_of_utterance>",
)
SHARES = {1: 0.6, 2: 0.15, 3: 0.13, 4: 0.06, 5: 0.06}
"""How often a step is about so many pictures."""
CELLS = 8
"""Cells across a picture: each is one token of the text model."""
AROUND = CELLS**2 + 3
"""Tokens of a picture in a prompt."""
LOOKS = 5
"""What is told of a cell: kind (0: nothing), color, size, and where in the cell a thing's middle lies."""


def text_length(pictures: int) -> int:
    """Tokens for all texts of a group; with those of the pictures a multiple of 8."""
    least = 184 if pictures == 1 else 152
    return least + -(least + AROUND * pictures) % 8


class Interpreter:
    """Runs the programs of the table, which are our own, as they stand: many times faster than in the sandbox."""

    def checkout(self) -> nullcontext[Interpreter]:
        """Returns itself, as a session."""
        return nullcontext(self)

    def feed_run(self, program: str, external_lookup: dict[str, object]) -> object:
        """Runs a program whose last line is ``answer``, and returns that."""
        names = dict(external_lookup)
        exec(program.rpartition("\n")[0], names)  # noqa: S102
        return names["answer"]


@cache
def _interpreter() -> Interpreter:
    return Interpreter()


def be_quick() -> None:
    """Has this process run the table's programs without the sandbox."""
    truth._interpreters = _interpreter  # type: ignore[assignment]


def build_tokenizer() -> Any:
    """The words of the mini vision models in lower case, and the letters for any other; the suffix is one token."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    own = (PAD, UNK, IMAGE, FAKE, GLOBAL, ANSWER, END)
    known = dict.fromkeys([*own, *all_tokens()[len(SPECIAL) :], "describe", "away"])
    tokenizer = Tokenizer(models.WordPiece({word: place for place, word in enumerate(known)}, unk_token=UNK))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    tokenizer.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in own])
    tokenizer.add_tokens([AddedToken(SUFFIX, normalized=False)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        unk_token=UNK,
        eos_token=END,
        padding_side="left",
        model_max_length=1024,
        clean_up_tokenization_spaces=False,
    )


@dataclass(frozen=True)
class TrainingText:
    """What is asked and what is the answer."""

    asked: str
    answer: str
    kind: str
    weight: int = 4
    """Of each token of the answer in the loss, in quarters."""


def is_it_true(question: str, answer: str) -> str:
    """A statement as a question, as ``codevqa.core.question_kind`` puts it; any other stays as it is."""
    stated = question.endswith(".") and answer in ("yes", "no")
    return f"Is it true that {question.rstrip(' .!')}?" if stated else question


def phrase_question(rng: random.Random, question: str, answer: str) -> str:
    """A question or statement as it is put to the model; half of the statements as questions."""
    if rng.random() < 0.5:
        question = is_it_true(question, answer)
    if rng.random() < 0.1:
        question = question[:1].upper() + question[1:].lower()
    return question + (SUFFIX if rng.random() < 0.9 else "")


def draw_group(rng: random.Random, pictures: int, split: str = "train") -> list[Scene]:
    """One scene, or a set of scenes that have to do with one another."""
    world = split_of_world(split)
    if pictures > 1:
        box = rng.random() < (0.45 if pictures == 3 else 0.08)
        return sample_set(rng, style="box" if box else "plain", size=pictures, split=world)
    least = rng.choice((1, 2, 3, 3, 3))
    scene = sample_scene(rng, min_things=least, max_things=rng.choice((6, 6, 8)), split=world)
    return [crowd_scene(rng, scene) if split == "train" and least == 3 and rng.random() < 0.12 else scene]


def texts(rng: random.Random, scenes: list[Scene]) -> list[TrainingText]:
    """What training asks about a group, in no order."""
    if len(scenes) > 1:
        return _table_texts(rng, scenes, 9, [])
    scene, noted = scenes[0], list[TrainingText]()
    questions = _table_texts(rng, scene, 4, noted)
    questions += _table_texts(rng, scenes, 1, noted)
    rng.shuffle(noted)
    questions += noted[:3]
    questions += [question for _ in range(6) if (question := _elementary_text(rng, scene)) is not None]
    descriptions = draw_captions(scene, rng, 2)
    questions += [TrainingText(DESCRIBE, caption, "caption", 1) for caption in descriptions]
    rng.shuffle(questions)
    return questions


def _table_texts(
    rng: random.Random, subject: Scene | list[Scene], count: int, noted: list[TrainingText]
) -> list[TrainingText]:
    """Questions of the table; ``noted`` gets elementary ones that their programs ask about a single picture."""
    questions: list[TrainingText] = []
    for _ in range(count):
        item = ask_in_split(rng, subject, "train", lambda item: True)
        if item is None:
            continue
        questions.append(TrainingText(phrase_question(rng, item.question, item.answer), item.answer, item.type))
        scenes = [subject] if isinstance(subject, Scene) else subject
        if len(scenes) == 1 and rng.random() < 0.6:
            parts = queries(item, scenes)
            noted += [
                TrainingText(phrase_question(rng, question, answer), answer, "elementary")
                for _, question, answer in parts
            ]
    return questions


def _elementary_text(rng: random.Random, scene: Scene) -> TrainingText | None:
    """A question that a program asks, about what is there or nearly there."""
    what, chance = describe_thing(rng, scene, rng.choice(scene.things)), rng.random()
    phrase: Phrase | None = what
    if chance < 0.7:
        if rng.random() < (0.5 if chance < 0.4 else 0.15):
            phrase = wrong(rng, scene, what)
        if phrase is None:
            return None
        question = f"Is there {phrase.one}?" if chance < 0.4 else f"How many {phrase.many} are there?"
    else:
        word, phrase = rng.choice(
            (
                ("What color is", replace(what, color=None)),
                ("What is", Phrase(None, what.color, what.size, "object")),
                ("What size is", replace(what, size=None)),
            )
        )
        question = f"{word} the {phrase.name}?" if phrase.count(scene) == 1 else ""
    if not question or not keeps_out(question):
        return None
    answer = truth.query_truth(scene, question)
    return TrainingText(phrase_question(rng, question, answer), answer, "elementary")


def cell_looks(scene: Scene) -> np.ndarray:
    """What a picture shows where, uint8 (CELLS * CELLS, LOOKS); the last two say where in the cell, 0 to 255."""
    grid = np.zeros((CELLS * CELLS, LOOKS), np.uint8)
    side = CANVAS / CELLS
    for thing in scene.things:
        column, row = (min(int(middle // side), CELLS - 1) for middle in (thing.x, thing.y))
        within = ((thing.x / side - column) * 255, (thing.y / side - row) * 255)
        look = (KINDS.index(thing.kind) + 1, COLORS.index(thing.color), SIZES.index(thing.size))
        grid[row * CELLS + column] = (*look, *(min(255, round(value)) for value in within))
    return grid


class GroupPool:
    """Groups of so many pictures in memory that workers write and the trainer reads.

    Args:
        pictures: Of each group.
        slots: How many groups it holds; new ones take the place of the oldest.
    """

    FIELDS = ("pixels", "cells", "tokens", "segments", "weights")

    def __init__(self, pictures: int, slots: int) -> None:
        self.pictures, self.slots, length = pictures, slots, text_length(pictures)
        shapes: dict[str, tuple[tuple[int, ...], Any]] = {
            "stamps": ((slots,), np.int64),
            "pixels": ((slots, pictures, CANVAS, CANVAS, 3), np.uint8),
            "cells": ((slots, pictures, CELLS**2, LOOKS), np.uint8),
            "tokens": ((slots, length), np.int16),
            "segments": ((slots, length), np.int8),
            "weights": ((slots, length), np.uint8),
        }
        self.arrays: dict[str, np.ndarray] = {}
        for name, (shape, kind) in shapes.items():
            memory = mmap.mmap(-1, int(np.prod(shape)) * np.dtype(kind).itemsize)
            self.arrays[name] = np.frombuffer(memory, kind).reshape(shape)

    def write(self, slot: int, scenes: list[Scene], rows: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
        """Fills a slot; its stamp is odd meanwhile."""
        arrays = self.arrays
        arrays["stamps"][slot] += 1
        for place, scene in enumerate(scenes):
            arrays["pixels"][slot, place] = np.asarray(draw_scene(scene))
            arrays["cells"][slot, place] = cell_looks(scene)
        for name, row in zip(("tokens", "segments", "weights"), rows, strict=True):
            arrays[name][slot] = row
        arrays["stamps"][slot] += 1

    def sample(self, rng: np.random.Generator, count: int) -> dict[str, np.ndarray]:
        """Draws groups that are ready; one that was exchanged meanwhile is left out for another."""
        stamps = self.arrays["stamps"]
        ready = np.flatnonzero((stamps > 0) & (stamps % 2 == 0))
        chosen = rng.choice(ready, count)
        before = stamps[chosen].copy()
        groups = {name: self.arrays[name][chosen] for name in self.FIELDS}
        whole = np.flatnonzero((stamps[chosen] == before) & (before % 2 == 0))
        if len(whole) < count:
            kept = np.concatenate([whole, rng.choice(whole, count - len(whole))])
            groups = {name: array[kept] for name, array in groups.items()}
        return groups

    @property
    def ready(self) -> int:
        """How many slots are filled."""
        return int((self.arrays["stamps"] > 1).sum())

    @property
    def groups_drawn(self) -> int:
        """How many groups were made."""
        return int(self.arrays["stamps"].sum() // 2)


def row_of(tokenizer: Any, parts: list[TrainingText], length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Packs texts into one row: tokens, the number of the text of each from 1 (0: none), and weights in the loss."""
    tokens, segments, weights = np.zeros(length, np.int16), np.zeros(length, np.int8), np.zeros(length, np.uint8)
    place = number = 0
    for text in parts:
        question = tokenizer.encode(text.asked, add_special_tokens=False).ids
        answer = tokenizer.encode(text.answer, add_special_tokens=False).ids
        ids = [*question, tokenizer.token_to_id(ANSWER), *answer, tokenizer.token_to_id(END)]
        if place + len(ids) > length:
            continue
        number += 1
        end = place + len(ids)
        tokens[place:end], segments[place:end] = ids, number
        weights[end - len(answer) - 1 : end] = text.weight
        place = end
    return tokens, segments, weights


def _work(pools: dict[int, GroupPool], number: int, workers: int, seed: int) -> None:
    be_quick()
    rng, tokenizer = random.Random(f"vlm train {seed} {number}"), build_tokenizer().backend_tokenizer
    places, parent = dict.fromkeys(pools, number), os.getppid()
    while os.getppid() == parent:  # should the trainer be killed, this ends too
        for pictures in rng.choices(list(SHARES), list(SHARES.values()), k=64):
            pool = pools[pictures]
            scenes = draw_group(rng, pictures)
            rows = row_of(tokenizer, texts(rng, scenes), text_length(pictures))
            pool.write(places[pictures], scenes, rows)
            places[pictures] += workers
            if places[pictures] >= pool.slots:
                places[pictures] = number


def start_drawing(pools: dict[int, GroupPool], workers: int, seed: int) -> list[Any]:
    """Starts processes that fill the pools for ever; they end with this one."""
    context = multiprocessing.get_context("fork")
    processes = [
        context.Process(target=_work, args=(pools, number, workers, seed), daemon=True) for number in range(workers)
    ]
    for process in processes:
        process.start()
    return processes


@dataclass(frozen=True)
class Case:
    """A question of the measurement, its pictures drawn."""

    scenes: list[Scene]
    question: str
    answer: str
    kind: str
    split: Literal["test", "test_combinations", "test_wording"]


def cases(count: int, split: Literal["test", "test_combinations", "test_wording"], seed: int = 0) -> list[Case]:
    """Questions on scenes that no training draws: 45 % about one picture, 15 % elementary, the rest about sets."""
    rng, questions = random.Random(f"vlm {split} {seed}"), list[Case]()
    be_quick()
    while len(questions) < count:
        chance = rng.random()
        pictures = 1 if chance < 0.6 else rng.choice((2, 2, 3, 3, 4, 5))
        scenes = draw_group(rng, pictures, split)
        subject = scenes[0] if pictures == 1 else scenes
        item = ask_in_split(rng, subject, split, lambda item: True)
        if item is None:
            continue
        case = (item.question, item.answer, item.type)
        if chance < 0.15:
            noted = [(question, answer, "elementary") for _, question, answer in queries(item, scenes)]
            if not noted:
                continue
            case = rng.choice(noted)
        questions.append(Case(scenes, is_it_true(case[0], case[1]) + SUFFIX, case[1], case[2], split))
    return questions
