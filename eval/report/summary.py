"""What a run amounts to: accuracy with intervals, breakdowns, the paired comparison, errors, fallbacks and cost.

Pure computation over examples with their rows and a metric. Rows are read once, and their programs and traces are
forgotten.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean, stdev
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...core.trace import Cost
from ..metrics.base import Metric
from ..statistics import FEW_CLUSTERS, Interval, Paired, compare, mean
from ..task import METHODS, Example, Method, Row
from .figures import Coverage, ErrorLine, Group, MethodCost, MethodSummary, Repeats, Summary

__all__ = ["joined", "summarize"]

NOTHING = float("nan")
_MARKS = re.compile(r"[\W_]+")


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
        self.answered: dict[Method, list[tuple[Example, str]]] = {}
        """What figures about the whole run need, where the metric has any."""
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
            if row.repeat == 0 and self.metric.reasons:
                self.answered.setdefault(method, []).append((example, row.prediction))
        if any(row.repeat == 0 for row in rows.values()):
            self.clusters.append(self.numbers.setdefault(example.cluster or (place,), len(self.numbers)))
            self.hidden += not example.gold
            self.short += 0 < len(example.gold) < self.metric.answers
            for key, value in example.groups.items():
                self.groups.setdefault(key, {}).setdefault(value, []).append(place)

    def summary(self) -> Summary:
        n = len(self.clusters)
        slices = _Slices({}, np.array(self.clusters, dtype=np.int64))
        for method in METHODS:
            if 0 in self.kept.get(method, ()):
                slices.scores[method] = np.full(n, np.nan)
                for one in self.kept[method][0].values():
                    slices.scores[method][one.place] = one.score
        return Summary(
            metric=self.metric.name,
            examples=n,
            hidden=self.hidden,
            methods={method: self._method(method, slices.clusters) for method in slices.scores},
            paired=slices.paired(range(n)),
            clusters=len(self.numbers),
            breakdown={key: slices.breakdown(key, values) for key, values in self.groups.items()},
            coverage=Coverage(n, len(self.unasked), dict(self.reasons.most_common())),
            notes=tuple(self._notes(n, len(self.numbers))),
        )

    def _method(self, method: Method, clusters: NDArray[np.int64]) -> MethodSummary:
        repetitions = [one for _, one in sorted(self.kept[method].items())]
        kept = list(self.kept[method][0].values())
        mine = clusters[[one.place for one in kept]]
        seconds = [one.row.seconds for one in kept]
        own = [NOTHING if one.row.fallback or one.silent else one.score for one in kept]
        corpus = self.metric.corpus(self.answered.get(method, ()))
        return MethodSummary(
            rows=len(kept),
            accuracy=_known_mean([one.score for one in kept], mine),
            fallback=mean([one.row.fallback for one in kept], clusters=mine),
            unanswered=sum(one.silent for one in kept),
            own=_known_mean(own, mine),
            plain=_known_mean([one.plain for one in kept], mine),
            errors=_errors(kept),
            seconds={
                "mean": fmean(seconds),
                "median": float(np.median(seconds)),
                "p95": float(np.percentile(seconds, 95)),
            },
            tokens=fmean(one.row.tokens for one in kept),
            corpus=corpus,
            reasons={name: self.metric.reasons[name] for name, figure in corpus.items() if figure is None},
            repeats=_repeats(repetitions, clusters) if len(repetitions) > 1 else None,
            cost=_cost([one.cost for one in kept if one.cost is not None]),
        )

    def _notes(self, n: int, clusters: int) -> Iterator[str]:
        if clusters == n:
            yield "Intervals are 95 %: Wilson's for shares, Student's t for differences, each question by itself."
        else:
            yield (
                f"Intervals are 95 % and tests by Student's t over the {clusters:,} clusters, the variance by leaving "
                "out one at a time; shares in Wilson's form."
            )
            if clusters < FEW_CLUSTERS:
                yield (
                    f"There are only {clusters:,} clusters, fewer than {FEW_CLUSTERS}: how much they vary is itself "
                    "known badly, and figures hold for others only if these few are like them."
                )
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


def _repeats(found: Sequence[Mapping[str, _Kept]], clusters: NDArray[np.int64]) -> Repeats | None:
    """Figures on the questions that every repetition answered; None where there are none, or no answers to them."""
    scored = [{id for id, one in each.items() if not math.isnan(one.score)} for each in found]
    shared = [id for id in found[0] if all(id in one for one in scored)]
    if not shared:
        return None
    values = tuple(fmean(one[id].score for id in shared) for one in found)
    changed = [len({one[id].row.prediction for one in found}) > 1 for id in shared]
    share = mean(changed, clusters=clusters[[found[0][id].place for id in shared]])
    return Repeats(values, fmean(values), stdev(values), share, len(shared))


class _Slices(NamedTuple):
    """Figures of some of the examples."""

    scores: dict[Method, NDArray[np.float64]]
    """One score an example, NaN where there is none."""
    clusters: NDArray[np.int64]

    def breakdown(self, key: str, values: Mapping[str, Sequence[int]]) -> tuple[Group, ...]:
        """Figures by the values of one key: numbers in their order, other values the most frequent first."""
        numbers = all(value.isdecimal() for value in values)
        ordered = sorted(values, key=int if numbers else lambda value: -len(values[value]))
        groups = []
        for value in ordered:
            places = values[value]
            found = {method: scores[places] for method, scores in self.scores.items()}
            n = int((~np.isnan(list(found.values()))).any(axis=0).sum())
            means = {method: _known_mean(scores, self.clusters[places]) for method, scores in found.items()}
            accuracy = {method: one for method, one in means.items() if one is not None}
            if n:
                groups.append(Group(key, value, n, accuracy, self.paired(places)))
        return tuple(groups)

    def paired(self, places: Sequence[int]) -> Paired | None:
        """CodeVQA against PnP-VQA where both have a score; None where they never do."""
        if not set(METHODS) <= self.scores.keys():
            return None
        ours, theirs = (self.scores[method][places] for method in METHODS)
        both = ~(np.isnan(ours) | np.isnan(theirs))
        if not both.any():
            return None
        return compare(ours[both], theirs[both], clusters=self.clusters[places][both])


def _known_mean(scores: Sequence[float] | NDArray[np.float64], clusters: NDArray[np.int64]) -> Interval | None:
    """Mean of what is no NaN; None where nothing is."""
    values = np.asarray(scores, dtype=np.float64)
    known = ~np.isnan(values)
    return mean(values[known], clusters=clusters[known]) if known.any() else None
