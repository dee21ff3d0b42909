"""Speed against the release's algorithm, always as a ratio measured in one run.

    python benchmarks/speed.py query      one query a fresh picture, BLIP-large sizes     H200: 100x, 35 % of roofline
    python benchmarks/speed.py mix        programs in GQA's mix, 8 questions a picture    H200: 200x
    python benchmarks/speed.py mini       the same mix, the mini models end to end        2 cores: 10x

``query`` and ``mix`` take random weights, which cost as much as trained ones, and language models that are replayed at
no cost; ``--size tiny`` tries them out on a CPU. On a GPU several processes share the pictures (``--processes``), and
``--gpus`` takes several GPUs with as many pictures each. The reference (``benchmarks/reference.py``) runs alone when
they are gone. It is slow, so it is measured on the few items given by ``--reference`` and stated for one item.
``tests/test_reference.py`` compares the answers.

A GPU's work is replayed as CUDA graphs unless ``CODEVQA_CUDA_GRAPHS=0`` is set.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import starmap
from pathlib import Path
from typing import Any

import torch
from PIL import Image as PILImage
from processes import Found, counts, measured
from random_blip import ReplayedReader, ReplayedWriter, fresh_pictures, networks, questions, writer
from reference import Numbers, Release, from_preset

from codevqa import Answer, CodeVQA, Question
from codevqa.core.images import Picture
from codevqa.models.cuda_graphs import enabled

TFLOP_A_PICTURE = 0.76
"""Two ViT-L/16 forward passes at 384 pixels."""
TFLOP_A_SECOND = 789.0
"""What an H200 reached on large bfloat16 matrix products of random numbers."""
PROCESSES = 4
"""On a GPU. One is bound by Python: on an H200, ``query`` was fastest with two to four and the mix with four."""

Asked = tuple[Picture, str]


def seconds(run: Callable[[], object]) -> float:
    """Returns how long a call takes; each ends with its results on the CPU, so that a GPU has finished."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def both_clocks(run: Callable[[], object]) -> tuple[float, float]:
    """Returns how long a call takes by the clock, and in time of this process on all cores."""
    start = time.process_time()
    return seconds(run), time.process_time() - start


def report(name: str, unit: str, ours: float, count: int, theirs: float, reference_count: int, **more: Any) -> Found:
    """Returns and prints a ratio; ``ours`` and ``theirs`` are seconds for so many items."""
    mine, other = ours / count, theirs / reference_count
    gpu = torch.cuda.is_available()
    found = {
        "benchmark": name,
        "unit": unit,
        "device": torch.cuda.get_device_name() if gpu else f"cpu, {torch.get_num_threads()} threads",
        "CUDA graphs": enabled(torch.device("cuda" if gpu else "cpu")),
        "ratio": other / mine,
        f"{unit} a second": 1 / mine,
        "milliseconds": 1000 * mine,
        "items": count,
        "reference, milliseconds": 1000 * other,
        "reference, items": reference_count,
        **more,
    }
    print(f"{name}: {found['ratio']:.1f}x the reference, CUDA graphs {'on' if found['CUDA graphs'] else 'off'}")
    print(f"  ours       {1000 * mine:9.2f} ms a {unit}  {1 / mine:9.1f} a second  n={count}")
    print(f"  reference  {1000 * other:9.2f} ms a {unit}  {1 / other:9.2f} a second  n={reference_count}")
    for key, value in more.items():
        print(f"  {key}: {value:.3f}" if isinstance(value, float) else f"  {key}: {value}")
    return found


def large(options: argparse.Namespace) -> Found:
    """Measures ``query`` or ``mix`` over random weights of a released size, and then the reference."""
    gpu, query = options.device.startswith("cuda"), options.command == "query"
    found = measured(options, options.pictures or ((2048 if query else 256) if gpu else 8))
    ours, count = found.pop("seconds"), found.pop("items")
    numbers = Numbers() if options.size != "tiny" else Numbers(patches=10)
    with Release(
        *networks(options.size, options.device), ReplayedReader(), writer(ReplayedWriter()), numbers
    ) as release:

        def ask_reference(item: Asked) -> str:
            if query:
                return release.query([item[0]], item[1], "image", "image").text
            return release.ask(item[0], item[1])

        # A picture each, as it keeps none; fifty are the whole bank.
        few = list(zip(fresh_pictures(options.reference + 1, 3), questions(3), strict=False))
        ask_reference(few[0])
        theirs = seconds(lambda: [ask_reference(item) for item in few[1:]])
    more: dict[str, Any] = {"GPUs": options.gpus, "processes": options.processes, **found}
    if options.size == "large" and gpu:
        floor = TFLOP_A_PICTURE / TFLOP_A_SECOND / (1 if query else options.questions) / options.gpus
        more["share of the vision towers' roofline"] = floor / (ours / count)
    unit = "query" if query else "question"
    return report(f"{options.command}, BLIP {options.size}", unit, ours, count, theirs, len(few) - 1, **more)


