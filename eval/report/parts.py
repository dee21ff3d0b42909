"""The parts of a report that show figures, each from a run's summary."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..metrics.steps import StepSummary
from ..run.run_info import RunInfo
from ..statistics import Interval, Paired, wilson
from ..task import Method
from .figures import Group, MethodSummary, Summary
from .paper import NOTE, Reported, reported
from .view import AccuracyBar, Chart, ChartLine, Role, Section, Table, percent, points

__all__ = [
    "METHOD_LABELS",
    "about",
    "breakdown",
    "comparison",
    "corpus",
    "differing",
    "failures",
    "results",
    "settings",
    "step_scores",
]

METHOD_LABELS: Mapping[Method, tuple[str, Role]] = {
    "codevqa": ("CodeVQA", "program"),
    "pnpvqa": ("PnP-VQA", "baseline"),
}
"""What a reader sees of a method."""
MOST_LINES = 12
"""Groups of one chart; further ones are counted in its note."""

Named = tuple[str, RunInfo, Summary]


def about(runs: Sequence[Named]) -> tuple[tuple[str, str], ...]:
    """What was run, as far as the runs agree."""
    return tuple((name, values[0]) for name, values in _columns(runs) if len(set(values)) == 1)


def differing(runs: Sequence[Named]) -> Iterator[Section]:
    """What was run, where the runs differ."""
    rows = tuple((name, *values) for name, values in _columns(runs) if len(set(values)) > 1)
    if rows:
        yield Section("Runs", tables=(Table(("", *(name for name, _, _ in runs)), rows),))


def _columns(runs: Sequence[Named]) -> Iterator[tuple[str, list[str]]]:
    columns = [dict(_about(info, summary)) for _, info, summary in runs]
    for name in dict.fromkeys(name for column in columns for name in column):
        yield name, [column.get(name, "–") for column in columns]


def _about(info: RunInfo, summary: Summary) -> Iterator[tuple[str, str]]:
    yield "data set", f"{info.dataset}, split {info.split}"
    hidden = f", {summary.hidden:,} of them without an answer to compare with" if summary.hidden else ""
    part = f", from place {info.offset:,} on" if info.offset else ""
    part += f", at most {info.limit:,}" if info.limit is not None else ""
    yield "questions", f"{summary.examples:,}{part}{hidden}, {summary.clusters:,} clusters"
    yield "metric", summary.metric
    if info.preset:
        yield "preset", info.preset
    yield from info.models.items()
    yield "prompts", f"{info.prompts} (SHA-256 {info.prompt_hash[:16]})"
    yield "seeds", ", ".join(map(str, info.seeds))
    if info.data_hash:
        yield "annotations", f"SHA-256 {info.data_hash[:16]}"
    yield "begun", f"{info.started} with codevqa {info.version} on {info.machine}"


def results(runs: Sequence[Named]) -> Section:
    """The main table, with the paper's numbers beside it."""
    rows: list[tuple[str, ...]] = []
    muted: set[int] = set()
    for name, info, summary in runs:
        for method, found in summary.methods.items():
            rows.append(
                (
                    METHOD_LABELS[method][0],
                    name if len(runs) > 1 else f"{info.dataset} {info.split}",
                    f"{found.rows:,}",
                    percent(found.accuracy),
                    percent(found.own) if found.fallback.value else "–",
                    f"{found.seconds['mean']:.2f} s",
                    f"{found.tokens:,.0f}",
                )
            )
    for dataset in dict.fromkeys(info.dataset for _, info, _ in runs):
        paper = reported(dataset)
        if paper:
            for method in METHOD_LABELS:
                muted.add(len(rows))
                value = paper.codevqa if method == "codevqa" else paper.pnpvqa
                where = f"paper: {dataset} {paper.split}"
                rows.append((METHOD_LABELS[method][0], where, f"{paper.n:,}", f"{100 * value:.2f} %", "", "", ""))
    head = ("Method", "Run", "Questions", "Accuracy", "Without fallbacks", "Wall time", "Tokens")
    if len(runs) == 1:
        head = ("Method", "Data", *head[2:])
    note = f"In italics: {NOTE}." if muted else ""
    return Section("Result", tuple(_spread(runs)), (Table(head, tuple(rows), note=note, muted=frozenset(muted)),))


