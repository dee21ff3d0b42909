"""A report on one run or several: what was asked of which models, how well it went, and where it did not.

:func:`build` gathers it from stores as plain data, :func:`write` puts it down as one HTML page and as Markdown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ... import __version__
from ...core.errors import InputError, SetupError
from ..datasets.files import Located
from ..metrics import Metric, metric_for
from ..metrics.scene_graphs import find_scene_graphs, load_scene_graphs
from ..metrics.steps import StepJudge, StepSummary, image_id, summarize_steps
from ..run.store import Store
from .cases import KINDS, choose, shown_case, thumbnail
from .diff import compare_runs
from .figures import Summary
from .html import to_html
from .markdown import to_markdown
from .parts import about, breakdown, comparison, corpus, differing, failures, results, settings, step_scores
from .summary import summarize
from .table import pairs_of
from .view import Report, Section, Table, points

__all__ = ["RunFigures", "build", "judge_for", "summary_of", "write"]


@dataclass(frozen=True)
class RunFigures:
    """One run with its figures."""

    name: str
    store: Store
    metric: Metric
    summary: Summary
    judge: StepJudge | None = None
    steps: StepSummary | None = None


def write(
    runs: Sequence[Path],
    out: Path | None = None,
    *,
    data: Path | None = None,
    scene_graphs: Path | None = None,
    complete: bool = False,
    examples: int = 6,
) -> tuple[Path, Path]:
    """Writes ``report.html`` and ``report.md``.

    Args:
        runs: folders of the runs.
        out: where to write; None takes the run's own folder, where there is one run.
        data: where the data set is now, if it was moved since; pictures and scene graphs are looked for there.
        scene_graphs: the file of scene graphs; None looks for it beside the questions.
        complete: whether the graphs list everything in their pictures.
        examples: questions of each kind to show in full.

    Returns:
        Where they are.

    Raises:
        InputError: something is no run, or several runs were given without ``out``.
        SetupError: the report cannot be written.
    """
    if not runs or (out is None and len(runs) > 1):
        raise InputError("A report on several runs needs a folder to go to.", hint="Give --out DIR.")
    with ExitStack() as open_runs:
        stores = [open_runs.enter_context(Store.open(path)) for path in runs]
        found = [
            _reported(name, store, data, scene_graphs, complete)
            for name, store in zip(_names(runs), stores, strict=True)
        ]
        report = build(found, data=data, examples=examples)
        folder = stores[0].folder if out is None else out
    page, document = folder / "report.html", folder / "report.md"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        page.write_text(to_html(report), encoding="utf-8")
        document.write_text(to_markdown(report), encoding="utf-8")
    except OSError as error:
        raise SetupError(f"Cannot write {folder}: {error.strerror or error}.", hint="Choose another --out.") from None
    return page, document


def build(runs: Sequence[RunFigures], *, data: Path | None = None, examples: int = 6) -> Report:
    """Returns the report as plain data.

    Args:
        runs: the runs, the one that others are compared with first.
        data: where pictures are now, if they were moved.
        examples: questions of each kind to show in full.
    """
    named = [(run.name, run.store.info, run.summary) for run in runs]
    sections = [*differing(named), results(named), *comparison(named), *_between(runs)]
    for run in runs:
        before = f"{run.name}: " if len(runs) > 1 else ""
        parts = [
            *breakdown(run.store.info, run.summary),
            *failures(run.summary),
            *step_scores(run.steps),
            *corpus(run.summary),
            *_cases(run, data, examples),
            settings(run.store.info),
        ]
        sections += [_titled(part, before) for part in parts]
    infos = [run.store.info for run in runs]
    data_sets = dict.fromkeys(f"{info.dataset} {info.split}" for info in infos)
    return Report(
        title="CodeVQA on " + ", ".join(data_sets),
        about=about(named),
        sections=tuple(sections),
        made=f"Written by codevqa {__version__}.",
        notes=runs[0].summary.notes,
    )


def summary_of(store: Store, metric: Metric) -> Summary:
    """Returns the summary of a run.

    Raises:
        InputError: the run has no rows yet.
    """
    if not store.counts():
        raise InputError(f"{store.folder} has no answers yet.", hint="Go on with it: codevqa eval ... --resume.")
    return summarize(pairs_of(store), metric)


def judge_for(
    store: Store, data: Path | None = None, scene_graphs: Path | None = None, *, complete: bool = False
) -> StepJudge | None:
    """Returns the judge of a run's steps, or None where there are no scene graphs.

    Args:
        store: the run.
        data: where the data set is now; None looks where it was read from.
        scene_graphs: the file of scene graphs; None looks for it.
        complete: whether the graphs list everything in their pictures.

    Raises:
        InputError: the scene graphs are damaged, or are those of other pictures.
    """
    file: Located | None
    if scene_graphs is not None:
        if not scene_graphs.is_file():
            raise InputError(f"No scene graphs at {scene_graphs}.", hint="Check the path.")
        file = Located(scene_graphs)
    else:
        found = (find_scene_graphs(folder, store.info.split) for folder in _folders(store, data))
        file = next((one for one in found if one), None)
    if file is None:
        return None
    wanted = {image_id(image.name) for example in store.examples() for image in example.images}
    graphs = load_scene_graphs(file, wanted)
    if not graphs and scene_graphs is not None:
        raise InputError(f"{file} has none of the run's pictures.", hint="Give the scene graphs of its split.")
    return StepJudge(graphs, complete=complete) if graphs else None


def _folders(store: Store, data: Path | None) -> Iterator[Path]:
    """Folders in which a run's data set may be."""
    if data is not None:
        yield data
        return
    for source in filter(None, store.info.data.split(", ")):
        yield from (one for one in list(Path(source).parents)[:2] if one.is_dir())