def drawn(pictures: int, per_picture: int, seed: int) -> list[tuple[PILImage.Image, str]]:
    """Returns questions about drawn pictures, several about each."""
    from codevqa.miniworld.questions import sample_question
    from codevqa.miniworld.world import draw, sample_scene

    found = []
    for place in range(pictures):
        rng = random.Random(f"speed {seed} {place}")
        scene = sample_scene(rng, split="test")
        picture = draw(scene)
        found += [(picture, sample_question(rng, scene).question) for _ in range(per_picture)]
    return found


def mini(options: argparse.Namespace) -> Found:
    """Measures the mini models end to end, both sides in turns, so that a busy machine slows both."""
    ours, theirs, count, few_count = (0.0, 0.0), (0.0, 0.0), 0, 0
    with CodeVQA.from_preset("mini") as vqa, from_preset("mini") as release:

        def ask(items: Sequence[tuple[PILImage.Image, str]]) -> list[Answer]:
            return vqa.ask_many([Question(picture, text) for picture, text in items])

        first = drawn(2, options.questions, 0)
        ask(first)
        release.ask(*first[0])
        before = counts(vqa)
        for turn in range(1, options.turns + 1):
            items = drawn(options.pictures, options.questions, turn)
            few = random.Random(turn).sample(items, min(options.reference, len(items)))
            wall, busy = both_clocks(partial(ask, items))
            ours = (ours[0] + wall, ours[1] + busy)
            wall, busy = both_clocks(partial(list, starmap(release.ask, few)))
            theirs = (theirs[0] + wall, theirs[1] + busy)
            count, few_count = count + len(items), few_count + len(few)
        done = {key: round((value - before[key]) / count, 3) for key, value in counts(vqa).items()}
    more = {
        "ratio in processor time, which company on the machine changes less": theirs[1] / few_count / ours[1] * count,
        "done for each": done,
        "reference, done in all": vars(release.counts),
    }
    return report("mini, end to end", "question", ours[0], count, theirs[0], few_count, **more)


def main() -> None:
    """Parses the arguments and runs one benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    gpu = torch.cuda.is_available()
    for name in ("query", "mix"):
        one = commands.add_parser(name)
        one.add_argument("--size", default="large", choices=["tiny", "large"])
        one.add_argument("--device", default="cuda" if gpu else "cpu")
        one.add_argument("--gpus", type=int, default=1)
        one.add_argument("--pictures", type=int, default=0, help="a GPU; 0 for 2048 (query), 256 (mix), 8 on a CPU")
        one.add_argument("--questions", type=int, default=8, help="questions a picture (mix)")
        one.add_argument("--warm-up", type=int, default=384 if gpu else 2, help="pictures before the measured ones")
        one.add_argument("--at-once", type=int, default=768 if gpu else 16, help="questions under way at once")
        one.add_argument(
            "--processes", type=int, default=PROCESSES if gpu else 1, help="on a GPU, each with its own engine"
        )
        one.add_argument("--reference", type=int, default=25 if gpu else 3, help="items the reference is measured on")
    one = commands.add_parser("mini")
    one.add_argument("--pictures", type=int, default=32, help="pictures a turn")
    one.add_argument("--questions", type=int, default=8, help="questions a picture")
    one.add_argument("--turns", type=int, default=3)
    one.add_argument("--reference", type=int, default=10, help="questions a turn that the reference is measured on")
    for one in commands.choices.values():
        one.add_argument("--json", type=Path, help="file to append the figures to, one JSON object a line")
    options = parser.parse_args()
    sys.setswitchinterval(0.0005)
    found = mini(options) if options.command == "mini" else large(options)
    if options.json:
        with options.json.open("a") as handle:
            handle.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
