"""What a run amounts to: accuracy with intervals, breakdowns, the paired comparison, errors, fallbacks and cost.

Pure computation over examples with their rows and a metric. Rows are read once, and their programs and traces are
forgotten.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...core.trace import Cost
from ..metrics.base import Metric, Tally
from ..statistics import FEW_CLUSTERS, Interval, Paired, compare, mean
from ..task import METHODS, Example, Method, Row
from .figures import Coverage, ErrorLine, Group, MethodCost, MethodSummary, Repeats, Summary

__all__ = ["joined", "summarize"]

MOST_VALUES = 200
"""Values of a group key that are told, the most frequent ones."""
NOTHING = float("nan")
_MARKS = re.compile(r"[\W_]+")

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


class _Kept(NamedTuple):
    """What stays of a row."""

    place: int
    """Of its example."""
    score: float
    """NaN where the split hides the answer."""
    plain: float
    """Whether its program is a plain pass; NaN where there is none."""
    cost: Cost | None
    row: Row
    """Without program and trace."""

    @property
    def silent(self) -> bool:
        """Whether an error left it without an answer."""
        return not self.row.prediction and self.row.error is not None


class _Table:
    """All rows; an example's place is its position in them."""

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self.kept: dict[Method, dict[int, dict[str, _Kept]]] = {}
        """By method, repetition and question."""
        self.tallies: dict[Method, Tally] = {}
        self.clusters: list[int] = []
        """The number of each example's cluster."""
        self.numbers: dict[str | tuple[int], int] = {}
        self.groups: dict[str, dict[str, list[int]]] = {}
        """Places by value by key."""
        self.hidden = 0
        self.short = 0
        """Examples with fewer accepted answers than the metric is made for."""
        self.unasked: set[str] = set()
        self.reasons: Counter[str] = Counter()

    def add(self, example: Example, rows: Mapping[Method, Row]) -> None:
        place = len(self.clusters)
        for method, row in rows.items():
            if row.unasked:
                self.unasked.add(row.id)
                self.reasons[str(row.error)] += 1
            score = self.metric.score(example, row.prediction)
            plain = NOTHING if row.program is None else _is_plain_pass(row, example.question)
            slim = replace(row, program=None, trace={})
            kept = _Kept(place, NOTHING if score is None else score, plain, row.cost, slim)
            self.kept.setdefault(method, {}).setdefault(row.repeat, {})[example.id] = kept
            if row.repeat == 0:
                self.tallies.setdefault(method, self.metric.tally()).add(example, row.prediction)
        if any(row.repeat == 0 for row in rows.values()):
            self.clusters.append(self.numbers.setdefault(example.cluster or (place,), len(self.numbers)))
            self.hidden += not example.gold
            self.short += 0 < len(example.gold) < self.metric.answers
            for key, value in example.groups.items():
                self.groups.setdefault(key, {}).setdefault(value, []).append(place)

    def summary(self) -> Summary:
        n = len(self.clusters)
        clusters = np.array(self.clusters, dtype=np.int64)
        methods = [method for method in METHODS if method in self.tallies]
        scores = {method: np.full(n, np.nan) for method in methods}
        for method in methods:
            for one in self.kept[method][0].values():
                scores[method][one.place] = one.score
        slices = _Slices(scores, clusters)
        return Summary(
            metric=self.metric.name,
            examples=n,
            hidden=self.hidden,
            methods={method: self._method(method, clusters) for method in methods},
            paired=slices.paired(range(n)),
            clusters=len(self.numbers),
            breakdown={key: _breakdown(key, values, slices) for key, values in self.groups.items()},
            coverage=Coverage(n, len(self.unasked), dict(self.reasons.most_common())),
            notes=(*_notes(n, len(self.numbers)), *self._few_answers(n)),
        )

    def _method(self, method: Method, clusters: Codes) -> MethodSummary:
        repetitions = [one for _, one in sorted(self.kept[method].items())]
        kept = list(self.kept[method][0].values())
        mine = clusters[[one.place for one in kept]]
        scores, plain, seconds, own = (
            np.array(values, dtype=np.float64)
            for values in zip(
                *((one.score, one.plain, one.row.seconds, not (one.row.fallback or one.silent)) for one in kept),
                strict=True,
            )
        )
        corpus = self.tallies[method].result()
        return MethodSummary(
            rows=len(kept),
            accuracy=_accuracy(scores, mine),
            fallback=mean([one.row.fallback for one in kept], clusters=mine),
            unanswered=sum(one.silent for one in kept),
            own=_accuracy(np.where(own == 1, scores, np.nan), mine),
            programs=int((~np.isnan(plain)).sum()),
            plain=_accuracy(plain, mine),
            errors=_errors(kept),
            seconds={
                "mean": float(seconds.mean()),
                "median": float(np.median(seconds)),
                "p95": float(np.percentile(seconds, 95)),
            },
            tokens=fmean(one.row.tokens for one in kept),
            corpus=corpus,
            reasons={name: self.metric.reasons.get(name, "") for name, figure in corpus.items() if figure is None},
            repeats=_repeats(repetitions, clusters) if len(repetitions) > 1 else None,
            cost=_cost([one.cost for one in kept if one.cost is not None]),
        )

    def _few_answers(self, n: int) -> Iterator[str]:
        if self.short:
            yield (
                f"{self.short:,} of {n:,} questions have fewer than the {self.metric.answers} accepted answers that "
                f"{self.metric.name} is made for: they count as right where one of theirs is said (exact match)."
            )


