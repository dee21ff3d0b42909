"""``codevqa report`` and ``codevqa diff``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..core.text import visible

Data = Annotated[Path | None, typer.Option(metavar="DIR", help="Folder of the data set, if it moved since the run.")]
SceneGraphs = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Scene graphs to judge steps by. Without it: those beside the questions."),
]
CompleteGraphs = Annotated[
    bool, typer.Option("--complete-graphs", help="The scene graphs list everything there is in their pictures.")
]
CLUSTER = (
    "Cluster of a question, for intervals and tests: question, pictures, text, or a group or field of the data set; "
    "else the data set's own."
)


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs.")],
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where to write; one run's report goes into its own folder.")
    ] = None,
    data: Data = None,
    scene_graphs: SceneGraphs = None,
    complete_graphs: CompleteGraphs = False,
    price_prompt: Annotated[float | None, typer.Option(min=0, help="Price of a million prompt tokens.")] = None,
    price_completion: Annotated[float | None, typer.Option(min=0, help="Price of a million completion tokens.")] = None,
    cluster: Annotated[str, typer.Option(metavar="BY", help=CLUSTER)] = "",
    json: Annotated[bool, typer.Option("--json", help="Print the figures as one JSON object.")] = False,
) -> None:
    """Print a run's figures, and write a page with every question.

    Several runs become one table in one page. The last line printed is the page's path.
    """
    from ..eval.report.cost import Price
    from ..eval.report.report import write
    from ..eval.report.table import summary_lines

    price = None
    if price_prompt is not None and price_completion is not None:
        price = Price(price_prompt, price_completion)
    written = write(
        runs, out, data=data, scene_graphs=scene_graphs, complete=complete_graphs, price=price, cluster=cluster
    )
    if json:
        import json as encoder
        from dataclasses import asdict

        figures = [{"run": run.name, "info": asdict(run.info), **run.summary.to_dict()} for run in written.runs]
        print(encoder.dumps({"page": str(written.page), "runs": figures}, ensure_ascii=False))
        return
    for run in written.runs:
        lines = summary_lines(run.info, run.summary, run.pace)
        print("\n".join(map(visible, [*([run.name] if len(written.runs) > 1 else []), *lines, ""])))
    print(written.page)


def diff(
    first: Annotated[Path, typer.Argument(metavar="RUN", help="The run compared with.")],
    second: Annotated[Path, typer.Argument(metavar="RUN", help="The run that is judged.")],
    method: Annotated[str, typer.Option(help="Whose answers: codevqa or pnpvqa.")] = "codevqa",
    examples: Annotated[int, typer.Option(min=0, help="Changed questions of each kind to show.")] = 3,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    cluster: Annotated[str, typer.Option(metavar="BY", help=CLUSTER)] = "",
) -> None:
    """Compare two runs on the same questions.

    Says what changed, and whether it is more than chance.
    """
    from ..core.errors import InputError
    from ..eval.report.diff import compare_runs, describe
    from ..eval.run.store import Store
    from ..eval.task import Method

    if method not in ("codevqa", "pnpvqa"):
        raise InputError(f"No method {method!r}.", hint="There are: codevqa, pnpvqa.")
    with Store.open(first) as one, Store.open(second) as two:
        asked: Method = "pnpvqa" if method == "pnpvqa" else "codevqa"
        found = compare_runs(one, two, method=asked, keep=examples, cluster=cluster)
    if json:
        import json as encoder

        print(encoder.dumps(found.to_dict(), ensure_ascii=False))
        return
    for line in describe(found):
        print(visible(line))
