"""``codevqa report`` and ``codevqa diff``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..core.text import visible

Data = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Where the data set is now, if it was moved since the run.")
]
Examples = Annotated[int, typer.Option(min=0, help="Questions of each kind to show in full.")]
SceneGraphs = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Scene graphs to judge steps by, where they are not beside the questions."),
]
CompleteGraphs = Annotated[
    bool, typer.Option("--complete-graphs", help="The scene graphs list everything there is in their pictures.")
]
CLUSTER = (
    "What goes together when it is reckoned how sure figures are: question, pictures, text, or a group or field of the "
    "data set's; else as the data set has it."
)


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders that codevqa eval made.")],
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where to write; one run's report goes into its own folder.")
    ] = None,
    data: Data = None,
    examples: Examples = 6,
    scene_graphs: SceneGraphs = None,
    complete_graphs: CompleteGraphs = False,
    price_prompt: Annotated[float | None, typer.Option(min=0, help="Price of a million prompt tokens.")] = None,
    price_completion: Annotated[float | None, typer.Option(min=0, help="And of a million that are written.")] = None,
    cluster: Annotated[str, typer.Option(metavar="BY", help=CLUSTER)] = "",
) -> None:
    """Write a report on one run, or on several beside each other: an HTML page with every question, and Markdown."""
    from ..eval.report.cost import Price
    from ..eval.report.report import write

    price = None
    if price_prompt is not None and price_completion is not None:
        price = Price(price_prompt, price_completion)
    written = write(
        runs,
        out,
        data=data,
        scene_graphs=scene_graphs,
        complete=complete_graphs,
        examples=examples,
        price=price,
        cluster=cluster,
    )
    for path in written:
        print(path)


def diff(
    first: Annotated[Path, typer.Argument(metavar="RUN", help="The run compared with.")],
    second: Annotated[Path, typer.Argument(metavar="RUN", help="The run that is judged.")],
    method: Annotated[str, typer.Option(help="Whose answers: codevqa or pnpvqa.")] = "codevqa",
    examples: Annotated[int, typer.Option(min=0, help="Changed questions of each kind to show.")] = 3,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    cluster: Annotated[str, typer.Option(metavar="BY", help=CLUSTER)] = "",
) -> None:
    """Compare two runs on the same questions: what changed, and whether it is more than chance."""
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
