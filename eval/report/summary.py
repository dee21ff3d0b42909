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
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...core.trace import Cost, Method
from ..metrics.base import Figure, Metric
from ..statistics import FEW_CLUSTERS, mean, risk
from ..task import METHODS, PAIRS, Example, Row
from .figures import Coverage, ErrorLine, MethodCost, MethodSummary, Repeats, Selective, Summary, Used
from .slices import Slices, known_mean

NOTHING = float("nan")
SHARES = (0.2, 0.4, 0.6, 0.8, 1.0)
"""Of the surest answers, whose errors are told."""
MARKS = (5, 25, 50, 75, 95)
"""Percentiles of the seconds that are told."""
ANSWERS = 12
"""Gold answers of a table of confusions; the others are together."""
_MARKS = re.compile(r"[\W_]+")


def summarize(pairs: Iterable[tuple[Example, Mapping[Method, Row]]], metric: Metric) -> Summary:
    """Summarises a run.

    Args:
        pairs: each example once, with its row of each method. Rows of later repetitions (``repeat`` above 0) may come
            with their example again, in any order; they go into ``repeats`` and nothing else.
        metric: scores them.
    """
    examples: list[Example] = []
    kept: dict[Method, dict[int, dict[str, _Kept]]] = {}  # by repetition and question
    answered: dict[Method, list[tuple[Example, str]]] = {}
    picked: dict[Method, list[tuple[Example, list[int]]]] = {}
    unasked: set[str] = set()
    outside: set[str] = set()
    reasons = Counter[str]()
    for example, rows in pairs:
        for method, row in rows.items():
            if row.is_unasked:
                unasked.add(row.id)
                reasons[str(row.error)] += 1
            kept_row = _keep_row(len(examples), example, row, metric)
            kept.setdefault(method, {}).setdefault(row.repeat, {})[example.id] = kept_row
            if "outside" in row.trace:
                outside.add(example.id)
            if row.repeat == 0 and metric.reasons:
                answered.setdefault(method, []).append((example, row.prediction))
                if "picked" in row.trace:
                    picked.setdefault(method, []).append((example, row.trace["picked"]))
        if any(row.repeat == 0 for row in rows.values()):
            examples.append(replace(example, record={}) if example.record else example)
    n = len(examples)
    labels = [example.cluster or f"\0{place}" for place, example in enumerate(examples)]
    names, clusters = np.unique(labels, return_inverse=True)
    slices = Slices({}, clusters)
    for method in METHODS:
        if 0 in kept.get(method, ()):
            slices.scores[method] = np.full(n, np.nan)
            for kept_row in kept[method][0].values():
                slices.scores[method][kept_row.place] = kept_row.score
    gains = {f"{first}-{two}": gain for first, two in PAIRS if (gain := slices.paired(first, two, range(n)))}
    return Summary(
        metric=metric.name,
        examples=n,
        hidden=sum(not example.gold for example in examples),
        outside=len(outside),
        methods={
            name: _method(
                name,
                kept[name],
                clusters,
                metric,
                metric.corpus(answered.get(name, ())) | metric.picture_figures(picked.get(name, ())),
            )
            for name in slices.scores
        },
        paired=gains.get("codevqa-pnpvqa"),
        pairs=gains,
        clusters=len(names),
        breakdown=slices.breakdown(examples, next(iter(gains), None)),
        coverage=Coverage(n, len(unasked), dict(reasons.most_common())),
        confusion={method: _confusion(kept[method][0].values(), examples) for method in slices.scores},
        primitives=_primitive_figures(list(kept.get("codevqa", {}).get(0, {}).values()), clusters),
        notes=tuple(_interval_notes(examples, len(names), metric)),
    )


class _Kept(NamedTuple):
    """What stays of a row."""

    place: int
    """Of its example."""
    score: float
    """NaN where the split hides the answer."""
    plain: float
    """Whether its program is a plain pass; NaN where there is none."""
    cost: Cost | None
    sure: float | None
    """Its confidence, where it has one."""
    calls: Counter[str]
    """Of its program, by primitive."""
    row: Row
    """Without program and trace."""

    @property
    def silent(self) -> bool:
        """Whether an error left it without an answer."""
        return not self.row.prediction and self.row.error is not None