def _reported(name: str, store: Store, data: Path | None, scene_graphs: Path | None, complete: bool) -> RunFigures:
    metric = metric_for(store.info.dataset, store.info.variant)
    summary = summary_of(store, metric)
    judge = judge_for(store, data, scene_graphs, complete=complete) if "codevqa" in summary.methods else None
    if judge is None:
        return RunFigures(name, store, metric, summary)

    def right(score: float | None) -> bool | None:
        return None if score is None else score >= 0.5

    answered = ((example, row, right(metric.score(example, row.prediction))) for example, row in store.pairs("codevqa"))
    return RunFigures(name, store, metric, summary, judge, summarize_steps(judge, answered))


def _names(runs: Sequence[Path]) -> list[str]:
    """The runs' folder names, with as much of the path as tells them apart."""
    folders = [path.parent if path.name == "run.sqlite" else path for path in runs]
    parts = [folder.resolve().parts for folder in folders]
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(one[-length:]) for one in parts]
        if len(set(names)) == len(set(parts)):
            break
    return names


def _between(runs: Sequence[RunFigures]) -> list[Section]:
    """Each later run against the first one on the same data."""
    rows = []
    firsts: dict[tuple[str, str, str], RunFigures] = {}
    for run in runs:
        info = run.store.info
        first = firsts.setdefault((info.dataset, info.split, info.data_hash), run)
        for method in run.summary.methods:
            if first is run or method not in first.summary.methods:
                continue
            found = compare_runs(first.store, run.store, method=method, metric=first.metric, keep=0)
            paired = found.paired
            rows.append(
                (
                    f"{run.name} − {first.name}",
                    method,
                    f"{found.questions:,}",
                    points(paired.difference if paired else None),
                    f"{paired.better:,} / {paired.worse:,}" if paired else "–",
                    "–" if paired is None or paired.p_value is None else f"{paired.p_value:.2g}",
                    f"{found.changed_answers:,}",
                    f"{found.changed_programs:,}",
                )
            )
    head = ("", "Method", "Questions", "Points", "Better / worse", "McNemar p", "Answers changed", "Programs changed")
    return [Section("Between the runs", tables=(Table(head, tuple(rows)),))] if rows else []


def _cases(run: RunFigures, data: Path | None, each: int) -> Iterator[Section]:
    if each < 1 or "codevqa" not in run.summary.methods:
        return
    picture = partial(thumbnail, here=data)
    for kind, (count, chosen) in choose(run.store, run.metric, run.judge, each=each).items():
        cases = tuple(shown_case(one, run.metric, run.judge, picture) for one in chosen)
        share = f"{count:,} questions" if count != 1 else "1 question"
        drawn = f"; {len(cases)} of them, drawn at random" if len(cases) < count else ""
        yield Section(KINDS[kind], (f"{share}{drawn}.",), cases=cases, folded=kind == "both_wrong")


def _titled(section: Section, before: str) -> Section:
    return replace(section, title=f"{before}{section.title}") if before else section
