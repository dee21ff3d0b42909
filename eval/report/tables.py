"""The tables of figures that a page and a terminal share: what was run, the result, and the groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...pages.words import model_name
from ..metrics.base import Figure
from ..run.run_info import RunInfo
from ..statistics import FEW_CLUSTERS, Interval, Paired, holm
from ..task import METHODS
from .figures import GroupFigures, RunFigures, Summary
from .labels import MEANINGS, METHOD_LABELS, figure_label, group_label, pair_label
from .paper import DRAWN, NOTE, PAPER

FEW = 10
"""Groups of less say next to nothing: they stand apart, untested, and never beside the paper."""
MOST_LINES = 30
"""Groups of one table; further ones are counted in its note."""
GAIN = ("Difference in points", "Better / worse", "p")
HOLM = "The p after Holm allows for testing all rows of a table at once."
_DOING = {
    "codevqa": "writing a program",
    "direct": "asking a vision-language model once",
    "pnpvqa": "reading captions",
}
TOO_FEW = "too few to say"
TIED = "\N{NO-BREAK SPACE}"
"""Keeps the two ends of an interval on one line."""


@dataclass(frozen=True)
class TextTable:
    """A table of texts; the first column names the row."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str = ""
    note: str = ""
    muted: frozenset[int] = frozenset()
    """Rows that stand apart, such as the paper's."""


def percent(share: Interval | None, digits: int = 1) -> str:
    """Writes ``49.0 % (45.9 to 52.1)``, which may go on two lines; a dash where there is nothing."""
    if share is None:
        return "–"
    value, low, high = (f"{100 * number:.{digits}f}" for number in (share.value, share.low, share.high))
    return f"{value}{TIED}% {_tied_interval(share, low, high)}"


def format_points(difference: Interval | None) -> str:
    """Writes ``+2.5 (+0.9 to +4.1)`` in percentage points; a dash where there is nothing."""
    if difference is None:
        return "–"
    value, low, high = (f"{100 * number:+.1f}" for number in (difference.value, difference.low, difference.high))
    return f"{value} {_tied_interval(difference, low, high)}".replace("-", "−")


def _tied_interval(figure: Interval, low: str, high: str) -> str:
    return f"({TOO_FEW if too_few(figure) else f'{low} to {high}'})".replace(" ", TIED)


def too_few(figure: Interval) -> bool:
    """Says whether an interval tells nothing: of few questions, or nearly as wide as the scale of shares."""
    return figure.n < FEW or figure.high - figure.low > 0.9


def p_text(paired: Paired | None) -> str:
    """Writes a p-value with the test it is of; a dash where there is nothing."""
    return "–" if paired is None else f"{paired.p_value:.2g} ({paired.test})"


def facts_of_runs(runs: Sequence[RunFigures]) -> dict[str, list[str]]:
    """Returns what was run, by name: a text for each run."""
    columns = [dict(_run_facts(run.info, run.summary)) for run in runs]
    names = dict.fromkeys(name for column in columns for name in column)
    return {name: [column.get(name, "–") for column in columns] for name in names}


def _run_facts(info: RunInfo, summary: Summary) -> Iterator[tuple[str, str]]:
    yield "data set", f"{info.data_name}, split {info.split}"
    hidden = f", {summary.hidden:,} of them without an answer to compare with" if summary.hidden else ""
    part = f", after skipping {info.offset:,}" if info.offset else ""
    part += f", at most {info.limit:,}" if info.limit is not None else ""
    missing = info.questions is not None and summary.examples < info.questions
    part += f" of the {info.questions:,} wanted: the run is not complete" if missing else ""
    yield "questions", f"{summary.examples:,}{part}{hidden}, {summary.clusters:,} clusters"
    if info.unofficial:
        yield "not the official split", info.unofficial
    if summary.coverage.unasked:
        yield "coverage", f"{summary.coverage}; they count as wrong"
    yield "metric", summary.metric
    yield "notes", " ".join(summary.notes)
    if info.preset:
        yield "preset", info.preset
    yield from ((role.replace("_", " "), model_name(model)) for role, model in info.models.items())
    if info.chart_note:
        yield "chart", info.chart_note
    yield "prompts", f"{info.prompts} (SHA-256 {info.prompt_hash[:16]})"
    yield "seeds", ", ".join(map(str, info.seeds))
    if info.data_hash:
        yield "annotations", f"SHA-256 {info.data_hash[:16]}"
    yield "begun", f"{info.started} with codevqa {info.version} on {info.machine}"


# -- the result --------------------------------------------------------------------------------------------------------