def _spread(runs: Sequence[Named]) -> Iterator[str]:
    """How far sampling with other seeds moves the figures."""
    for name, _, summary in runs:
        for method, found in summary.methods.items():
            if found.repeats:
                label = METHOD_LABELS[method][0] + (f" in {name}" if len(runs) > 1 else "")
                average, spread = 100 * found.repeats.mean, 100 * found.repeats.spread
                yield (
                    f"{label}, over {len(found.repeats.values)} sampling seeds: {average:.2f} % on average, standard "
                    f"deviation {spread:.2f} points."
                )


def comparison(runs: Sequence[Named]) -> Iterator[Section]:
    """The program against the baseline on the same questions."""
    rows, text = [], []
    for name, info, summary in runs:
        paired = summary.paired
        if paired is None:
            continue
        label = name if len(runs) > 1 else f"{info.dataset} {info.split}"
        paper = reported(info.dataset)
        gain = f"{100 * paper.difference:+.2f}" if paper else "–"
        n = f"{paired.difference.n:,}"
        rows.append((label, n, points(paired.difference), str(paired.better), str(paired.worse), _p(paired), gain))
        text.append(f"{label + ': ' if len(runs) > 1 else ''}{_sentence(paired)}")
    if rows:
        head = ("", "Questions", "Difference in points", "Better", "Worse", "McNemar p", "Paper's gain")
        yield Section("Program against baseline", tuple(text), (Table(head, tuple(rows)),))


def _p(paired: Paired) -> str:
    return "–" if paired.p_value is None else f"{paired.p_value:.2g}"


def _sentence(paired: Paired) -> str:
    difference = paired.difference
    way = "gains" if difference.value > 0 else "loses" if difference.value < 0 else "changes"
    clear = difference.low > 0 or difference.high < 0
    verdict = "the interval leaves zero out" if clear else "the interval includes zero: this may be chance"
    return (
        f"Writing a program {way} {abs(100 * difference.value):.1f} points over asking the question as it is: "
        f"{paired.better:,} questions changed for the better, {paired.worse:,} for the worse; {verdict}."
    )


def breakdown(info: RunInfo, summary: Summary) -> Iterator[Section]:
    """Accuracy by group: one chart a key, and one for all keys that are answered yes or no."""
    charts, flags = [], []
    for key, groups in summary.breakdown.items():
        if {group.value for group in groups} <= {"yes", "no"}:
            flags += [_line(group, key.replace("_", " ")) for group in groups if group.value == "yes"]
        elif len(groups) > 1:
            shown = sorted(sorted(groups, key=lambda one: -one.n)[:MOST_LINES], key=groups.index)
            left = len(groups) - len(shown)
            note = f"{left} smaller groups are left out." if left else ""
            charts.append(
                Chart(f"By {key.replace('_', ' ')}", tuple(_line(group, group.value) for group in shown), note)
            )
    if flags:
        charts.insert(0, Chart("Kinds of questions", tuple(flags), "A question may be of several kinds."))
    charts = [chart for chart in charts if any(line.bars for line in chart.lines)]
    tables = tuple(_beside_paper(info, summary))
    if charts:
        yield Section("Breakdown", tables=tables, charts=tuple(charts))


def _line(group: Group, label: str) -> ChartLine:
    return ChartLine(
        label, group.n, tuple(AccuracyBar(*METHOD_LABELS[method], share) for method, share in group.accuracy.items())
    )


def _beside_paper(info: RunInfo, summary: Summary) -> Iterator[Table]:
    paper = reported(info.dataset)
    if paper is None:
        return
    for key, values in paper.groups.items():
        rows: list[tuple[str, ...]] = []
        for group in summary.breakdown.get(key, ()):
            ours = (percent(group.accuracy.get("pnpvqa")), percent(group.accuracy.get("codevqa")))
            theirs = tuple(f"{100 * one:.1f} %" for one in values.get(group.value, ())) or ("–", "–")
            rows.append((group.value, f"{group.n:,}", *ours, *theirs))
        if rows:
            columns = (key.capitalize(), "n", "PnP-VQA", "CodeVQA", "Paper's PnP-VQA", "Paper's CodeVQA")
            yield Table(columns, tuple(rows), f"By {key}, beside the paper", f"Paper: {NOTE}.")
    gains = list(_gains(paper, summary))
    if gains:
        head = ("Questions", "n", "Ours in points", "Paper's, about")
        yield Table(head, tuple(gains), "Gain of the program by kind, beside the paper", f"Paper: {NOTE}.")


def _gains(paper: Reported, summary: Summary) -> Iterator[tuple[str, ...]]:
    for key, gain in paper.gains.items():
        for group in summary.breakdown.get(key, ()):
            if group.value == "yes" and group.paired:
                yield key, f"{group.n:,}", points(group.paired.difference), f"{100 * gain:+.0f}"


