"""``codevqa merge``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def merge(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs.")],
    out: Annotated[Path, typer.Option(help="Folder of the new run.")],
) -> None:
    """Merge runs of one data set.

    Merges shards made with --offset and --limit, and runs with other seeds.
    """
    from ..eval.report.table import summary_lines, summary_of
    from ..eval.run.merge import merge as pool
    from ..eval.run.store import Store
    from .show import warn

    rows = pool(runs, out)
    warn(f"{rows:,} rows of {len(runs)} runs in {out}")
    with Store.open(out) as store:
        print("\n".join(summary_lines(store.info, summary_of(store), store.pace())))
