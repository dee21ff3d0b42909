"""What the mini models know, as the package tells it: ``mini/weights/domain``.

    python -m codevqa.mini.training.domain --photographs FOLDER --everyday WORDS --out mini/weights/domain
    python -m codevqa.mini.training.domain --everyday WORDS --out mini/weights/domain  # after the matcher changed
    python -m codevqa.mini.training.domain --everyday WORDS --words --out mini/weights/domain

Pictures: a logistic regression on the statistics of drawn pictures and of photographs (any; those of the shipped file
are named in README.md), both cropped, scaled and compressed as pictures are that people send around. Words: the vision
models' vocabulary, what the grammar of questions says, and some that change no question. Everyday words, from any list
with one a line, are not taken for known ones spelt wrongly. ``tests/test_domain.py`` measures it on photographs that
were not trained with.
"""

from __future__ import annotations

import argparse
import io
import json
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import snowballstemmer  # type: ignore[import-untyped, unused-ignore]
from PIL import Image, ImageDraw, ImageFont
from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped, unused-ignore]

from codevqa import CodeVQA
from codevqa.core.images import load_picture
from codevqa.eval.datasets.nlvr import BOXES
from codevqa.mini.draw import mask
from codevqa.mini.questions import NoQuestionError, sample_question
from codevqa.mini.sampling import sample_scene
from codevqa.mini.sets import sample_set
from codevqa.mini.world import COLORS, KINDS, RGB, SIZES, draw_scene, pluralize
from codevqa.models.domain import FILE, PICTURE, SHORT, Domain, features, words_in

