"""``codevqa lavis``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer


def lavis(
    action: Annotated[
        Literal["status", "install"], typer.Argument(help="status says whether it is installed.")
    ] = "status",
    python: Annotated[str | None, typer.Option(help="A Python 3.10 or 3.11.")] = None,
    folder: Annotated[
        Path | None, typer.Option(help="Its folder. Without it: CODEVQA_LAVIS, or codevqa/lavis in your cache.")
    ] = None,
) -> None:
    """Check or install LAVIS 1.0.2, for the back end lavis.

    It gets its own environment: 6 GB with torch for GPUs.
    """
    from ..models.lavis import environment

    at = folder or environment.folder()
    if action == "install":
        environment.install(at, python)
    found = environment.versions(at)
    if not found:
        print(f"LAVIS is not at {at}: codevqa lavis install")
        raise typer.Exit(1)
    print(f"{at}: " + ", ".join(f"{name} {version}" for name, version in found.items()))
    if at != environment.folder():
        print(f"Set {environment.VARIABLE}={at} to use it.")
