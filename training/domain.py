"""What the mini models know, as the package tells it: ``codevqa/mini/weights/domain``.

    python -m training.domain --photographs FOLDER --out codevqa/mini/weights/domain

Pictures: a logistic regression on the statistics of drawn pictures and of photographs (any; those of the shipped file
are named in README.md), both cropped, scaled and compressed as pictures are that people send around. Words: the vision
models' vocabulary, what the grammar of questions says, and some that change no question. ``tests/test_domain.py``
measures it on photographs that were not trained with.
"""

from __future__ import annotations

import argparse
import io
import json
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw
from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped, unused-ignore]

from codevqa.eval.datasets.nlvr import BOXES
from codevqa.miniworld.questions import NoQuestionError, sample_question, sample_set
from codevqa.miniworld.world import COLORS, KINDS, SIZES, draw, sample_scene
from codevqa.models.domain import FILE, SHORT, features, words_in

from .vision_words import words

Features: TypeAlias = npt.NDArray[np.float64]

ABOUT = (
    "they know drawn things only. For photographs: --preset api --model NAME, with a server of your own such as Ollama."
)
TRY = ("What color is the house?", "How many pictures show a red cup?")
"""Questions that show what can be asked."""
REFUSED = 0.005
"""Share of drawn pictures that may be taken for something else."""
CROPS = 40
DRAWN = 6000
QUESTIONS = 15_000
PLAIN = """
again almost also currently ever maybe nearly now perhaps please quite really say says still then too very yet
"""
"""Words that mean little to a question."""
UNMET = """
behind brown colour coloured colours gray grey inside outside pink
"""
"""Words that the vision models have tokens for, and that no picture or question showed them. Some are known in another
spelling."""
OTHERS = """
battle beach beaches belly bladder booth borders boxers brother brothers bullock cards carts chains closet closets
clowns country county crows developers digger drain fellow flies flight flights flour foundry fountains grapes grapple
hairs hedges hinges horizon horses lanes leader leaders ledge locks lounge lover lumber maker markets mother mothers
mountains owner owners palace palaces panels panther party peach pears planet planets planks plans plants plates
players pocket pockets powers racket rocks scars seats shadows sharks shore shores shoulder shower showers singer
sockets sparrow spiders stairs streets swing sword teller theatre thunder torches towels wallets weights wheat whistle
witch
"""
"""Everyday words that look like known ones spelt wrongly."""
_SCALING = (Image.Resampling.BILINEAR, Image.Resampling.BICUBIC, Image.Resampling.LANCZOS)


def drawn(rng: random.Random) -> Image.Image:
    """Draws a scene, three boxes in a row, or a scene on a page."""
    chance = rng.random()
    if chance < 0.15:
        strip = Image.new("RGB", (400, 100), "white")
        for left, *_ in BOXES:
            strip.paste(draw(sample_scene(rng, style="box", max_things=8), 100), (left, 0))
        return strip
    scene = draw(sample_scene(rng, max_things=8, split=rng.choice(("train", "test"))))
    if chance < 0.75:
        return scene
    margin = rng.randint(5, 60)
    page = Image.new("RGB", (128 + 2 * margin, 128 + margin), rng.choice(("white", "black", "#f0f0f0", "#202020")))
    page.paste(scene, (margin, rng.randint(0, margin)))
    return page


def flat(rng: random.Random) -> Image.Image:
    """Draws shapes of any colour on a ground of any colour: no photograph either."""

    def color() -> tuple[int, int, int]:
        red, green, blue = (rng.choice((0, 255, rng.randint(0, 255))) for _ in range(3))
        return red, green, blue

    side = rng.randint(16, 256)
    image = Image.new("RGB", (side, rng.randint(side // 2, side)), color())
    brush = ImageDraw.Draw(image)
    for _ in range(rng.randint(0, 8)):
        x, y, size = rng.randint(-10, side), rng.randint(-10, side), rng.randint(4, side // 2)
        rng.choice((brush.ellipse, brush.rectangle))((x, y, x + size, y + size), fill=color())
    return image


def worn(rng: random.Random, image: Image.Image) -> Image.Image:
    """Scales and compresses a picture, as pictures are that people send around."""
    if rng.random() < 0.6:
        scale = 2 ** rng.uniform(6, 10) / max(image.size)
        width, height = (max(1, round(side * scale)) for side in image.size)
        image = image.resize((width, height), rng.choice(_SCALING))
    if rng.random() < 0.7:
        buffer = io.BytesIO()
        image.save(buffer, "JPEG", quality=rng.randint(40, 95), subsampling=rng.choice((0, 2)))
        image = Image.open(buffer).convert("RGB")
    return image


def crops(rng: random.Random, path: Path) -> Features:
    """Returns the features of parts of a photograph, each a third of its width or more."""
    with Image.open(path) as opened:
        opened.draft("RGB", (1024, 1024))
        whole = opened.convert("RGB")
    found = []
    for _ in range(CROPS):
        width, height = (round(side * rng.uniform(0.35, 1)) for side in whole.size)
        left, top = rng.randint(0, whole.width - width), rng.randint(0, whole.height - height)
        found.append(features(worn(rng, whole.crop((left, top, left + width, top + height)))))
    return np.array(found)


def fitted(photographs: Sequence[Features], drawings: Features) -> tuple[Features, float]:
    """Returns weights and bias with which so many drawings are refused as may be."""
    rows = np.concatenate([*photographs, drawings])
    mean, scale = rows.mean(axis=0), rows.std(axis=0) + 0.01
    truth = np.arange(len(rows)) < len(rows) - len(drawings)
    model = LogisticRegression(max_iter=3000, class_weight="balanced").fit((rows - mean) / scale, truth)
    weights: Features = model.coef_[0] / scale
    return weights, -float(np.quantile(drawings @ weights, 1 - REFUSED))


def vocabulary() -> list[str]:
    """Returns the words that are known; the grammar has wordings of which training saw none."""
    rng = random.Random(0)
    found = {word for word in words() if word.isalpha()} - set(UNMET.split()) | set(PLAIN.split())
    for _ in range(QUESTIONS):
        subject = sample_scene(rng) if rng.random() < 0.5 else sample_set(rng)
        with suppress(NoQuestionError):  # nothing can be asked about these pictures
            found.update(words_in(sample_question(rng, subject).question))
    return sorted(word for word in found if len(word) >= SHORT)


def main() -> None:
    """Fits, and writes the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--photographs", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    rng = random.Random(0)

    def many(count: int, make: Callable[[random.Random], Image.Image]) -> Features:
        return np.array([features(worn(rng, make(rng))) for _ in range(count)])

    photographs = [crops(rng, path) for path in sorted(given.photographs.iterdir())]
    drawings = np.concatenate([many(DRAWN, drawn), many(DRAWN // 4, flat)])
    weights, bias = fitted(photographs, drawings)
    given.out.mkdir(parents=True, exist_ok=True)
    data = {
        "about": ABOUT,
        "knows": {"things": sorted(KINDS), "colors": list(COLORS), "sizes": list(SIZES)},
        "try": list(TRY),
        "weights": [round(float(weight), 4) for weight in weights],
        "bias": round(bias, 4),
        "words": vocabulary(),
        "others": sorted(set(OTHERS.split())),
    }
    (given.out / FILE).write_text(json.dumps(data) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