def result_table(runs: Sequence[RunFigures]) -> TextTable:
    """The methods, one line a run: those of one data set together, the best first, then the paper's numbers.

    Where the direct question was asked, differences stand in :func:`comparison_table`.
    """
    asked = {method for run in runs for method in run.summary.methods}
    three = "direct" in asked
    papers = {dataset: PAPER[dataset] for run in runs if (dataset := run.info.dataset) in PAPER}
    shown = [method for method in METHODS if method in asked or (method != "direct" and (papers or not three))]
    ordered = sorted(runs, key=lambda run: (run.info.data_name, run.info.split, run.summary.metric, -_accuracy(run)))
    rows: list[tuple[str, ...]] = []
    for run in ordered:
        methods, paired = run.summary.methods, run.summary.paired
        name = f"{run.name}: " if len(runs) > 1 else ""
        shares = [percent(methods[method].accuracy) if method in methods else "–" for method in shown]
        shares += [] if three else _gain(paired)
        rows.append((f"{name}{run.info.data_name} {run.info.split}", f"{run.summary.examples:,}", *shares))
    for dataset, paper in papers.items():
        theirs = {"codevqa": paper.codevqa, "pnpvqa": paper.pnpvqa}
        shares = [f"{100 * theirs[method]:.2f} %" if method in theirs else "–" for method in shown]
        shares += [] if three else [f"{100 * (paper.codevqa - paper.pnpvqa):+.2f}", "", ""]
        rows.append((f"paper: {dataset} {paper.split}", f"{paper.n:,}", *shares))
    note = []
    for run in ordered:
        if run.info.unofficial:
            whose = f" in {run.name}" if len(runs) > 1 else ""
            note.append(f"Not the official split{whose}: {run.info.unofficial}.")
    if len(rows) > len(runs):
        note.append(f"In italics: {NOTE}{f'. {DRAWN}' if any(run.info.drawn for run in runs) else ''}.")
    head = ("", "Questions", *(METHOD_LABELS[method] for method in shown), *(() if three else GAIN))
    return TextTable(head, tuple(rows), note=" ".join(note), muted=frozenset(range(len(runs), len(rows))))


def comparison_table(runs: Sequence[RunFigures]) -> TextTable | None:
    """Every two methods of each run on the same questions; None where the result says it all."""
    if not any("direct" in run.summary.methods for run in runs):
        return None
    pairs = [(run, pair, paired) for run in runs for pair, paired in run.summary.pairs.items()]
    adjusted = holm([paired.p_value for _, _, paired in pairs])
    rows = [
        (
            (f"{run.name}: " if len(runs) > 1 else "") + pair_label(pair),
            f"{paired.difference.n:,}",
            f"{paired.difference.clusters:,}",
            *_gain(paired),
            f"{p_value:.2g}",
        )
        for (run, pair, paired), p_value in zip(pairs, adjusted, strict=True)
    ]
    head = ("", "Questions", "Clusters", *GAIN, "p after Holm")
    return TextTable(head, tuple(rows), "On the same questions", HOLM) if rows else None


def _gain(paired: Paired | None) -> list[str]:
    """Cells under :data:`GAIN`."""
    changed = f"{paired.better:,} / {paired.worse:,}" if paired else "–"
    return [format_points(paired.difference if paired else None), changed, p_text(paired)]


def _accuracy(run: RunFigures) -> float:
    figures = next((run.summary.methods[method] for method in METHODS if method in run.summary.methods), None)
    return figures.accuracy.value if figures and figures.accuracy else 0.0


def sentences(run: RunFigures) -> Iterator[str]:
    """What the differences say, and how far other seeds move the figures."""
    for pair, paired in run.summary.pairs.items():
        what, over = (_DOING[method] for method in pair.split("-"))
        difference = paired.difference
        way = "gains" if difference.value > 0 else "loses" if difference.value < 0 else "changes"
        clear = difference.low > 0 or difference.high < 0
        verdict = "The interval excludes zero" if clear else "The interval includes zero, so this may be chance"
        verdict = "These are too few questions to say" if too_few(difference) else verdict
        yield (
            f"{what.capitalize()} {way} {abs(100 * difference.value):.1f} points over {over}. Of {difference.n:,} "
            f"questions in {difference.clusters:,} clusters it does better on {paired.better:,} and worse on "
            f"{paired.worse:,}. {verdict}."
        )
    for method, figures in run.summary.methods.items():
        if repeats := figures.repeats:
            yield (
                f"{METHOD_LABELS[method]}, over {len(repeats.values)} sampling seeds: "
                f"{100 * repeats.mean:.2f} % on average, standard deviation {100 * repeats.spread:.2f} points. The "
                f"seeds give different answers to {percent(repeats.changed)} of the {repeats.n:,} questions asked with "
                "every seed. All other figures are of the first seed."
            )


# -- groups ------------------------------------------------------------------------------------------------------------


def breakdown(info: RunInfo, summary: Summary) -> Iterator[TextTable]:
    """Accuracy by group: one table a key, as :func:`by_kind` has them."""
    for key, groups in by_kind(summary):
        yield _group_table(info, summary, key, groups)


