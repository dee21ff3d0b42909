"""What the second wall around the sandbox's workers costs: the start of a worker, and a program.

    python -m benchmarks.second_wall [--rounds 40]

With and without, in turns, each first as often as the other. A start is that of a sandbox with one worker, up to the
end of its first program; a program makes four calls, which are answered at once, in a worker that has started.
Printed are medians, and the median of the differences of two turns, in milliseconds. Takes a minute on two idle cores.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time

from PIL import Image as PILImage

from codevqa.core.images import load_picture
from codevqa.core.settings import Limits
from codevqa.primitives import Image
from codevqa.primitives.visual import VISUAL
from codevqa.sandbox import Sandbox

PROGRAM = "answer = [query(img, f'is it {number}?') for number in range(4)]"
PROGRAMS = 50
IMAGES = [Image(1, load_picture(PILImage.new("RGB", (64, 48))))]


async def answer(*call: object) -> object:
    """Answers any call."""
    return "yes"


Costs = dict[bool, list[float]]
"""Milliseconds, with the wall and without."""


def boxes() -> dict[bool, Sandbox]:
    """Returns a sandbox with the wall and one without."""
    return {walled: Sandbox(VISUAL, Limits(second_wall=walled), workers=1) for walled in (True, False)}


async def run(box: Sandbox) -> float:
    """Runs the program; returns what it took."""
    began = time.perf_counter()
    await box.run(PROGRAM, answer, images=IMAGES)
    return 1e3 * (time.perf_counter() - began)


async def measure(rounds: int) -> tuple[Costs, Costs]:
    """Returns what starts and programs took; the first of each warms up and is left out."""
    starts: Costs = {True: [], False: []}
    programs: Costs = {True: [], False: []}
    for number in range(rounds + 1):
        order = (True, False) if number % 2 else (False, True)
        both = boxes()
        for walled in order:
            starts[walled].append(await run(both[walled]))
        for turn in range(PROGRAMS):
            for walled in order if turn % 2 else order[::-1]:
                programs[walled].append(await run(both[walled]))
        for box in both.values():
            await box.aclose()
    for found in (*starts.values(), *programs.values()):
        del found[0]
    return starts, programs


def main() -> None:
    """Measures in turns and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    figures = asyncio.run(measure(parser.parse_args().rounds))
    for what, costs in zip(("a start and a first program", "a program"), figures, strict=True):
        with_it, without = statistics.median(costs[True]), statistics.median(costs[False])
        more = statistics.median(one - other for one, other in zip(costs[True], costs[False], strict=True))
        print(f"{what}: {with_it:.2f} ms with the wall, {without:.2f} without, {more:+.2f} from turn to turn")


if __name__ == "__main__":
    main()
