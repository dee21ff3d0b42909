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
from ..metrics import Metric
from ..metrics.scene_graphs import find_scene_graphs, load_scene_graphs
from ..metrics.steps import StepJudge, StepSummary, image_id, summarize_steps
from ..run.run_info import RunInfo
from ..run.store import Store
from .cases import KINDS, choose, shown_case, thumbnail
from .clusters import clustered
from .cost import Price, costs
from .diff import compare_runs
from .figures import Summary
from .html import FOLDER, Inline, page_html, write_chunk
from .markdown import to_markdown
from .parts import (
    DETECTABLE,
    METHOD_LABELS,
    about,
    breakdown,
    comparison,
    corpus,
    detectable,
    differing,
    failures,
    p_text,
    results,
    settings,
    step_scores,
)
from .rows import Listing, write_chunks
from .run_metric import metric_of
from .summary import summarize
from .table import by_seed, pairs_of
from .view import Report, Section, Table, points

__all__ = ["RunFigures", "build", "check_graphs", "figures_of", "judge_for", "summary_of", "title_of", "write"]

MOST = 20_000
"""Questions that one file holds; those of longer runs lie in a folder beside it."""


@dataclass(frozen=True)
class RunFigures:
    """One run with its figures."""

    name: str
    store: Store
    metric: Metric
    summary: Summary
    judge: StepJudge | None = None
    steps: StepSummary | None = None

    @property
    def listing(self) -> Listing:
        """The run as a list of its questions."""
        return Listing(self.name, self.store, self.metric, self.judge)


def write(
    runs: Sequence[Path],
    out: Path | None = None,
    *,
    data: Path | None = None,
    scene_graphs: Path | None = None,
    complete: bool = False,
    examples: int = 6,
    price: Price | None = None,
    cluster: str = "",
) -> tuple[Path, Path]:
    """Writes ``report.html`` and ``report.md``, and beside a page of many questions the folder that they lie in.

    Args:
        runs: folders of the runs.
        out: where to write; None takes the run's own folder, where there is one run.
        data: where the data set is now, if it was moved since; pictures and scene graphs are looked for there.
        scene_graphs: the file of scene graphs; None looks for it beside the questions.
        complete: whether the graphs list everything in their pictures.
        examples: questions of each kind to show in full.
        price: of tokens; None says nothing of money.
        cluster: what goes together, as for :func:`.clusters.clustered`; empty as the data set has it.

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
            figures_of(name, alike, data, scene_graphs, complete=complete, cluster=cluster)
            for name, alike in by_seed(_names(runs), stores)
        ]
        report = build(found, data=data, examples=examples, price=price, cluster=cluster)
        folder = stores[0].folder if out is None else out
        page, document = folder / "report.html", folder / "report.md"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            page.write_text(page_html(report, _listed(found, folder, data)), encoding="utf-8")
            document.write_text(to_markdown(report), encoding="utf-8")
        except OSError as error:
            hint = "Choose another --out."
            raise SetupError(f"Cannot write {folder}: {error.strerror or error}.", hint=hint) from None
    return page, document


def _listed(runs: Sequence[RunFigures], folder: Path, data: Path | None) -> Inline | None:
    """Returns the questions for the page to hold; None where they are too many and lie beside it."""
    listings = [run.listing for run in runs]
    if sum(len(run.store) for run in runs) <= MOST:
        chunks = Inline()
        write_chunks(listings, chunks.put, data)
        return chunks
    beside = folder / FOLDER
    beside.mkdir(exist_ok=True)
    write_chunks(listings, partial(write_chunk, beside), data)
    return None


def build(
    runs: Sequence[RunFigures],
    *,
    data: Path | None = None,
    examples: int = 6,
    price: Price | None = None,
    cluster: str = "",
) -> Report:
    """Returns the report as plain data.

    Args:
        runs: the runs, the one that others are compared with first.
        data: where pictures are now, if they were moved.
        examples: questions of each kind to show in full.
        price: of tokens; None says nothing of money.
        cluster: what goes together where runs are compared.
    """
    named = [(run.name, run.store.info, run.summary) for run in runs]
    paces = [(run.name, run.summary, run.store.pace()) for run in runs]
    labels = {method: label for method, (label, _) in METHOD_LABELS.items()}
    sections = [*differing(named), results(named), *comparison(named), *_between(runs, cluster)]
    sections += costs(paces, labels, price)
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
    return Report(
        title=title_of([run.store.info for run in runs]),
        about=about(named),
        sections=tuple(sections),
        made=f"Written by codevqa {__version__}.",
        notes=tuple(_notes(runs)),
    )


def _notes(runs: Sequence[RunFigures]) -> Iterator[str]:
    """What to know of the figures, once for the runs that it holds for; these are named where it is not all of them."""
    for note in dict.fromkeys(note for run in runs for note in run.summary.notes):
        whose = [run.name for run in runs if note in run.summary.notes]
        yield note if len(whose) == len(runs) else f"{', '.join(whose)}: {note}"


def title_of(infos: Sequence[RunInfo]) -> str:
    """Returns what a report on these runs is called."""
    return "CodeVQA on " + ", ".join(dict.fromkeys(f"{info.data_name} {info.split}" for info in infos))


def summary_of(store: Store, metric: Metric, *others: Store, cluster: str = "") -> Summary:
    """Returns the summary of a run, and of others that differ from it in seeds only as its repetitions.

    Raises:
        InputError: the run has no rows yet.
    """
    if not store.counts():
        raise InputError(f"{store.folder} has no answers yet.", hint="Go on with it: codevqa eval ... --resume.")
    return summarize(pairs_of(store, *others, cluster=cluster), metric)


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
    check_graphs(scene_graphs)
    if scene_graphs is not None:
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


def check_graphs(scene_graphs: Path | None) -> None:
    """Refuses a file of scene graphs that is not there.

    Raises:
        InputError: it is not.
    """
    if scene_graphs is not None and not scene_graphs.is_file():
        raise InputError(f"No scene graphs at {scene_graphs}.", hint="Check the path.")


def _folders(store: Store, data: Path | None) -> Iterator[Path]:
    """Folders in which a run's data set may be."""
    if data is not None:
        yield data
        return
    for source in store.info.sources:
        yield from (one for one in list(source.parents)[:2] if one.is_dir())


