"""``codevqa mini-data``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def mini_data(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Folder to create.")],
    images: Annotated[int, typer.Option(help="Pictures, sets and pairs of each split; train has twice as many.")] = 120,
    seed: Annotated[int, typer.Option(help="The same seed gives the same bytes.")] = 0,
    splits: Annotated[
        str, typer.Option(help="Splits to write, separated by commas.")
    ] = "train,val,test,test_combinations,test_wording",
    force: Annotated[bool, typer.Option("--force", help="Replace a folder that this command wrote before.")] = False,
) -> None:
    """Write drawn data sets in the formats of GQA, COVR and NLVR2."""
    from ..miniworld.export import write

    def progress(line: str) -> None:
        print(f"codevqa: {line}", file=sys.stderr)

    wanted = [split.strip() for split in splits.split(",") if split.strip()]
    counts = write(out, images=images, seed=seed, splits=wanted, force=force, progress=progress)
    for name, count in counts.items():
        print(f"{count:>7} {name}")
