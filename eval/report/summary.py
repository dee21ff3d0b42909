"""What a run amounts to: accuracy with intervals, breakdowns, the paired comparison, errors, fallbacks and cost.

Pure computation over examples with their rows and a metric. Rows are read once and forgotten: what stays is a few numpy
columns, so a million rows take tens of megabytes.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from statistics import fmean, stdev

import numpy as np
from numpy.typing import NDArray

from ..metrics.base import Metric, Tally
from ..statistics import FEW_CLUSTERS, Interval, Paired, compare, mean
from ..task import METHODS, Example, Method, Row
from .cost import CostTally
from .figures import Coverage, ErrorLine, Group, MethodSummary, Repeats, Summary
from .plain_pass import is_plain_pass

__all__ = ["ErrorLine", "Group", "MethodSummary", "Repeats", "Summary", "joined", "summarize"]

MOST_VALUES = 200
"""Values of a group key that are shown by themselves; rarer ones go together."""
OTHER = "(other)"

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]


def joined(
    examples: Iterable[Example], rows: Mapping[Method, Iterable[Row]]
) -> Iterator[tuple[Example, dict[Method, Row]]]:
    """Yields each example with its row of each method, where it has one.

    Args:
        examples: in the order of the data set.
        rows: for each method, in the same order; some may be missing, as in a run that was interrupted.
    """
    sources = {method: iter(one) for method, one in rows.items()}
    heads = {method: next(source, None) for method, source in sources.items()}
    for example in examples:
        found: dict[Method, Row] = {}
        for method, source in sources.items():
            head = heads[method]
            if head is not None and head.id == example.id:
                found[method] = head
                heads[method] = next(source, None)
        if found:
            yield example, found


def summarize(pairs: Iterable[tuple[Example, Mapping[Method, Row]]], metric: Metric) -> Summary:
    """Summarises a run.

    Args:
        pairs: each example once, with its row of each method. Rows of later repetitions (``repeat`` above 0) may come
            with their example again, in any order; they go into ``repeats`` and nothing else.
        metric: scores them.
    """
    table = _Table(metric)
    for example, rows in pairs:
        table.add(example, rows)
    return table.summary()


class _Column:
    """One method's rows, gathered: 23 bytes a row."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self.places, self.scores = array("q"), array("d")
        self.seconds, self.own, self.fallback = array("f"), array("b"), array("b")
        self.plain = array("b")
        """Whether a program is a plain pass; -1 where there is none."""
        self.unanswered, self.tokens = 0, 0
        self.cost = CostTally()
        self.errors: dict[str, list[float]] = {}
        """Type to count, fallbacks, scored rows and sum of scores."""
        self.first: dict[str, tuple[str, str]] = {}

    def add(self, place: int, example: Example, row: Row, score: float) -> None:
        self.places.append(place)
        self.scores.append(score)
        self.seconds.append(row.seconds)
        silent = not row.prediction and row.error is not None
        self.own.append(not (row.fallback or silent))
        self.fallback.append(row.fallback)
        self.unanswered += silent
        self.tokens += row.tokens
        self.cost.add(row)
        self.plain.append(-1 if row.program is None else is_plain_pass(row.program, example.question))
        if row.error is not None:
            line = self.errors.setdefault(row.error, [0, 0, 0, 0.0])
            scored = score == score
            for index, more in enumerate((1, row.fallback, scored, score if scored else 0.0)):
                line[index] += more
            self.first.setdefault(row.error, (row.id, row.message))
        self.tally.add(example, row.prediction)

    def lines(self) -> tuple[ErrorLine, ...]:
        ordered = sorted(self.errors.items(), key=lambda item: (-item[1][0], item[0]))
        return tuple(
            ErrorLine(
                type,
                int(count),
                count / len(self.places),
                int(fallback),
                total / scored if scored else None,
                *self.first[type],
            )
            for type, (count, fallback, scored, total) in ordered
        )