def _keep_row(place: int, example: Example, row: Row, metric: Metric) -> _Kept:
    score = metric.score(example, row.prediction)
    plain = NOTHING if row.program is None else _is_plain_pass(row, example.question)
    sure = row.trace.get("confidence")
    sure = sure if isinstance(sure, float) else None
    score = NOTHING if score is None else score
    calls = Counter(str(call.get("name")) for call in _calls(row))
    return _Kept(place, score, plain, row.cost, sure, calls, replace(row, program=None, trace={}))


def _calls(row: Row) -> list[Mapping[str, Any]]:
    """Returns the calls of a program but those that open its pictures."""
    return [call for call in row.trace.get("calls", ()) if call.get("name") not in ("open_image", "open_images")]


def _primitive_figures(kept: Sequence[_Kept], clusters: NDArray[np.int64]) -> dict[str, Used]:
    """Returns how programs used each primitive; an answer counts for all that its program called."""
    figures = {}
    for name, count in sum((kept_row.calls for kept_row in kept), Counter[str]()).most_common():
        using = [kept_row for kept_row in kept if name in kept_row.calls]
        accuracy = known_mean([kept_row.score for kept_row in using], clusters[[kept_row.place for kept_row in using]])
        figures[name] = Used(count, len(using), accuracy)
    return figures


def _method(
    name: Method,
    rows: Mapping[int, Mapping[str, _Kept]],
    clusters: NDArray[np.int64],
    metric: Metric,
    corpus: dict[str, Figure],
) -> MethodSummary:
    kept = list(rows[0].values())
    mine = clusters[[kept_row.place for kept_row in kept]]
    own = [NOTHING if kept_row.row.fallback or kept_row.silent else kept_row.score for kept_row in kept]
    return MethodSummary(
        rows=len(kept),
        accuracy=known_mean([kept_row.score for kept_row in kept], mine),
        fallback=mean([row.row.fallback for row in kept], clusters=mine) if name == "codevqa" else None,
        unanswered=sum(kept_row.silent for kept_row in kept),
        own=known_mean(own, mine),
        plain=known_mean([kept_row.plain for kept_row in kept], mine),
        errors=_errors(kept),
        tokens=fmean(kept_row.row.tokens for kept_row in kept),
        corpus=corpus,
        reasons={figure: metric.reasons[figure] for figure, value in corpus.items() if value is None},
        repeats=_repeats([repeat for _, repeat in sorted(rows.items())], clusters) if len(rows) > 1 else None,
        selective=_selective([kept_row for kept_row in kept if not math.isnan(kept_row.score)]),
        cost=_mean_cost([kept_row.cost for kept_row in kept if kept_row.cost is not None]),
    )


def _interval_notes(examples: Sequence[Example], clusters: int, metric: Metric) -> Iterator[str]:
    n, short = len(examples), sum(0 < len(example.gold) < metric.answers for example in examples)
    if clusters == n:
        yield "Intervals are 95 %: Wilson's for shares, Student's t for differences. Each question counts by itself."
    else:
        yield (
            "Intervals are 95 %: Wilson's for shares, Student's t for differences. Questions that go right or wrong "
            f"together, such as those about one picture, form a cluster. There are {clusters:,} clusters. Variances "
            "come from leaving out one cluster at a time."
        )
        if clusters < FEW_CLUSTERS:
            yield (
                f"There are only {clusters:,} clusters, fewer than {FEW_CLUSTERS}. So intervals and tests are rough, "
                "and other pictures may give other figures."
            )
    if short:
        yield (
            f"{short:,} of {n:,} questions have fewer than the {metric.answers} accepted answers that {metric.name} "
            "needs. They are scored by exact match with any of theirs."
        )


def _is_plain_pass(row: Row, question: str) -> bool:
    """Says whether a program asked ``query`` the whole question and nothing else; case, spaces and marks aside."""
    asked = _calls(row)
    if not asked or {str(call.get("name")) for call in asked} - {"query", "visual_query"}:
        return False
    arguments = [call.get("arguments") for call in asked]
    return all(
        isinstance(argument, Mapping) and _letters(str(argument.get("question"))) == _letters(question)
        for argument in arguments
    )