from .drawings import OTHER_KINDS
from .language_words import COMPOUNDS, NOUNS, OTHER_NAMES
from .vision_words import all_tokens

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
again almost also believe checking correct currently ever false guess hello hey just maybe nearly now pic pics pls
perhaps please quite really say says still then think thinks too very yet
"""
"""Words that mean little to a question."""
UNMET = """
behind brown colour coloured colours gray grey inside made make makes outside pink she when who whose why
"""
"""Words that the vision models have tokens for, and that no picture or question showed them. Some are known in another
spelling."""
_SCALING = (Image.Resampling.BILINEAR, Image.Resampling.BICUBIC, Image.Resampling.LANCZOS)


def draw_drawing(rng: random.Random) -> Image.Image:
    """Draws a scene, three boxes in a row, or a scene on a page."""
    chance = rng.random()
    if chance < 0.15:
        strip = Image.new("RGB", (400, 100), "white")
        for left, *_ in BOXES:
            strip.paste(draw_scene(sample_scene(rng, style="box", max_things=8), 100), (left, 0))
        return strip
    scene = draw_scene(sample_scene(rng, max_things=8, split=rng.choice(("train", "test"))))
    if chance < 0.75:
        return scene
    margin = rng.randint(5, 60)
    page = Image.new("RGB", (128 + 2 * margin, 128 + margin), rng.choice(("white", "black", "#f0f0f0", "#202020")))
    page.paste(scene, (margin, rng.randint(0, margin)))
    return page


def draw_shapes(rng: random.Random) -> Image.Image:
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


def wear_picture(rng: random.Random, image: Image.Image) -> Image.Image:
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
    rows = []
    for _ in range(CROPS):
        width, height = (round(side * rng.uniform(0.35, 1)) for side in whole.size)
        left, top = rng.randint(0, whole.width - width), rng.randint(0, whole.height - height)
        rows.append(features(wear_picture(rng, whole.crop((left, top, left + width, top + height)))))
    return np.array(rows)


def fit_regression(photographs: Sequence[Features], drawings: Features) -> tuple[Features, float]:
    """Returns weights and bias with which so many drawings are refused as may be."""
    rows = np.concatenate([*photographs, drawings])
    mean, scale = rows.mean(axis=0), rows.std(axis=0) + 0.01
    truth = np.arange(len(rows)) < len(rows) - len(drawings)
    model = LogisticRegression(max_iter=3000, class_weight="balanced").fit((rows - mean) / scale, truth)
    weights: Features = model.coef_[0] / scale
    return weights, -float(np.quantile(drawings @ weights, 1 - REFUSED))


def known_words() -> list[str]:
    """Returns the words that are known; the grammar has wordings of which training saw none."""
    rng = random.Random(0)
    known = {word for word in all_tokens() if word.isalpha()} - set(UNMET.split()) | set(PLAIN.split())
    for _ in range(QUESTIONS):
        subject = sample_scene(rng) if rng.random() < 0.5 else sample_set(rng)
        with suppress(NoQuestionError):  # nothing can be asked about these pictures
            known.update(words_in(sample_question(rng, subject).question))
    names = [name for names in OTHER_NAMES.values() for name in names]
    known.update(words_in(" ".join((*names, *map(pluralize, names)))))
    return sorted(word for word in known if len(word) >= SHORT)


def seen_regression() -> list[float]:
    """Fits weights and a bias for the matcher's summaries: positive for drawings of another kind."""
    rng = random.Random(1)
    empty = [Image.new("RGB", (64, 64), tuple(rng.randint(0, 255) for _ in range(3))) for _ in range(DRAWN // 40)]
    mine = [
        *(wear_picture(rng, draw_drawing(rng)) for _ in range(DRAWN)),
        *(draw_drawing(rng) for _ in range(DRAWN // 4)),
        *empty,
    ]
    others = [wear_picture(rng, draw_other(rng)) for draw_other in OTHER_KINDS.values() for _ in range(DRAWN // 5)]
    with CodeVQA.from_preset("mini") as vqa:
        matcher: Any = vqa.models.matcher
        images = [*others, *mine]
        rows = np.array(
            [row for start in range(0, len(images), 64) for row in _summaries(matcher, images[start : start + 64])]
        )
    mean, scale = rows[len(others) :].mean(axis=0), rows[len(others) :].std(axis=0) + 1e-3
    truth = np.arange(len(rows)) < len(others)
    model = LogisticRegression(max_iter=3000, class_weight="balanced", C=0.03).fit((rows - mean) / scale, truth)
    weights: Features = model.coef_[0] / scale
    bias = -float(np.quantile(rows[len(others) :] @ weights, 1 - REFUSED / 10))
    return [float(f"{weight:.5g}") for weight in (*weights, bias)]


def _summaries(matcher: Any, images: Sequence[Image.Image]) -> Sequence[Features]:
    summaries: Sequence[Features] = matcher.summaries([load_picture(image) for image in images])
    return summaries


def draw_legend() -> Image.Image:
    """Draws each kind of thing and each colour with its name."""
    columns, tile, side, font = 9, 76, 44, ImageFont.load_default(11)
    named = [*((kind, kind, COLORS[place % len(COLORS)]) for place, kind in enumerate(KINDS))]
    named += [(color, "square", color) for color in COLORS]
    image = Image.new("RGB", (columns * tile, -(-len(named) // columns) * tile), (204, 204, 204))
    brush = ImageDraw.Draw(image)
    for place, (name, kind, color) in enumerate(named):
        left, top = place % columns * tile, place // columns * tile
        image.paste(RGB[color], (left + (tile - side) // 2, top + 8), mask(kind, side))
        brush.text((left + tile // 2, top + side + 12), name, (0, 0, 0), font, anchor="ma")
    return image.quantize(64)


def others(everyday: Sequence[str], known: Sequence[str]) -> list[str]:
    """Returns everyday words that look like known ones spelt wrongly, and are no other form of those."""
    stem = snowballstemmer.stemmer("english").stemWord
    domain = Domain("", np.zeros(0), 0.0, frozenset(known), frozenset())
    nouns = (*NOUNS, *" ".join(COMPOUNDS).split())
    single = {word for word in (*everyday, *nouns) if word.isalpha() and word.islower()}
    candidates = {word for word in single | set(map(pluralize, single)) if word.isascii()}
    return sorted(
        word
        for word in candidates - set(known) - set(UNMET.split())
        if (near := domain.near(word)) and stem(near) != stem(word)
    )


def regression(photographs: Path) -> tuple[list[float], float]:
    """Fits the regression; returns its weights and its bias."""
    rng = random.Random(0)

    def many(count: int, make: Callable[[random.Random], Image.Image]) -> Features:
        return np.array([features(wear_picture(rng, make(rng))) for _ in range(count)])

    parts = [crops(rng, path) for path in sorted(photographs.iterdir())]
    drawings = np.concatenate([many(DRAWN, draw_drawing), many(DRAWN // 4, draw_shapes)])
    weights, bias = fit_regression(parts, drawings)
    return [round(float(weight), 4) for weight in weights], round(bias, 4)


def main() -> None:
    """Fits, and writes the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photographs", type=Path, help="without it, the regression stays that of the file")
    parser.add_argument("--words", action="store_true", help="fit nothing: only the words are new")
    parser.add_argument("--everyday", type=Path, required=True, help="a file of English words, one a line")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    if options.words and options.photographs:
        parser.error("--words fits nothing; leave --photographs out")
    before = {} if options.photographs else json.loads((options.out / FILE).read_text(encoding="utf-8"))
    weights, bias = regression(options.photographs) if options.photographs else (before["weights"], before["bias"])
    options.out.mkdir(parents=True, exist_ok=True)
    known = known_words()
    data = {
        "about": ABOUT,
        "knows": {"things": sorted(KINDS), "colors": list(COLORS), "sizes": list(SIZES)},
        "try": list(TRY),
        "seen": before["seen"] if options.words else seen_regression(),
        "weights": weights,
        "bias": bias,
        "words": known,
        "others": others(options.everyday.read_text(encoding="utf-8").split(), known),
    }
    draw_legend().save(options.out / PICTURE, optimize=True)
    (options.out / FILE).write_text(json.dumps(data) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
