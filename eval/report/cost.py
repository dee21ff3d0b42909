"""What answers cost: seconds without waiting, tokens, model calls, money where there is a price, and the run's pace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..run.pace import Pace
from ..task import Row
from .figures import MethodCost, MethodSummary, RunFigures, Summary
from .view import METHOD_LABELS, Section, Table

__all__ = ["CostTally", "Price", "cost_lines", "costs"]


_SUMMED = ("model_seconds", "program_seconds", "prompt_tokens", "completion_tokens")


@dataclass(frozen=True)
class Price:
    """What a million tokens cost, in whatever currency."""

    prompt: float
    completion: float

    def of(self, cost: MethodCost) -> float:
        """Returns the price of one question, on average."""
        return (cost.prompt_tokens * self.prompt + cost.completion_tokens * self.completion) / 1e6


class CostTally:
    """Gathers the costs of one method's rows, those that have any."""

    def __init__(self) -> None:
        self._rows = 0
        self._sums = dict.fromkeys(_SUMMED, 0.0)
        self._calls: Counter[str] = Counter()

    def add(self, row: Row) -> None:
        """Adds a row."""
        cost = row.cost
        if cost is None:
            return
        self._rows += 1
        self._calls.update(cost.calls)
        for name in _SUMMED:
            self._sums[name] += getattr(cost, name)

    def result(self) -> MethodCost | None:
        """Returns means over the rows that say what they cost; None where none does."""
        if not self._rows:
            return None
        calls = {kind: count / self._rows for kind, count in sorted(self._calls.items())}
        return MethodCost(rows=self._rows, calls=calls, **{name: self._sums[name] / self._rows for name in _SUMMED})


def cost_lines(summary: Summary, pace: Pace | None) -> Iterator[str]:
    """Yields what a run cost, for a terminal."""
    for method, found in summary.methods.items():
        if (cost := found.cost) is not None:
            seconds = f"{cost.seconds:.3f} s (models {cost.model_seconds:.3f}, program {cost.program_seconds:.3f})"
            tokens = f"{cost.prompt_tokens:,.0f} + {cost.completion_tokens:,.0f} tokens"
            yield f"{method} cost a question  {seconds}, {tokens}, calls: {_calls(cost.calls)}"
    if pace is not None:
        yield ", ".join(_pace(pace))


def costs(runs: Sequence[RunFigures], price: Price | None = None) -> Iterator[Section]:
    """What questions cost by each method, and how fast the runs went."""
    several = len(runs) > 1
    rows = [
        (METHOD_LABELS[method] + (f" in {run.name}" if several else ""), *_cells(found, found.cost, price))
        for run in runs
        for method, found in run.summary.methods.items()
        if found.cost is not None
    ]
    if not rows:
        return
    text = [
        f"{f'{run.name}: ' if several else ''}{', '.join(_pace(run.pace))}."
        for run in runs
        if run.pace is not None and run.pace.rate is not None
    ]
    head = ("Method", "Seconds a question", "of models", "of the program", "Prompt tokens", "Completion tokens")
    money = () if price is None else ("Price a question", "Price a right answer")
    note = (
        "What a question costs by itself: each model call's share of the batch that it was in, and the program at work;"
        " calls that were shared or remembered count in full, and nothing that waits counts."
    )
    yield Section("Cost", tuple(text), (Table((*head, "Model calls", *money), tuple(rows), note=note),))


def _cells(found: MethodSummary, cost: MethodCost, price: Price | None) -> tuple[str, ...]:
    cells = (
        f"{cost.seconds:.3f}",
        f"{cost.model_seconds:.3f}",
        f"{cost.program_seconds:.3f}",
        f"{cost.prompt_tokens:,.0f}",
        f"{cost.completion_tokens:,.0f}",
        _calls(cost.calls),
    )
    if price is None:
        return cells
    one = price.of(cost)
    return (*cells, f"{one:.3g}", f"{one * found.rows / found.correct:.3g}" if found.correct else "–")


def _calls(calls: Mapping[str, float]) -> str:
    return ", ".join(f"{kind} {count:,.1f}" for kind, count in calls.items())


def _pace(pace: Pace) -> Iterator[str]:
    if pace.rate is not None:
        yield f"{pace.rate:.2f} questions a second"
    for name, peak in (("memory", pace.peak_bytes), ("GPU memory", pace.peak_gpu_bytes)):
        if peak is not None:
            yield f"{peak / 2**30:.2f} GiB of {name} at most"
