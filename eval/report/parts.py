"""The parts of a report that show figures, each from a run's summary."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..metrics.steps import StepSummary
from ..run.run_info import RunInfo
from ..statistics import FEW_CLUSTERS, Paired, holm
from .figures import Group, MethodSummary, RunFigures, Summary
from .paper import DRAWN, NOTE, reported
from .view import METHOD_LABELS, Section, Table, detectable, p_text, percent, points, power_text

__all__ = ["DETECTABLE", "about", "breakdown", "corpus", "differing", "failures", "results", "settings", "step_scores"]

FEW = 10
"""Groups of less say next to nothing: they stand apart, untested, and never beside the paper."""
MOST_LINES = 30
"""Groups of one table; further ones are counted in its note."""
DETECTABLE = (
    "Detectable: the smallest true difference in points that as many questions would show four times in five, tested "
    "on both sides at 5 %."
)


def about(runs: Sequence[RunFigures]) -> tuple[tuple[str, str], ...]:
    """What was run, as far as the runs agree."""
    return tuple((name, values[0]) for name, values in _columns(runs) if len(set(values)) == 1)


def differing(runs: Sequence[RunFigures]) -> Iterator[Section]:
    """What was run, where the runs differ."""
    rows = tuple((name, *values) for name, values in _columns(runs) if len(set(values)) > 1)
    if rows:
        yield Section("Runs", tables=(Table(("", *(run.name for run in runs)), rows),))


def _columns(runs: Sequence[RunFigures]) -> Iterator[tuple[str, list[str]]]:
    columns = [dict(_about(run.info, run.summary)) for run in runs]
    for name in dict.fromkeys(name for column in columns for name in column):
        yield name, [column.get(name, "–") for column in columns]


def _about(info: RunInfo, summary: Summary) -> Iterator[tuple[str, str]]:
    yield "data set", f"{info.data_name}, split {info.split}"
    hidden = f", {summary.hidden:,} of them without an answer to compare with" if summary.hidden else ""
    part = f", from place {info.offset:,} on" if info.offset else ""
    part += f", at most {info.limit:,}" if info.limit is not None else ""
    missing = info.questions is not None and summary.examples < info.questions
    part += f" of the {info.questions:,} wanted: the run is not complete" if missing else ""
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


# -- the result --------------------------------------------------------------------------------------------------------


def results(runs: Sequence[RunFigures]) -> Section:
    """Both methods, one line a run: those of one data set together, the best first, then the paper's numbers."""
    ordered = sorted(runs, key=lambda run: (run.info.data_name, run.info.split, run.summary.metric, -_accuracy(run)))
    rows = [_result(run, run.name if len(runs) > 1 else "") for run in ordered]
    ours, text = len(rows), [line for run in ordered for line in _sentences(run, several=len(runs) > 1)]
    for dataset in dict.fromkeys(run.info.dataset for run in runs):
        if paper := reported(dataset):
            shares = (f"{100 * paper.codevqa:.2f} %", f"{100 * paper.pnpvqa:.2f} %", f"{100 * paper.difference:+.2f}")
            rows.append((f"paper: {dataset} {paper.split}", f"{paper.n:,}", *shares, "", "", ""))
    note = [DETECTABLE]
    for run in ordered:
        if run.info.unofficial:
            whose = f" in {run.name}" if len(runs) > 1 else ""
            note.append(f"Not the official split{whose}: {run.info.unofficial}.")
    if len(rows) > ours:
        note.append(f"In italics: {_paper_note(*(run.info for run in runs))}.")
    head = ("", "Questions", "CodeVQA", "PnP-VQA", "Difference in points", "Better / worse", "p", "Detectable")
    table = Table(head, tuple(rows), note=" ".join(note), muted=frozenset(range(ours, len(rows))))
    return Section("Result", tuple(text), (table,))


def _accuracy(run: RunFigures) -> float:
    found = run.summary.methods.get("codevqa") or run.summary.methods["pnpvqa"]
    return found.accuracy.value if found.accuracy else 0.0