class _Table:
    """All rows as columns; an example's place is its position in them."""

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self.columns: dict[Method, _Column] = {}
        self.clusters = array("q")
        self.hidden = 0
        self.codes: dict[str, array[int]] = {}
        self.values: dict[str, dict[str, int]] = {}
        self.short = 0
        """Examples with fewer accepted answers than the metric is made for."""
        self.unasked: set[str] = set()
        self.reasons: Counter[str] = Counter()
        self.said: dict[Method, dict[int, _Repetition]] = {}
        """By method and repetition."""

    def add(self, example: Example, rows: Mapping[Method, Row]) -> None:
        first = {method: row for method, row in rows.items() if row.repeat == 0}
        for method, row in rows.items():
            if row.unasked:
                self.unasked.add(row.id)
                self.reasons[str(row.error)] += 1
            score = self.metric.score(example, row.prediction)
            score = float("nan") if score is None else score
            self.said.setdefault(method, {}).setdefault(row.repeat, _Repetition()).add(example, row, score)
            if row.repeat == 0:
                column = self.columns.get(method)
                if column is None:
                    column = self.columns[method] = _Column(self.metric.tally())
                column.add(len(self.clusters), example, row, score)
        if first:
            self._place(example)

    def _place(self, example: Example) -> None:
        place = len(self.clusters)
        self.clusters.append(hash(example.cluster or ("alone", place)))
        self.hidden += not example.gold
        self.short += 0 < len(example.gold) < self.metric.answers
        for key, value in example.groups.items():
            if key not in self.codes:
                self.codes[key], self.values[key] = array("i"), {}
            codes, values = self.codes[key], self.values[key]
            codes.extend([-1] * (place - len(codes)))
            codes.append(values.setdefault(value, len(values)))

    def summary(self) -> Summary:
        n = len(self.clusters)
        _, clusters = np.unique(np.frombuffer(self.clusters, dtype=np.int64), return_inverse=True)
        scores = {method: self._scores(column, n) for method, column in self.columns.items()}
        methods = sorted(self.columns, key=METHODS.index)
        slices = _Slices(scores, clusters)
        return Summary(
            metric=self.metric.name,
            examples=n,
            hidden=self.hidden,
            methods={method: self._method(method, clusters) for method in methods},
            paired=slices.paired(None),
            clusters=int(clusters.max()) + 1 if n else 0,
            breakdown={key: self._breakdown(key, slices, n) for key in self.codes},
            coverage=Coverage(n, len(self.unasked), dict(self.reasons.most_common())),
            notes=(*_notes(clusters), *self._few_answers(n)),
        )

    def _scores(self, column: _Column, n: int) -> Floats:
        scores = np.full(n, np.nan)
        scores[np.frombuffer(column.places, dtype=np.int64)] = np.frombuffer(column.scores, dtype=np.float64)
        return scores

    def _method(self, method: Method, clusters: Codes) -> MethodSummary:
        column = self.columns[method]
        n = len(column.places)
        scores = np.frombuffer(column.scores, dtype=np.float64)
        mine = clusters[np.frombuffer(column.places, dtype=np.int64)]
        seconds = np.frombuffer(column.seconds, dtype=np.float32)
        own, fallback, plain = (
            np.frombuffer(part, dtype=np.int8) for part in (column.own, column.fallback, column.plain)
        )
        corpus = column.tally.result()
        return MethodSummary(
            rows=n,
            accuracy=_accuracy(scores, mine),
            fallback=mean(fallback, clusters=mine),
            unanswered=column.unanswered,
            own=_accuracy(scores[own == 1], mine[own == 1]),
            programs=int((plain >= 0).sum()),
            plain=_accuracy(np.where(plain < 0, np.nan, plain), mine),
            errors=column.lines(),
            seconds={
                "mean": float(seconds.mean(dtype=np.float64)),
                "median": float(np.median(seconds)),
                "p95": float(np.percentile(seconds, 95)),
            },
            tokens=column.tokens / n,
            corpus=corpus,
            reasons={name: self.metric.reasons.get(name, "") for name, figure in corpus.items() if figure is None},
            repeats=self._repeats(method),
            correct=None if np.isnan(scores).all() else float(np.nansum(scores)),
            cost=column.cost.result(),
        )

    def _few_answers(self, n: int) -> Iterator[str]:
        if self.short:
            yield (
                f"{self.short:,} of {n:,} questions have fewer than the {self.metric.answers} accepted answers that "
                f"{self.metric.name} is made for: they count as right where one of theirs is said (exact match)."
            )

    def _repeats(self, method: Method) -> Repeats | None:
        """Figures on the questions that every repetition answered; None where there are none, or no answers to them."""
        found = [one for _, one in sorted(self.said[method].items())]
        if len(found) < 2:
            return None
        shared = reduce(np.intersect1d, (one.scored() for one in found))
        if not len(shared):
            return None
        scores, said, clusters = zip(*(one.of(shared) for one in found), strict=True)
        values = tuple(float(one.mean()) for one in scores)
        changed = mean((np.array(said) != said[0]).any(axis=0), clusters=clusters[0])
        return Repeats(values, fmean(values), stdev(values), changed, len(shared))

    def _breakdown(self, key: str, slices: _Slices, n: int) -> tuple[Group, ...]:
        codes = np.full(n, -1, dtype=np.int32)
        codes[: len(self.codes[key])] = np.frombuffer(self.codes[key], dtype=np.int32)
        names = list(self.values[key])
        counts = Counter(dict(enumerate(np.bincount(codes[codes >= 0], minlength=len(names)).tolist())))
        shown = [code for code, _ in counts.most_common(MOST_VALUES)]
        if all(name.isdecimal() for name in names):
            shown.sort(key=lambda code: int(names[code]))
        order = np.argsort(codes, kind="stable")
        starts = np.searchsorted(codes[order], np.arange(len(names) + 1))
        parts = [(names[code], order[starts[code] : starts[code + 1]]) for code in shown]
        if len(names) > MOST_VALUES:
            rest = np.setdiff1d(np.arange(len(names)), shown)
            parts.append((OTHER, np.flatnonzero(np.isin(codes, rest))))
        lines = (slices.group(key, name, places) for name, places in parts)
        return tuple(line for line in lines if line.n)


