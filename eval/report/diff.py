"""Two runs on the same questions: what changed, and whether it is more than chance.

Questions are matched by id; the second run is compared with the first, so a gain is the second one's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...core.errors import InputError
from ...core.trace import Method
from ..metrics import metric_for
from ..run.store import Store
from ..statistics import Interval, Paired, compare_scores, mean
from .tables import format_points, p_text, percent


@dataclass
class Difference:
    """What one method does in two runs."""

    dataset: str
    split: str
    data_name: str
    """The data set as a reader should take it: drawn where it is drawn."""
    method: Method
    metric: str
    settings: list[str]
    """What differs between the settings of the two."""
    questions: int = 0
    """Answered in both."""
    only_first: int = 0
    only_second: int = 0
    changed_answers: int = 0
    changed_programs: int = 0
    first: Interval | None = None
    """Accuracy on the questions in both; None where gold answers are hidden."""
    second: Interval | None = None
    paired: Paired | None = None
    """Second minus first."""


def compare_runs(first: Store, second: Store, *, method: Method = "codevqa") -> Difference:
    """Compares two runs question by question.

    Args:
        first: the run compared with.
        second: the run that is judged.
        method: which method's answers.

    Raises:
        InputError: the runs are not on the same data, or share no question.
    """
    info, other = first.info, second.info
    if (info.dataset, info.split, info.data_hash) != (other.dataset, other.split, other.data_hash):
        raise InputError(
            f"The runs are on different data: {info.dataset} {info.split} and {other.dataset} {other.split}"
            + ("." if (info.dataset, info.split) != (other.dataset, other.split) else ", whose annotations differ."),
            hint="Compare runs on the same files and split.",
        )
    metric = metric_for(info.dataset, info.variant)  # for both
    differences = info.differences(other)
    difference = Difference(info.dataset, info.split, info.data_name, method, metric.name, differences)
    scores: list[tuple[float, float, str]] = []
    for example, before in first.pairs(method):
        after = second.row(example.id, method)
        if after is None:
            continue
        difference.questions += 1
        difference.changed_answers += before.prediction != after.prediction
        difference.changed_programs += _program_lines(before.program) != _program_lines(after.program)
        score_before, two = (metric.score(example, row.prediction) for row in (before, after))
        if score_before is not None and two is not None:
            scores.append((score_before, two, example.cluster or example.id))
    if not difference.questions:
        raise InputError(f"The runs share no question answered by {method}.", hint="Look at them with codevqa report.")
    difference.only_first = first.counts().get((method, 0), 0) - difference.questions
    difference.only_second = second.counts().get((method, 0), 0) - difference.questions
    if scores:
        ones, twos, clusters = zip(*scores, strict=True)
        difference.first, difference.second = (mean(values, clusters=clusters) for values in (ones, twos))
        difference.paired = compare_scores(twos, ones, clusters=clusters)
    return difference


def _program_lines(program: str | None) -> list[str]:
    """A program without the blank lines and trailing spaces that make no difference."""
    return [line.rstrip() for line in (program or "").splitlines() if line.strip()]


def describe_difference(difference: Difference) -> Iterator[str]:
    """Yields lines that say what differs, for a terminal."""
    what = f"{difference.data_name} {difference.split}, {difference.method}, {difference.metric}"
    yield f"{what}: {difference.questions:,} questions in both runs"
    if difference.only_first or difference.only_second:
        yield f"  only in the first: {difference.only_first:,}; only in the second: {difference.only_second:,}"
    yield from (f"  {line}" for line in difference.settings)
    if paired := difference.paired:
        yield f"first      {percent(difference.first)}"
        yield f"second     {percent(difference.second)}"
        few = f"; only {paired.difference.clusters} clusters" if paired.difference.few else ""
        yield f"difference {format_points(paired.difference)} points, p = {p_text(paired)}{few}"
        yield f"better {paired.better:,}, worse {paired.worse:,}"
    yield f"answers changed: {difference.changed_answers:,}; programs changed: {difference.changed_programs:,}"
