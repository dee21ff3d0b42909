"""Asks the questions of ``questions.jsonl`` about the shipped pictures and prints how each answer was found.

``make demo`` runs it with the embedded models; any preset does: ``python examples/demo.py base``.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from pathlib import Path

from codevqa import Answer, CodeVQA, CodeVQAError

HERE = Path(__file__).resolve().parent


def show(answer: Answer, images: list[str]) -> None:
    """Prints one answer with its program and calls."""
    print(f"\n{'-' * 100}\nPictures  {', '.join(images)}\nQuestion  {answer.question}")
    if answer.program is not None:
        print("Program   " + answer.program.source.replace("\n", "\n          "))
    for call in answer.trace.calls:
        print(f"Call      {call}  ({call.seconds:.2f} s)")
    if answer.fallback and answer.error is not None:
        print(f"Fallback  the program failed: {answer.error.message}")
    print(f"Answer    {answer.text}  ({answer.seconds:.2f} s)")


def main() -> None:
    """Asks every question in turn."""
    started = time.perf_counter()
    preset = sys.argv[1] if len(sys.argv) > 1 else "mini"
    questions = [json.loads(line) for line in (HERE / "questions.jsonl").read_text().splitlines()]
    print(f"Loading the {preset} models ...", flush=True)
    with CodeVQA.from_preset(preset) as vqa:
        for place, asked in enumerate(questions):
            answer = vqa.ask([HERE / name for name in asked["images"]], asked["question"])
            show(answer, asked["images"])
            if place == 0:
                print(f"          first answer {time.perf_counter() - started:.1f} s after the start")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    command, picture = Path(sys.executable).with_name("codevqa"), HERE / "pictures" / "garden.png"
    print(f"{'-' * 100}\n{len(questions)} questions, {peak:.0f} MB at most. Ask yourself:")
    print(f"{os.path.relpath(command)} ask {os.path.relpath(picture)}")


if __name__ == "__main__":
    try:
        main()
    except CodeVQAError as error:
        sys.exit(f"demo: {error}")
