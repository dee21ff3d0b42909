"""Two runs on the same questions: what changed, and whether it is more than chance.

Questions are matched by id; the second run is compared with the first, so a gain is the second one's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from ...core.errors import InputError
from ..metrics import Metric, metric_for
from ..run.run_info import RunInfo
from ..run.store import Store
from ..statistics import Interval, Paired, compare, mean
from ..task import Method
from .reading import clustered
from .view import percent, points, power_text

__all__ = ["ChangedAnswer", "Difference", "compare_runs", "describe"]


@dataclass(frozen=True)
class ChangedAnswer:
    """A question that the two runs answer differently."""

    id: str
    question: str
    gold: tuple[str, ...]
    first: str
    second: str
    first_program: str | None
    second_program: str | None
    first_score: float | None
    second_score: float | None
    first_error: str | None = None
    second_error: str | None = None


@dataclass
class Difference:
    """What one method does in two runs."""

    dataset: str
    split: str
    data_name: str
    """The data set as a reader should take it: drawn where it is drawn."""
    method: Method
    metric: str
    questions: int = 0
    """Answered in both."""
    only_first: int = 0
    only_second: int = 0
    changed_answers: int = 0
    changed_programs: int = 0
    errors: tuple[int, int] = (0, 0)
    """Questions with an error, fallbacks included, in the first and in the second, of those in both."""
    first: Interval | None = None
    """Accuracy on the questions in both; None where gold answers are hidden."""
    second: Interval | None = None
    paired: Paired | None = None
    """Second minus first."""
    settings: list[str] = field(default_factory=list)
    """What differs between the settings of the two."""
    better: list[ChangedAnswer] = field(default_factory=list)
    worse: list[ChangedAnswer] = field(default_factory=list)
    other: list[ChangedAnswer] = field(default_factory=list)
    """Changed without being better or worse."""

    def to_dict(self) -> dict[str, Any]:
        """Returns plain JSON-ready data."""
        return asdict(self)


def _require_same_data(one: RunInfo, two: RunInfo) -> None:
    if (one.dataset, one.split) != (two.dataset, two.split):
        raise InputError(
            f"The runs are on different data: {one.dataset} {one.split} and {two.dataset} {two.split}.",
            hint="Compare runs on the same split.",
        )
    if one.data_hash != two.data_hash:
        raise InputError(
            f"The runs are on different versions of {one.dataset} {one.split}: their annotations differ.",
            hint="Compare runs on the same files.",
        )


def compare_runs(
    first: Store,
    second: Store,
    *,
    method: Method = "codevqa",
    metric: Metric | None = None,
    keep: int = 5,
    cluster: str = "",
) -> Difference:
    """Compares two runs question by question.

    Args:
        first: the run compared with.
        second: the run that is judged.
        method: which method's answers.
        metric: the metric for both; None takes the first run's.
        keep: how many changed questions of each kind to keep, the first of them.
        cluster: what goes together, as for :func:`.reading.clustered`.

    Raises:
        InputError: the runs are not on the same data, share no question, or have nothing to cluster by.
    """
    info = first.info
    _require_same_data(info, second.info)
    metric = metric or metric_for(info.dataset, info.variant)
    result = Difference(info.dataset, info.split, info.data_name, method, metric.name)
    scores: list[tuple[float, float]] = []
    clusters: list[str] = []
    for example, row in first.pairs(method):
        other = second.row(example.id, method)
        if other is None:
            continue
        result.questions += 1
        result.errors = (result.errors[0] + bool(row.error), result.errors[1] + bool(other.error))
        result.changed_programs += _lines(row.program) != _lines(other.program)
        before, after = metric.score(example, row.prediction), metric.score(example, other.prediction)
        kind = result.other
        if before is not None and after is not None:
            scores.append((before, after))
            clusters.append(clustered(example, cluster).cluster or example.id)
            kind = result.better if after > before else result.worse if after < before else kind
        if row.prediction != other.prediction:
            result.changed_answers += 1
            if len(kind) < keep:
                gold, said = tuple(dict.fromkeys(example.gold)), (row.prediction, other.prediction)
                texts = (example.id, example.question, gold, *said, row.program, other.program)
                kind.append(ChangedAnswer(*texts, before, after, row.error, other.error))
    if not result.questions:
        raise InputError(f"The runs share no question answered by {method}.", hint="Look at them with codevqa report.")
    result.only_first = first.counts().get((method, 0), 0) - result.questions
    result.only_second = second.counts().get((method, 0), 0) - result.questions
    result.settings = info.differences(second.info)
    if scores:
        ones, twos = zip(*scores, strict=True)
        result.first, result.second = (mean(one, clusters=clusters) for one in (ones, twos))
        result.paired = compare(twos, ones, clusters=clusters)
    return result


def _lines(program: str | None) -> list[str]:
    """A program without the blank lines and trailing spaces that make no difference."""
    return [line.rstrip() for line in (program or "").splitlines() if line.strip()]


def describe(found: Difference) -> Iterator[str]:
    """Yields lines that say what differs, for a terminal."""
    yield f"{found.data_name} {found.split}, {found.method}, {found.metric}: {found.questions:,} questions in both runs"
    if found.only_first or found.only_second:
        yield f"  only in the first: {found.only_first:,}; only in the second: {found.only_second:,}"
    yield from (f"  {line}" for line in found.settings)
    if found.paired:
        yield f"first      {percent(found.first)}"
        yield f"second     {percent(found.second)}"
        test = f"{found.paired.test} p = {found.paired.p_value:.2g}"
        few = f"; only {found.paired.difference.clusters} clusters" if found.paired.difference.few else ""
        yield f"difference {points(found.paired.difference)} points, {test}{few}"
        if power := power_text(found.paired):
            yield power
        yield f"better {found.paired.better:,}, worse {found.paired.worse:,}"
    yield f"answers changed: {found.changed_answers:,}; programs changed: {found.changed_programs:,}"
    yield f"errors: {found.errors[0]:,} before, {found.errors[1]:,} now"
    for title, changes in (("better", found.better), ("worse", found.worse), ("changed", found.other)):
        for change in changes:
            gold = ", ".join(change.gold) or "hidden"
            yield f"{title}: {change.id} {_line(change.question)}  (gold: {_line(gold)})"
            for run, answer, program, error in (
                ("first", change.first, change.first_program, change.first_error),
                ("second", change.second, change.second_program, change.second_error),
            ):
                yield f"  {run}: {_line(answer) or '(nothing)'}{f'  [{error}]' if error else ''}"
                if change.first_program != change.second_program:
                    yield from (f"    | {_line(line)}" for line in (program or "").splitlines())


def _line(text: str) -> str:
    """Text on one line without control characters, which a terminal would obey."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
