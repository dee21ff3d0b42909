"""Fits the chances of selected pictures, and says how good they are; and what the contrastive score may rule out.

    python benchmarks/collection.py calibration|recall [--pictures 400] [--nlvr /data/nlvr/dev]

``calibration`` prints what codevqa/core/selection.py holds; its reliability table and the coverage of the 90 % range
are of whole runs. ``recall`` prints what thresholds of ``sets.rule_out`` lose. Descriptions are true or false of drawn
scenes of three seeds, and of the boxes of NLVR (one thing each).
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image as PILImage
from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped, unused-ignore]

from codevqa import CodeVQA
from codevqa.core.images import Picture, hold
from codevqa.core.selection import MATCH, READ
from codevqa.miniworld.phrases import with_article
from codevqa.miniworld.truth import query
from codevqa.miniworld.world import draw, sample_scene
from codevqa.models.base import MatchRequest, SimilarityRequest

SEEDS = (101, 102, 103)
_NLVR = {"#0099ff": "blue", "Black": "black", "Yellow": "yellow"}
_BOXES = (0, 150, 300)


class Set(NamedTuple):
    """Pictures and descriptions, each with its truth in every picture."""

    name: str
    pictures: tuple[Picture, ...]
    truths: dict[str, list[bool]]


def drawn(seed: int, count: int) -> Set:
    """Draws scenes, and describes some of their things."""
    rng = random.Random(seed)
    scenes = [sample_scene(rng, max_things=5, split="test") for _ in range(count)]
    things = [thing for scene in rng.sample(scenes, 12) for thing in scene.things[:1]]
    names = [f"{one.color} {one.kind}" for one in things] + [f"{one.size} {one.kind}" for one in things[:4]]
    texts = dict.fromkeys((*map(with_article, names), "a blue block above a black block"))
    known = {text: [query(scene, f"Is there {text}?") == "yes" for scene in scenes] for text in texts}
    return Set(f"drawn, seed {seed}", tuple(map(_held, map(draw, scenes))), known)


def nlvr(folder: Path, count: int) -> Iterator[Set]:
    """Yields the boxes of NLVR, where its folder is there."""
    if not folder.is_dir():
        return
    rows = [json.loads(line) for line in (folder / "dev.json").read_text(encoding="utf-8").splitlines()]
    pictures, shown = [], []
    for row in random.Random(7).sample(rows, count // 3):
        with PILImage.open(folder / "images" / row["directory"] / f"dev-{row['identifier']}-0.png") as image:
            pictures += [_held(image.convert("RGB").crop((left, 0, left + 100, 100))) for left in _BOXES]
        shown += [{(_NLVR[item["color"]], item["type"]) for item in box} for box in row["structured_rep"]]
    pairs = [(color, kind) for color in _NLVR.values() for kind in ("square", "circle", "triangle")]
    yield Set("NLVR boxes", tuple(pictures), {f"a {' '.join(one)}": [one in box for box in shown] for one in pairs})


def calibration(count: int, folder: Path) -> None:
    """Prints the fit of logits, the reliability of chances and the coverage of ranges."""
    chances, truths, covered, widths = [], [], [], []
    with CodeVQA.from_preset("mini") as vqa:
        for given in (*(drawn(seed, count) for seed in SEEDS), *nlvr(folder, count)):
            for description, truth in given.truths.items():
                logits = vqa.models.matcher.logits([MatchRequest(one, description) for one in given.pictures])  # type: ignore[union-attr]
                found = vqa.run(list(given.pictures), f'answer = len(select(images, "{description}"))').selections[0]
                by_place = {pick.image.index: pick.chance for pick in (*found.picked, *found.others)}
                selected = [by_place[place] for place in range(1, len(truth) + 1)]
                chances.append(np.column_stack([selected, logits]))
                truths.append(np.array(truth))
                covered.append(found.low <= sum(truth) <= found.high)
                widths.append(found.high - found.low)
            print(f"{given.name}: {len(given.truths)} descriptions of {len(given.pictures)} pictures")
    told, right = np.concatenate(chances), np.concatenate(truths)
    fit = LogisticRegression(C=1e6).fit(told[:, 1:], right)
    print(f"MATCH = ({fit.intercept_[0]:.2f}, {fit.coef_[0, 0]:.2f}), now {MATCH}")
    read = np.isclose(np.abs(told[:, 0] - 0.5), READ - 0.5)
    print(f"READ = {np.mean((told[read, 0] > 0.5) == right[read]):.3f} of {read.sum()}, now {READ}")
    for low, high in zip(edges := (0, 0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 1.0001), edges[1:], strict=False):
        inside = (told[:, 0] >= low) & (told[:, 0] < high)
        if inside.any():
            said, true = told[inside, 0].mean(), right[inside].mean()
            print(f"chance {low:5} to {high:6}: {inside.sum():6} pictures, said {said:.4f}, true {true:.4f}")
    print(f"90 % range: holds {np.mean(covered):.3f} of {len(covered)} numbers, {np.mean(widths):.1f} wide")


def recall(count: int, folder: Path) -> None:
    """Prints how many pictures that count a threshold keeps, and how many others it rules out."""
    for given in (*(drawn(seed, count) for seed in SEEDS), *nlvr(folder, count)):
        with CodeVQA.from_preset("mini") as vqa:
            asked = [SimilarityRequest(one, f"a picture of {text}") for text in given.truths for one in given.pictures]
            scores = np.array(vqa.models.matcher.similarity(asked))  # type: ignore[union-attr]
        truths = np.concatenate([np.array(one) for one in given.truths.values()])
        print(f"{given.name}: {truths.sum()} of {truths.size} count, their lowest score is {scores[truths].min():.3f}")
        for threshold in (0.0, 0.05, 0.1, 0.15, 0.2):
            kept, out = np.mean(scores[truths] >= threshold), np.mean(scores[~truths] < threshold)
            print(f"  rule_out {threshold:.3f}: recall {kept:.3f}, rules out {out:.3f} of the others")


def _held(image: PILImage.Image) -> Picture:
    return hold(image)[0]  # type: ignore[return-value]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("calibration", "recall"))
    parser.add_argument("--pictures", type=int, default=400)
    parser.add_argument("--nlvr", type=Path, default=Path("/data/nlvr/dev"))
    args = parser.parse_args()
    (calibration if args.what == "calibration" else recall)(args.pictures, args.nlvr)
