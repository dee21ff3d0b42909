"""How long one question about five images takes when it is asked alone: call by call, and as it is answered now.

    python -m benchmarks.latency_set [--questions 12] [--preset mini] [--images 5] [--likely]

Call by call is the same engine with nothing begun ahead and batches of one, so that each model call waits for the one
before. Both engines are in one process and take turns on each question, each on pictures it has never seen; the ratio
is the median over questions. The programs are written beforehand, in the manner of COVR's, and the two must give the
same answers.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from dataclasses import replace

from codevqa import CodeVQA, Program
from codevqa.core.images import Picture, load_picture
from codevqa.presets.presets import preset

TARGET = 3.0

PROGRAMS = (
    """\
count = 0
for img in images:
    if query(img, "Is there a {0}?") == "yes":
        count += 1
answer = str(count)""",
    """\
found = [query(img, "What color is the {0}?") for img in images]
answer = "yes" if len(set(found)) == 1 else "no\"""",
    """\
img = find_matching_image(images, "{0}")
answer = "yes" if any(query(i, "Is there a {0}?") == "yes" for i in images) else "no\"""",
    """\
count = 0
for img in images:
    first = query(img, "Is there a {0}?")
    second = query(img, "Is there a {1}?")
    if first == "yes" and second == "yes":
        count += 1
answer = "yes" if count >= 2 else "no\"""",
)


def pictures(rng: random.Random, count: int) -> list[Picture]:
    """Draws a set of pictures."""
    from codevqa.miniworld.world import draw, sample_scene

    return [load_picture(draw(sample_scene(rng, split="test"))) for _ in range(count)]


def seconds(vqa: CodeVQA, program: Program, shown: list[Picture]) -> tuple[float, str]:
    """Runs a program once; returns its time and its answer."""
    began = time.perf_counter()
    answer = vqa.run(shown, program)
    return time.perf_counter() - began, answer.text


def main() -> None:
    """Measures and prints one JSON object."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--questions", type=int, default=12)
    parser.add_argument("--images", type=int, default=5)
    parser.add_argument("--preset", default="mini")
    parser.add_argument("--likely", action="store_true", help="also begin calls that are only likely")
    options = parser.parse_args()
    now = replace(preset(options.preset).settings, ahead_likely=options.likely)
    before = replace(now, ahead=False, max_batch=1, batch_wait=0.0, remember=0)
    rng = random.Random("latency")
    slow: list[float] = []
    fast: list[float] = []
    same = 0
    with (
        CodeVQA.from_preset(options.preset, settings=before) as one_by_one,
        CodeVQA.from_preset(options.preset, settings=now) as vqa,
    ):
        for warm in (one_by_one, vqa):
            seconds(warm, Program(PROGRAMS[0].format("dog"), form="set"), pictures(rng, options.images))
        for number in range(options.questions):
            shown = pictures(rng, options.images)
            program = Program(PROGRAMS[number % len(PROGRAMS)].format("red square", "duck"), form="set")
            order = [one_by_one, vqa][:: 1 if number % 2 else -1]
            measured = {engine: seconds(engine, program, shown) for engine in order}
            (long, mine), (short, other) = measured[one_by_one], measured[vqa]
            slow.append(long)
            fast.append(short)
            same += mine == other
    ratios = [long / short for long, short in zip(slow, fast, strict=True)]
    report = {
        "preset": options.preset,
        "questions": options.questions,
        "images": options.images,
        "call by call: median seconds": round(statistics.median(slow), 3),
        "now: median seconds": round(statistics.median(fast), 3),
        "times shorter: median": round(statistics.median(ratios), 2),
        "times shorter: least, most": [round(min(ratios), 2), round(max(ratios), 2)],
        "target": TARGET,
        "equal answers": f"{same} of {options.questions}",
    }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
