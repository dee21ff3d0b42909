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
from codevqa.core.images import Picture, freeze_sources
from codevqa.core.selection import MATCH, READ
from codevqa.mini.phrases import with_article
from codevqa.mini.sampling import sample_scene
from codevqa.mini.truth import query_truth
from codevqa.mini.world import draw_scene
from codevqa.models.protocols import MatchRequest

SEEDS = (101, 102, 103)
_NLVR = {"#0099ff": "blue", "Black": "black", "Yellow": "yellow"}
_BOXES = (0, 150, 300)


class Set(NamedTuple):
    """Pictures and descriptions, each with its truth in every picture."""

    name: str
    pictures: tuple[Picture, ...]
    truths: dict[str, list[bool]]


def draw_set(seed: int, count: int) -> Set:
    """Draws scenes, and describes some of their things."""
    rng = random.Random(seed)
    scenes = [sample_scene(rng, max_things=5, split="test") for _ in range(count)]
    things = [thing for scene in rng.sample(scenes, 12) for thing in scene.things[:1]]
    names = [f"{thing.color} {thing.kind}" for thing in things] + [f"{thing.size} {thing.kind}" for thing in things[:4]]
    texts = dict.fromkeys((*map(with_article, names), "a blue block above a black block"))
    known = {text: [query_truth(scene, f"Is there {text}?") == "yes" for scene in scenes] for text in texts}
    return Set(f"drawn, seed {seed}", tuple(map(_hold_image, map(draw_scene, scenes))), known)


def nlvr(folder: Path, count: int) -> Iterator[Set]:
    """Yields the boxes of NLVR, where its folder is there."""
    if not folder.is_dir():
        return
    rows = [json.loads(line) for line in (folder / "dev.json").read_text(encoding="utf-8").splitlines()]
    pictures, shown = [], []
    for row in random.Random(7).sample(rows, count // 3):
        with PILImage.open(folder / "images" / row["directory"] / f"dev-{row['identifier']}-0.png") as image:
            pictures += [_hold_image(image.convert("RGB").crop((left, 0, left + 100, 100))) for left in _BOXES]
        shown += [{(_NLVR[item["color"]], item["type"]) for item in box} for box in row["structured_rep"]]
    pairs = [(color, kind) for color in _NLVR.values() for kind in ("square", "circle", "triangle")]
    yield Set("NLVR boxes", tuple(pictures), {f"a {' '.join(pair)}": [pair in box for box in shown] for pair in pairs})


def calibration(count: int, folder: Path) -> None:
    """Prints the fit of logits, the reliability of chances and the coverage of ranges."""
    chances, truths, covered, widths = [], [], [], []
    with CodeVQA.from_preset("mini") as vqa:
        for group in (*(draw_set(seed, count) for seed in SEEDS), *nlvr(folder, count)):
            for description, truth in group.truths.items():
                logits = vqa.models.matcher.logits([MatchRequest(picture, description) for picture in group.pictures])  # type: ignore[union-attr]
                result = vqa.run(list(group.pictures), f'answer = len(select(images, "{description}"))').selections[0]
                by_place = {pick.image.index: pick.chance for pick in (*result.picked, *result.others)}
                selected = [by_place[place] for place in range(1, len(truth) + 1)]
                chances.append(np.column_stack([selected, logits]))
                truths.append(np.array(truth))
                covered.append(result.low <= sum(truth) <= result.high)
                widths.append(result.high - result.low)
            print(f"{group.name}: {len(group.truths)} descriptions of {len(group.pictures)} pictures")
    columns, right = np.concatenate(chances), np.concatenate(truths)
    fit = LogisticRegression(C=1e6).fit(columns[:, 1:], right)
    print(f"MATCH = ({fit.intercept_[0]:.2f}, {fit.coef_[0, 0]:.2f}), now {MATCH}")
    read = np.isclose(np.abs(columns[:, 0] - 0.5), READ - 0.5)
    print(f"READ = {np.mean((columns[read, 0] > 0.5) == right[read]):.3f} of {read.sum()}, now {READ}")
    for low, high in zip(edges := (0, 0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 1.0001), edges[1:], strict=False):
        inside = (columns[:, 0] >= low) & (columns[:, 0] < high)
        if inside.any():
            predicted, true = columns[inside, 0].mean(), right[inside].mean()
            print(f"chance {low:5} to {high:6}: {inside.sum():6} pictures, said {predicted:.4f}, true {true:.4f}")
    print(f"90 % range: holds {np.mean(covered):.3f} of {len(covered)} numbers, {np.mean(widths):.1f} wide")


def recall(count: int, folder: Path) -> None:
    """Prints how many pictures that count a threshold keeps, and how many of all it rules out."""
    for group in (*(draw_set(seed, count) for seed in SEEDS), *nlvr(folder, count)):
        for threshold in (0.05, 0.1, 0.15, 0.2):
            fast = {"sets.exact": False, "sets.rule_out": threshold}
            kept, true, out, scored = 0, 0, 0, 0
            with CodeVQA.from_preset("mini", sets=fast) as vqa:
                for text, truth in group.truths.items():
                    result = vqa.run(list(group.pictures), f'answer = len(select(images, "{text}"))').selections[0]
                    close = {pick.image.index - 1 for pick in (*result.picked, *result.others)}
                    kept, true = kept + sum(truth[place] for place in close), true + sum(truth)
                    out, scored = out + result.ruled_out, scored + len(truth)
            print(f"{group.name}: {threshold}: recall {kept / true:.3f} of {true}, rules out {out / scored:.3f}")


def _hold_image(image: PILImage.Image) -> Picture:
    return freeze_sources(image)[0]  # type: ignore[return-value]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("calibration", "recall"))
    parser.add_argument("--pictures", type=int, default=400)
    parser.add_argument("--nlvr", type=Path, default=Path("/data/nlvr/dev"))
    args = parser.parse_args()
    (calibration if args.what == "calibration" else recall)(args.pictures, args.nlvr)
