"""``codevqa power``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .report import CLUSTER


def power(
    baseline: Annotated[Path, typer.Option(metavar="RUN", help="A run of both methods on such questions.")],
    gain: Annotated[float, typer.Option(min=0.01, max=100, help="The gain to be found, in percentage points.")],
    cluster: Annotated[str, typer.Option(metavar="BY", help=CLUSTER)] = "",
) -> None:
    """Say how many questions a gain needs to be found, by how much differences vary in a run."""
    from ..core.errors import InputError
    from ..eval.report.table import summary_of
    from ..eval.run.store import Store

    with Store.open(baseline) as store:
        info, paired = store.info, summary_of(store, cluster=cluster).paired
    needed = None if paired is None else paired.needed(gain / 100)
    if paired is None or paired.detectable is None or needed is None:
        why = "no question scored for both methods" if paired is None else "no difference that varies between clusters"
        raise InputError(f"{baseline} has {why}.", hint="Give a run of codevqa and pnpvqa on labelled questions.")
    found, (questions, clusters) = paired.difference, needed
    print(f"{info.data_name} {info.split}: {found.n:,} questions in {found.clusters:,} clusters")
    print(f"difference of the methods {100 * found.value:+.1f} points, standard error {100 * paired.error:.2f}")
    print(f"found four times in five (both sides, 5 %) with as many questions: {100 * paired.detectable:.1f} points")
    print(f"a gain of {gain:g} points needs {questions:,} questions in {clusters:,} clusters like these")
    if found.few:
        print(f"only {found.clusters} clusters: how much differences vary is itself known badly")
