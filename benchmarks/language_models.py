"""What a language model from the hub makes of the method, over the embedded vision models: the tables of
docs/reports/language-models.md.

    python benchmarks/language_models.py MODEL --mini DATA [--nlvr DATA] [--retriever SPEC] [--only full,...]

DATA of ``--mini`` is a folder of ``codevqa mini-data``, of ``--nlvr`` one with NLVR's dev split. MODEL is what
``--language-model`` takes, such as ``transformers:FOLDER``, SPEC what presets name, such as ``sentence:FOLDER``. Every
variant is preset ``base``'s settings with one measure taken out or put in; ``release`` takes all of them out. Each
line: accuracy with its clustered interval, n, shares of questions that fell back and that were repaired, questions a
second.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from codevqa import CodeVQA
from codevqa.core.settings import QuerySettings, Settings
from codevqa.core.trace import Method
from codevqa.eval.datasets import open_dataset
from codevqa.eval.metrics import metric_for
from codevqa.eval.run.runner import evaluate
from codevqa.eval.statistics import compare, mean
from codevqa.eval.task import DataSet
from codevqa.models.base import Models
from codevqa.presets.assembly import load, prompt_sets
from codevqa.presets.configuration import configure
from codevqa.presets.presets import preset
from codevqa.writing.writer import Writer


def _query(**changes: object) -> Callable[[Settings], Settings]:
    return lambda settings: replace(settings, query=replace(settings.query, **changes))  # type: ignore[arg-type]


def _writer(**changes: object) -> Callable[[Settings], Settings]:
    return lambda settings: replace(settings, writer=replace(settings.writer, **changes))  # type: ignore[arg-type]


def _release(settings: Settings) -> Settings:
    writer = replace(settings.writer, form="completion", tell_kind=False, fit=False, repair_runs=False)
    return replace(settings, writer=writer, query=QuerySettings(form="completion", selection="nearest", fit=False))


VARIANTS: Mapping[str, Callable[[Settings], Settings]] = {
    "full": lambda settings: settings,
    "witness": _query(witness=True),
    "witnesses": _query(witness=True, stated=True),
    "read-chat": _query(form="chat"),
    "read-question": _query(selection="question"),
    "write-fixed": _writer(selection="fixed"),
    "write-untold": _writer(tell_kind=False),
    "no-repair": _writer(repairs=0),
    "release": _release,
}


class Bench:
    """The models, loaded once, and an engine for each variant and data set."""

    def __init__(self, model: str, retriever: str | None, workers: int = 64) -> None:
        self.workers = workers
        mini = configure("mini")
        loaded = {role: load(role, mini.parts[role], **mini.options[role]) for role in ("matcher", "captioner")}
        self.language_model = load("language_model", model)
        self.retriever = load("retriever", retriever or mini.parts["retriever"])
        self.models = Models(self.language_model, loaded["matcher"], loaded["captioner"])

    def engine(self, settings: Settings, prompts: str) -> CodeVQA:
        """Returns an engine: preset ``base`` but for its vision."""
        sets = prompt_sets(preset("base"), prompts)
        writer = Writer(self.language_model, sets, self.retriever, settings.writer, seed=settings.seed)
        return CodeVQA(writer, self.models, settings)

    def lines(self, variant: str, data: DataSet, limit: int | None, baseline: bool) -> Iterator[str]:
        """Evaluates one variant on one data set; yields its figures, and those beside the baseline's."""
        settings = replace(VARIANTS[variant](preset("base").settings), workers=self.workers)
        metric = metric_for(data.name)
        with tempfile.TemporaryDirectory() as folder, self.engine(settings, data.prompts) as engine:
            scores: dict[Method, list[float]] = {}
            methods: tuple[Method, ...] = ("codevqa", "pnpvqa") if baseline else ("codevqa",)
            for method in methods:
                started = time.perf_counter()
                with evaluate(engine, data, f"{folder}/{method}", methods=(method,), limit=limit) as store:
                    seconds = time.perf_counter() - started
                    rows = list(store.pairs(method))
                scores[method] = [metric.score(example, row.prediction) or 0.0 for example, row in rows]
                clusters = [example.cluster for example, _ in rows]
                failed = sum(row.fallback for _, row in rows) / len(rows)
                repaired = sum(bool(row.trace.get("attempts")) for _, row in rows) / len(rows)
                figures = mean(scores[method], clusters=clusters)
                name = f"{variant:18} {data.name:6} {method:8}"
                yield f"{name} {figures}  fallback {failed:.3f}  repaired {repaired:.3f}  {len(rows) / seconds:.1f}/s"
            if baseline:
                yield f"{variant:18} {data.name:6} paired   {compare(*scores.values(), clusters=clusters)}"


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--mini", type=Path, required=True)
    parser.add_argument("--split", default="test")
    parser.add_argument("--nlvr", type=Path)
    parser.add_argument("--retriever")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--only", default=",".join(VARIANTS))
    parser.add_argument("--data", default="gqa,covr,nlvr2,nlvr")
    parser.add_argument("--baseline", action="store_true", help="Also few-shot PnP-VQA, for the first variant.")
    parser.add_argument("--workers", type=int, default=64, help="Questions at once.")
    parser.add_argument("--warm", type=int, default=0, help="First questions of the first data set, not counted.")
    given = parser.parse_args()
    bench = Bench(given.model, given.retriever, given.workers)
    if given.warm:
        first = _data(given.data.split(",")[0], given)
        list(bench.lines(given.only.split(",")[0], first, given.warm, given.baseline))
    for number, variant in enumerate(given.only.split(",")):
        for name in given.data.split(","):
            for line in bench.lines(variant, _data(name, given), given.limit, given.baseline and number == 0):
                print(line, flush=True)


def _data(name: str, given: argparse.Namespace) -> DataSet:
    if name == "nlvr":
        return open_dataset(name, given.nlvr, "dev", permutations=1)
    test = given.split == "test"
    splits = {
        "gqa": "testdev_balanced" if test else f"{given.split}_balanced",
        "covr": given.split,
        "nlvr2": "test1" if test else "dev",
    }
    return open_dataset(name, given.mini / name, splits[name])


if __name__ == "__main__":
    main()
