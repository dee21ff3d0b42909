"""The charts of a report: figures as marks on a scale, which the page draws as SVG.

Places are per cent of the width, so a chart fits a phone as well as a wide screen, and its words stay text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..metrics.steps import StepSummary
from ..statistics import Interval
from .figures import RunFigures, Summary
from .labels import METHOD_LABELS, group_label, pair_label
from .tables import by_kind, format_points, percent, too_few

SHARE = tuple((float(at), f"{at} %") for at in (0, 50, 100))
"""The scale of shares."""
ROOM = 1.05
"""What a scale that ends with its largest figure adds to it."""
INTERVALS = "95 % intervals, n questions"


@dataclass(frozen=True)
class Mark:
    """One figure, with the words beside it."""

    label: str
    colour: str
    """Name of the method; empty where it is of none."""
    at: float
    line: tuple[float, float] | None
    """From where to where; None where too few questions say."""
    text: str
    box: tuple[float, float] | None = None
    """The middle half of a distribution."""
    height: float = 0.0
    """Place from below, where the chart has two scales."""


@dataclass(frozen=True)
class Chart:
    """Marks on one scale; without any, nothing is drawn."""

    title: str
    marks: tuple[Mark, ...]
    ticks: tuple[tuple[float, str], ...]
    what: str = INTERVALS
    """What lines and n are."""
    note: str = ""


def headline(run: RunFigures) -> Iterator[Chart]:
    """The accuracy of each method, and the differences."""
    bars = [
        _share_mark(METHOD_LABELS[method], method, figures.accuracy)
        for method, figures in run.summary.methods.items()
        if figures.accuracy is not None
    ]
    yield Chart("Accuracy", tuple(bars), SHARE)
    marks = []
    for pair, paired in run.summary.pairs.items():
        gain = paired.difference
        line = None if too_few(gain) else (50 + 50 * gain.low, 50 + 50 * gain.high)
        text = f"{format_points(gain)}, n {gain.n:,}"
        marks.append(Mark(pair_label(pair), "", 50 + 50 * gain.value, line, text))
    ticks = ((0.0, "−100"), (50.0, "0"), (100.0, "+100"))
    yield Chart("Difference in points", tuple(marks), ticks, note="Same questions for both methods.")


def cost_chart(summary: Summary) -> Chart:
    """Accuracy against seconds a question, where both are known."""
    points = [
        (name, figures.accuracy, figures.cost.seconds)
        for name, figures in summary.methods.items()
        if figures.accuracy and figures.cost
    ]
    most = ROOM * max((seconds for _, _, seconds in points), default=0.0)
    marks = []
    for method, accuracy, seconds in points if most else ():
        share = _share_mark(METHOD_LABELS[method], method, accuracy)
        text = f"{share.text}: {seconds:.3f} s"
        marks.append(replace(share, at=100 * seconds / most, text=text, height=100 * accuracy.value))
    note = "Higher is more accurate. Further right is slower."
    return Chart("Accuracy against seconds a question", tuple(marks), _seconds_ticks(most), note=note)


def latency_chart(summary: Summary) -> Chart:
    """Seconds a question as a distribution, where they are known."""
    costs = {
        method: figures.cost for method, figures in summary.methods.items() if figures.cost and figures.cost.spread
    }
    most = ROOM * max((cost.spread[95] for cost in costs.values()), default=0.0)
    marks = []
    for method, cost in costs.items() if most else ():
        low, first, middle, third, high = (
            100 * value / most for value in map(cost.spread.__getitem__, (5, 25, 50, 75, 95))
        )
        text = f"median {cost.spread[50]:.3f} s, 95 % within {cost.spread[95]:.3f} s, n {cost.rows:,}"
        marks.append(Mark(METHOD_LABELS[method], method, middle, (low, high), text, box=(first, third)))
    what = "dot: median, box: middle half, line: 5 % to 95 % of n questions"
    return Chart("Distribution of seconds a question", tuple(marks), _seconds_ticks(most), what)


def kind_charts(run: RunFigures) -> Iterator[Chart]:
    """Accuracy by kind of question: one chart a key."""
    for key, groups in by_kind(run.summary):
        largest = sorted(groups, key=lambda label: -groups[label].n)[:10]
        marks = [
            _share_mark(
                f"{label if key else group_label(label, run.info.dataset)}, {METHOD_LABELS[method]}", method, share
            )
            for label, group in groups.items()
            if label in largest
            for method, share in group.accuracy.items()
        ]
        part = f"The largest {len(largest)} of {len(groups)} groups." if len(largest) < len(groups) else ""
        yield Chart(
            f"By {group_label(key, run.info.dataset)}" if key else "Kinds of questions", tuple(marks), SHARE, note=part
        )


def primitive_charts(summary: Summary, steps: StepSummary | None) -> Iterator[Chart]:
    """How often answers were right whose program used each primitive, and each of its calls that can be judged."""
    used = [
        _share_mark(name, "codevqa", figures.accuracy)
        for name, figures in summary.primitives.items()
        if figures.accuracy
    ]
    yield Chart("Accuracy of programs that call it", tuple(used), SHARE)
    if steps:
        judged = [_share_mark(name, "codevqa", steps.shares[name]) for name in steps.calls if name in steps.shares]
        yield Chart("Judged calls that are right", tuple(judged), SHARE, "95 % intervals, n judged calls")


def _share_mark(label: str, colour: str, share: Interval) -> Mark:
    line = None if too_few(share) else (100 * share.low, 100 * share.high)
    return Mark(label, colour, 100 * share.value, line, f"{percent(share)}, n {share.n:,}")


def _seconds_ticks(most: float) -> tuple[tuple[float, str], ...]:
    return ((0.0, "0 s"), (50.0, f"{most / 2:.2g} s"), (100.0, f"{most:.2g} s"))
