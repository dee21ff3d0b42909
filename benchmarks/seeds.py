"""mini-GQA, mini-COVR and mini-NLVR2 on drawn data of several seeds, by method, a line a seed and one for all.

``python benchmarks/seeds.py WORK --seeds 71,72,73 [--guess]`` prints the mini rows of the tables in README and
docs/reports/measured.md. Give seeds on which nothing was tuned. Data and runs are kept in WORK, so the same command
goes on where it stopped. Other models or settings need a WORK of their own. ``--config benchmarks/small_vision.toml``
measures a language model of the hub. ``--method`` is that of ``codevqa eval``: such as ``codevqa,direct``.

Pooled figures take pictures (sets, statements) of each seed as clusters of their own. *Guessed* sees the question
alone: logistic regression over its words, or the most common answer. It learns from the training split, drawn too.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from codevqa import CodeVQA
from codevqa.cli.options import choose_options
from codevqa.cli.terminal import Bar
from codevqa.core.trace import Method
from codevqa.eval import Store, evaluate, open_dataset
from codevqa.eval.metrics import metric_for
from codevqa.eval.report.figures import Summary
from codevqa.eval.report.labels import METHOD_LABELS, pair_label
from codevqa.eval.report.reading import pairs_of
from codevqa.eval.report.summary import summarize
from codevqa.eval.run.choices import BLIP, engine_for, methods_for
from codevqa.eval.statistics import Interval
from codevqa.eval.task import METHODS, PAIRS, DataSet, Example, Row
from codevqa.mini import export_gqa, export_nlvr2
from codevqa.mini.export import ABOUT, write_datasets
from codevqa.mini.export_draw import SPLITS

Engines: TypeAlias = Callable[[DataSet], "CodeVQA | Callable[[], CodeVQA]"]
"""Returns the engine for a data set, or what makes it."""
FILES: Mapping[str, Callable[[str], str]] = {
    "gqa": lambda split: f"{export_gqa.gqa_split_name(split)}_balanced",
    "covr": lambda split: split,
    "nlvr2": export_nlvr2.nlvr2_split_name,
}
"""Data sets, and what their files call a split of drawn data."""
TITLES = {"gqa": "mini-GQA", "covr": "mini-COVR", "nlvr2": "mini-NLVR2"}


@dataclass(frozen=True)
class SeedPlan:
    """What is measured."""

    work: Path
    seeds: tuple[int, ...]
    images: int = 300
    split: str = "test_combinations"
    guess: bool = False
    methods: tuple[Method, ...] = BLIP

    def data(self, name: str, seed: int, split: str) -> DataSet:
        """Returns a split of a seed's data, drawing them where they are not there."""
        folder = self.work / f"{self.images} {self.split}" / f"{seed}" / "data"
        if not (folder / ABOUT).is_file():
            write_datasets(folder, images=self.images, seed=seed, splits=sorted({self.split, "train"}))
        return open_dataset(name, folder, FILES[name](split))

    def run(self, name: str, seed: int, engines: Engines) -> Store:
        """Returns a run, asked to its end, open for reading."""
        data = self.data(name, seed, self.split)
        out = self.work / f"{self.images} {self.split}" / f"{seed}" / name
        sys.stderr.write(f"{TITLES[name]}, seed {seed}\n")
        with Bar() as bar:
            return evaluate(engines(data), data, out, methods=self.methods, resume=True, progress=bar)

    def guess_share(self, name: str, seed: int) -> float | None:
        """Returns how far the question alone comes, where that is asked."""
        return (
            guess_accuracy(*(self.data(name, seed, split) for split in ("train", self.split))) if self.guess else None
        )


def guess_accuracy(learnt: Iterable[Example], asked: Iterable[Example]) -> float:
    """Returns how far the better of two guessers comes that see the question alone."""
    from sklearn.feature_extraction.text import CountVectorizer  # type: ignore[import-untyped, unused-ignore]
    from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped, unused-ignore]

    (texts, answers), (shown, wanted) = (
        zip(*[(example.question, example.gold[0]) for example in some], strict=True) for some in (learnt, asked)
    )
    words = CountVectorizer(ngram_range=(1, 2), token_pattern=r"[\w']+")
    model = LogisticRegression(max_iter=300, C=0.3).fit(words.fit_transform(texts), answers)
    common = Counter(wanted).most_common(1)[0][1] / len(wanted)
    return max(common, float(model.score(words.transform(shown), wanted)))


