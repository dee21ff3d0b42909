"""The figures of a run as plain text, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ...core.text import join_lines
from ..run.run_info import RunInfo, RunPace
from ..statistics import Interval
from .figures import Summary
from .labels import figure_label


def summary_lines(info: RunInfo, summary: Summary, pace: RunPace | None = None) -> list[str]:
    """Returns the main figures of a run: accuracy of each method, their difference, errors."""
    hidden = f", {summary.hidden:,} without a published answer" if summary.hidden else ""
    lines = [info.chart_warning] if info.chart_warning else []
    lines += [f"{info.data_name} {info.split}: {summary.examples:,} questions{hidden}; {summary.metric}"]
    if note := summary.outside_note:
        lines.append(note)
    if info.questions is not None and summary.examples < info.questions:
        lines.append(f"{info.questions:,} were wanted: the run is not complete")
    if info.unofficial:
        lines.append(f"not the official split: {info.unofficial}")
    table: list[tuple[str, ...]] = [
        ("", "accuracy [95 %]", "fallback", "plain pass", "unanswered", "s a question", "tokens")
    ]
    table.extend(
        (
            method,
            "not scored" if figures.accuracy is None else str(figures.accuracy),
            "" if figures.fallback is None else f"{figures.fallback.value:.1%}",
            "" if figures.plain is None else f"{figures.plain.value:.1%}",
            f"{figures.unanswered:,}",
            "" if figures.cost is None else f"{figures.cost.seconds:.3f}",
            f"{figures.tokens:,.0f}",
        )
        for method, figures in summary.methods.items()
    )
    lines += align_rows(table)
    for pair, paired in summary.pairs.items():
        name = pair.replace("-", " - ") if "direct" in summary.methods else "difference"
        lines.append(f"{name}  {paired}")
    lines += summary.notes[1:]
    for method, figures in summary.methods.items():
        if seeds := figures.repeats:
            lines.append(
                f"{method} over {len(seeds.values)} seeds, n={seeds.n} asked with each  {seeds.mean:.3f} on average, "
                f"standard deviation {seeds.spread:.3f}; the answer differs between seeds on {seeds.changed.value:.1%}"
            )
        if figures.selective is not None:
            errors = ", ".join(
                f"{error:.1%} of the surest {share:.0%}" for share, error in figures.selective.errors.items()
            )
            lines.append(f"{method} errors  {errors}; area under the curve {figures.selective.aurc:.3f}")
        for name, figure in figures.corpus.items():
            if figure is not None:
                lines.append(
                    f"{method} {figure_label(name)}  {figure if isinstance(figure, Interval) else f'{figure:.4f}'}"
                )
        for error in figures.errors:
            first = join_lines(f"first {error.id}: {error.message}")
            lines.append(f"{method} {error.type}  {error.count:,} ({error.share:.1%}), {first}")
    return [*lines, *_cost_lines(summary, pace), str(summary.coverage)]


def _cost_lines(summary: Summary, pace: RunPace | None) -> Iterator[str]:
    for method, figures in summary.methods.items():
        if (cost := figures.cost) is not None:
            seconds = f"{cost.seconds:.3f} s (models {cost.model_seconds:.3f}, program {cost.program_seconds:.3f})"
            tokens = f"{cost.prompt_tokens:,.0f} + {cost.completion_tokens:,.0f} tokens"
            tokens += f" ({cost.estimated_tokens:,.0f} estimated)" if cost.estimated_tokens else ""
            yield f"{method} cost a question  {seconds}, {tokens}, calls: {calls_text(cost.calls)}"
    if rate := pace_text(pace):
        yield rate


def calls_text(calls: Mapping[str, float]) -> str:
    """Writes ``caption 11.1, match 1.5``: model calls a question."""
    return ", ".join(f"{kind} {count:,.1f}" for kind, count in calls.items())


def pace_text(pace: RunPace | None) -> str:
    """Writes how fast a run went; empty where nothing was asked."""
    return f"{pace.rate:.2f} questions a second" if pace and pace.rate is not None else ""


def align_rows(rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns rows as lines, their columns one below the other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
