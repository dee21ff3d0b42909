"""The rows of ``bench.py``: drawn questions for each round, and the engines that answer them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

BenchQuestion = dict[str, Any]
EVAL_DATA = "eval"
"""Folder, in the bench's own, of the data that ``codevqa eval`` reads."""
LARGE = "large"
SEED = 44
THINGS = ("house", "tree", "ball", "cup", "star", "key", "mushroom", "umbrella")


@dataclass(frozen=True)
class Workload:
    """Where the questions of a row come from, and what answers them."""

    data: str
    """Data set that is drawn: ``gqa``, ``covr``, ``nlvr2``, ``ten`` pictures; ``noise``; ``words`` without pictures."""
    processor: int
    """Questions a round on a processor; 0 leaves the row out."""
    gpu: int
    """Questions a round on a GPU."""
    engine: str = "mini"
    method: str = "codevqa"


KINDS = {
    "gqa": Workload("gqa", 50, 130),
    "covr": Workload("covr", 16, 128),
    "nlvr2": Workload("nlvr2", 16, 128),
    "ten": Workload("ten", 6, 64),
    "retrieval": Workload("words", 650, 650, method="prompt"),
    "query": Workload("noise", 0, 256, LARGE, "pnpvqa"),
    "mix": Workload("gqa", 0, 260, LARGE),
}
SPLITS = {"gqa": ("gqa", "testdev_balanced"), "covr": ("covr", "test"), "nlvr2": ("nlvr2", "test1")}
SPLITS["ten"] = ("covr", "test_10")


@dataclass(frozen=True)
class BenchRow:
    """Questions that both sides answer: those of the warm-up, and those of each round."""

    name: str
    kind: Workload
    warm_up: Sequence[BenchQuestion]
    rounds: tuple[Sequence[BenchQuestion], ...]

    def request(self, questions: Sequence[BenchQuestion]) -> BenchQuestion:
        """Returns what a side is sent."""
        # Decoding a picture takes as long as a GPU needs for it, and is not what the rows of large models are about.
        decode, kind = self.kind.engine == LARGE, self.kind
        return {"engine": kind.engine, "method": kind.method, "decode": decode, "questions": list(questions)}


def draw_rows(
    work: Path, rounds: int, scale: float, only: Sequence[str]
) -> tuple[list[BenchRow], dict[str, dict[str, str]]]:
    """Draws the data; returns the rows and, where they need it, the engine of BLIP's large size."""
    import torch  # here, so that the bench says within a second what it does

    gpu, plan = torch.cuda.is_available(), []
    for place, (name, kind) in enumerate(KINDS.items()):
        size = kind.gpu if gpu else kind.processor
        if not size or (only and name not in only):
            continue
        size = max(1, round(size * scale))
        # No question comes twice: engines remember what they have computed.
        items = draw_dataset(work / name, kind.data, size * (rounds + 1), SEED + place)
        slices = tuple(items[start : start + size] for start in range(0, size * (rounds + 1), size))
        plan.append(BenchRow(name, kind, slices[0][: -(-size // 4)], slices[1:]))
    draw_dataset(work / EVAL_DATA, "gqa", 20, SEED)
    if not any(row.kind.engine == LARGE for row in plan):
        return plan, {}
    from random_blip import save_random_blip

    matcher, captioner = save_random_blip("large", work)
    return plan, {LARGE: {"matcher": f"blip:{matcher}", "captioner": f"blip:{captioner}"}}


def draw_dataset(folder: Path, data: str, count: int, seed: int) -> list[BenchQuestion]:
    """Draws so many questions of a data set, with their pictures as files."""
    if data == "noise":
        return noise_questions(folder, count, seed)
    if data == "words":
        return text_questions(count, seed)
    from codevqa.eval import open_dataset
    from codevqa.mini.export import write_datasets

    dataset, split = SPLITS[data]
    # A few pictures have fewer than five questions.
    images = 4 + count // 5 + count // 50 if data == "gqa" else max(4, count)
    only, sets = ((data,), ()) if data != "ten" else (("nlvr2",), (10,))
    write_datasets(folder, images=images, seed=seed, splits=("test",), only=only, sets=sets)
    examples = list(open_dataset(dataset, folder, split))[:count]
    assert len(examples) == count, (data, len(examples), count)
    return [
        {"images": [str(image.path) for image in example.images], "text": example.question, "form": example.form}
        for example in examples
    ]


def noise_questions(folder: Path, count: int, seed: int) -> list[BenchQuestion]:
    """Writes pictures of noise, of the size of most of GQA's, and asks each the same kind of question."""
    folder.mkdir()
    generator, items = np.random.default_rng(seed), []
    for number in range(count):
        path = folder / f"{number}.jpg"
        Image.fromarray(generator.integers(0, 256, (375, 500, 3), dtype=np.uint8)).save(path)
        text = f"What color is the {THINGS[number % len(THINGS)]}?"
        items.append({"images": [str(path)], "text": text, "form": "image"})
    return items


def text_questions(count: int, seed: int) -> list[BenchQuestion]:
    """Returns questions of drawn GQA without their pictures."""
    from codevqa.mini.questions import sample_question
    from codevqa.mini.sampling import sample_scene

    chance, items = random.Random(seed), []
    for _ in range(count):
        text = sample_question(chance, sample_scene(chance, split="test")).question
        items.append({"images": [], "text": text, "form": "image"})
    return items
