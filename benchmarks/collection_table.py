"""Questions about drawn collections by size and kind: right answers, errors of counts, pictures found, and seconds.

    python benchmarks/collection_table.py WORK --sizes 10,50,200 --questions 300 --seeds 3 --preset mini

A cell is a size and a kind. *Exact* is the share of right answers with its 95 % interval over collections as clusters.
*Error* is the mean absolute error of counts. *F1* is that of the pictures that answers name or count. Selections,
groups and comparisons run the data's own programs, so they measure seeing alone; other methods are asked them in words.
Seeds from --first on; pictures and rows are kept in WORK, and the same command goes on where it stopped. Another preset
or other settings need a WORK of their own. Models run where the preset puts them: on a GPU where there is one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from codevqa.cli.options import choose_options
from codevqa.core.trace import Method
from codevqa.eval import open_dataset
from codevqa.eval.metrics import metric_for
from codevqa.eval.metrics.statements import count_error, f1
from codevqa.eval.run.choices import engine_for, methods_for
from codevqa.eval.run.local import Answerer, LocalAnswerer
from codevqa.eval.statistics import mean
from codevqa.eval.task import DataSet, Example, Job, Row
from codevqa.mini import export_collections

HEAD = ("pictures", "kind", "method", "n", "exact %", "95 %", "error", "F1", "F1 of", "seconds")


@dataclass(frozen=True)
class TablePlan:
    """What is measured."""

    work: Path
    sizes: tuple[int, ...]
    questions: int = 300
    seeds: tuple[int, ...] = (81, 82, 83)
    split: str = "test_combinations"
    methods: tuple[Method, ...] = ("codevqa",)

    @property
    def rows(self) -> Path:
        """File of the rows."""
        return self.work / "rows.jsonl"

    def data(self, seed: int, size: int) -> DataSet:
        """Returns the questions of a seed and size, drawing them where they are not there."""
        folder = self.work / f"data-{self.questions}" / f"{seed}"
        name = f"{self.split}_{size}"
        if not (folder / "collections" / f"{name}.jsonl").is_file():
            export_collections.write_collections_split(
                folder / "collections", self.split, self.questions, seed, 0, size
            )
        return open_dataset("collections", folder, name)


def measure_plan(plan: TablePlan, answerer: Answerer) -> list[dict[str, Any]]:
    """Asks what has no row yet, and returns all rows of the plan."""
    kept = [json.loads(line) for line in plan.rows.read_text().splitlines()] if plan.rows.is_file() else []
    done = {(row["size"], row["seed"], row["id"], row["method"], row["questions"]): row for row in kept}
    rows = []
    with plan.rows.open("a") as file:
        for size in plan.sizes:
            for seed in plan.seeds:
                sys.stderr.write(f"{size} pictures, seed {seed}\n")
                for example in plan.data(seed, size):
                    keys = {method: (size, seed, example.id, method, plan.questions) for method in plan.methods}
                    jobs = [Job(method, 0, 0) for method, key in keys.items() if key not in done]
                    # One after the other: what one method reads, the next would have for nothing at the same time.
                    for job in jobs:
                        (row,) = asyncio.run(_ask_example(answerer, example, job))
                        done[keys[job.method]] = line = answer_row(plan, size, seed, example, row)
                        file.write(json.dumps(line) + "\n")
                        file.flush()
                    rows += [done[key] for key in keys.values()]
    return rows


async def _ask_example(answerer: Answerer, example: Example, job: Job) -> list[Row]:
    return await answerer(example, [job])


def answer_row(plan: TablePlan, size: int, seed: int, example: Example, row: Row) -> dict[str, Any]:
    """Returns what is kept of an answer."""
    picked = row.trace.get("picked")
    return {
        "size": size,
        "seed": seed,
        "questions": plan.questions,
        "id": example.id,
        "cluster": example.cluster,
        "kind": example.groups["kind"],
        "method": row.method,
        "exact": metric_for("collections").score(example, row.prediction),
        "error": count_error(example, row.prediction),
        "f1": None if picked is None else f1(example.record["pictures"], picked),
        "seconds": row.seconds,
        "gold": example.gold[0],
        "said": row.prediction,
        "wrong": row.error,
    }


def size_table(rows: Sequence[Mapping[str, Any]], plan: TablePlan) -> Iterator[str]:
    """Yields the table, a line at a time."""
    yield f"| {' | '.join(HEAD)} |"
    yield "|---" * len(HEAD) + "|"
    for size in plan.sizes:
        for kind in ("all kinds", *export_collections.KINDS):
            for method in plan.methods:
                some = [
                    row
                    for row in rows
                    if row["size"] == size and row["method"] == method and kind in ("all kinds", row["kind"])
                ]
                if some:
                    yield f"| {' | '.join((f'{size}', kind, method, *figure_cells(some)))} |"


def figure_cells(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns the figures of some rows."""
    exact = mean([row["exact"] for row in rows], clusters=[f"{row['seed']} {row['cluster']}" for row in rows])
    f1s = [row["f1"] for row in rows if row["f1"] is not None]
    return [
        f"{exact.n}",
        f"{100 * exact.value:.1f}",
        f"{100 * exact.low:.1f} to {100 * exact.high:.1f}",
        _format_mean(row["error"] for row in rows),
        _format_mean(f1s),
        f"{len(f1s)}" if f1s else "",
        f"{fmean(row['seconds'] for row in rows):.2f}",
    ]


def _format_mean(values: Iterable[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{fmean(known):.2f}" if known else ""


def main() -> None:
    """Measures, and prints the table."""
    parser = argparse.ArgumentParser(description="Questions about drawn collections, by size and kind.")
    parser.add_argument("work", type=Path, help="folder of pictures and rows")
    parser.add_argument("--sizes", default="10,50,200")
    parser.add_argument("--questions", type=int, default=300, help="of each size and seed")
    parser.add_argument("--seeds", type=int, default=3, help="how many")
    parser.add_argument("--first", type=int, default=81, help="the first of them")
    parser.add_argument("--split", default="test_combinations")
    parser.add_argument("--preset", default="mini")
    parser.add_argument("--method", default="codevqa", help="with commas between, or all")
    parser.add_argument("--set", action="append", metavar="FIELD=VALUE", help="as for codevqa eval")
    options = parser.parse_args()
    choice = choose_options(options.preset, None, None, options.set)
    plan = TablePlan(
        options.work,
        tuple(map(int, options.sizes.split(","))),
        options.questions,
        tuple(range(options.first, options.first + options.seeds)),
        options.split,
        methods_for(options.method, choice.configure()),
    )
    options.work.mkdir(parents=True, exist_ok=True)
    make = engine_for(plan.data(plan.seeds[0], plan.sizes[0]), choice.preset, choice.layers)
    answerer = LocalAnswerer(make())
    try:
        print("\n".join(size_table(measure_plan(plan, answerer), plan)))
    finally:
        answerer.close()


if __name__ == "__main__":
    main()
