"""``codevqa report`` and ``codevqa diff``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..core.text import visible


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders that codevqa eval made.")],
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where to write; one run's report goes into its own folder.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the data set is now, if it was moved since the run.")
    ] = None,
    examples: Annotated[int, typer.Option(min=0, help="Questions of each kind to show in full.")] = 6,
    scene_graphs: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Scene graphs to judge steps by, where they are not beside the questions."),
    ] = None,
    complete_graphs: Annotated[
        bool, typer.Option("--complete-graphs", help="The scene graphs list everything there is in their pictures.")
    ] = False,
) -> None:
    """Write a report on one run, or on several beside each other: a self-contained HTML page, and Markdown."""
    from ..eval.report.report import write

    written = write(runs, out, data=data, scene_graphs=scene_graphs, complete=complete_graphs, examples=examples)
    for path in written:
        print(path)


def diff(
    first: Annotated[Path, typer.Argument(metavar="RUN", help="The run compared with.")],
    second: Annotated[Path, typer.Argument(metavar="RUN", help="The run that is judged.")],
    method: Annotated[str, typer.Option(help="Whose answers: codevqa or pnpvqa.")] = "codevqa",
    examples: Annotated[int, typer.Option(min=0, help="Changed questions of each kind to show.")] = 3,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Compare two runs on the same questions: what changed, and whether it is more than chance."""
    from ..core.errors import InputError
    from ..eval.report.diff import compare_runs, describe
    from ..eval.run.store import Store

    if method not in ("codevqa", "pnpvqa"):
        raise InputError(f"No method {method!r}.", hint="There are: codevqa, pnpvqa.")
    with Store.open(first) as one, Store.open(second) as two:
        found = compare_runs(one, two, method="pnpvqa" if method == "pnpvqa" else "codevqa", keep=examples)
    if json:
        import json as encoder

        print(encoder.dumps(found.to_dict(), ensure_ascii=False))
        return
    for line in describe(found):
        print(visible(line))
