"""Uses engines in every way at once and holds each answer against what the same question gave alone.

    python benchmarks/stress.py --minutes 10

Two engines share the mini models. Threads ask, watch, run, cancel, and raise in primitives, while others close engines
and open them again. Exit status 1 where an answer differs, an error has no type, a call hangs, or something is left.
"""

from __future__ import annotations

import argparse
import asyncio
import faulthandler
import gc
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil
from PIL import Image

from codevqa import CodeVQA, CodeVQAError, primitive
from codevqa.core.events import Answered, Failed
from codevqa.presets.assembly import build
from codevqa.presets.configuration import configure

PICTURES = Path(__file__).resolve().parents[1] / "examples" / "pictures"
QUESTIONS = (
    "Is there a red circle?",
    "How many stars are there?",
    "What color is the square?",
    "Is the circle to the left of the star?",
    "Is the triangle blue or green?",
    "What shape is above the square?",
)
HANGS = 90.0
"""Seconds after which a call counts as hanging."""


@primitive
def throw(name: str) -> str:
    """Raises."""
    raise StopIteration if name == "StopIteration" else SystemExit(3)


@primitive
async def throw_async(name: str) -> str:
    """Raises."""
    raise asyncio.CancelledError if name == "CancelledError" else SystemExit(3)


class Stress:
    """Engines, what they should answer, and what has happened so far."""

    def __init__(self) -> None:
        self.writer, self.models, here = build(configure("mini"))
        self.settings = replace(here.settings, remember=0, workers=8)
        opened = [Image.open(path) for path in sorted(PICTURES.glob("*.png"))]  # read by many threads, not loaded yet
        self.asked = [(picture, question) for picture in opened for question in QUESTIONS]
        self.counts: Counter[str] = Counter()
        self.busy: dict[int, float] = {}
        self.over = threading.Event()
        with self.engine() as alone:
            self.answers = [alone.ask(*one) for one in self.asked]
        self.engines = [self.engine(), self.engine()]

    def engine(self) -> CodeVQA:
        """Opens an engine over the shared models."""
        return CodeVQA(self.writer, self.models, self.settings, primitives=[throw, throw_async])

    def hold(self, place: int, text: str) -> None:
        """Counts an answer, right or wrong."""
        right = text == self.answers[place].text
        self.counts["equal" if right else "WRONG"] += 1
        if not right:
            print("wrong:", self.asked[place][1], repr(text), "alone:", repr(self.answers[place].text), flush=True)

    def use(self, seed: int) -> None:
        """Uses engines in one way after the other, until the time is over."""
        chance = random.Random(seed)
        ways = (self.ask, self.ask_async, self.ask_many, self.ask_stream, self.watch, self.run, self.throw)
        while not self.over.is_set():
            way = chance.choice(ways)
            self.busy[seed] = time.monotonic()
            try:
                way(self.engines[chance.randrange(2)], chance)
            except CodeVQAError as error:
                self.counts[type(error).__name__] += 1
            except BaseException as error:  # noqa: BLE001 - of any kind: they are counted
                self.counts[f"UNTYPED {way.__name__} {error!r}"] += 1
            self.busy.pop(seed)

    def ask(self, engine: CodeVQA, chance: random.Random) -> None:
        """Asks."""
        place = chance.randrange(len(self.asked))
        self.hold(place, engine.ask(*self.asked[place]).text)

    def ask_async(self, engine: CodeVQA, chance: random.Random) -> None:
        """Asks from an event loop, and gives up at times."""
        place = chance.randrange(len(self.asked))

        async def main() -> None:
            try:
                answer = await asyncio.wait_for(engine.ask_async(*self.asked[place]), chance.choice((0.02, HANGS)))
            except TimeoutError:
                self.counts["cancelled"] += 1
            else:
                self.hold(place, answer.text)

        asyncio.run(main())

    def ask_many(self, engine: CodeVQA, chance: random.Random) -> None:
        """Asks several at once."""
        places = chance.sample(range(len(self.asked)), 5)
        for place, answer in zip(places, engine.ask_many([self.asked[one] for one in places]), strict=True):
            self.hold(place, answer.text)

    def ask_stream(self, engine: CodeVQA, chance: random.Random) -> None:
        """Asks several at once, and leaves some."""
        places = chance.sample(range(len(self.asked)), 6)
        stream = engine.ask_stream(self.asked[one] for one in places)
        for number, (at, answer) in enumerate(stream):
            self.hold(places[at], answer.text)
            if number == chance.randrange(6):
                stream.close()

    def watch(self, engine: CodeVQA, chance: random.Random) -> None:
        """Watches a question, and gives up at times."""
        place = chance.randrange(len(self.asked))
        leave = chance.choice((3, 10**6))
        with engine.watch(*self.asked[place]) as events:
            for number, event in enumerate(events):
                if isinstance(event, Answered):
                    self.hold(place, event.answer.text)
                elif isinstance(event, Failed):
                    self.counts[event.error.type] += 1
                if number == leave:
                    self.counts["cancelled"] += 1
                    return

    def run(self, engine: CodeVQA, chance: random.Random) -> None:
        """Runs a program that was written before."""
        place = chance.randrange(len(self.asked))
        answer = self.answers[place]
        if answer.program is not None and not answer.fallback:
            self.hold(place, engine.run(self.asked[place][0], answer.program).text)

    def throw(self, engine: CodeVQA, chance: random.Random) -> None:
        """Runs a program whose primitive raises what would end an event loop."""
        name = chance.choice(("StopIteration", "SystemExit", "CancelledError"))
        engine.run(self.asked[0][0], f"answer = {chance.choice(('throw', 'throw_async'))}({name!r})")
        self.counts["WRONG: a primitive raised and nobody heard"] += 1

    def reopen(self) -> None:
        """Closes engines now and then, from several threads at once, or drops them; and opens others."""
        chance = random.Random(-1)
        while not self.over.wait(chance.uniform(1, 6)):
            place = chance.randrange(2)
            old, self.engines[place] = self.engines[place], self.engine()
            self.counts["reopened"] += 1
            if chance.random() < 0.8:
                together([old.close] * chance.randrange(1, 4))
            del old

    def guard(self) -> None:
        """Ends the process where a call hangs."""
        while True:
            time.sleep(1)
            if any(time.monotonic() - since > HANGS for since in tuple(self.busy.values())):
                faulthandler.dump_traceback()
                print(f"A call HANGS for more than {HANGS:g} seconds.", dict(self.counts), flush=True)
                os._exit(1)


