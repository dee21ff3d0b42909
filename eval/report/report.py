"""A report on one run or several: one HTML page with all figures, a few examples in full, and a list of all questions.

The page has at most about 3 MB, however long a run is.

What comes from data or models is escaped by the template engine, or lies packed in one block that the page's script
shows as text; a content security policy forbids every other script, and requests.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

from ... import __version__
from ...core.errors import InputError, SetupError
from ...pages import styles
from ...pages.words import clean
from ..metrics.scene_graphs import SceneGraphs, find_scene_graphs, load_scene_graphs
from ..metrics.steps import image_id, summarize_steps
from ..run.store import Store
from . import charts, tables
from .diff import Difference, compare_runs
from .examples import ExampleView, show_examples
from .figures import RunFigures
from .labels import METHOD_LABELS
from .reading import folders_of, metric_of, pairs_of
from .rows import pack_rows
from .summary import summarize
from .table import calls_text, pace_text

TEMPLATES = Path(__file__).parent / "templates"


class Written(NamedTuple):
    """A report that was written."""

    page: Path
    runs: tuple[RunFigures, ...]
    """Their figures; the stores are closed."""


def write_report(runs: Sequence[Path], out: Path | None = None, *, data: Path | None = None) -> Written:
    """Writes ``report.html``.

    Args:
        runs: folders of the runs.
        out: where to write; None takes the run's own folder, where there is one run.
        data: where the data set is now, if it was moved since; pictures and scene graphs are looked for there.

    Raises:
        InputError: something is no run or has no answers yet, or several runs were given without ``out``.
        SetupError: the report cannot be written.
    """
    if not runs or (out is None and len(runs) > 1):
        raise InputError("A report on several runs needs a folder.", hint="Give --out DIR.")
    with ExitStack() as open_runs:
        stores = [open_runs.enter_context(Store.open(path)) for path in runs]
        folders = [store.folder.resolve() for store in stores]
        shared = os.path.commonpath([folder.parent for folder in folders])
        names = [folder.relative_to(shared).as_posix() for folder in folders]
        figures = [_run_figures(name, store, data) for name, store in zip(names, stores, strict=True)]
        page = (stores[0].folder if out is None else out) / "report.html"
        shown = show_examples(figures, data)
        html = _render_html(figures, shown, pack_rows(figures, shown))
        try:
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(html, encoding="utf-8")
        except OSError as error:
            raise SetupError(
                f"Cannot write {page}: {error.strerror or error}.",
                hint="Write it elsewhere: codevqa report RUN --out DIR.",
            ) from None
    return Written(page, tuple(figures))


def _render_html(runs: Sequence[RunFigures], shown: Sequence[Sequence[ExampleView]], data: str) -> str:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined)
    notes = set[str]()
    environment.filters |= {
        "percent": tables.percent,
        "calls": calls_text,
        "pace": pace_text,
        "json": json.dumps,
        "place": lambda at: f"{min(max(at, 0.0), 100.0):.2f}",
        "once": lambda note: _once(note, notes),
    }
    script = (TEMPLATES / "report.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'; "
        "form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )
    page = environment.get_template("report.html.j2").render(
        title="CodeVQA on " + ", ".join(dict.fromkeys(f"{run.info.data_name} {run.info.split}" for run in runs)),
        runs=runs,
        tables=tables,
        charts=charts,
        labels=METHOD_LABELS,
        between=list(_between(runs)),
        costed=[(run, *method) for run in runs for method in run.summary.methods.items() if method[1].cost],
        examples=list(zip(runs, shown, strict=True)),
        data=data,
        version=__version__,
        styles=Markup(styles()),  # ours alone, as is the script
        script=Markup(script),
        policy=policy,
    )
    return clean(page)


def _once(note: str, notes: set[str]) -> str:
    """Returns the sentences of a note that the page has not said yet."""
    fresh = [sentence for sentence in re.split(r"(?<=\.) (?=[A-Z])", note) if sentence not in notes]
    notes.update(fresh)
    return " ".join(fresh)


def _between(runs: Sequence[RunFigures]) -> Iterator[tuple[str, Difference]]:
    """Each later run against the first one on the same data."""
    firsts: dict[tuple[str, str, str], RunFigures] = {}
    for run in runs:
        first = firsts.setdefault((run.info.dataset, run.info.split, run.info.data_hash), run)
        for method in run.summary.methods:
            if first is not run and method in first.summary.methods:
                with suppress(InputError):  # parts of a data set share no question
                    yield f"{run.name} − {first.name}", compare_runs(first.store, run.store, method=method)


def _run_figures(name: str, store: Store, data: Path | None) -> RunFigures:
    if not store.counts():
        raise InputError(f"{store.folder} has no answers yet.", hint="Continue it: codevqa eval ... --resume.")
    metric = metric_of(store.info, data=data)
    summary = summarize(pairs_of(store), metric)
    graphs = _graphs(store, data) if "codevqa" in summary.methods else SceneGraphs()
    judged = ((example, row, metric.right(example, row.prediction)) for example, row in store.pairs("codevqa"))
    steps = summarize_steps(graphs, judged) if graphs else None
    return RunFigures(name, store, store.info, store.pace(), metric, summary, graphs, steps)


def _graphs(store: Store, data: Path | None) -> SceneGraphs:
    """Returns the scene graphs of a run's pictures, as far as there are any."""
    graph_files = (find_scene_graphs(folder, store.info.split) for folder in folders_of(store.info, data))
    file = next((path for path in graph_files if path), None)
    if file is None:
        return SceneGraphs()
    return load_scene_graphs(file, {image_id(image.name) for stored in store.examples() for image in stored.images})
