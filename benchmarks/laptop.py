"""A small language model on a laptop's processor: the same real prompts in eight bits and in float32.

    python -m benchmarks.laptop MODEL_FOLDER
    python -m benchmarks.laptop MODEL_FOLDER --threads 1 --questions 1

Each precision has a process of its own, one after another; a question is a program prompt in chat form (prompt set
``gqa``, nearest examples) and reading prompts about what its program asks. Printed for each, in seconds of the clock
and of the processor, as a mean over the questions:

- ``program, cold``: nothing of the prompt is known. ``written``: the same prompt again, so nothing but writing is left.
- ``program, next``: after the program of another question, with which it shares the preamble.
- ``reading, cold``, ``reading, next``: nearest examples; ``reading, fixed``: examples that are the same every time.

Where others use the machine, seconds of the processor with ``--threads 1`` are what to compare.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from codevqa.core.settings import WriterSettings
from codevqa.models.base import GenerationRequest, LanguageModel, Message
from codevqa.models.retrieval import ExampleIndex
from codevqa.presets.assembly import load, quiet_libraries
from codevqa.primitives.pnpvqa import render_reading
from codevqa.prompts import load as load_prompts
from codevqa.writing.writer import Writer

QUESTIONS = (
    ("Is the white chair to the right or to the left of the girl that is wearing a shirt?", "What color is the chair?"),
    ("What animal is in front of the tree?", "Is there a tree?"),
    ("Are there both cups and plates in this picture?", "Is there a plate?"),
    ("Which side of the photo is the old truck on?", "Is the truck old?"),
    ("Is the man near the bench holding an umbrella?", "What is the man holding?"),
    ("Do the curtains and the sofa have the same color?", "What color are the curtains?"),
)
"""What is asked, and what else its program may ask."""
PRECISIONS = ("int8", "float32")


def prompts() -> list[dict[str, GenerationRequest]]:
    """Returns what the language model is asked for each question."""
    gqa = load_prompts("gqa")
    retriever = load("retriever", "sentence:@mini/weights/retriever")
    writer = Writer(None, gqa, retriever, WriterSettings(form="chat"))  # type: ignore[arg-type]
    bank = [example for example in gqa.reading if example.form == "image"]
    index = ExampleIndex(retriever, [example.question for example in bank])

    def reading(question: str, captions: int, *, fixed: bool = False) -> GenerationRequest:
        places = range(gqa.reading_shots) if fixed else index.nearest(question, gqa.reading_shots)
        shown = bank[captions % len(bank)].by_image
        text = render_reading([bank[place] for place in places], shown, question, "image")
        return GenerationRequest(text, 20, ("\n",), max(text.rfind("\n\n===\nContext:"), 0))

    return [
        {
            "program": writer.request(whole, "image")[0],
            "first": reading(whole, number),
            "second": reading(part, number + 7),
            "fixed, first": reading(whole, number, fixed=True),
            "fixed, second": reading(part, number + 7, fixed=True),
        }
        for number, (whole, part) in enumerate(QUESTIONS)
    ]


def unlike(request: GenerationRequest, mark: str) -> GenerationRequest:
    """Returns the same request, beginning as no other does."""
    if isinstance(request.prompt, str):
        return GenerationRequest(f"{mark}\n{request.prompt}", request.max_tokens, request.stop)
    first, *rest = request.prompt
    turns = (Message(first.role, f"{mark}\n{first.content}"), *rest)
    return GenerationRequest(turns, request.max_tokens, request.stop)


def open_model(name: str, options: argparse.Namespace) -> LanguageModel:
    """Loads the model in one precision."""
    from codevqa.models.causal_lm import TransformersLM

    return TransformersLM.from_pretrained(options.folder, device="cpu", dtype=name)


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Returns the seconds of one precision, its memory, and what it wrote."""
    asked = prompts()[: options.questions]
    began = time.perf_counter()
    lm = open_model(name, options)
    lm.generate([GenerationRequest("def", 2)])
    result: dict[str, Any] = {"precision": name, "ready after, s": round(time.perf_counter() - began, 1)}
    spent: dict[str, list[tuple[float, float]]] = {}
    programs = []

    def timed(what: str, request: GenerationRequest) -> str:
        clock, processor = time.perf_counter(), time.process_time()
        (completion,) = lm.generate([request])
        spent.setdefault(what, []).append((time.perf_counter() - clock, time.process_time() - processor))
        counts = (completion.prompt_tokens, completion.completion_tokens)
        print(f"{name}: {what}: {spent[what][-1][0]:.1f} s, {counts}", file=sys.stderr, flush=True)
        return completion.text

    for number, one in enumerate(asked):
        alone = unlike(one["program"], f"({number})")
        timed("program, cold", alone)
        timed("written", alone)
        programs.append(timed("program, next" if number else "program, first", one["program"]))
        timed("reading, cold", unlike(one["first"], f"({number})"))
        timed("reading, next" if number else "reading, first", one["first"])
        timed("reading, next", one["second"])
        timed("reading, fixed" if number else "reading, fixed, first", one["fixed, first"])
        timed("reading, fixed", one["fixed, second"])
    result["peak, MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    for what, pairs in spent.items():
        clock, processor = (sum(one) / len(pairs) for one in zip(*pairs, strict=True))
        result[what] = {"clock": round(clock, 2), "processor": round(processor, 2), "n": len(pairs)}
    return result | {"programs": programs}


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns the results as a table in Markdown: seconds of the clock / of the processor."""
    columns = [what for what, value in rows[0].items() if isinstance(value, dict)]
    lines = ["| | ready | peak, MB | " + " | ".join(columns) + " |", "|---" * (len(columns) + 3) + "|"]
    for row in rows:
        cells = [f"{row[what]['clock']} / {row[what]['processor']}" for what in columns]
        lines.append(
            f"| {row['precision']} | {row['ready after, s']} s | {row['peak, MB']} | " + " | ".join(cells) + " |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measures each precision in a process of its own and prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="the model as transformers keeps it")
    parser.add_argument("--precisions", default=",".join(PRECISIONS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--questions", type=int, default=len(QUESTIONS))
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        quiet_libraries()
        print(json.dumps(measure(options.child, options)))
        return
    rows = []
    for name in options.precisions.split(","):
        words = [sys.executable, "-m", "benchmarks.laptop", *sys.argv[1:], "--child", name]
        environment = os.environ | {"OMP_NUM_THREADS": str(options.threads)}
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True, env=environment)
        if done.returncode:
            print(f"{name}: failed, its messages are above", file=sys.stderr)
            continue
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        print(json.dumps(rows[-1]), flush=True)
    if not rows:
        parser.error("nothing was measured")
    print(f"load of the machine: {', '.join(f'{load:.1f}' for load in os.getloadavg())}\n\n{table(rows)}")


if __name__ == "__main__":
    main()