def _is_plain_pass(row: Row, question: str) -> bool:
    """Says whether a program asked ``query`` the whole question and nothing else; case, spaces and marks aside."""
    asked = [call for call in row.trace.get("calls", ()) if call.get("name") not in ("open_image", "open_images")]
    if not asked or {call.get("name") for call in asked} - {"query", "visual_query"}:
        return False
    told = [call.get("arguments") for call in asked]
    return all(isinstance(one, Mapping) and _letters(str(one.get("question"))) == _letters(question) for one in told)


def _letters(text: str) -> str:
    return _MARKS.sub(" ", text.lower()).strip()


def _errors(kept: Sequence[_Kept]) -> tuple[ErrorLine, ...]:
    by_type: dict[str, list[_Kept]] = {}
    for one in kept:
        if one.row.error is not None:
            by_type.setdefault(one.row.error, []).append(one)
    lines = []
    for type, found in sorted(by_type.items(), key=lambda item: (-len(item[1]), item[0])):
        scored = [one.score for one in found if not math.isnan(one.score)]
        fallbacks, first = sum(one.row.fallback for one in found), found[0].row
        accuracy = fmean(scored) if scored else None
        lines.append(ErrorLine(type, len(found), len(found) / len(kept), fallbacks, accuracy, first.id, first.message))
    return tuple(lines)


def _cost(costs: Sequence[Cost]) -> MethodCost | None:
    """Means over the rows that say what they cost; None where none does."""
    if not costs:
        return None
    names = ("model_seconds", "program_seconds", "prompt_tokens", "completion_tokens")
    means = {name: fmean(getattr(cost, name) for cost in costs) for name in names}
    kinds = sorted({kind for cost in costs for kind in cost.calls})
    calls = {kind: fmean(cost.calls.get(kind, 0) for cost in costs) for kind in kinds}
    return MethodCost(rows=len(costs), calls=calls, **means)


def _repeats(found: Sequence[Mapping[str, _Kept]], clusters: Codes) -> Repeats | None:
    """Figures on the questions that every repetition answered; None where there are none, or no answers to them."""
    scored = [{id for id, one in each.items() if not math.isnan(one.score)} for each in found]
    shared = [id for id in found[0] if all(id in one for one in scored)]
    if not shared:
        return None
    values = tuple(fmean(one[id].score for id in shared) for one in found)
    changed = [len({one[id].row.prediction for one in found}) > 1 for id in shared]
    share = mean(changed, clusters=clusters[[found[0][id].place for id in shared]])
    return Repeats(values, fmean(values), stdev(values), share, len(shared))


def _breakdown(key: str, values: Mapping[str, Sequence[int]], slices: _Slices) -> tuple[Group, ...]:
    shown = sorted(values, key=lambda value: -len(values[value]))[:MOST_VALUES]
    if all(value.isdecimal() for value in values):
        shown.sort(key=int)
    lines = (slices.group(key, value, values[value]) for value in shown)
    return tuple(line for line in lines if line.n)


@dataclass(frozen=True)
class _Slices:
    """Figures of some of the examples."""

    scores: Mapping[Method, Floats]
    """One score an example, NaN where there is none."""
    clusters: Codes

    def group(self, key: str, value: str, places: Sequence[int]) -> Group:
        """Figures of one line of a breakdown."""
        found = {method: scores[places] for method, scores in self.scores.items()}
        n = int((~np.isnan(list(found.values()))).any(axis=0).sum())
        accuracy = {method: _accuracy(scores, self.clusters[places]) for method, scores in found.items()}
        shown = {method: interval for method, interval in accuracy.items() if interval is not None}
        return Group(key, value, n, shown, self.paired(places))

    def paired(self, places: Sequence[int]) -> Paired | None:
        """CodeVQA against PnP-VQA where both have a score; None where they never do."""
        if not set(METHODS) <= self.scores.keys():
            return None
        ours, theirs = (self.scores[method][places] for method in METHODS)
        both = ~(np.isnan(ours) | np.isnan(theirs))
        if not both.any():
            return None
        return compare(ours[both], theirs[both], clusters=self.clusters[places][both])


def _accuracy(scores: Floats, clusters: Codes) -> Interval | None:
    """None where nothing is scored."""
    known = ~np.isnan(scores)
    return mean(scores[known], clusters=clusters[known]) if known.any() else None


def _notes(n: int, clusters: int) -> Iterator[str]:
    if clusters == n:
        yield "Intervals are 95 %: Wilson's for shares, Student's t for differences, each question by itself."
        return
    yield (
        f"Intervals are 95 % and tests by Student's t over the {clusters:,} clusters, the variance by leaving out one "
        "at a time; shares in Wilson's form."
    )
    if clusters < FEW_CLUSTERS:
        yield (
            f"There are only {clusters:,} clusters, fewer than {FEW_CLUSTERS}: how much they vary is itself known "
            "badly, and figures hold for others only if these few are like them."
        )
