"""Writes what the trained captioner says for the reader's questions, so that the reader learns from its real captions.

    python -m codevqa.mini.training.language_captions --out captions.jsonl --questions 20000

Each question is put to its pictures as PnP-VQA does it: GradCAM of the matcher, patches drawn from the map, one sampled
caption for each draw. A line holds the form, the question, the true answer and the draws for each picture.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import cast

from codevqa import CodeVQA
from codevqa.core.images import Picture, load_picture
from codevqa.mini.world import draw_scene
from codevqa.models.protocols import Captioner, CaptionRequest, Matcher, MatchRequest
from codevqa.primitives.patches import Patches

from .language_reading import ReadingQuestion, draw_question
from .vision_data import PATCHES

DRAWS = 12
"""Captions for each picture."""
PROCESSES = 14
AT_ONCE = 2000
"""Questions in one batch."""


def questions_with_pictures(task: tuple[int, int]) -> list[tuple[ReadingQuestion, list[Picture]]]:
    """Draws a share of the questions, with their pictures."""
    seed, count = task
    rng = random.Random(f"captions {seed}")
    drawn = [draw_question(rng) for _ in range(count)]
    return [(question, [load_picture(draw_scene(scene)) for scene in question.scenes]) for question in drawn]


def caption_patches(
    vqa: CodeVQA, asked: Sequence[tuple[Picture, str]], draws: int, rng: random.Random
) -> list[list[str]]:
    """What the captioner says of each picture: so many captions of patches drawn for a text."""
    matches = cast(Matcher, vqa.models.matcher).match([MatchRequest(picture, text) for picture, text in asked])
    requests = [
        CaptionRequest(picture, Patches(match.relevance, PATCHES).draw(seed), seed)
        for (picture, _), match in zip(asked, matches, strict=True)
        for seed in [rng.getrandbits(62) for _ in range(draws)]
    ]
    texts = iter(cast(Captioner, vqa.models.captioner).caption(requests))
    return [[next(texts) for _ in range(draws)] for _ in asked]


def main() -> None:
    """Draws questions, captions their pictures, writes the lines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--questions", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    share = options.questions // (4 * PROCESSES)
    tasks = [(options.seed * 1000 + number, share) for number in range(4 * PROCESSES)]
    with ProcessPoolExecutor(PROCESSES) as pool:
        items = [item for part in pool.map(questions_with_pictures, tasks) for item in part]
    print(f"{len(items)} questions drawn", flush=True)
    rng = random.Random(options.seed)
    with CodeVQA.from_preset("mini") as vqa, options.out.open("w", encoding="utf-8") as lines:
        for start in range(0, len(items), AT_ONCE):
            part = items[start : start + AT_ONCE]
            asked = [
                (picture, question.text.strip().rstrip("?").strip())
                for question, pictures in part
                for picture in pictures
            ]
            texts = iter(caption_patches(vqa, asked, DRAWS, rng))
            for question, pictures in part:
                captions = [next(texts) for _ in pictures]
                row = {"form": question.form, "text": question.text, "answer": question.answer, "told": captions}
                lines.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
