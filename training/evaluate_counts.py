"""Measures counting through the whole caption path: ``query(img, "How many red stars are there?")``.

    python -m training.evaluate_counts --scenes 40

Matching, GradCAM, patches, captions and the reader as the mini preset has them, on fresh scenes that show 0 to 5 of
what is asked for, by number and style, each share with its 95 % interval (Wilson). A CPU is enough.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from codevqa import CodeVQA
from codevqa.core.errors import CodeVQAError
from codevqa.eval.statistics import proportion
from codevqa.miniworld.questions import Phrase, ask_count, colors_of, kinds_of
from codevqa.miniworld.world import Scene, draw, sample_scene

MOST = 5


@dataclass(frozen=True)
class Counting:
    """A scene and what to count in it."""

    scene: Scene
    what: Phrase
    count: int


def showing(rng: random.Random, style: str, count: int) -> Counting:
    """Draws a scene with exactly so many things of a phrase, among others; none where the count is 0.

    Args:
        rng: Where the chance comes from.
        style: "plain" or "box".
        count: How many, at most the 6 things that every style places.
    """
    while True:
        scene = sample_scene(rng, style=style, min_things=max(2, count), split="test")
        if scene.tower or len(scene.things) < count:
            continue
        kind, color = rng.choice(kinds_of(scene)), rng.choice(colors_of(scene))
        if rng.random() < 0.7:  # something that is there, or nearly
            thing = rng.choice(scene.things)
            kind, color = thing.kind, color if count == 0 else thing.color
        what = Phrase(kind, color if rng.random() < 0.7 else None)
        places = list(range(len(scene.things)))
        rng.shuffle(places)
        things = list(scene.things)
        for number, place in enumerate(places):
            if number < count:
                things[place] = replace(things[place], kind=kind, color=color if what.color else things[place].color)
            elif what.holds(things[place]):
                others = [one for one in kinds_of(scene) if one != kind]
                things[place] = replace(things[place], kind=rng.choice(others))
        changed = replace(scene, things=tuple(things))
        if what.count(changed) == count:
            return Counting(changed, what, count)


def answers(vqa: CodeVQA, several: Sequence[Counting], threads: int = 16) -> list[str]:
    """What ``query`` answers; a failure is an empty answer."""

    def one(asked: Counting) -> str:
        try:
            return vqa.run(draw(asked.scene), f'answer = query(img, "{ask_count(asked.what)}")').text
        except CodeVQAError:
            return ""

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(one, several))


def main() -> None:
    """Prints a row for each style and number, and one for all from 0 to 5 and from 1 to 5."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="mini")
    parser.add_argument("--scenes", type=int, default=40, help="of each style and number")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="writes the figures here, too")
    options = parser.parse_args()
    several = [
        showing(random.Random(f"counts {options.seed} {style} {count} {place}"), style, count)
        for style in ("plain", "box")
        for count in range(MOST + 1)
        for place in range(options.scenes)
    ]
    with CodeVQA.from_preset(options.preset) as vqa:
        read = answers(vqa, several)
    rows: dict[str, list[bool]] = defaultdict(list)
    wrong: Counter[str] = Counter()
    for asked, text in zip(several, read, strict=True):
        right = text == str(asked.count)
        names = [f"{asked.scene.style}, {asked.count}", f"{asked.scene.style}, 0 to {MOST}", f"both, 0 to {MOST}"]
        for name in [*names, f"both, 1 to {MOST}"] if asked.count else names:
            rows[name].append(right)
        if not right:
            wrong[f"{asked.count} read as {text!r}"] += 1
    print("| scenes and true count | right |\n|---|---|")
    for name, right_ones in rows.items():
        print(f"| {name} | {proportion(right_ones)} |")
    print("commonest mistakes:", ", ".join(f"{name} ({count})" for name, count in wrong.most_common(6)))
    if options.json:
        figures = {name: asdict(proportion(right_ones)) for name, right_ones in rows.items()}
        options.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
