"""The figures of README: when does a program pay, beside the same vision-language model asked once with all pictures?

``python benchmarks/figures.py WORK --nlvr FOLDER [--seeds 291101,291102,291103] [--write]`` measures the rows of the
table and prints it. With ``--write`` it takes the place of the one in README.md. Data and runs are kept in WORK, so the
same command goes on where it stopped. Give seeds on which nothing was tuned. NLVR is the second half of its development
split, one order of each statement's boxes: on the first half we tuned.
"""

from __future__ import annotations

import argparse
import itertools
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from seeds import of_seed, points_cell, share_cell

from codevqa.cli.options import choose_options
from codevqa.cli.terminal import Bar
from codevqa.core.trace import Method
from codevqa.eval import Store, evaluate, open_dataset
from codevqa.eval.metrics import metric_for
from codevqa.eval.report.summary import summarize
from codevqa.eval.run.choices import engine_for
from codevqa.eval.task import DataSet, Example, Row
from codevqa.mini.export import ABOUT, write_datasets

README = Path(__file__).resolve().parents[1] / "README.md"
MARKS = re.compile(r"(<!-- figures: benchmarks/figures\.py -->\n).*?(<!-- /figures -->)", re.S)
METHODS: tuple[Method, ...] = ("codevqa", "direct")
PICTURES, TEN, STATEMENTS = 60, 100, 495
"""Pictures (five questions each) and sets of ten of each seed; statements of NLVR."""
HEAD = "| questions | n | program | the same model, asked once | difference |\n|---|---|---|---|---|"
Pairs = Iterator[tuple[Example, Mapping[Method, Row]]]


@dataclass(frozen=True)
class Figures:
    """Measures with one preset."""

    work: Path
    seeds: tuple[int, ...]
    sets: tuple[str, ...]

    def ask(self, dataset: DataSet, name: str, limit: int | None = None, offset: int = 0) -> Store:
        """Returns a run, asked to its end."""
        choice = choose_options("mini-vlm", sets=list(self.sets))
        sys.stderr.write(f"{name}\n")
        engine, out = engine_for(dataset, choice.preset, choice.layers), self.work / "runs" / name
        with Bar() as bar:
            return evaluate(
                engine, dataset, out, methods=METHODS, limit=limit, offset=offset, resume=True, progress=bar
            )

    def drawn(self, name: str, split: str) -> Pairs:
        """Yields the questions of all seeds, with their rows."""
        for seed in self.seeds:
            folder = self.work / "data" / str(seed)
            if not (folder / ABOUT).is_file():
                write_datasets(folder, images=max(PICTURES, TEN), seed=seed, splits=["test"], sets=[10])
            limit = 5 * PICTURES if name == "gqa" else TEN
            yield from of_seed(seed, self.ask(open_dataset(name, folder, split), f"{name} {split} {seed}", limit))

    def rows(self, nlvr: Path | None) -> Iterator[str]:
        """Yields the lines of the table."""
        one, metric = list(self.drawn("gqa", "testdev_balanced")), metric_for("gqa")
        breakdown = summarize(one, metric).breakdown
        for kind, value, title in (("structural", "query", "one thing in"), ("spatial", "yes", "places in")):
            group = next(group for group in breakdown[kind] if group.value == value)
            cells = [share_cell(group.accuracy[method]) for method in METHODS]
            difference = points_cell(group.paired.difference if group.paired else None)
            yield _line(f"{title} one drawn picture", group.n, [*cells, difference])
        yield self._row("ten drawn pictures", self.drawn("covr", "test_10"), "covr")
        if nlvr is not None:
            data = open_dataset("nlvr", nlvr, "dev", permutations=1)
            store = self.ask(data, "nlvr dev", STATEMENTS, STATEMENTS - 1)
            yield self._row("people's statements about three boxes (NLVR dev)", of_seed(0, store), "nlvr")

    def _row(self, title: str, pairs: Pairs, name: str) -> str:
        summary = summarize(itertools.chain(pairs), metric_for(name))
        cells = [share_cell(summary.methods[method].accuracy) for method in METHODS]
        return _line(title, summary.examples, [*cells, points_cell(summary.pairs["codevqa-direct"].difference)])


def _line(title: str, n: int, cells: list[str]) -> str:
    return f"| {title} | {n:,} | {' | '.join(cells)} |"


def _commit() -> str:
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=README.parent)
    return done.stdout.strip() or "unknown"


def main() -> None:
    """Prints the table, and writes it where wanted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path, help="Folder of data and runs.")
    parser.add_argument("--nlvr", type=Path, help="Folder of NLVR's development split.")
    parser.add_argument("--seeds", default="291101,291102,291103", help="Seeds of the drawn data.")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="As for codevqa eval.")
    parser.add_argument("--commit", default=_commit(), help="What is measured.", metavar="COMMIT")
    parser.add_argument("--write", action="store_true", help="Write the table into README.md.")
    options = parser.parse_args()
    seeds = tuple(map(int, options.seeds.split(",")))
    lines = [HEAD]
    for line in Figures(options.work, seeds, tuple(options.set)).rows(options.nlvr):
        lines.append(line)
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
    today = datetime.now(UTC)
    where = f"`python benchmarks/figures.py WORK --nlvr NLVR`, on {today.day} {today:%B %Y}, commit {options.commit}."
    lines.append(f"\n{where} Intervals are 95 %, by picture.\n")
    sys.stdout.write(f"{where}\n")
    if options.write:
        text = README.read_text(encoding="utf-8")
        README.write_text(MARKS.sub(lambda marks: marks[1] + "\n".join(lines) + marks[2], text), encoding="utf-8")


if __name__ == "__main__":
    main()