def by_kind(summary: Summary) -> Iterator[tuple[str, Mapping[str, GroupFigures]]]:
    """Groups by key; the first, without a key, has all keys that are answered yes or no."""
    kinds: dict[str, GroupFigures] = {}
    others: dict[str, dict[str, GroupFigures]] = {}
    for key, groups in summary.breakdown.items():
        if {group.value for group in groups} <= {"yes", "no"}:
            kinds.update((key, group) for group in groups if group.value == "yes")
        elif len(groups) > 1:
            others[key] = {group.value: group for group in groups}
    if kinds:
        yield "", kinds
    yield from others.items()


def _group_table(info: RunInfo, summary: Summary, key: str, groups: Mapping[str, GroupFigures]) -> TextTable:
    """Groups that are shown, and tested, together, by their labels; ``key`` is empty for kinds of questions."""
    largest = sorted(groups, key=lambda label: -groups[label].n)[:MOST_LINES]
    shown = {label: group for label, group in groups.items() if label in largest}
    many = {label for label, group in shown.items() if group.n >= FEW}
    tested = {label: group.paired for label, group in shown.items() if label in many and group.paired is not None}
    adjusted = dict(zip(tested, holm([paired.p_value for paired in tested.values()]), strict=True))
    paper = PAPER.get(info.dataset)
    beside = paper.groups if paper and paper.key == key else {}
    columns = paper.columns if paper and beside.keys() & many else ()
    rows = []
    for label, group in shown.items():
        cells = [f"{group.n:,}", *(percent(group.accuracy.get(method)) for method in summary.methods)]
        if summary.pairs:
            gain = tested[label].difference if label in tested else None
            cells += [f"{gain.clusters:,}" if gain else "–", format_points(gain), p_text(tested.get(label))]
            cells.append(f"{adjusted[label]:.2g}" if gain else "–")
        theirs = beside.get(label) if label in many else None
        rows.append(
            (label if key else group_label(label, info.dataset), *cells, *(columns and (theirs or "–" * len(columns))))
        )
    head = ["Group", "Questions", *(METHOD_LABELS[method] for method in summary.methods)]
    if pair := next(iter(summary.pairs), None):
        difference = f"{pair_label(pair)} in points" if len(summary.methods) > 2 else "Difference in points"
        head += ["Clusters", difference, "p", "p after Holm"]
    note = " ".join(_group_notes(info, summary, key, len(groups), shown, bool(columns)))
    muted = frozenset(place for place, label in enumerate(shown) if label not in many)
    title = f"By {group_label(key, info.dataset)}" if key else "Kinds of questions"
    return TextTable((*head, *columns), tuple(rows), title, note, muted)


def _group_notes(
    info: RunInfo, summary: Summary, key: str, every: int, shown: Mapping[str, GroupFigures], paper: bool
) -> Iterator[str]:
    if not key:
        yield "A question may be of several kinds."
    if left := every - len(shown):
        yield f"{left} smaller groups are left out."
    if any(group.n < FEW for group in shown.values()):
        yield f"In italics: groups of fewer than {FEW} questions. They say next to nothing, and are not tested."
    if few := [
        label if key else group_label(label, info.dataset)
        for label, group in shown.items()
        if any(share.few for share in group.accuracy.values())
    ]:
        yield f"Fewer than {FEW_CLUSTERS} clusters, so the intervals are rough: {', '.join(few)}."
    if summary.pairs:
        yield HOLM
    if paper:
        yield "The paper's columns are on its own questions."


# -- the whole run -----------------------------------------------------------------------------------------------------


def corpus(summary: Summary) -> TextTable | None:
    """Figures about the whole run, such as consistency; None where the metric has none."""
    methods = summary.methods
    names = next((figures.corpus for figures in methods.values()), {})
    known = [name for name in names if any(figures.corpus[name] is not None for figures in methods.values())]
    rows = [(figure_label(name), *(_figure(figures.corpus[name]) for figures in methods.values())) for name in known]
    reasons = {name: why for figures in methods.values() for name, why in figures.reasons.items()}
    notes = [MEANINGS[name] for name in known if name in MEANINGS]
    notes += [f"Not computed: {figure_label(name)}, which {why}." for name, why in reasons.items()]
    head = ("", *(METHOD_LABELS[method] for method in methods))
    return TextTable(head, tuple(rows), note=" ".join(notes)) if rows else None


def certainty(summary: Summary) -> TextTable | None:
    """Errors among the surest answers; None where none has a confidence."""
    selective = {
        method: figures.selective for method, figures in summary.methods.items() if figures.selective is not None
    }
    if not selective:
        return None
    shares = next(iter(selective.values())).errors
    head = ("", *(f"Surest {share:.0%}" for share in shares), "Area under the curve")
    rows = [
        (METHOD_LABELS[method], *(f"{100 * error:.1f} %" for error in figures.errors.values()), f"{figures.aurc:.3f}")
        for method, figures in selective.items()
    ]
    note = "Share of wrong answers among the surest ones. The area is its mean over all shares; smaller is better."
    return TextTable(head, tuple(rows), note=note)


def _figure(value: Figure) -> str:
    return f"{value:.4f}" if isinstance(value, float) else percent(value, 2)
