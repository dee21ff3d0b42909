"""The parts of a report that show figures, each from a run's summary."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..metrics.steps import StepSummary
from ..run.run_info import RunInfo
from ..statistics import FEW_CLUSTERS, Paired, holm
from ..task import Method
from .figures import Group, MethodSummary, Summary
from .paper import DRAWN, NOTE, Reported, reported
from .view import AccuracyBar, Chart, ChartLine, Role, Section, Table, percent, points

__all__ = [
    "DETECTABLE",
    "METHOD_LABELS",
    "about",
    "breakdown",
    "comparison",
    "corpus",
    "detectable",
    "differing",
    "failures",
    "p_text",
    "results",
    "settings",
    "step_scores",
]

METHOD_LABELS: Mapping[Method, tuple[str, Role]] = {
    "codevqa": ("CodeVQA", "program"),
    "pnpvqa": ("PnP-VQA", "baseline"),
}
"""What a reader sees of a method."""
FEW = 10
"""Groups of less say next to nothing: they stand apart, folded, and never beside the paper."""
MOST_LINES = 12
"""Groups of one chart; further ones are counted in its note."""
DETECTABLE = (
    "Detectable: the smallest true difference in points that as many questions would show four times in five, tested "
    "on both sides at 5 %."
)
HOLM = "Holm: p as it is when all rows of this table are tested at once."

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
    yield "data set", f"{info.data_name}, split {info.split}"
    hidden = f", {summary.hidden:,} of them without an answer to compare with" if summary.hidden else ""
    part = f", from place {info.offset:,} on" if info.offset else ""
    part += f", at most {info.limit:,}" if info.limit is not None else ""
    yield "questions", f"{summary.examples:,}{part}{hidden}, {summary.clusters:,} clusters"
    if info.unofficial:
        yield "not the official split", info.unofficial
    if summary.coverage.unasked:
        yield "coverage", f"{summary.coverage}; they count as wrong"
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
                    name if len(runs) > 1 else f"{info.data_name} {info.split}",
                    f"{found.rows:,}",
                    percent(found.accuracy),
                    percent(found.own) if found.fallback.value else "–",
                    f"{found.cost.seconds:.2f} s" if found.cost else f"{found.seconds['mean']:.2f} s with waiting",
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
    head = ("Method", "Run", "Questions", "Accuracy", "Without fallbacks", "Time a question", "Tokens")
    if len(runs) == 1:
        head = ("Method", "Data", *head[2:])
    note = f"In italics: {_paper_note(*(info for _, info, _ in runs))}." if muted else ""
    for name, info, _ in runs:
        if info.unofficial:
            whose = f" in {name}" if len(runs) > 1 else ""
            note = f"Not the official split{whose}: {info.unofficial}. {note}".rstrip()
    return Section("Result", tuple(_spread(runs)), (Table(head, tuple(rows), note=note, muted=frozenset(muted)),))


def _paper_note(*infos: RunInfo) -> str:
    return "; ".join([NOTE, *([DRAWN] if any(info.drawn for info in infos) else [])])


def _spread(runs: Sequence[Named]) -> Iterator[str]:
    """How far sampling with other seeds moves the figures."""
    for name, _, summary in runs:
        for method, found in summary.methods.items():
            if found.repeats:
                label = METHOD_LABELS[method][0] + (f" in {name}" if len(runs) > 1 else "")
                average, spread = 100 * found.repeats.mean, 100 * found.repeats.spread
                yield (
                    f"{label}, over {len(found.repeats.values)} sampling seeds: {average:.2f} % on average, standard "
                    f"deviation {spread:.2f} points; the answer changes on {percent(found.repeats.changed)} of the "
                    f"{found.repeats.n:,} questions asked with every seed. Other figures are the first seed's."
                )


def comparison(runs: Sequence[Named]) -> Iterator[Section]:
    """The program against the baseline on the same questions."""
    rows, text = [], []
    for name, info, summary in runs:
        paired = summary.paired
        if paired is None:
            continue
        label = name if len(runs) > 1 else f"{info.data_name} {info.split}"
        paper = reported(info.dataset)
        gain = f"{100 * paper.difference:+.2f}" if paper else "–"
        counts = (f"{paired.difference.n:,}", f"{paired.difference.clusters:,}")
        tested = (
            points(paired.difference),
            f"{paired.better:,} / {paired.worse:,}",
            p_text(paired),
            detectable(paired),
        )
        rows.append((label, *counts, *tested, gain))
        text.append(f"{label + ': ' if len(runs) > 1 else ''}{_sentence(paired)}")
    if rows:
        head = (
            "",
            "Questions",
            "Clusters",
            "Difference in points",
            "Better / worse",
            "p",
            "Detectable",
            "Paper's gain",
        )
        paper_note = _paper_note(*(info for _, info, _ in runs))
        note = f"{DETECTABLE} Paper: {paper_note}." if any(row[-1] != "–" for row in rows) else DETECTABLE
        yield Section("Program against baseline", tuple(text), (Table(head, tuple(rows), note=note),))


def p_text(paired: Paired) -> str:
    """A p-value with the test it is of."""
    return f"{paired.p_value:.2g} ({paired.test})"


def detectable(paired: Paired) -> str:
    """The smallest difference that as many questions would show, in points."""
    return "–" if paired.detectable is None else f"{100 * paired.detectable:.1f}"


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
    """Accuracy by group: one chart a key, and one for all keys that are answered yes or no; small groups apart."""
    families = list(_families(summary, lambda group: group.n >= FEW))
    charts, tables = _charts(families), (*beside_paper(info, summary), *map(_differences, families))
    if charts or tables:
        yield Section("Breakdown", tables=tuple(table for table in tables if table.rows), charts=charts)
    if few := _charts(_families(summary, lambda group: group.n < FEW)):
        yield Section(f"Groups of less than {FEW} questions", charts=few, folded=True)


@dataclass(frozen=True)
class _Family:
    """Groups that are shown, and tested, together."""

    title: str
    groups: tuple[tuple[str, Group], ...]
    """Each under its label."""
    note: str = ""


def _families(summary: Summary, wanted: Callable[[Group], bool]) -> Iterator[_Family]:
    kinds: list[tuple[str, Group]] = []
    others: list[_Family] = []
    for key, every in summary.breakdown.items():
        groups = [group for group in every if wanted(group)]
        if {group.value for group in every} <= {"yes", "no"}:
            kinds += [(key.replace("_", " "), group) for group in groups if group.value == "yes"]
        elif len(every) > 1:
            shown = sorted(sorted(groups, key=lambda one: -one.n)[:MOST_LINES], key=groups.index)
            left = len(groups) - len(shown)
            note = f"{left} smaller groups are left out." if left else ""
            others.append(_Family(f"By {key.replace('_', ' ')}", tuple((group.value, group) for group in shown), note))
    if kinds:
        yield _Family("Kinds of questions", tuple(kinds), "A question may be of several kinds.")
    yield from others


def _charts(families: Iterable[_Family]) -> tuple[Chart, ...]:
    charts = (
        Chart(
            family.title,
            tuple(_line(group, label) for label, group in family.groups),
            " ".join(filter(None, (family.note, _few(family)))),
        )
        for family in families
    )
    return tuple(chart for chart in charts if any(line.bars for line in chart.lines))


def _few(family: _Family) -> str:
    few = [label for label, group in family.groups if any(share.few for share in group.accuracy.values())]
    return f"Of fewer than {FEW_CLUSTERS} clusters: {', '.join(few)}." if few else ""


def _line(group: Group, label: str) -> ChartLine:
    return ChartLine(
        label, group.n, tuple(AccuracyBar(*METHOD_LABELS[method], share) for method, share in group.accuracy.items())
    )


def _differences(family: _Family) -> Table:
    found = [(label, group.paired) for label, group in family.groups if group.paired is not None]
    adjusted = holm([paired.p_value for _, paired in found])
    rows = tuple(
        (
            label,
            f"{paired.difference.n:,}",
            f"{paired.difference.clusters:,}",
            points(paired.difference),
            p_text(paired),
            f"{p_value:.2g}",
            detectable(paired),
        )
        for (label, paired), p_value in zip(found, adjusted, strict=True)
    )
    head = ("", "n", "Clusters", "Difference in points", "p", "p after Holm", "Detectable")
    return Table(head, rows, f"{family.title}: program against baseline", f"{HOLM} {DETECTABLE}")


def beside_paper(info: RunInfo, summary: Summary) -> Iterator[Table]:
    paper = reported(info.dataset)
    if paper is None:
        return
    for key, values in paper.groups.items():
        rows: list[tuple[str, ...]] = []
        for group in (one for one in summary.breakdown.get(key, ()) if one.n >= FEW):
            ours = (percent(group.accuracy.get("pnpvqa")), percent(group.accuracy.get("codevqa")))
            theirs = tuple(f"{100 * one:.1f} %" for one in values.get(group.value, ())) or ("–", "–")
            rows.append((group.value, f"{group.n:,}", *ours, *theirs))
        if rows:
            columns = (key.capitalize(), "n", "PnP-VQA", "CodeVQA", "Paper's PnP-VQA", "Paper's CodeVQA")
            yield Table(columns, tuple(rows), f"By {key}, beside the paper", f"Paper: {_paper_note(info)}.")
    gains = list(_gains(paper, summary))
    if gains:
        head = ("Questions", "n", "Ours in points", "Paper's, about")
        yield Table(head, tuple(gains), "Gain of the program by kind, beside the paper", f"Paper: {_paper_note(info)}.")


def _gains(paper: Reported, summary: Summary) -> Iterator[tuple[str, ...]]:
    for key, gain in paper.gains.items():
        for group in summary.breakdown.get(key, ()):
            if group.value == "yes" and group.paired and group.n >= FEW:
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
    every = steps.shares.get("all")
    if every is None:
        yield Section("Right for the right reason", ("No step could be judged by the scene graphs.",))
        return
    calls = steps.calls | {"all": sum(steps.calls.values())}
    text = (
        f"Of the right answers with a step that scene graphs can judge, {percent(steps.shares.get('wrong reason'))} "
        "rest on a false value.",
        f"{every.n:,} of {calls['all']:,} calls were judged, in {steps.judged:,} of {steps.questions:,} questions "
        f"whose program ran to its end. {steps.failed:,} more failed. What a graph does not tell is left out.",
    )
    names = ("right, steps right", "right, a step wrong", "wrong, steps right", "wrong, a step wrong")
    found = [(name, count, steps.shares.get(name)) for name, count in calls.items()]
    rows = [(name, f"{count:,}", f"{share.n if share else 0:,}", percent(share)) for name, count, share in found]
    tables = (
        Table(("Answer, judged steps", "Questions"), tuple((name, f"{steps.outcomes[name]:,}") for name in names)),
        Table(("Primitive", "Calls", "Judged", "Right of the judged"), tuple(rows)),
    )
    yield Section("Right for the right reason", text, tables)


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
    return f"{value:.4f}" if isinstance(value, float) else percent(value, 2)


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
