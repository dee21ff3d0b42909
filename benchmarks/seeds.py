"""mini-GQA, mini-COVR and mini-NLVR2 on drawn data of several seeds, both methods, a line a seed and one for all.

``python benchmarks/seeds.py WORK --seeds 71,72,73 [--guess]`` prints the mini rows of the tables in README and
docs/reports/measured.md. Give seeds on which nothing was tuned. Data and runs are kept in WORK: what is finished
there is not asked again, so the same command goes on where it stopped, and prints the tables of a finished one
without loading models. Another preset, ``--config``, ``--set``, split or number of pictures needs a WORK of its own;
seeds and ``--limit`` may grow. ``--config benchmarks/small_vision.toml`` measures a language model of the hub.

Pooled figures take pictures (sets, statements) of each seed as clusters of their own. *Guessed* is the best of three
guessers that see the question alone (``guess.py``); they learn from the training split, which is drawn too.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from guess import guessed

from codevqa import CodeVQA
from codevqa.cli.options import chosen
from codevqa.cli.terminal import Bar
from codevqa.eval import Store, evaluate, open_dataset
from codevqa.eval.metrics import metric_for
from codevqa.eval.report.figures import Summary
from codevqa.eval.report.reading import pairs_of
from codevqa.eval.report.summary import summarize
from codevqa.eval.run.choices import engine_for
from codevqa.eval.statistics import Interval
from codevqa.eval.task import METHODS, DataSet, Example, Method, Row
from codevqa.miniworld import export_gqa, export_nlvr2
from codevqa.miniworld.export import ABOUT, write
from codevqa.miniworld.export_draw import SPLITS

Engines: TypeAlias = Callable[[DataSet], "CodeVQA | Callable[[], CodeVQA]"]
"""Returns the engine for a data set, or what makes it."""
FILES: Mapping[str, Callable[[str], str]] = {
    "gqa": lambda split: f"{export_gqa.file_name(split)}_balanced",
    "covr": lambda split: split,
    "nlvr2": export_nlvr2.file_name,
}
"""Data sets, and what their files call a split of drawn data."""
TITLES = {"gqa": "mini-GQA", "covr": "mini-COVR", "nlvr2": "mini-NLVR2"}


@dataclass(frozen=True)
class Plan:
    """What is measured."""

    work: Path
    seeds: tuple[int, ...]
    images: int = 300
    split: str = "test_combinations"
    limit: int | None = None
    guess: bool = False
    engine: tuple[str, ...] = ("mini",)
    """Preset, file, and what was set."""
    quiet: bool = False

    def keep(self) -> None:
        """Notes in WORK what is measured there, and ends the program where that was something else."""
        about = {"images": self.images, "split": self.split, "guess": self.guess, "engine": list(self.engine)}
        noted = self.work / "seeds.json"
        self.work.mkdir(parents=True, exist_ok=True)
        if noted.is_file() and (before := json.loads(noted.read_text(encoding="utf-8"))) != about:
            sys.exit(f"{self.work} has measurements of {before}. Give another folder.")
        noted.write_text(json.dumps(about), encoding="utf-8")

    def data(self, seed: int) -> Path:
        """Returns the drawn data of a seed, drawing them where they are not there."""
        folder = self.work / f"{seed}" / "data"
        if not (folder / ABOUT).is_file():
            splits = [self.split, *(["train"] if self.guess else [])]
            write(folder, images=self.images, seed=seed, splits=splits, progress=self.say)
        return folder

    def say(self, line: str) -> None:
        """Tells how far it is."""
        if not self.quiet:
            sys.stderr.write(f"{line}\n")

    def run(self, name: str, seed: int, engines: Engines) -> Store:
        """Returns a run, asked to its end, open for reading."""
        data = open_dataset(name, self.data(seed), FILES[name](self.split))
        out = self.work / f"{seed}" / name
        if not self._finished(out, data):
            self.say(f"{TITLES[name]}, seed {seed}")
            with Bar(self.quiet) as bar:
                evaluate(engines(data), data, out, limit=self.limit, resume=True, progress=bar).close()
        return Store.open(out)

    def guessing(self, name: str, seed: int) -> tuple[DataSet, DataSet]:
        """Returns what guessers learn from, and what they are asked."""
        train, test = (open_dataset(name, self.data(seed), FILES[name](split)) for split in ("train", self.split))
        return train, test

    def _finished(self, out: Path, data: DataSet) -> bool:
        if not Store.exists(out):
            return False
        with Store.open(out) as store:
            wanted = sum(1 for _ in itertools.islice(data, self.limit))
            return all(store.counts().get((method, 0), 0) >= wanted for method in METHODS)


def lines(plan: Plan, engines: Engines) -> Iterator[str]:
    """Yields the tables, a line at a time."""
    plan.keep()
    yield "| data set | seed | n, clusters | guessed | CodeVQA | PnP-VQA (baseline) | difference | consistency |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, title in TITLES.items():
        with ExitStack() as open_runs:
            runs = [(seed, open_runs.enter_context(plan.run(name, seed, engines))) for seed in plan.seeds]
            metric = metric_for(name)
            guesses = [guessed(*plan.guessing(name, seed)) if plan.guess else None for seed in plan.seeds]
            found = [summarize(pairs_of(store), metric) for _, store in runs]
            for seed, summary, guess in zip(plan.seeds, found, guesses, strict=True):
                yield line(title, f"{seed}", summary, guess)
            pooled = summarize(itertools.chain.from_iterable(of_seed(*run) for run in runs), metric)
            known = [(guess, one.examples) for guess, one in zip(guesses, found, strict=True) if guess is not None]
            mean = sum(guess * n for guess, n in known) / sum(n for _, n in known) if known else None
            yield line(title, "all", pooled, mean)
            for group in pooled.breakdown.get("spatial", ()):
                if group.value == "yes":
                    shown = [share(group.accuracy.get(method)) for method in METHODS]
                    gain = points(group.paired.difference if group.paired else None)
                    yield f"| of these, spatial questions | all | {group.n:,} | | {' | '.join(shown)} | {gain} | |"


def of_seed(seed: int, store: Store) -> Iterator[tuple[Example, Mapping[Method, Row]]]:
    """Yields a run's questions under names that no other seed has."""
    for example, rows in pairs_of(store):
        record = dict(example.record)
        if example.group:
            record["group"] = f"{seed} {example.group}"
        id, cluster = f"{seed} {example.id}", f"{seed} {example.cluster or example.id}"
        yield (
            replace(example, id=id, cluster=cluster, record=record),
            {method: replace(row, id=id) for method, row in rows.items()},
        )


