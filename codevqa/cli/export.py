"""``codevqa export``."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer


def export(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folder of the run; several for a leaderboard.")],
    format: Annotated[str, typer.Option(help="jsonl, gqa, vqa, nlvr, nlvr2, inspect, lmms-eval or leaderboard.")],
    out: Annotated[
        Path, typer.Option(help="File to write, or the folder for lmms-eval; a leaderboard is .json, .csv or .md.")
    ],
    method: Annotated[
        str | None, typer.Option(help="codevqa or pnpvqa; else all for jsonl, codevqa for others.")
    ] = None,
    repeat: Annotated[int, typer.Option(min=0, help="Which repetition, from 0.")] = 0,
) -> None:
    """Write a run's answers to a file in another program's format, or the figures of several to one table."""
    from ..core.errors import InputError
    from ..eval.report.exports import export as write
    from ..eval.report.leaderboard import leaderboard
    from ..eval.run.store import Store
    from .show import warn

    if method not in (None, "codevqa", "pnpvqa"):
        raise InputError(f"No method {method!r}.", hint="There are: codevqa, pnpvqa.")
    if len(runs) > 1 and format != "leaderboard":
        raise InputError(f"{format} takes one run.", hint="Give one, or --format leaderboard.")
    if format == "leaderboard" and (method is not None or repeat):
        raise InputError("--method and --repeat do nothing with --format leaderboard.", hint="Leave them out.")
    with ExitStack() as opened:
        stores = [opened.enter_context(Store.open(run)) for run in runs]
        if format == "leaderboard":
            warn(f"{leaderboard(stores, out):,} runs in {out}")
        else:
            count = write(stores[0], format, out, method=method, repeat=repeat)  # type: ignore[arg-type]
            warn(f"{count:,} answers in {out}")
