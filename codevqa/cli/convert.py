"""``codevqa convert``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def convert(
    file: Annotated[Path, typer.Argument(metavar="FILE.pth", help="A BLIP matcher or captioner as LAVIS saves it.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Folder to create.")],
    vocabulary: Annotated[
        Path | None, typer.Option(help="Its vocab.txt. Without it: bert-base-uncased's, from the hub.")
    ] = None,
) -> None:
    """Convert a LAVIS checkpoint to a folder that blip: loads."""
    from ..models.blip.lavis_names import convert_lavis
    from .show import warn

    kind = convert_lavis(file, vocabulary, out)
    warn(f"{out} is a {kind}: blip:{out}")