def _letters(text: str) -> str:
    return _MARKS.sub(" ", text.lower()).strip()


def _errors(kept: Sequence[_Kept]) -> tuple[ErrorLine, ...]:
    by_type: dict[str, list[_Kept]] = {}
    for kept_row in kept:
        if kept_row.row.error is not None:
            by_type.setdefault(kept_row.row.error, []).append(kept_row)
    lines = []
    for type, rows_of_type in sorted(by_type.items(), key=lambda item: (-len(item[1]), item[0])):
        scored = [kept_row.score for kept_row in rows_of_type if not math.isnan(kept_row.score)]
        fallbacks, first = sum(kept_row.row.fallback for kept_row in rows_of_type), rows_of_type[0].row
        accuracy = fmean(scored) if scored else None
        lines.append(
            ErrorLine(
                type, len(rows_of_type), len(rows_of_type) / len(kept), fallbacks, accuracy, first.id, first.message
            )
        )
    return tuple(lines)


def _mean_cost(costs: Sequence[Cost]) -> MethodCost | None:
    """Means over the rows that say what they cost; None where none does."""
    if not costs:
        return None
    names = ("model_seconds", "program_seconds", "prompt_tokens", "completion_tokens", "estimated_tokens")
    means = {name: fmean(getattr(cost, name) for cost in costs) for name in names}
    kinds = sorted({kind for cost in costs for kind in cost.calls})
    calls = {kind: fmean(cost.calls.get(kind, 0) for cost in costs) for kind in kinds}
    marks = np.percentile([cost.seconds for cost in costs], MARKS)
    spread = {mark: float(value) for mark, value in zip(MARKS, marks, strict=True)}
    return MethodCost(rows=len(costs), calls=calls, spread=spread, **means)


def _confusion(kept: Iterable[_Kept], examples: Sequence[Example]) -> dict[str, dict[str, int]]:
    """Counts questions by their gold answer and by what was said, the most frequent gold answers first."""
    answers = [
        (_letters(Counter(gold).most_common(1)[0][0]), _letters(kept_row.row.prediction) or "(nothing)")
        for kept_row in kept
        if (gold := examples[kept_row.place].gold)
    ]
    names = [name for name, n in Counter(gold for gold, _ in answers).most_common(ANSWERS) if n > 1]
    counts: dict[str, dict[str, int]] = {}
    for answer in answers:
        truth, predicted = (name if name in names else "other" for name in answer)
        line = counts.setdefault(truth, {})
        line[predicted] = line.get(predicted, 0) + 1
    order = [*(name for name in names if name != "other"), "other"]
    return {
        gold: {predicted: counts[gold].get(predicted, 0) for predicted in order} for gold in order if gold in counts
    }


def _selective(scored: Sequence[_Kept]) -> Selective | None:
    """Errors among the surest; answers without confidence come last."""
    if all(kept_row.sure is None for kept_row in scored):
        return None
    errors = risk(
        [-1.0 if kept_row.sure is None else kept_row.sure for kept_row in scored],
        [1 - kept_row.score for kept_row in scored],
    )
    counts = {share: max(round(share * len(errors)), 1) for share in SHARES}
    return Selective({share: float(errors[count - 1]) for share, count in counts.items()}, float(errors.mean()))


def _repeats(repeats: Sequence[Mapping[str, _Kept]], clusters: NDArray[np.int64]) -> Repeats | None:
    """Figures on the questions that every repetition answered; None where there are none, or no answers to them."""
    scored = [{id for id, kept_row in each.items() if not math.isnan(kept_row.score)} for each in repeats]
    shared = [id for id in repeats[0] if all(id in ids for ids in scored)]
    if not shared:
        return None
    values = tuple(fmean(repeat[id].score for id in shared) for repeat in repeats)
    changed = [len({repeat[id].row.prediction for repeat in repeats}) > 1 for id in shared]
    share = mean(changed, clusters=clusters[[repeats[0][id].place for id in shared]])
    return Repeats(values, fmean(values), stdev(values), share, len(shared))