def line(title: str, seed: str, summary: Summary, guess: float | None) -> str:
    """Returns a line of the table."""
    found = [summary.methods[method] for method in METHODS]
    consistency = [figure for one in found if isinstance(figure := one.corpus.get("consistency"), Interval)]
    cells = (
        title,
        seed,
        f"{summary.examples:,}, {summary.clusters:,}",
        "" if guess is None else f"{100 * guess:.1f} %",
        *(share(one.accuracy) for one in found),
        points(summary.paired.difference if summary.paired else None),
        " / ".join(map(share, consistency)),
    )
    asked = f" {summary.coverage}" if summary.coverage.unasked else ""
    return f"| {' | '.join(cells)} |{asked}"


def share(one: Interval | None) -> str:
    """Returns a share in percent."""
    return "" if one is None else f"{100 * one.value:.1f} % [{100 * one.low:.1f}, {100 * one.high:.1f}]"


def points(one: Interval | None) -> str:
    """Returns a difference in points."""
    return "" if one is None else f"{100 * one.value:+.1f} [{100 * one.low:.1f}, {100 * one.high:.1f}]"


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path, help="Folder of data and runs.")
    parser.add_argument("--seeds", required=True, help="Seeds of the drawn data, with commas between.")
    parser.add_argument("--images", type=int, default=300, help="Pictures, sets and pairs of each seed.")
    parser.add_argument("--split", default="test_combinations", choices=SPLITS)
    parser.add_argument("--limit", type=int, help="Questions of each run at most.")
    parser.add_argument("--preset")
    parser.add_argument("--config", type=Path, help="As for codevqa eval, such as benchmarks/small_vision.toml.")
    parser.add_argument("--set", action="append", metavar="NAME=VALUE", help="As for codevqa eval; repeatable.")
    parser.add_argument("--guess", action="store_true", help="Also what the question alone tells a guesser.")
    given = parser.parse_args()
    seeds = tuple(map(int, given.seeds.split(",")))
    choice = chosen(given.preset, given.config, None, given.set)
    engine = (given.preset or "mini", *([given.config.read_text()] if given.config else []), *(given.set or ()))
    plan = Plan(given.work, seeds, given.images, given.split, given.limit, given.guess, engine)
    for text in lines(plan, lambda data: engine_for(data, choice.preset, choice.layers)):
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
