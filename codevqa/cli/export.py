"""``codevqa export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of the run.")],
    format: Annotated[str, typer.Option(help="jsonl, gqa, vqa, nlvr, nlvr2, inspect or lmms-eval.")],
    out: Annotated[Path, typer.Option(help="File to write, or the folder for lmms-eval.")],
    method: Annotated[
        str | None, typer.Option(help="codevqa or pnpvqa; else all for jsonl, codevqa for others.")
    ] = None,
    repeat: Annotated[int, typer.Option(min=0, help="Which repetition, from 0.")] = 0,
) -> None:
    """Write a run's answers to a file in another program's format."""
    from ..core.errors import InputError
    from ..eval.report.exports import export as write
    from ..eval.run.store import Store
    from .show import warn

    if method not in (None, "codevqa", "pnpvqa"):
        raise InputError(f"No method {method!r}.", hint="There are: codevqa, pnpvqa.")
    with Store.open(run) as store:
        count = write(store, format, out, method=method, repeat=repeat)  # type: ignore[arg-type]
    warn(f"{count:,} answers in {out}")