def seed_table(plan: SeedPlan, engines: Engines) -> Iterator[str]:
    """Yields the tables, a line at a time."""
    methods = [method for method in METHODS if method in plan.methods]
    compared = pair_names(methods)
    gains = [pair_label(pair) for pair in compared] if len(compared) > 1 else ["difference"] * len(compared)
    shown = [METHOD_LABELS[method] + " (baseline)" * (method != "codevqa") for method in methods]
    head = ("data set", "seed", "n, clusters", "guessed", *shown, *gains, "consistency")
    yield f"| {' | '.join(head)} |"
    yield "|---" * len(head) + "|"
    for name, title in TITLES.items():
        with ExitStack() as open_runs:
            runs = [(seed, open_runs.enter_context(plan.run(name, seed, engines))) for seed in plan.seeds]
            metric = metric_for(name)
            guesses = [plan.guess_share(name, seed) for seed in plan.seeds]
            summaries = [summarize(pairs_of(store), metric) for _, store in runs]
            for seed, summary, guess in zip(plan.seeds, summaries, guesses, strict=True):
                yield seed_row(title, f"{seed}", summary, guess, methods)
            pooled = summarize(itertools.chain.from_iterable(of_seed(*run) for run in runs), metric)
            known = [
                (guess, result.examples) for guess, result in zip(guesses, summaries, strict=True) if guess is not None
            ]
            mean = sum(guess * n for guess, n in known) / sum(n for _, n in known) if known else None
            yield seed_row(title, "all", pooled, mean, methods)
            for group in pooled.breakdown.get("spatial", ()):
                if group.value == "yes":
                    cells = [share_cell(group.accuracy.get(method)) for method in methods]
                    by_pair = {next(iter(pooled.pairs), ""): group.paired}  # a group tells one difference
                    cells += [points_cell(one.difference if (one := by_pair.get(pair)) else None) for pair in compared]
                    yield f"| of these, spatial questions | all | {group.n:,} | | {' | '.join(cells)} | |"


def pair_names(methods: Collection[Method]) -> list[str]:
    """Returns the names of the pairs of these methods."""
    return [f"{first}-{second}" for first, second in PAIRS if first in methods and second in methods]


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


def seed_row(title: str, seed: str, summary: Summary, guess: float | None, methods: Sequence[Method]) -> str:
    """Returns a line of the table."""
    results = [summary.methods[method] for method in methods]
    consistency = [figure for result in results if isinstance(figure := result.corpus.get("consistency"), Interval)]
    cells = (
        title,
        seed,
        f"{summary.examples:,}, {summary.clusters:,}",
        "" if guess is None else f"{100 * guess:.1f} %",
        *(share_cell(result.accuracy) for result in results),
        *(points_cell(pair.difference if pair else None) for pair in map(summary.pairs.get, pair_names(methods))),
        " / ".join(map(share_cell, consistency)),
    )
    asked = f" {summary.coverage}" if summary.coverage.unasked else ""
    return f"| {' | '.join(cells)} |{asked}"


def share_cell(figure: Interval | None) -> str:
    """Returns a share in percent."""
    return "" if figure is None else f"{100 * figure.value:.1f} % [{100 * figure.low:.1f}, {100 * figure.high:.1f}]"


def points_cell(figure: Interval | None) -> str:
    """Returns a difference in points."""
    return "" if figure is None else f"{100 * figure.value:+.1f} [{100 * figure.low:.1f}, {100 * figure.high:.1f}]"


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path, help="Folder of data and runs.")
    parser.add_argument("--seeds", required=True, help="Seeds of the drawn data, with commas between.")
    parser.add_argument("--images", type=int, default=300, help="Pictures, sets and pairs of each seed.")
    parser.add_argument("--split", default="test_combinations", choices=SPLITS)
    parser.add_argument("--config", type=Path, help="As for codevqa eval, such as benchmarks/small_vision.toml.")
    parser.add_argument("--set", action="append", metavar="NAME=VALUE", help="As for codevqa eval; repeatable.")
    parser.add_argument("--method", default="all", help="As for codevqa eval.")
    parser.add_argument("--guess", action="store_true", help="Also what the question alone tells a guesser.")
    options = parser.parse_args()
    seeds = tuple(map(int, options.seeds.split(",")))
    choice = choose_options(None, options.config, None, options.set)
    methods = methods_for(options.method, choice.configure())
    plan = SeedPlan(options.work, seeds, options.images, options.split, options.guess, methods)
    for text in seed_table(plan, lambda data: engine_for(data, choice.preset, choice.layers)):
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
