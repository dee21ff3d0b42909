"""The figures of a run as plain text, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..metrics import metric_for
from ..run.store import Store
from ..task import Example, Method, Row
from .figures import MethodSummary, Summary
from .summary import joined, summarize

__all__ = ["pairs_of", "summary_lines", "summary_of"]

MOST_ERRORS = 8
"""Types of error that are shown by themselves."""


def pairs_of(store: Store) -> Iterator[tuple[Example, Mapping[Method, Row]]]:
    """Yields what :func:`.summary.summarize` takes: each example with its rows, then later repetitions."""
    counts = store.counts()
    yield from joined(store.examples(), {method: store.rows(method) for method, repeat in counts if repeat == 0})
    for method, repeat in counts:
        if repeat:
            for example, row in store.pairs(method, repeat):
                yield example, {method: row}


def summary_of(store: Store, variant: str | None = None) -> Summary:
    """Summarises a run with its metric.

    Args:
        store: the run.
        variant: variant of the metric; None takes the run's.

    Raises:
        UnknownNameError: there is no metric for the data set, or no such variant.
    """
    return summarize(
        pairs_of(store), metric_for(store.info.dataset, store.info.variant if variant is None else variant)
    )


def summary_lines(store: Store) -> list[str]:
    """Returns the main figures of a run: accuracy of each method, their difference, errors."""
    summary = summary_of(store)
    info = store.info
    hidden = f", {summary.hidden:,} without a published answer" if summary.hidden else ""
    lines = [f"{info.dataset} {info.split}: {summary.examples:,} questions{hidden}; {summary.metric}"]
    table: list[tuple[str, ...]] = [
        ("", "accuracy [95 %]", "fallback", "plain pass", "unanswered", "s, median", "tokens")
    ]
    table.extend(_cells(method, one) for method, one in summary.methods.items())
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    lines += ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
    if summary.paired is not None:
        lines.append(f"difference  {summary.paired}")
    for method, one in summary.methods.items():
        if one.repeats is not None:
            values = ", ".join(f"{value:.3f}" for value in one.repeats.values)
            lines.append(f"{method} over seeds  {values}")
        for name, figure in one.corpus.items():
            if figure is not None:
                lines.append(f"{method} {name}  {figure:.4f}")
        for error in one.errors[:MOST_ERRORS]:
            lines.append(
                f"{method} {error.type}  {error.count:,} ({error.share:.1%}), first {error.id}: {error.message}"
            )
    return lines


def _cells(method: Method, one: MethodSummary) -> tuple[str, ...]:
    return (
        method,
        "not scored" if one.accuracy is None else str(one.accuracy),
        f"{one.fallback.value:.1%}",
        "" if one.plain is None else f"{one.plain.value:.1%}",
        f"{one.unanswered:,}",
        f"{one.seconds['median']:.2f}",
        f"{one.tokens:,.0f}",
    )