def _result(run: RunFigures, name: str) -> tuple[str, ...]:
    methods, paired = run.summary.methods, run.summary.paired
    shares = (percent(methods[method].accuracy) if method in methods else "–" for method in METHOD_LABELS)
    where = f"{run.info.data_name} {run.info.split}"
    return (f"{name}: {where}" if name else where, f"{run.summary.examples:,}", *shares, *_compared(paired))


def _compared(paired: Paired | None) -> tuple[str, str, str, str]:
    changed = f"{paired.better:,} / {paired.worse:,}" if paired else "–"
    return points(paired.difference if paired else None), changed, p_text(paired), detectable(paired)


def _sentences(run: RunFigures, *, several: bool) -> Iterator[str]:
    """What the difference says, how many questions a gain needs, and how far other seeds move the figures."""
    before = f"{run.name}: " if several else ""
    if paired := run.summary.paired:
        difference = paired.difference
        way = "gains" if difference.value > 0 else "loses" if difference.value < 0 else "changes"
        clear = difference.low > 0 or difference.high < 0
        verdict = "the interval leaves zero out" if clear else "the interval includes zero: this may be chance"
        yield (
            f"{before}Writing a program {way} {abs(100 * difference.value):.1f} points over asking the question as it "
            f"is: {paired.better:,} of {difference.n:,} questions in {difference.clusters:,} clusters changed for the "
            f"better, {paired.worse:,} for the worse; {verdict}."
        )
        if power := power_text(paired):
            yield f"{before}{power}."
    for method, found in run.summary.methods.items():
        if repeats := found.repeats:
            yield (
                f"{before}{METHOD_LABELS[method]}, over {len(repeats.values)} sampling seeds: "
                f"{100 * repeats.mean:.2f} % on average, standard deviation {100 * repeats.spread:.2f} points; the "
                f"answer changes on {percent(repeats.changed)} of the {repeats.n:,} questions asked with every seed. "
                "Other figures are the first seed's."
            )


def _paper_note(*infos: RunInfo) -> str:
    return "; ".join([NOTE, *([DRAWN] if any(info.drawn for info in infos) else [])])


# -- groups ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Family:
    """Groups that are shown, and tested, together."""

    key: str
    """Empty for the kinds of questions."""
    groups: tuple[tuple[str, Group], ...]
    """Each under its label."""


def breakdown(info: RunInfo, summary: Summary) -> Iterator[Section]:
    """Accuracy by group: one table a key, and one for all keys that are answered yes or no."""
    if tables := tuple(_table(info, summary, family) for family in _families(summary)):
        yield Section("Breakdown", tables=tables)


def _families(summary: Summary) -> Iterator[_Family]:
    kinds, others = [], []
    for key, groups in summary.breakdown.items():
        if {group.value for group in groups} <= {"yes", "no"}:
            kinds += [(key, group) for group in groups if group.value == "yes"]
        elif len(groups) > 1:
            others.append(_Family(key, tuple((group.value, group) for group in groups)))
    if kinds:
        yield _Family("", tuple(kinds))
    yield from others


def _table(info: RunInfo, summary: Summary, family: _Family) -> Table:
    shown = sorted(family.groups, key=lambda one: -one[1].n)[:MOST_LINES]
    shown.sort(key=family.groups.index)
    tested = [group for _, group in shown if group.n >= FEW and group.paired is not None]
    adjusted = dict(zip(map(id, tested), holm([one.paired.p_value for one in tested if one.paired]), strict=True))
    titles, paper = _beside(info, family, [label for label, group in shown if group.n >= FEW])
    nothing = ("–",) * len(titles)
    rows = []
    for label, group in shown:
        cells = [f"{group.n:,}", *(percent(group.accuracy.get(method)) for method in summary.methods)]
        if summary.paired is not None:
            paired, p_value = (group.paired, f"{adjusted[id(group)]:.2g}") if id(group) in adjusted else (None, "–")
            difference = paired.difference if paired else None
            cells += [f"{difference.clusters:,}" if difference else "–", points(difference), p_text(paired), p_value]
            cells.append(detectable(paired))
        rows.append((label.replace("_", " "), *cells, *(paper(label) if group.n >= FEW else nothing)))
    head = ["", "n", *(METHOD_LABELS[method] for method in summary.methods)]
    head += ["Clusters", "Difference in points", "p", "p after Holm", "Detectable"] if summary.paired else []
    note = " ".join(_notes(info, summary, family, shown, bool(titles)))
    muted = frozenset(place for place, (_, group) in enumerate(shown) if group.n < FEW)
    title = f"By {family.key.replace('_', ' ')}" if family.key else "Kinds of questions"
    return Table((*head, *titles), tuple(rows), title, note, muted)


