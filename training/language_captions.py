"""Writes what the trained captioner says for the reader's questions, so that the reader learns from its real captions.

    python -m training.language_captions --out captions.jsonl --questions 20000

Each question is put to its pictures as PnP-VQA does it: GradCAM of the matcher, patches drawn from the map, one sampled
caption for each draw. A line holds the form, the question, the true answer and the draws for each picture.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from pathlib import Path

from codevqa.core.images import Picture, load_picture
from codevqa.miniworld.world import draw
from codevqa.models.base import CaptionRequest, MatchRequest
from codevqa.presets.presets import PRESETS
from codevqa.primitives.pnpvqa import draw_patches

from .language_data import Question, draw_question
from .vision_data import PATCHES

Pictured = tuple[Question, list[Picture]]


def questions(task: tuple[int, int]) -> list[Pictured]:
    """Draws a share of the questions, with their pictures."""
    seed, count = task
    rng = random.Random(f"captions {seed}")
    drawn = [draw_question(rng) for _ in range(count)]
    return [(one, [load_picture(draw(scene)) for scene in one.scenes]) for one in drawn]


def chunks(
    items: Sequence[tuple[Question, list[Picture]]], size: int
) -> Iterator[list[tuple[Question, list[Picture]]]]:
    """Cuts a list into lists of a size."""
    several = iter(items)
    while part := list(islice(several, size)):
        yield part


def main() -> None:
    """Draws questions, captions their pictures, writes the lines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--weights", type=Path, default=Path("codevqa/mini/weights"))
    parser.add_argument("--questions", type=int, default=20000)
    parser.add_argument("--draws", type=int, default=12, help="captions for each picture")
    parser.add_argument("--batch", type=int, default=2048)
    parser.add_argument("--processes", type=int, default=14)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    begun = time.monotonic()
    share = max(1, options.questions // (4 * options.processes))
    tasks = [(options.seed * 1000 + number, share) for number in range(4 * options.processes)]
    with ProcessPoolExecutor(options.processes) as pool:
        items = [item for part in pool.map(questions, tasks) for item in part]
    print(f"{len(items)} questions drawn in {time.monotonic() - begun:.0f} s", flush=True)

    from codevqa.models.blip import BlipCaptioner, BlipMatcher

    settings = PRESETS["mini"].options
    matcher = BlipMatcher.from_pretrained(
        str(options.weights / "matcher"), max_batch=options.batch, **settings.get("matcher", {})
    )
    captioner = BlipCaptioner.from_pretrained(
        str(options.weights / "captioner"), max_batch=options.batch, **settings.get("captioner", {})
    )
    rng = random.Random(options.seed)
    with options.out.open("w", encoding="utf-8") as lines:
        for part in chunks(items, 2000):
            pairs = [(picture, one.text) for one, pictures in part for picture in pictures]
            matches = matcher.match(
                [MatchRequest(picture, text.strip().rstrip("?").strip()) for picture, text in pairs]
            )
            requests = []
            for (picture, _), match in zip(pairs, matches, strict=True):
                for _ in range(options.draws):
                    seed = rng.getrandbits(62)
                    requests.append(CaptionRequest(picture, draw_patches(match.relevance, PATCHES, seed), seed))
            texts = iter(captioner.caption(requests))
            for one, pictures in part:
                told = [[next(texts) for _ in range(options.draws)] for _ in pictures]
                row = {"form": one.form, "text": one.text, "answer": one.answer, "told": told}
                lines.write(json.dumps(row) + "\n")
    print(f"captions written after {time.monotonic() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()
