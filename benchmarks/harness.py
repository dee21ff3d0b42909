"""What the evaluation harness itself costs: rows a second and memory, with no model to wait for.

    python -m benchmarks.harness --examples 1000000
    python -m benchmarks.harness --examples 2000 --engine

Without ``--engine`` every question is answered at once, so what is measured is the data set's stream, the window, the
rows as JSON, and SQLite; then a resume that finds everything done, and a reading of every pair. With it, an engine over
fake models answers: real prompts, real sandboxes, real batching.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image

from codevqa import CodeVQA, Models, QuerySettings, Settings, Writer, WriterSettings
from codevqa.core.trace import Form
from codevqa.eval.run.local import LocalAnswerer
from codevqa.eval.run.provenance import engine_info, run_info
from codevqa.eval.run.request import EvalRequest
from codevqa.eval.run.runner import open_run
from codevqa.eval.run.session import Status, run
from codevqa.eval.run.store import FILE
from codevqa.eval.task import METHODS, Example, Job, PictureFile, Row
from codevqa.models.base import GenerationRequest
from codevqa.models.fakes import FakeCaptioner, FakeMatcher, ScriptedLM
from codevqa.prompts import PromptSet
from codevqa.prompts import load as load_prompts

PROGRAM = 'img = open_image("Image1.jpg")\nanswer = query(img, "Is it red?")'


@dataclass
class Synthetic:
    """Questions of GQA's size, made as they are asked for."""

    folder: Path
    count: int
    name: str = "gqa"
    split: str = "synthetic"
    prompts: str = "gqa"

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Example]:
        picture = (PictureFile(self.folder / "picture.png"),)
        for number in range(self.count):
            semantic = [{"operation": "select", "dependencies": [], "argument": f"thing ({number})"}] * 3
            yield Example(
                id=f"{number:08}",
                question=f"Is the thing number {number} to the left of the other thing?",
                images=picture,
                form="image",
                gold=("yes",),
                groups={"structural": "verify", "semantic": "rel", "detailed": "relVerify", "steps": "3"},
                cluster=str(number // 12),
                record={"semantic": semantic, "isBalanced": True},
            )


class Instant:
    """Answers every question at once, with a trace like that of a program of two calls."""

    def __init__(self) -> None:
        evidence = {"kind": "pnpvqa", "captions": [["a red thing on a table"] * 7], "completion": " yes", "images": [1]}
        call = {"index": 1, "name": "query", "arguments": {"img": {"image": 1}}, "value": "yes", "evidence": [evidence]}
        self.trace: dict[str, Any] = {"calls": [call, call], "attempts": [], "printed": "", "baseline": []}

    async def __call__(self, example: Example, jobs: Sequence[Job]) -> list[Row]:
        """Returns one row a job."""
        await asyncio.sleep(0)
        return [
            Row(example.id, method, repeat, "yes", program=PROGRAM, trace=self.trace, seconds=0.1, tokens=500)
            for method, repeat in jobs
        ]


@dataclass
class Fakes:
    """Models that answer at once. They note every request, which has to be forgotten lest it pass for a leak."""

    language_model: ScriptedLM = field(default_factory=lambda: ScriptedLM(write_or_read))
    matcher: FakeMatcher = field(default_factory=FakeMatcher)
    captioner: FakeCaptioner = field(default_factory=lambda: FakeCaptioner(lambda request: f"thing {request.seed}"))

    def engine(self) -> CodeVQA:
        """Returns an engine over them."""
        prompts: dict[Form, PromptSet] = {"image": load_prompts("gqa"), "set": load_prompts("covr")}
        writer = Writer(self.language_model, prompts, settings=WriterSettings(selection="fixed", fit=False, rules=()))
        models = Models(self.language_model, self.matcher, self.captioner)
        return CodeVQA(writer, models, Settings(query=QuerySettings(captions=7)))

    def forget(self) -> None:
        """Drops what was noted."""
        for log in (self.language_model, self.matcher.matches, self.matcher.similarities, self.captioner):
            log.requests.clear()
            log.batches.clear()


def write_or_read(request: GenerationRequest) -> str:
    """Answers a prompt that asks to read captions, or one that asks for a program."""
    return "yes" if str(request.prompt).endswith("A:") else PROGRAM


def resident() -> float:
    """Returns this process's memory in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def main() -> None:
    """Runs the benchmark and prints one JSON object."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--examples", type=int, default=100_000)
    parser.add_argument("--engine", action="store_true", help="an engine over fake models in place of instant answers")
    parser.add_argument("--out", type=Path, help="folder of the run; a temporary one, deleted, if left out")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        print(json.dumps(measure(options.out or Path(scratch), options.examples, options.engine), indent=1))


def measure(folder: Path, count: int, engine: bool) -> dict[str, object]:
    """Writes a run, resumes it, reads it; returns rates and memory."""
    folder.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (64, 48), "red").save(folder / "picture.png")
    data, memory = Synthetic(folder, count), {"start": round(resident(), 1)}

    fakes = Fakes()

    def progress(status: Status) -> None:
        if status.examples % 50 == 0:
            fakes.forget()
        if status.examples in (count // 100, count // 10, count // 2, count):
            memory[f"{status.examples:,}"] = round(resident(), 1)
            print(f"{status.examples:,} examples, {status.rate:,.0f}/s, {resident():.0f} MiB", file=sys.stderr)

    with fakes.engine() as vqa:
        info = run_info(engine_info(vqa), data, EvalRequest(METHODS, seeds=(0,)))
        ask = LocalAnswerer(vqa, (0,)) if engine else Instant()
        with open_run(folder / "run", info) as store:
            began = time.perf_counter()
            run(store, data, ask, info, window=vqa.settings.workers, progress=progress)
            wrote = time.perf_counter() - began
    with open_run(folder / "run", info) as store:
        began = time.perf_counter()
        skipped = run(store, data, Instant(), info, window=32).skipped
        resumed = time.perf_counter() - began
        began = time.perf_counter()
        read = sum(1 for method in METHODS for _ in store.pairs(method))
        reading = time.perf_counter() - began
    rows = 2 * count
    assert (skipped, read) == (count, rows)
    return {
        "examples": count,
        "rows": rows,
        "rows a second, written": round(rows / wrote),
        "examples a second, skipped by a resume": round(count / resumed),
        "pairs a second, read": round(rows / reading),
        "MiB resident": memory | {"end": round(resident(), 1)},
        "MiB on disk": round((folder / "run" / FILE).stat().st_size / 2**20, 1),
    }


if __name__ == "__main__":
    main()