def _beside(
    info: RunInfo, family: _Family, labels: Sequence[str]
) -> tuple[tuple[str, ...], Callable[[str], tuple[str, ...]]]:
    """Returns the paper's columns, where it reports one of these groups, and what gives their cells."""
    paper = reported(info.dataset)
    groups = paper.groups.get(family.key, {}) if paper else {}
    gains = paper.gains if paper and not family.key else {}
    if groups.keys() & set(labels):

        def shares(label: str) -> tuple[str, ...]:
            pnpvqa, codevqa = groups.get(label, (None, None))
            return tuple("–" if one is None else f"{100 * one:.1f} %" for one in (codevqa, pnpvqa))

        return ("Paper's CodeVQA", "Paper's PnP-VQA"), shares
    if gains.keys() & set(labels):
        return ("Paper's gain, about",), lambda label: (f"{100 * gains[label]:+.0f}" if label in gains else "–",)
    return (), lambda label: ()


def _notes(
    info: RunInfo, summary: Summary, family: _Family, shown: Sequence[tuple[str, Group]], paper: bool
) -> Iterator[str]:
    if not family.key:
        yield "A question may be of several kinds."
    if left := len(family.groups) - len(shown):
        yield f"{left} smaller groups are left out."
    if any(group.n < FEW for _, group in shown):
        yield f"In italics: fewer than {FEW} questions, which say next to nothing and are not tested."
    if few := [label for label, group in shown if any(share.few for share in group.accuracy.values())]:
        yield f"Of fewer than {FEW_CLUSTERS} clusters: {', '.join(few)}."
    if summary.paired is not None:
        yield "Holm: p as it is when all rows of this table are tested at once."
    if paper:
        yield f"Paper: {_paper_note(info)}."


# -- what went wrong ---------------------------------------------------------------------------------------------------


def failures(summary: Summary) -> Iterator[Section]:
    """Fallbacks, plain passes and errors by type."""
    rows, errors = [], []
    for method, found in summary.methods.items():
        label = METHOD_LABELS[method]
        own = percent(found.own) if found.fallback.value else "–"
        rows.append((label, percent(found.fallback), own, f"{found.unanswered:,}", percent(found.plain)))
        errors += [
            (
                line.type,
                label,
                f"{line.count:,} ({100 * line.share:.1f} %)",
                f"{line.fallback:,}",
                "–" if line.accuracy is None else f"{100 * line.accuracy:.1f} %",
                f"{line.id}: {line.message}",
            )
            for line in found.errors
        ]
    head = ("Method", "Fallbacks", "Accuracy without them", "No answer at all", "Plain passes")
    note = (
        "A fallback is a program that failed, with the baseline's answer in its place. A plain pass is a program that "
        "only hands the question on to query."
    )
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
    head = ("", *(METHOD_LABELS[method] for method, _ in methods))
    yield Section("Figures of the whole run", tables=(Table(head, tuple(rows), note=note),))


def _figure(found: MethodSummary, name: str) -> str:
    value = found.corpus.get(name)
    return f"{value:.4f}" if isinstance(value, float) else percent(value, 2)


def settings(info: RunInfo) -> Section:
    """Every setting, for a run like this one."""
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
