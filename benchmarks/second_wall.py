"""What the second wall around the sandbox's workers costs: the start of a worker, and a program.

    python -m benchmarks.second_wall [--rounds 40]

With and without, in turns, each first as often as the other. A start is that of a sandbox with one worker, up to the
end of its first program; a program makes four calls, which are answered at once, in a worker that has started.
Printed are medians, and the median of the differences of a round, in milliseconds. Takes a minute on two idle cores.
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


async def started(second_wall: bool) -> tuple[float, float]:
    """Returns what a start and what a program took."""
    began = time.perf_counter()
    async with Sandbox(VISUAL, Limits(second_wall=second_wall), workers=1) as box:
        await box.run(PROGRAM, answer, images=IMAGES)
        first = time.perf_counter()
        for _ in range(PROGRAMS):
            await box.run(PROGRAM, answer, images=IMAGES)
        last = time.perf_counter()
    return 1e3 * (first - began), 1e3 * (last - first) / PROGRAMS


def main() -> None:
    """Measures in turns and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    rounds = parser.parse_args().rounds
    found: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    for number in range(rounds + 1):
        for walled in (True, False) if number % 2 else (False, True):
            figures = asyncio.run(started(walled))
            if number:  # the first of each warms up
                found[walled].append(figures)
    for column, what in enumerate(("a start and a first program", "a program")):
        with_it, without = ([figures[column] for figures in found[walled]] for walled in (True, False))
        more = statistics.median(one - other for one, other in zip(with_it, without, strict=True))
        print(
            f"{what}: {statistics.median(with_it):.2f} ms with the wall, {statistics.median(without):.2f} without,"
            f" {more:+.2f} in a round"
        )


if __name__ == "__main__":
    main()
