"""Resident memory over many questions: it must stop growing once what is remembered is full.

    python benchmarks/memory.py [--questions 100000] [--every 10000]

Models answer at once and keep nothing, pictures and questions never repeat, each program differs in words and one in
ten in shape: what grows is the engine's own. Memory is compared between half the way, when every bounded store is full
and the allocator has settled, and the end.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from pathlib import Path

from overhead import engine, gqa_like, new_shapes
from PIL import Image

from codevqa import CodeVQA
from codevqa.core.images import load_picture

AT_ONCE = 64
ALLOWED = 4.0
"""MiB that memory may grow over the second half: what an allocator keeps for itself varies."""


def resident() -> float:
    """Returns this process's memory in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def program(question: str) -> str:
    """Returns the program of a question: of a common shape, one in ten of a rare one."""
    return new_shapes(question) if question.endswith("0?") else gqa_like(question)


async def ask(vqa: CodeVQA, first: int, count: int) -> None:
    """Asks questions about pictures that no other question has."""
    numbers = iter(range(first, first + count))

    async def serve() -> None:
        for number in numbers:
            color = (number % 256, number // 256 % 256, number // 65536)
            picture = load_picture(Image.new("RGB", (64, 48), color))
            answer = await vqa.ask_async(picture, f"is it a thing{number}?", seed=number)
            if answer.fallback or answer.error:
                raise SystemExit(f"a program failed: {answer.error}")

    await asyncio.gather(*(serve() for _ in range(AT_ONCE)))


def main() -> None:
    """Measures and prints one JSON object."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--questions", type=int, default=100_000)
    parser.add_argument("--every", type=int, default=10_000)
    options = parser.parse_args()
    memory: dict[int, float] = {}
    began = time.perf_counter()
    with engine(program, AT_ONCE) as vqa:
        for done in range(0, options.questions, options.every):
            asyncio.run(ask(vqa, done, options.every))
            memory[done + options.every] = round(resident(), 1)
            rate = (done + options.every) / (time.perf_counter() - began)
            print(f"{done + options.every:,} questions, {rate:,.0f}/s, {resident():.0f} MiB", file=sys.stderr)
        remembered = vqa._services.memory
        kept = {"calls": len(remembered), "MiB, estimated": round(remembered.size / 2**20, 1)}
    full = next(size for done, size in memory.items() if done >= options.questions / 2)
    grown = round(memory[max(memory)] - full, 1)
    report = {"MiB resident": memory, "remembered": kept, "MiB grown in the second half": grown, "allowed": ALLOWED}
    print(json.dumps(report, indent=1))
    if grown > ALLOWED:
        raise SystemExit(f"Memory grew by {grown} MiB.")


if __name__ == "__main__":
    main()
