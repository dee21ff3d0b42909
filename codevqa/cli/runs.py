"""What is done around evaluations: ``codevqa mini-data``, ``merge``, ``export``, ``report``, ``diff`` and ``runs``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from ..core.errors import InputError
from .options import Json, Method, Run, Runs
from .printing import print_json, print_text
from .terminal import print_figures, warn


def mini_data(
    out: Annotated[Path, Argument(metavar="OUT", help="Folder to create.")],
    images: Annotated[
        int, Option("--images", "--limit", help="Pictures of each split; train has twice as many.")
    ] = 120,
    seed: Annotated[int, Option(help="The same seed gives the same bytes.")] = 0,
    splits: Annotated[str, Option(help="With commas between.")] = "train,val,test,test_combinations,test_wording",
    only: Annotated[str, Option(help="Write these data sets alone.")] = "gqa,covr,nlvr2",
    sets: Annotated[str, Option(help="Sizes of larger sets of COVR and of collections, such as 10,50.")] = "",
) -> None:
    """Write drawn data sets in the formats of GQA, COVR and NLVR2."""
    from ..mini.export import write_datasets

    wanted, named = ([part.strip() for part in text.split(",") if part.strip()] for text in (splits, only))
    try:
        sizes = [int(size) for size in sets.split(",") if size.strip()]
    except ValueError:
        raise InputError(f"--sets {sets!r} must be numbers with commas between.", hint="Such as 10,20.") from None
    counts = write_datasets(out, images=images, seed=seed, splits=wanted, only=named, sets=sizes, progress=warn)
    print_text(*(f"{count:>7} {name}" for name, count in counts.items()))


def merge(runs: Runs, out: Annotated[Path, Option(help="Folder of the new run.")]) -> None:
    """Merge runs of one data set.

    Merges shards made with --offset and --limit, and runs with other seeds.
    """
    from ..eval.run.merge import merge_runs as pool
    from ..eval.run.store import Store

    rows = pool(runs, out)
    warn(f"{rows:,} rows of {len(runs)} runs in {out}")
    with Store.open(out) as store:
        print_figures(store)


def export(
    run: Run,
    format: Annotated[str, Option(help="jsonl, gqa, vqa, nlvr or nlvr2.")],
    out: Annotated[Path, Option(help="File to write.")],
    method: Annotated[Method | None, Option(help="Without it: all for jsonl, codevqa for others.")] = None,
) -> None:
    """Write a run's answers to a file in another program's format."""
    from ..eval.report.exports import export_run as write
    from ..eval.run.store import Store

    with Store.open(run) as store:
        count = write(store, format, out, method=method)
    warn(f"{count:,} answers in {out}")


def report(
    runs: Runs,
    out: Annotated[Path | None, Option(metavar="DIR", help="Where to write. Default: one run's own folder.")] = None,
    browser: Annotated[bool, Option("--open", help="Open the page in the browser.")] = False,
    data: Annotated[Path | None, Option(metavar="DIR", help="Folder of the data set, if it moved.")] = None,
    json: Json = False,
) -> None:
    """Print a run's figures, and write a page with every question.

    The run can be under way. Several runs become one table in one page. The last line printed is the page's path.
    """
    from ..eval.report.report import write_report
    from ..eval.report.table import summary_lines

    written = write_report(runs, out, data=data)
    if json:
        figures = [{"run": run.name, "info": asdict(run.info), **asdict(run.summary)} for run in written.runs]
        print_json({"page": str(written.page), "runs": figures})
    else:
        for run in written.runs:
            lines = summary_lines(run.info, run.summary, run.pace)
            print_text(*([run.name] if len(written.runs) > 1 else []), *lines, "")
        print_text(str(written.page))
    if browser:
        import webbrowser

        webbrowser.open(written.page.resolve().as_uri())


def diff(
    first: Annotated[Path, Argument(metavar="RUN", help="The run compared with.")],
    second: Annotated[Path, Argument(metavar="RUN", help="The run that is judged.")],
    method: Annotated[Method, Option(help="Whose answers.")] = "codevqa",
    json: Json = False,
) -> None:
    """Compare two runs on the same questions.

    Says what changed, and whether it is more than chance.
    """
    from ..eval.report.diff import compare_runs, describe_difference
    from ..eval.run.store import Store

    with Store.open(first) as first_store, Store.open(second) as two:
        comparison = compare_runs(first_store, two, method=method)
    if json:
        print_json(asdict(comparison))
    else:
        print_text(*describe_difference(comparison))


DEPTHS = ("run.sqlite", "*/run.sqlite", "*/*/run.sqlite", "*/*/*/run.sqlite")
"""Where runs are looked for in a folder."""


def runs(
    folders: Annotated[list[Path] | None, Argument(metavar="FOLDER...", help="Where to look. Default: here.")] = None,
    json: Json = False,
) -> None:
    """List runs and tables, with their dates, models and figures."""
    from ..collections.disk_memory import memory_at, user_place

    files = sorted({file for folder in folders or [Path()] for depth in DEPTHS for file in folder.glob(depth)})
    records = [_run_record(file.parent) for file in files]
    memory = memory_at(user_place())
    tables = [
        {"question": question, "model": model, "at": at, "pictures": count}
        for question, model, at, count in memory.questions()
    ]
    if json:
        print_json({"runs": records, "tables": tables})
        return
    print_text(*map(_run_line, records))
    for table in tables:
        print_text(f"{table['at']}  table  {table['pictures']:,} pictures  {table['question']}  ({table['model']})")
    if not records and not tables:
        warn("No runs here, and no tables.")


def _run_record(folder: Path) -> dict[str, object]:
    """Returns what a run says of itself; of one that cannot be read, why."""
    from ..core.errors import CodeVQAError
    from ..eval.report.reading import summary_of
    from ..eval.run.store import Store

    try:
        with Store.open(folder) as store:
            info, summary = store.info, summary_of(store)
    except CodeVQAError as error:
        return {"run": str(folder), "error": str(error)}
    figures = {method: getattr(of.accuracy, "value", None) for method, of in summary.methods.items()}
    return {
        "run": str(folder),
        "at": info.started,
        "data": f"{info.data_name} {info.split}",
        "questions": summary.examples,
        "preset": info.preset,
        "models": dict(info.models),
        "accuracy": figures,
    }


def _run_line(record: dict[str, object]) -> str:
    if "error" in record:
        return f"{record['run']}: {record['error']}"
    models, figures = record["models"], record["accuracy"]
    assert isinstance(models, dict) and isinstance(figures, dict)
    shown = ", ".join(f"{method} {100 * value:.1f} %" for method, value in figures.items() if value is not None)
    names = ", ".join(dict.fromkeys(map(str, models.values())))
    return f"{record['at']}  {record['run']}  {record['data']}, {record['questions']:,} questions  {shown}  ({names})"