def figures_of(
    name: str,
    alike: Sequence[Store],
    data: Path | None = None,
    scene_graphs: Path | None = None,
    *,
    complete: bool = False,
    cluster: str = "",
) -> RunFigures:
    """Returns the figures of a run, and of others that differ from it in seeds only; as for :func:`judge_for`.

    Raises:
        InputError: the run has no rows yet, or the scene graphs are damaged or those of other pictures.
    """
    store = alike[0]
    metric = metric_of(store.info, data=data)
    summary = summary_of(store, metric, *alike[1:], cluster=cluster)
    judge = judge_for(store, data, scene_graphs, complete=complete) if "codevqa" in summary.methods else None
    if judge is None:
        return RunFigures(name, store, metric, summary)

    def right(score: float | None) -> bool | None:
        return None if score is None else score >= 0.5

    answered = (
        (clustered(example, cluster), row, right(metric.score(example, row.prediction)))
        for example, row in store.pairs("codevqa")
    )
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


def _between(runs: Sequence[RunFigures], cluster: str) -> list[Section]:
    """Each later run against the first one on the same data."""
    rows = []
    firsts: dict[tuple[str, str, str], RunFigures] = {}
    for run in runs:
        info = run.store.info
        first = firsts.setdefault((info.dataset, info.split, info.data_hash), run)
        for method in run.summary.methods:
            if first is run or method not in first.summary.methods:
                continue
            found = compare_runs(first.store, run.store, method=method, metric=first.metric, keep=0, cluster=cluster)
            paired = found.paired
            rows.append(
                (
                    f"{run.name} − {first.name}",
                    method,
                    f"{found.questions:,}",
                    points(paired.difference if paired else None),
                    f"{paired.better:,} / {paired.worse:,}" if paired else "–",
                    p_text(paired) if paired else "–",
                    detectable(paired) if paired else "–",
                    f"{found.changed_answers:,}",
                    f"{found.changed_programs:,}",
                )
            )
    head = ("", "Method", "Questions", "Points", "Better / worse", "p", "Detectable", "Answers changed")
    tables = (Table((*head, "Programs changed"), tuple(rows), note=DETECTABLE),)
    return [Section("Between the runs", tables=tables)] if rows else []


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