class _Repetition:
    """One method's answers with one seed: hashes of question, answer and cluster, and the score."""

    def __init__(self) -> None:
        self.hashes = (array("q"), array("q"), array("q"))
        self.scores = array("d")

    def add(self, example: Example, row: Row, score: float) -> None:
        for part, value in zip(self.hashes, (example.id, row.prediction, example.cluster or example.id), strict=True):
            part.append(hash(value))
        self.scores.append(score)

    def scored(self) -> Codes:
        """Questions that have a score."""
        return np.frombuffer(self.hashes[0], dtype=np.int64)[~np.isnan(np.frombuffer(self.scores))]

    def of(self, questions: Codes) -> tuple[Floats, Codes, Codes]:
        """Returns scores, answers and clusters of some of its questions, in their order."""
        ids, said, clusters = (np.frombuffer(part, dtype=np.int64) for part in self.hashes)
        order = np.argsort(ids)
        places = order[np.searchsorted(ids, questions, sorter=order)]
        return np.frombuffer(self.scores)[places], said[places], clusters[places]


@dataclass(frozen=True)
class _Slices:
    """Figures of some of the examples."""

    scores: Mapping[Method, Floats]
    """One score an example, NaN where there is none."""
    clusters: Codes

    def group(self, key: str, value: str, places: Codes) -> Group:
        """Figures of one line of a breakdown."""
        found = {method: scores[places] for method, scores in self.scores.items()}
        known = {method: ~np.isnan(scores) for method, scores in found.items()}
        accuracy = {method: _accuracy(scores, self.clusters[places]) for method, scores in found.items()}
        n = int(np.logical_or.reduce(list(known.values())).sum())
        shown = {method: interval for method in METHODS if (interval := accuracy.get(method)) is not None}
        return Group(key, value, n, shown, self.paired(places))

    def paired(self, places: Codes | None) -> Paired | None:
        """CodeVQA against PnP-VQA where both have a score; None where they never do."""
        if not set(METHODS) <= self.scores.keys():
            return None
        ours, theirs = (self.scores[method] if places is None else self.scores[method][places] for method in METHODS)
        clusters = self.clusters if places is None else self.clusters[places]
        both = ~(np.isnan(ours) | np.isnan(theirs))
        if not both.any():
            return None
        return compare(ours[both], theirs[both], clusters=clusters[both])


def _accuracy(scores: Floats, clusters: Codes) -> Interval | None:
    """None where nothing is scored."""
    known = ~np.isnan(scores)
    return mean(scores[known], clusters=clusters[known]) if known.any() else None


def _notes(clusters: Codes) -> Iterator[str]:
    count = int(clusters.max()) + 1 if len(clusters) else 0
    if count == len(clusters):
        yield "Intervals are 95 %: Wilson's for shares, Student's t for differences, each question by itself."
        return
    yield (
        f"Intervals are 95 % and tests by Student's t over the {count:,} clusters, the variance by leaving out one at "
        "a time; shares in Wilson's form."
    )
    if count < FEW_CLUSTERS:
        yield (
            f"There are only {count:,} clusters, fewer than {FEW_CLUSTERS}: how much they vary is itself known badly, "
            "and figures hold for others only if these few are like them."
        )