def failures(summary: Summary) -> Iterator[Section]:
    """Fallbacks, plain passes and errors by type."""
    rows = []
    errors: list[tuple[str, ...]] = []
    for method, found in summary.methods.items():
        rows.append((METHOD_LABELS[method][0], percent(found.fallback), f"{found.unanswered:,}", percent(found.plain)))
        errors += [
            (
                line.type,
                METHOD_LABELS[method][0],
                f"{line.count:,} ({100 * line.share:.1f} %)",
                f"{line.fallback:,}",
                "–" if line.accuracy is None else f"{100 * line.accuracy:.1f} %",
                f"{line.id}: {line.message}",
            )
            for line in found.errors
        ]
    head = ("Method", "Fallbacks", "No answer at all", "Plain passes")
    note = (
        "A fallback is a program that failed, with the baseline's answer in its place. A plain pass is a program that "
    )
    note += "only hands the question on to query."
    tables = [Table(head, tuple(rows), note=note)]
    if errors:
        titles = ("Error", "Method", "Questions", "Fallbacks", "Accuracy there", "First")
        tables.append(Table(titles, tuple(errors), "Errors by type"))
    yield Section("Fallbacks and errors", tables=tuple(tables))


def step_scores(steps: StepSummary | None) -> Iterator[Section]:
    """How many right answers rest on what is true."""
    if steps is None:
        return
    judged = sum(one[1] for one in steps.calls.values())
    calls = sum(one[0] for one in steps.calls.values())
    if not judged:
        yield Section("Right for the right reason", ("No step could be judged by the scene graphs.",))
        return
    text = (
        f"Of the right answers with a step that scene graphs can judge, {percent(steps.wrong_reason)} rest on a false "
        f"value; of those with two such steps or more, {percent(steps.wrong_reason_several)}.",
        f"Judged were {judged:,} of {calls:,} calls, in {steps.judged:,} of {steps.questions:,} questions whose "
        f"program ran to its end; {steps.failed:,} more failed. What a graph does not tell is left out.",
    )
    names = ("right, steps right", "right, a step wrong", "wrong, steps right", "wrong, a step wrong")
    rows = [(name, f"{steps.outcomes.get(name, 0):,}", f"{steps.several.get(name, 0):,}") for name in names]
    tables = (
        Table(("Answer, judged steps", "Questions", "With two judged steps or more"), tuple(rows)),
        Table(("Primitive", "Calls", "Judged", "Right of the judged"), tuple(_calls(steps.calls, steps.step_accuracy))),
    )
    yield Section("Right for the right reason", text, tables)


def _calls(calls: Mapping[str, tuple[int, int, int]], whole: Interval | None) -> Iterator[tuple[str, ...]]:
    for name, (count, judged, right) in calls.items():
        yield name, f"{count:,}", f"{judged:,}", percent(wilson(right, judged) if judged else None)
    yield "all", *(f"{sum(one[at] for one in calls.values()):,}" for at in (0, 1)), percent(whole)


def corpus(summary: Summary) -> Iterator[Section]:
    """Figures about the whole run, such as consistency."""
    names = dict.fromkeys(name for found in summary.methods.values() for name in found.corpus)
    if not names:
        return
    methods = list(summary.methods.items())
    rows = [(name.replace("_", " "), *(_figure(found, name) for _, found in methods)) for name in names]
    reasons = {
        name: found.reasons.get(name, "") for name in names for _, found in methods if found.corpus.get(name) is None
    }
    note = " ".join(f"No {name}: {reason}." for name, reason in reasons.items() if reason)
    head = ("", *(METHOD_LABELS[method][0] for method, _ in methods))
    yield Section("Figures of the whole run", tables=(Table(head, tuple(rows), note=note),))


def _figure(found: MethodSummary, name: str) -> str:
    value = found.corpus.get(name)
    return "–" if value is None else f"{value:.4f}"


def settings(info: RunInfo) -> Section:
    """Every setting, for whoever wants to run it again."""
    rows = [
        ("prompt hash", info.prompt_hash),
        ("data", info.data),
        ("data hash", info.data_hash),
        *_flat(info.settings),
    ]
    return Section("Settings", tables=(Table(("Setting", "Value"), tuple(rows)),), folded=True)


def _flat(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield before + name, value if isinstance(value, str) else json.dumps(value)