def together(work: list[Callable[[], None]]) -> None:
    """Does several things at once, and waits for all."""
    threads = [threading.Thread(target=one) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def held() -> dict[str, int]:
    """What the process holds once nobody uses an engine."""
    for _ in range(20):  # engines that were dropped close by themselves
        gc.collect()
        time.sleep(0.1)
    me = psutil.Process()
    return {
        "threads": threading.active_count(),
        "descriptors": me.num_fds(),
        "children": len(me.children(recursive=True)),
        "MiB": me.memory_info().rss >> 20,
    }


def main() -> int:
    """Runs the stress and returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--threads", type=int, default=12)
    given = parser.parse_args()
    stress = Stress()
    threading.Thread(target=stress.guard, daemon=True).start()
    for engine in stress.engines:  # so that what the models start once is there
        engine.ask_many(stress.asked)
        engine.close()
    before = held()
    stress.engines = [stress.engine(), stress.engine()]
    threading.Timer(60 * given.minutes, stress.over.set).start()
    together([*(lambda seed=seed: stress.use(seed) for seed in range(given.threads)), stress.reopen])
    for engine in stress.engines:
        engine.close()
    stress.engines.clear()
    del engine
    after = held()
    for name, count in sorted(stress.counts.items()):
        print(f"{count:7,}  {name}")
    print("before:", before, " after:", after)
    grown = [name for name in ("threads", "descriptors", "children") if after[name] > before[name]]
    grown += ["memory"] if after["MiB"] > 1.25 * before["MiB"] + 50 else []
    if grown:
        print("LEFT BEHIND:", *grown, [thread.name for thread in threading.enumerate()])
        print(*(one.resolve() for one in Path("/proc/self/fd").glob("*")))
    return int(bool(grown) or any(name.startswith(("WRONG", "UNTYPED")) for name in stress.counts))


if __name__ == "__main__":
    sys.exit(main())
